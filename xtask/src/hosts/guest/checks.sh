#!/bin/sh
# checks.sh SITUATION: every check, as the identity that is tested. Each prints `@hosts SITUATION CHECK OUTCOME DETAIL`;
# the outcome is `works`, `refused` (bastle says no, and nothing was started) or `failed`.
situation=$1
export NO_COLOR=1 LC_ALL=C.UTF-8 PATH=/usr/bin:/usr/sbin:/usr/local/bin
project=$HOME/$situation/project
said=$HOME/$situation/said
mkdir -p "$project" "$said"
cd "$project" || exit 1

say() { echo "@hosts $situation $*" | tr -s '\n ' ' '; echo; }
line() { tr -s ' \n\t' ' ' < "$1" | cut -c1-400; }

doctor() {
    bastle doctor --json > "$said/doctor" 2> "$said/doctor-errors"
    code=$?
    echo "@json $situation $(tr -d '\n' < "$said/doctor")"
    case $code in
        0) say doctor works ;;
        1) say doctor refused ;;
        *) say doctor failed "exit $code: $(line "$said/doctor-errors")" ;;
    esac
}

# Nothing else is tried where a plain run is refused.
run() {
    bastle run -- sh -c 'echo started > proof' > "$said/run" 2>&1
    code=$?
    if [ $code = 0 ] && [ -e proof ]; then
        say run works "$(grep -m1 -o 'fence: .*' "$said/run" | sed 's/   .*//')"
    elif [ $code = 125 ] && [ ! -e proof ]; then
        say run refused "$(line "$said/run")"
        exit 0
    else
        say run failed "exit $code: $(line "$said/run")"
    fi
}

demo() {
    if bastle demo > "$said/demo" 2>&1; then
        say demo works "$(grep -o '[0-9]* of [0-9]* attacks blocked' "$said/demo")"
    else
        say demo failed "$(grep -A2 -e '!!!' -e '^error' -e FAILED "$said/demo" > "$said/demo-part"; line "$said/demo-part")"
    fi
}

# Each limit is reached once; a run within the limits works beside it.
limits() {
    held=
    bastle run --pids 24 --mem 256M -- sh -c 'echo within' > "$said/within" 2>&1
    grep -q '^within' "$said/within" || { say limits failed "$(line "$said/within")"; return; }
    bastle run --pids 24 -- sh -c 'for i in $(seq 1 60); do sleep 3 & done' > "$said/pids" 2>&1
    grep -q -e 'limit pids = 24 reached' -e "can't fork" -e 'Cannot fork' -e 'Resource temporarily' "$said/pids" && held="$held pids"
    bastle run --mem 48M -- sh -c 'dd if=/dev/zero of=/dev/null bs=160M count=1 && echo allocated' > "$said/mem" 2>&1
    grep -q '^allocated' "$said/mem" || held="$held memory"
    bastle run --disk 2M -- sh -c 'dd if=/dev/zero of=big bs=64k count=128; ls -l big' > "$said/disk" 2>&1
    [ "$(stat -c %s big 2>/dev/null || echo 0)" -le 2097152 ] && held="$held disk"
    if bastle run --cpu 0.5 -- true > "$said/cpu" 2>&1; then held="$held cpu"; else grep -q BST-LIM-009 "$said/cpu" && held="$held no-cpu"; fi
    case $held in
        ' pids memory disk cpu') say limits works "$held" ;;
        ' pids memory disk no-cpu')
            say limits works "$held"
            group
            ;;
        *) say limits failed "held:$held; $(line "$said/pids") $(line "$said/mem") $(line "$said/cpu")" ;;
    esac
}

# Does what doctor prints for a cgroup of one's own, as it is printed, with a limit that needs one.
group() {
    bastle doctor > "$said/groups" 2>&1
    fix=$(sed -n '/ cgroup  /,/ state  /s/^ *fix: //p' "$said/groups" | head -n 1)
    half="bastle run --cpu 0.5 -- sh -c 'echo INSIDE'"
    case $fix in
        '')
            say group failed "doctor prints no fix: $(line "$said/groups")"
            return
            ;;
        *'bastle run -- CMD') echo "${fix%bastle run -- CMD}$half" ;;
        *) printf '%s\n%s\n' "$fix" "$half" ;;
    esac > "$said/group.sh"
    sh "$said/group.sh" > "$said/group" 2>&1
    code=$?
    if [ $code = 0 ] && grep -q '^INSIDE' "$said/group"; then
        say group works "$fix"
    else
        say group failed "exit $code: $fix: $(line "$said/group")"
    fi
}

