#!/bin/sh
# PID 1 of a guest with busybox: no service manager; cgroup v2 is mounted and belongs to root.
export PATH=/usr/sbin:/usr/bin HOME=/root
mount -t sysfs sys /sys
mount -t securityfs security /sys/kernel/security
mount -t devpts -o mode=620,ptmxmode=666 pts /dev/pts 2>/dev/null || { mkdir -p /dev/pts && mount -t devpts pts /dev/pts; }
mkdir -p /dev/shm && mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup
for controller in memory pids cpu; do
    echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control
done
ip link set lo up
# The disk image was made by an ordinary user on some machines.
chown -R 0:0 /usr /etc /hosts /root
# Changing the owner takes the bit away.
chmod 4755 /usr/bin/sudo
chown -R 1000:1000 /home/ada
chmod 1777 /tmp /var/tmp

# as SESSION COMMAND: runs the command as an identity, in a cgroup that is its own or not.
as() {
    case $1 in
        root) HOME=/root sh -c "$2" ;;
        user) su ada -c "HOME=/home/ada $2" ;;
        delegated)
            mkdir -p /sys/fs/cgroup/ada/shell
            chown -R 1000:1000 /sys/fs/cgroup/ada
            (
                echo 0 > /sys/fs/cgroup/ada/shell/cgroup.procs
                exec su ada -c "HOME=/home/ada $2"
            )
            ;;
    esac
}

. /hosts/main.sh
poweroff -f
