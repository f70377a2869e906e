#!/bin/sh
# Runs as PID 1 of the guest: the same three runs as root and as an ordinary user with a delegated group.
export PATH=/usr/bin HOME=/root NO_COLOR=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cg /sys/fs/cgroup
mkdir -p "$HOME/project" /home/ada/project
chown -R 1000:1000 /home/ada

cat > /tmp/runs.sh <<'X'
cd "$HOME/project"
bastle run --pids 20 --mem 256M --cpu 0.5 -- sh -c 'true'
echo "control rc=$?"
bastle run --pids 20 -- sh -c 'for i in $(seq 1 40); do sleep 2 & done'
bastle run --mem 32M -- sh -c 'dd if=/dev/zero of=/dev/null bs=200M count=1'
X

groups_left() {
    left=$(find /sys/fs/cgroup -name 'bastle-*')
    echo "groups left: ${left:-none}"
}

echo "=== ROOT"
sh /tmp/runs.sh 2>&1
groups_left

echo "=== DELEGATED"
mkdir -p /sys/fs/cgroup/ada/shell
chown -R 1000:1000 /sys/fs/cgroup/ada
echo $$ > /sys/fs/cgroup/ada/shell/cgroup.procs
su ada -c 'HOME=/home/ada sh /tmp/runs.sh' 2>&1
groups_left

echo "=== END"
poweroff -f
