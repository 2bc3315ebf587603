#!/bin/sh
# tests/client-lib/test_command.sh - every command of kvpool, with and without --json, beside a fake daemon.
# usage: test_command.sh KVPOOL FAKE_KVPOOLD
set -eu
kvpool=${1:?} fake=${2:?}
failed=0

# expect EXIT_STATUS PATTERN [fake] ARGUMENT... : runs kvpool; its output has PATTERN
expect() {
    wanted=$1 pattern=$2 && shift 2
    got=0
    output=$("$fake" "$kvpool" "$@" 2>&1) || got=$?
    if [ "$got" != "$wanted" ] || ! printf '%s' "$output" | grep -q -- "$pattern"; then
        echo "kvpool $*: exit $got, wanted $wanted and '$pattern':" && echo "$output" && failed=1
    fi
}

# json ARGUMENT... : its output is JSON
json() {
    "$fake" "$kvpool" "$@" --json | python3 -m json.tool >/dev/null ||
        { echo "kvpool $* --json: no JSON" && failed=1; }
}

for command in status models tenants domains sessions version; do
    expect 0 . "$command"
    json "$command"
    expect 0 "usage: kvpool $command" "$command" --help
done
expect 0 'tenant .*4.0 KiB .*none' status
expect 0 'is there' create-domain docs --reader a --reader b --filler c --limit 8GiB
expect 2 'there is no option' create-domain docs --wrong
expect 2 'missing: NAME' create-domain
expect 0 'ended' kick 00000000000000ff
expect 2 'hexadecimal' kick xyz
expect 0 'No new' drain
expect 0 'again' drain --undo
expect 2 'does not take --undo' clear --undo
expect 2 '--all' clear
expect 2 '--all' clear --all --model m
expect 0 'no more' clear --all
expect 0 'no more' clear --domain a --model m
expect 0 'ends' shutdown --forget
expect 2 'at least one' quota a
expect 1 'no such tenant' quota nobody --weight 2
expect 2 'no value' quota a --limit 12Q
expect 2 'no value' quota a --limit -1
expect 2 'a value is missing' quota a --limit
expect 2 'no command' nonsense
expect 2 'too many' status twice
expect 2 'usage' 
expect 0 'usage' --help
json drain
json kick 00000000000000ff
json quota nobody --weight 2 || true
expect 1 '"status": "NOT_FOUND"' quota nobody --weight 2 --json
expect 3 'is kvpoold running' --dir /nonexistent status
expect 3 '"status": "ENOENT"' --dir /nonexistent status --json
expect 0 'not reached' --dir /nonexistent version
exit $failed
