#!/bin/sh
# Runs as a service of the booted systemd: uses the daemon as a client does, and restarts both services under it.
ask() { # method path [body]
    curl --silent --show-error --max-time 60 --unix-socket /run/bastle/bastle.sock -X "$1" \
        -H 'content-type: application/json' ${3:+--data "$3"} "http://localhost/api/v1$2"
}
field() { python3 -c 'import json,sys
v = json.load(sys.stdin)
for k in sys.argv[1:]:
    v = v[int(k)] if isinstance(v, list) else v.get(k)
print(v)' "$@"; }
# Waits until the run is in one of the states.
until_state() { # run states
    for _ in $(seq 600); do
        state=$(ask GET "/runs/$1" | field state)
        case " $2 " in *" $state "*) break ;; esac
        sleep 0.1
    done
    echo "$state"
    # Beside the answer: why it did not run.
    [ "$state" != refused ] || ask GET "/runs/$1" >&2
}
section() { echo "=== $1"; }
# Gives the run a directory while it runs, and looks at it from inside.
grant() { # run
    mkdir -p /srv/granted/sub
    echo to be read >/srv/granted/file
    echo KEY=1 >/srv/granted/sub/.env
    chown -R bastle:bastle /srv/granted
    as='runuser -u bastle -- env XDG_STATE_HOME=/var/lib XDG_RUNTIME_DIR=/run/bastle-runs HOME=/var/lib/bastle'
    $as bastle grant "$1" --ro /srv/granted >/dev/null
    $as bastle exec "$1" -- sh -c 'cat /srv/granted/file /srv/granted/sub/.env; : >/srv/granted/new' 2>&1
}
# What a service's main process is left with.
fence() { # unit
    pid=$(systemctl show --property MainPID --value "$1")
    sed -n 's/^\(CapBnd\|CapEff\|NoNewPrivs\|Seccomp\):[[:space:]]*/\1 /p' "/proc/$pid/status"
    [ "$(readlink "/proc/$pid/ns/net")" = "$(readlink /proc/self/ns/net)" ] || echo own network
    nsenter --target "$pid" --mount sh -c 'echo x >/proc/sys/kernel/domainname' 2>&1
}

section start
systemctl start bastle.service && systemctl is-active bastle.service bastle-spawner.socket
ask GET /version | field version
section short
mkdir -p /srv/short /srv/long
chown bastle:bastle /srv/short /srv/long
run=$(ask POST /runs '{"argv":["sh","-c","echo uid $(id -u); touch made; cat /var/lib/bastle/daemon/admin.token; ls /run/bastle"],"workspace":"/srv/short","mode":"in-place","net":"none"}' | tee /run/out/short | field runs 0 name)
until_state "$run" "completed failed refused"
ask GET "/runs/$run/logs"
stat -c '%U %n' /srv/short/made
section long
run=$(ask POST /runs '{"argv":["sh","-c","while :; do echo tick; sleep 0.2; done"],"workspace":"/srv/long","mode":"in-place","net":"none"}' | tee /run/out/long | field runs 0 name)
until_state "$run" "running failed refused"
before=$(pgrep -f 'while :; do echo tick' | sort | head -n 1)
section grant
grant "$run"
section fence
fence bastle-spawner.service
section restart
systemctl restart bastle-spawner.service && systemctl is-active bastle-spawner.service
systemctl restart bastle.service && systemctl is-active bastle.service
ask GET "/runs/$run" | field state
after=$(pgrep -f 'while :; do echo tick' | sort | head -n 1)
[ -n "$before" ] && [ "$before" = "$after" ] && echo same process
section another
other=$(ask POST /runs '{"argv":["true"],"workspace":"/srv/short","mode":"in-place","net":"none"}' | tee /run/out/another | field runs 0 name)
until_state "$other" "completed failed refused"
section stop
ask POST "/runs/$run/stop" '{"grace_ms":1000}' >/dev/null
until_state "$run" "cancelled completed failed refused"
section left
pgrep -fc 'while :; do echo tick'
# The same daemon with the service that builds without root.
section rootless
printf '[Service]\nEnvironment=BASTLE_SPAWNER=/run/bastle-rootless/spawner.sock\n' \
    >/etc/systemd/system/bastle.service.d/rootless.conf
systemctl daemon-reload
systemctl restart bastle.service && systemctl is-active bastle.service
run=$(ask POST /runs '{"argv":["sh","-c","echo uid $(id -u); touch unrooted; mkdir -p d/e; mv d/e d/f; cat /var/lib/bastle/daemon/admin.token; curl --silent http://example.invalid/ | head -c 100"],"workspace":"/srv/short","mode":"in-place","net":"allowlist"}' | tee /run/out/rootless | field runs 0 name)
until_state "$run" "completed failed refused"
ask GET "/runs/$run/logs"
stat -c '%U %n' /srv/short/unrooted /srv/short/d/f
section rootless-long
run=$(ask POST /runs '{"argv":["sh","-c","while :; do echo tick; sleep 0.2; done"],"workspace":"/srv/long","mode":"in-place","net":"none"}' | tee /run/out/rootless-long | field runs 0 name)
until_state "$run" "running failed refused"
before=$(pgrep -f 'while :; do echo tick' | sort | head -n 1)
section rootless-grant
grant "$run"
section rootless-fence
fence bastle-spawner-rootless.service
pid=$(systemctl show --property MainPID --value bastle-spawner-rootless.service)
stat -c %U "/proc/$pid"
nsenter --target "$pid" --mount runuser -u bastle -- cat /var/lib/bastle/daemon/admin.token 2>&1
nsenter --target "$pid" --mount runuser -u bastle -- ls /run/bastle-proc/whole 2>&1
section rootless-restart
systemctl restart bastle-spawner-rootless.service && systemctl is-active bastle-spawner-rootless.service
systemctl restart bastle.service && systemctl is-active bastle.service
ask GET "/runs/$run" | field state
after=$(pgrep -f 'while :; do echo tick' | sort | head -n 1)
[ -n "$before" ] && [ "$before" = "$after" ] && echo same process
ask POST "/runs/$run/stop" '{"grace_ms":1000}' >/dev/null
until_state "$run" "cancelled completed failed refused"
section rootless-left
pgrep -fc 'while :; do echo tick'
section end
