#!/bin/sh
# Runs as PID 1 of the guest: settings that refuse a fence, one after the other. Each time doctor names the cause, its fix is
# executed as it is printed, and doctor looks again. There is no sudo here: root executes the fixes for the user.
export PATH=/usr/bin HOME=/root NO_COLOR=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cg /sys/fs/cgroup
mkdir -p /home/ada/project /root/shop /etc/sysctl.d /tmp
chown -R 1000:1000 /home/ada
chmod 1777 /tmp
echo "kernel $(cat /proc/sys/kernel/osrelease)"

# The value of a line that starts with a word.
line() { sed -n "s/^ *$1: //p"; }
as_ada() { su ada -c "cd /home/ada/project && HOME=/home/ada $1" 2>&1; }

# name, file, bad value
setting() {
    echo "=== $1"
    [ -e "$2" ] || { echo "missing $2"; return; }
    good=$(cat "$2")
    echo "$3" >"$2"
    as_ada 'bastle doctor' >/tmp/report
    echo "before cause=$(line cause </tmp/report)"
    fix=$(line fix </tmp/report | head -n 1)
    echo "fix $fix"
    sh -c "$(echo "$fix" | sed 's/sudo //g')" >/dev/null
    as_ada 'bastle doctor' >/tmp/report
    echo "after rc=$? $(sed -n 's/^Result: //p' /tmp/report)"
    cat /etc/sysctl.d/* 2>/dev/null
    rm -f /etc/sysctl.d/*
    echo "$good" >"$2"
}
setting YAMA /proc/sys/kernel/yama/ptrace_scope 2
setting CLONE /proc/sys/kernel/unprivileged_userns_clone 0
setting USER /proc/sys/user/max_user_namespaces 0
setting NET /proc/sys/user/max_net_namespaces 0
setting PID /proc/sys/user/max_pid_namespaces 0

echo "=== GROUPS"
as_ada 'bastle doctor' >/tmp/report
grep cgroup /tmp/report
fix=$(sed -n '/cgroup v2\|no cgroup/,/audit logs/s/^ *fix: //p' /tmp/report | head -n 1)
echo "fix $fix"
# As the user's shell would: in a process that is the user's, with root's rights for the one command. The shell executes the
# command and then starts what follows.
cat >/tmp/follow.sh <<X
$(echo "$fix" | sed 's/sudo //; s/"\$(id -u)"/1000/')
cat /proc/self/cgroup
cat /sys/fs/cgroup/bastle/cgroup.procs | wc -l
X
echo 'for i in $(seq 1 40); do sleep 2 & done' >/home/ada/project/forks.sh
cat >>/tmp/follow.sh <<'X'
su ada -c 'cd /home/ada/project && HOME=/home/ada; export HOME; bastle doctor | grep cgroup; bastle run --pids 20 -- sh forks.sh; echo run rc=$?'
X
sh /tmp/follow.sh 2>&1

echo "=== ROOT"
cd /root/shop
bastle doctor >/tmp/report 2>&1
echo "root rc=$? cause=$(line cause </tmp/report)"
echo 0 >/proc/sys/user/max_net_namespaces
bastle doctor --fix >/tmp/report 2>&1 </dev/null
echo "asked rc=$?"
grep -c 'no fix was run' /tmp/report
cat /proc/sys/user/max_net_namespaces
bastle doctor --fix --yes >/tmp/report 2>&1 </dev/null
echo "fixed rc=$?"
sed -n '/^fixed/p; /^running/p' /tmp/report
cat /proc/sys/user/max_net_namespaces
echo "=== END"
poweroff -f
