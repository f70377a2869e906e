#!/bin/sh
# Runs as PID 1 of a guest whose kernel has every part of Landlock: what listens on the host in a directory that the agent
# sees is out of its reach, and its own sockets and the file broker's are not.
export PATH=/usr/bin HOME=/root NO_COLOR=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cg /sys/fs/cgroup
mkdir -p /home/ada/project
cp /usr/bin/attacker /home/ada/project/attacker
chown -R 1000:1000 /home/ada
chmod 1777 /tmp
echo "kernel $(cat /proc/sys/kernel/osrelease)"
su ada -c 'exec attacker hold-unix /home/ada/project/host.sock' &
while [ ! -e /home/ada/project/host.sock ]; do sleep 0.1; done

cat > /tmp/runs.sh <<'X'
cd "$HOME/project"
echo "unfenced: $(attacker multi , unix ./host.sock)"
bastle run -- sh -c 'echo "fenced: $(./attacker multi , unix ./host.sock)"; echo "own: $(./attacker multi , own-unix ./own.sock)"; echo "broker: $(./attacker multi , unix /run/bastle/fs.sock)"'
echo "run rc=$?"
bastle run --json -- true | sed 's/},/},\n/g' | sed -n '/landlock-unix/p'
bastle doctor
echo "doctor rc=$?"
X

echo "=== USER"
su ada -c 'HOME=/home/ada sh /tmp/runs.sh' 2>&1
echo "=== END"
poweroff -f
