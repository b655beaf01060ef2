#!/bin/sh
# Starts, as processes of this machine: two discovery daemons, three providers of the service shout, one of them slow, a cluster's
# host, the gateway, a caller of ten calls a second, and Prometheus with the alerts of deploy/prometheus. Ctrl-C ends all of them.
#
#   pip install 'nngkit[telemetry]'; apt install prometheus
#   deploy/processes/run.sh                       # NNGKIT=path/to/nngkit, if it is not on PATH
#
# docs/operating.md goes through it: which provider is slow?
set -eu
here=$(cd "$(dirname "$0")" && pwd)
nngkit=${NNGKIT:-nngkit}
state=$(mktemp -d)
started=
end() {
    trap '' INT TERM
    kill $started 2>/dev/null || true # Ctrl-C has reached them too
    wait
    rm -rf "$state"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
start() { # name, then the command; its output is in $state
    name=$1
    shift
    "$@" >"$state/$name.log" 2>&1 &
    started="$started $!"
}

export NNGKIT_DISCOVERY="tcp://127.0.0.1:5561 tcp://127.0.0.1:5563"
export NNGKIT_QUERY="tcp://127.0.0.1:5562 tcp://127.0.0.1:5564"
start discovery-1 env NNGKIT_QUERY= "$nngkit" discoverd --listen tcp://127.0.0.1:5561 --no-history --http 9101
start discovery-2 env NNGKIT_QUERY= "$nngkit" discoverd --listen tcp://127.0.0.1:5563 --no-history --http 9102
start shout-1 "$nngkit" serve shout --exec "tr a-z A-Z" --http 9111
start shout-2 "$nngkit" serve shout --exec "tr a-z A-Z" --http 9112
start shout-3 "$nngkit" serve shout --exec "sleep 0.3; tr a-z A-Z" --http 9113
start render "$nngkit" host render --listen tcp://127.0.0.1:0 --http 9121
start gateway "$nngkit" gateway --http 9131
start prometheus prometheus --config.file "$here/prometheus.yml" --storage.tsdb.path "$state/prometheus" \
    --web.listen-address 127.0.0.1:9190

until "$nngkit" resolve shout >/dev/null 2>&1; do sleep 1; done
mkfifo "$state/lines"
start lines sh -c 'while sleep 0.1; do echo hello; done >"$0"' "$state/lines"
start calls sh -c '"$0" call shout <"$1"' "$nngkit" "$state/lines"
echo "logs: $state; Prometheus: http://127.0.0.1:9190/alerts"
wait
