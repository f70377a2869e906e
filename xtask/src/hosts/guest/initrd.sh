#!/bin/busybox sh
# First program of a guest: loads what its disk needs, then goes on in the root that is on the disk.
bb=/bin/busybox
$bb mount -t devtmpfs dev /dev
$bb mount -t proc proc /proc
for module in /modules/*; do
    $bb insmod "$module"
done
tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 200 ]; do
    $bb usleep 50000
    tries=$((tries + 1))
done
$bb mount -t ext4 /dev/vda /new || $bb poweroff -f
$bb mount --move /dev /new/dev
$bb mount --move /proc /new/proc
exec $bb switch_root /new /sbin/init
