#!/bin/sh
# Runs the rest as that user in a user namespace in which no network namespace may be made. The user may change that: the capability
# for it is left to them. $1: uid; $2: a directory of the test's own; then a shell script.
set -e
uid=$1 place=$2 script=$3
# Programs of the fixes: sudo that has nothing to add, and a place for what is kept over a restart.
mkdir -p "$place/bin"
printf '#!/bin/sh\nexec "$@"\n' >"$place/bin/sudo"
chmod -R 755 "$place/bin"
[ ! -d /etc/sysctl.d ] || mount -t tmpfs -o mode=1777 none /etc/sysctl.d
unshare --user sleep 600 &
holder=$!
trap 'kill $holder' EXIT
while [ "$(readlink /proc/$holder/ns/user)" = "$(readlink /proc/self/ns/user)" ]; do :; done
echo '0 0 4294967295' >/proc/$holder/uid_map
echo '0 0 4294967295' >/proc/$holder/gid_map
PATH="$place/bin:$PATH" nsenter --user=/proc/$holder/ns/user -S 0 -G 0 sh -c '
    echo 0 >/proc/sys/user/max_net_namespaces
    exec setpriv --reuid "$1" --regid "$1" --clear-groups --inh-caps +sys_resource --ambient-caps +sys_resource sh -c "$2"
' sh "$uid" "$script"
