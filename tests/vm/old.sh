#!/bin/sh
# Runs as PID 1 of a guest whose kernel lacks parts of Landlock: a run of an ordinary user, with attacks that those parts
# refuse elsewhere. Not of root: this root is a tmpfs, and before Linux 6.3 one cannot be shown to the agent's uid.
export PATH=/usr/bin HOME=/root NO_COLOR=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cg /sys/fs/cgroup
mkdir -p /home/ada/project
chown -R 1000:1000 /home/ada
chmod 1777 /tmp
echo "kernel $(cat /proc/sys/kernel/osrelease)"
sleep 600 &
outside=$!
echo "outside=$outside" > /tmp/outside

cat > /tmp/runs.sh <<'X'
cd "$HOME/project"
. /tmp/outside
bastle run -- sh -c "echo started; kill -0 $outside && echo SIGNALLED; (: > /etc/hostname) && echo TRUNCATED; echo x > made && echo wrote"
echo "run rc=$?"
bastle doctor
echo "doctor rc=$?"
X

echo "=== USER"
su ada -c 'HOME=/home/ada sh /tmp/runs.sh' 2>&1
echo "=== END"
poweroff -f
