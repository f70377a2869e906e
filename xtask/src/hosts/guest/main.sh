# Read by the first program of a guest, which defines `as`: every situation of the plan, one after the other.

# situation NAME SESSION ENTER LEAVE FIX: FIX is a part of the command that doctor has to print where it refuses.
situation() {
    echo "@begin $1 $(cut -d' ' -f1 /proc/uptime)"
    sh -c "$3"
    as "$2" "/hosts/checks.sh $1" < /dev/null
    if [ -n "$5" ] && follow "$1" "$2" "$5"; then
        as "$2" "/hosts/checks.sh $1-fixed demo" < /dev/null
    fi
    sh -c "$4"
}

# Does as root what doctor told the identity to do.
follow() {
    as "$2" 'NO_COLOR=1 bastle doctor' > /tmp/doctor 2>&1 < /dev/null
    command=$(grep -F -- "$3" /tmp/doctor | sed -n 's/^ *fix: //p' | head -n 1)
    if [ -z "$command" ]; then
        echo "@hosts $1 fix failed doctor prints no command with: $3"
        return 1
    fi
    if sh -c "$command" > /tmp/fix 2>&1 < /dev/null; then
        echo "@hosts $1 fix works $command"
    else
        echo "@hosts $1 fix failed $command: $(tr '\n' ' ' < /tmp/fix)"
        return 1
    fi
}

echo "@kernel $(cat /proc/sys/kernel/osrelease) $(cat /sys/kernel/security/lsm)"
. /hosts/plan.sh
echo "@end"
