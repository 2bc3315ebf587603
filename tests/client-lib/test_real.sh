#!/bin/sh
# tests/client-lib/test_real.sh - the example, the stranger and every command against a real kvpoold.
# usage: test_real.sh KVPOOLD KVPOOL EXAMPLE STRANGER
set -eu
kvpoold=${1:?} kvpool=${2:?} example=${3:?} stranger=${4:?}
dir=$(mktemp -d)
KVPOOL_DIR=$dir/run
export KVPOOL_DIR
daemon= bench=
finish() {
    [ -z "$bench" ] || { kill "$bench" 2>/dev/null && wait "$bench"; } || true
    [ -z "$daemon" ] || { kill "$daemon" 2>/dev/null && wait "$daemon"; } || true
    rm -rf "$dir"
}
trap finish EXIT
mkdir -p "$dir/run" "$dir/state"
cat >"$dir/kvpoold.yaml" <<YAML
run-directory: $dir/run
state-directory: $dir/state
pool-bytes: 64MiB
tenants: [{name: me, uids: [$(id -u)]}, {name: you, token-file: $dir/token, limit: 32MiB}]
YAML
(umask 077 && echo 0123456789abcdef0123456789abcdef >"$dir/token")

"$kvpoold" --config "$dir/kvpoold.yaml" 2>"$dir/log" &
daemon=$!
for _ in $(seq 100); do
    ! "$kvpool" status >/dev/null 2>&1 || break
    sleep 0.1
done

# expect EXIT_STATUS PATTERN COMMAND... : its output has PATTERN
expect() {
    wanted=$1 pattern=$2 && shift 2
    got=0
    output=$("$@" 2>&1) || got=$?
    if [ "$got" != "$wanted" ] || ! printf '%s' "$output" | grep -q -- "$pattern"; then
        echo "$*: exit $got, wanted $wanted and '$pattern':" && echo "$output"
        echo "-- the daemon said:" && cat "$dir/log" && exit 1
    fi
}

expect 0 '^0 of 40 tokens were cached' "$example"
expect 0 '^32 of 40 tokens were cached' "$example"
expect 0 understood python3 "$stranger"
expect 0 'me .*tenant' "$kvpool" status
expect 0 '^kvpoold [0-9.]*, up 00:[0-9:]*, 0 sessions' "$kvpool" status
expect 0 'me .* [1-9][0-9]* % ' "$kvpool" tenants # of its tokens, so many were found
expect 0 'example' "$kvpool" models
expect 0 '^pool 2.0 MiB of 64.0 MiB in use, 2.0 MiB committed' "$kvpool" status # a page; what is taken ahead is not in use
expect 2 'no command or option capcity' "$kvpoold" capcity
expect 0 '^kvpoold [0-9]' "$kvpoold" --version
expect 0 '^kvpoold.yaml(5), are read again' "$kvpoold" --help
expect 1 'not `other`' "$kvpool" create-domain other # what metrics call the rest
expect 0 'is there' "$kvpool" create-domain docs --reader you --filler me --limit 16MiB
expect 1 EXISTS "$kvpool" create-domain docs
expect 0 'docs .*16.0 MiB' "$kvpool" domains
expect 0 'is set' "$kvpool" quota me --weight 3
expect 0 'me .* 3 ' "$kvpool" tenants
expect 0 'is set' "$kvpool" quota me --guarantee 4MiB --limit 48MiB
expect 0 'me .*4.0 MiB .*48.0 MiB .* 3 ' "$kvpool" tenants
expect 1 NOT_FOUND "$kvpool" quota nobody --weight 3
expect 1 'at most the pool' "$kvpool" quota me --guarantee 1TiB
expect 1 'no such tenant' "$kvpool" create-domain more --reader docs
expect 1 NOT_FOUND "$kvpool" kick ff
expect 0 SESSION "$kvpool" sessions
expect 0 'match, messages' "$kvpool" bench --requests 500
expect 1 DENIED "$kvpool" bench --requests 500 --token nobodys0123456789
expect 0 'match, messages' "$kvpool" bench --requests 500 --token "$(cat "$dir/token")"
# What the log calls a session is what `kvpool sessions` shows and `kvpool kick` takes.
"$kvpool" bench --requests 100000000 >"$dir/bench" 2>&1 &
bench=$!
for _ in $(seq 100); do
    [ "$("$kvpool" sessions | wc -l)" != 2 ] || break
    sleep 0.1
done
session=$(sed -n 's/.*session_open session=\([^ ]*\) .*/\1/p' "$dir/log" | tail -n 1)
expect 0 "^$session " "$kvpool" sessions
expect 0 'is ended' "$kvpool" kick "$session"
wait "$bench" && echo "bench went on without its session" && exit 1
bench=
grep -q "session_end session=$session .*reason=kicked" "$dir/log"
expect 1 NOT_FOUND "$kvpool" clear --model nothing
expect 0 'no more' "$kvpool" clear --all
for _ in $(seq 100); do # its blocks are swept in slices; the page stays for whoever is next
    "$kvpool" status | grep -q '^pool 2' || break
    sleep 0.1
done
expect 0 '^pool 0 B of 64.0 MiB in use, 2.0 MiB committed  .*   0 %' "$kvpool" status
expect 0 '^0 of 40 tokens were cached' "$example"
expect 0 'No new' "$kvpool" drain
expect 1 DRAINING "$example"
expect 0 'again' "$kvpool" drain --undo
for what in status models tenants domains sessions version; do
    "$kvpool" "$what" --json | python3 -c 'import json, sys; json.load(sys.stdin)'
done
expect 0 'ends' "$kvpool" shutdown
wait "$daemon"
daemon=
expect 3 'is kvpoold running' "$kvpool" status
