# Read by the first program of a guest, which defines `as`: every situation of the plan, one after the other.

# situation NAME SESSION ENTER LEAVE FIX LINES: where it refuses, doctor has to print a fix with the words FIX.
situation() {
    echo "@begin $1 $(cut -d' ' -f1 /proc/uptime)"
    sh -c "$3"
    as "$2" "/hosts/checks.sh $1" < /dev/null
    if [ -n "$5" ] && follow "$1" "$2" "$5" "$6"; then
        as "$2" "/hosts/checks.sh $1-fixed demo" < /dev/null
    fi
    sh -c "$4"
}

# follow NAME SESSION FIX LINES: executes the printed command as the identity that was told it, has doctor do that, or executes the
# lines as root.
follow() {
    as "$2" 'NO_COLOR=1 bastle doctor' > /tmp/doctor 2>&1 < /dev/null
    command=$(grep -F -- "$3" /tmp/doctor | sed -n 's/^ *fix: //p' | head -n 1)
    if [ -z "$command" ]; then
        echo "@hosts $1 fix failed doctor prints no fix with: $3: $(tr '\n' ' ' < /tmp/doctor)"
        return 1
    fi
    printf '%s\n' "$command" > /tmp/fix.sh
    chmod 755 /tmp/fix.sh
    case $4 in
        '') as "$2" 'sh /tmp/fix.sh' ;;
        'bastle doctor'*) as "$2" "$4" ;;
        *) sh -c "$4" ;;
    esac > /tmp/fix 2>&1 < /dev/null
    if [ $? = 0 ]; then
        echo "@hosts $1 fix works $command"
    else
        echo "@hosts $1 fix failed $command: $(tr '\n' ' ' < /tmp/fix)"
        return 1
    fi
}

echo "@kernel $(cat /proc/sys/kernel/osrelease) $(cat /sys/kernel/security/lsm)"
echo "@systemd $(systemctl --version 2> /dev/null | sed -n '1s/^systemd \([0-9]*\).*/\1/p')"
. /hosts/plan.sh
echo "@end"
