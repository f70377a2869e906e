#!/bin/sh
# The one service of a guest with systemd: runs as root in a group of its own that is not delegated.
export PATH=/usr/sbin:/usr/bin HOME=/root
exec > /dev/console 2>&1
chown -R 1000:1000 /home/ada

# as SESSION COMMAND: runs the command in the sort of unit that a person or a service would have.
as() {
    case $1 in
        root) HOME=/root sh -c "$2" ;;
        user) su - ada -c "$2" ;;
        delegated) systemd-run --quiet --pipe --wait -p User=ada -p Delegate=yes -E HOME=/home/ada sh -c "$2" ;;
        service) systemd-run --quiet --pipe --wait -p User=ada -E HOME=/home/ada sh -c "$2" ;;
        root-delegated) systemd-run --quiet --pipe --wait -p Delegate=yes -E HOME=/root sh -c "$2" ;;
        manager)
            systemctl start user@1000.service
            su ada -c "XDG_RUNTIME_DIR=/run/user/1000 systemd-run --user --quiet --pipe --wait -E HOME=/home/ada sh -c '$2'"
            ;;
        manager-delegated)
            systemctl start user@1000.service
            su ada -c "XDG_RUNTIME_DIR=/run/user/1000 systemd-run --user --quiet --pipe --wait -p Delegate=yes -E HOME=/home/ada sh -c '$2'"
            ;;
    esac
}

. /hosts/main.sh
systemctl poweroff --force --force
