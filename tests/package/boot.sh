#!/bin/sh
# Boots systemd in a copy of this host's root that is gone with this mount namespace, with the package installed and
# nothing of the host's own services, and runs inside.sh under it. $1: a place to mount it, $2: the package,
# $3: inside.sh, $4: a directory for what it says. Needs namespaces of its own for mounts, processes, control groups,
# network, names and messages.
set -e
place=$1
deb=$2
inside=$3
out=$4
mount --make-rprivate /
mount -t tmpfs -o mode=0755 none "$place"
mkdir "$place/upper" "$place/work" "$place/root"
mount -t overlay -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" none "$place/root"
cd "$place/root"
cp "$deb" bastle.deb
cp "$inside" inside.sh
mount -t proc none proc
mount -t sysfs none sys
mount -t cgroup2 none sys/fs/cgroup
mount -t tmpfs -o mode=0755,nosuid none dev
for node in null zero full random urandom tty; do
    touch "dev/$node"
    mount --bind "/dev/$node" "dev/$node"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 none dev/pts
mount -t tmpfs -o mode=1777 none dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
# On memory: owners of files can be shown mapped there, which an overlay does not let happen.
for directory in run srv var/lib/bastle var/lib/bastle-spawner; do
    mkdir -p "$directory"
    mount -t tmpfs -o mode=0755 none "$directory"
done
mkdir run/out run/old
mount --bind "$out" run/out
# Nothing of the host's: no mounts of its own, no services, no settings of the kernel.
rm -rf etc/fstab lib/systemd/system-generators/* etc/systemd/system/*.wants etc/systemd/system/*.requires \
    lib/systemd/system/*.wants
pivot_root . run/old
umount -l /run/old
rmdir /run/old
cd /
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
dpkg --install bastle.deb >/run/out/dpkg 2>&1
systemd-tmpfiles --create bastle.conf
for unit in bastle bastle-spawner bastle-spawner-rootless; do
    mkdir "/etc/systemd/system/$unit.service.d"
    printf '[Service]\nStandardError=append:/run/out/%s.log\n' "$unit" >"/etc/systemd/system/$unit.service.d/log.conf"
done
cat >/etc/systemd/system/bastle-test.service <<'UNIT'
[Unit]
Requires=bastle.socket bastle-spawner.socket bastle-spawner-rootless.socket
After=bastle.socket bastle-spawner.socket bastle-spawner-rootless.socket
[Service]
Type=oneshot
ExecStart=/bin/sh /inside.sh
ExecStopPost=/bin/systemctl --force exit
StandardOutput=file:/run/out/said
StandardError=file:/run/out/errors
TimeoutStartSec=240
UNIT
exec env -i container=other PATH="$PATH" /lib/systemd/systemd --unit=bastle-test.service --log-target=console \
    --log-level=notice --show-status=no
