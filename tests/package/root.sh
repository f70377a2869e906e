#!/bin/sh
# Installs, removes and purges the package in a copy of this host's root that is gone with this mount namespace:
# an overlay whose upper layer is memory. $1: a place to mount it, $2: the package.
set -e
place=$1
deb=$2
mount -t tmpfs -o mode=0755 none "$place"
mkdir "$place/upper" "$place/work" "$place/root"
mount -t overlay -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" none "$place/root"
cd "$place/root"
cp "$deb" bastle.deb
mount --rbind /dev dev
mount -t proc none proc
# The root's own /run and /srv: nothing of the host's services is seen, and files of the run's owner can be shown mapped.
mount -t tmpfs -o mode=0755 none run
mount -t tmpfs -o mode=0755 none srv
mkdir run/old
pivot_root . run/old
umount -l /run/old
rmdir /run/old
cd /
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C

section() { echo "=== $1"; }
ours() { find /etc /usr /lib/ /var/lib /run -xdev -name '*bastle*' -not -path '/var/lib/dpkg/*' 2>/dev/null | sort; }
state() { dpkg-query -W -f '${db:Status-Status}\n' bastle 2>/dev/null || echo none; }
links() { find /etc/systemd -type l -name '*bastle*'; }

# In place of AppArmor, which may be missing: records its arguments.
rm -f /etc/apparmor.d/abi/4.0
printf '#!/bin/sh\nexit 0\n' >/usr/sbin/aa-enabled
printf '#!/bin/sh\necho "$@" >>/run/apparmor\n' >/usr/sbin/apparmor_parser
rm -f /usr/bin/aa-enabled
chmod 755 /usr/sbin/aa-enabled /usr/sbin/apparmor_parser
apparmor() { cat /run/apparmor 2>/dev/null || true; rm -f /run/apparmor; ls /etc/apparmor.d/bastle 2>/dev/null || true; }

section before
ours
section install
dpkg --install bastle.deb >/run/log 2>&1 || { cat /run/log; exit 1; }
state
dpkg --verify bastle
section apparmor-3
apparmor
section enabled
links
section owners
dpkg-query -L bastle | while read -r path; do
    [ -d "$path" ] || stat -c '%U:%G %a %n' "$path"
done
section users
getent passwd bastle bastle-egress | cut -d: -f1,6,7
section version
bastle version | head -n 1
section smoke
mkdir /srv/project /srv/state
cd /srv/project
XDG_STATE_HOME=/srv/state bastle run --quiet --net none -- sh -c 'echo inside as $(id -u); cat /etc/shadow' 2>&1 || true
cd /
section policy
bastle policy check /etc/bastle/policy.json >/dev/null 2>&1 && echo accepted
section reinstall
echo '{"version":1,"limits":{"pids":99}}' >/etc/bastle/policy.json
systemctl enable bastle.socket bastle-spawner.socket >/dev/null 2>&1
dpkg --install bastle.deb >/run/log 2>&1 || { cat /run/log; exit 1; }
cat /etc/bastle/policy.json
links | wc -l
section apparmor-4
mkdir -p /etc/apparmor.d/abi
: >/etc/apparmor.d/abi/4.0
dpkg --install bastle.deb >/run/log 2>&1 || { cat /run/log; exit 1; }
cmp /etc/apparmor.d/bastle /usr/share/bastle/apparmor/bastle && apparmor
section remove
mkdir -p /var/lib/bastle/work/calm-otter /var/lib/bastle/daemon /var/lib/bastle-spawner
dpkg --remove bastle >/run/log 2>&1 || { cat /run/log; exit 1; }
state
links
ls /etc/bastle/policy.json /var/lib/bastle/work
ls /usr/bin/bastle /lib/systemd/system/bastle.service 2>&1 | grep -c 'No such'
section apparmor-removed
apparmor
section purge-with-work
dpkg --purge bastle 2>&1 | grep '^bastle:' || true
ls /var/lib/bastle/work
section purge
dpkg --install bastle.deb >/run/log 2>&1 || { cat /run/log; exit 1; }
rm -r /var/lib/bastle/work/calm-otter
dpkg --purge bastle >/run/log 2>&1 || { cat /run/log; exit 1; }
state
section after
ours
section end