overlay() {
    echo first > file
    bastle run --workspace overlay -- sh -c 'echo second >> file && wc -l < file' > "$said/overlay" 2>&1
    code=$?
    if [ $code = 0 ] && grep -q '^2$' "$said/overlay" && [ "$(cat file)" = first ]; then
        say overlay works
    elif [ $code = 125 ] && [ "$(cat file)" = first ]; then
        say overlay refused "$(line "$said/overlay")"
    else
        say overlay failed "exit $code: $(line "$said/overlay")"
    fi
}

daemon() {
    if ! bastle daemon start > "$said/start" 2>&1; then
        say daemon failed "start: $(line "$said/start")"
        return
    fi
    bastle spawn --watch -- sh -c 'echo by the daemon' > "$said/spawn" 2>&1
    spawned=$?
    bastle daemon stop > "$said/stop" 2>&1
    stopped=$?
    if [ $spawned = 0 ] && [ $stopped = 0 ]; then
        say daemon works
    else
        say daemon failed "spawn $spawned, stop $stopped: $(line "$said/spawn") $(line "$said/stop")"
    fi
}

# Attacks with the errno that has to refuse each, and their twins outside the fence. Reads: INSIDE OUTSIDE ATTACK.
escapes() {
    sleep 1000 &
    victim=$!
    secret=$HOME/$situation/secret
    echo CANARY > "$secret"
    inside= outside=
    set --
    while read -r in out attack; do
        case $in in '' | '#'*) continue ;; esac
        eval "set -- \"\$@\" , $attack"
        inside="$inside $in"
    done < /hosts/escapes
    bastle run -- attacker multi "$@" > "$said/inside" 2> "$said/inside-errors"
    wrong=$(compare "$said/inside" $inside)
    set --
    while read -r in out attack; do
        case $out in '' | '-' | *[!A-Z]*) continue ;; esac
        case $in in '#'*) continue ;; esac
        eval "set -- \"\$@\" , $attack"
        outside="$outside $out"
    done < /hosts/escapes
    attacker multi "$@" > "$said/outside" 2> "$said/outside-errors"
    unlike=$(compare "$said/outside" $outside)
    wrong="$wrong${unlike:+outside: $unlike}"
    kill "$victim"
    count=$(echo $inside | wc -w)
    cp /hosts/must-deny must-deny
    bastle run -- attacker denied must-deny > "$said/denied" 2>&1
    refused=$(grep -c -E ' (EPERM|ENOSYS)$' "$said/denied")
    # Since Linux 6.16 no filter judges uprobe: the kernel itself answers whoever is no probe of its own (ENXIO, EPROTO).
    allowed=$(grep -E '^[a-z0-9_]+ (native|int80|x32) ' "$said/denied" | grep -v -E -e ' (EPERM|ENOSYS)$' -e '^uprobe native (ENXIO|errno-71)$' | head -3 | tr '\n' ' ')
    tried=$(grep -c -E '^[a-z0-9_]+ native ' "$said/denied")
    [ "$tried" = "$(grep -c '^[a-z_]' must-deny)" ] || wrong="$wrong only $tried calls were tried: $(tail -3 "$said/denied" | tr '\n' ' ')"
    wrong="$wrong$allowed"
    count=$((count + refused))
    if [ -z "$wrong" ]; then say escapes works "$count"; else say escapes failed "$wrong $(line "$said/inside-errors")"; fi
}

# compare FILE EXPECTED...: one line per result; what is expected may be several, with slashes between.
compare() {
    results=$1
    shift
    number=0
    for expected; do
        number=$((number + 1))
        seen=$(sed -n "${number}p" "$results")
        case /$expected/ in
            */"$seen"/*) ;;
            *) printf 'attack %s: %s and not %s; ' "$number" "$seen" "$expected" ;;
        esac
    done
}

doctor
run
for check in ${2:-demo limits overlay daemon escapes}; do
    $check
done
