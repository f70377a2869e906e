#!/bin/sh
# Runs as PID 1 of the guest: which cgroups are used, for whom, and what is left alone. Each part ends with what was changed.
export PATH=/usr/bin HOME=/root NO_COLOR=1
C=/sys/fs/cgroup
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cg $C
mkdir -p "$HOME/project" /home/ada/project
chown -R 1000:1000 /home/ada
chmod 1777 /tmp

# A run that needs the cpu controller, and what it says.
cat > /tmp/half.sh <<'Y'
cd "$HOME/project"
bastle run --cpu 0.5 --pids 20 -- sh -c 'echo INSIDE'
echo "run rc=$?"
Y

as_ada() {
    su ada -c "HOME=/home/ada sh $1" 2>&1
}
handed_down() {
    echo "handed down in $1: $(cat $C/$1/cgroup.subtree_control)."
}
groups_left() {
    left=$(find $C -name 'bastle-*')
    echo "groups left: ${left:-none}"
}
leave() {
    echo 1 > $C/cgroup.procs
    for group in "$@"; do
        find $C/$group -depth -type d -exec rmdir {} \; 2> /dev/null
    done
    echo "-cpu -memory -pids" > $C/cgroup.subtree_control
}

echo "=== UNDELEGATED"
mkdir $C/others
echo $$ > $C/others/cgroup.procs
as_ada /tmp/half.sh > /tmp/said
cat /tmp/said
handed_down others
# The command that the message names, as the user would type it: what it does with sudo is done by the script below.
cat > /usr/bin/sudo <<'Y'
#!/bin/sh
printf '%s' "$3" > /tmp/sudo.in
cat /tmp/sudo.out
Y
chmod 755 /usr/bin/sudo
busybox mkfifo /tmp/sudo.in /tmp/sudo.out
chmod 666 /tmp/sudo.in /tmp/sudo.out
(sh -c "$(cat /tmp/sudo.in)"; echo "sudo rc=$?" > /tmp/sudo.out) &
sed -n 's/^ *help: \(sudo .*\)$/\1/p' /tmp/said > /tmp/fixed.sh
cat /tmp/half.sh >> /tmp/fixed.sh
echo "=== FIXED"
as_ada /tmp/fixed.sh
handed_down bastle
leave others bastle

echo "=== UNIT"
mkdir -p $C/system.slice/other.service
echo "+cpu +memory +pids" > $C/cgroup.subtree_control
echo "+cpu +memory +pids" > $C/system.slice/cgroup.subtree_control
echo $$ > $C/system.slice/other.service/cgroup.procs
sh /tmp/half.sh 2>&1
handed_down system.slice
handed_down system.slice/other.service
groups_left

echo "=== MARKED"
setfattr -n user.delegate -v 1 $C/system.slice/other.service
sh /tmp/half.sh 2>&1
handed_down system.slice/other.service
sh /tmp/half.sh 2>&1
groups_left
echo "own group $(sed 's/^0:://' /proc/self/cgroup)"

echo "=== LOST"
cd "$HOME/project"
(bastle run --cpu 0.5 -- sh -c 'echo INSIDE; sleep 300'; echo "run rc=$?") > /tmp/lost 2>&1 &
until grep -q -e INSIDE -e rc= /tmp/lost; do sleep 1; done
# What systemd does at daemon-reload to a controller that none of its units asks for.
echo "-cpu" > $C/system.slice/other.service/cgroup.subtree_control
wait $!
cat /tmp/lost
groups_left
leave system.slice

echo "=== NAMESPACE"
mkdir $C/engine
echo "+cpu +memory +pids" > $C/cgroup.subtree_control
echo $$ > $C/engine/cgroup.procs
cat > /tmp/container.sh <<'Y'
umount /sys/fs/cgroup
mount -t cgroup2 cg /sys/fs/cgroup
sh /tmp/half.sh 2>&1
echo "own group $(sed 's/^0:://' /proc/self/cgroup)"
Y
/usr/bin/unshare -C -m sh /tmp/container.sh
handed_down engine
groups_left

echo "=== READONLY"
cat > /tmp/container.sh <<'Y'
umount /sys/fs/cgroup
mount -t cgroup2 cg /sys/fs/cgroup
mount -o remount,bind,ro /sys/fs/cgroup
sh /tmp/half.sh 2>&1
Y
/usr/bin/unshare -C -m sh /tmp/container.sh
leave engine

echo "=== END"
poweroff -f
