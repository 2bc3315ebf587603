#!/bin/sh
# tests/client-lib/test_command.sh - every command of kvpool, with and without --json.
# usage: test_command.sh KVPOOL, with a fake daemon in $KVPOOL_DIR (fake_kvpoold.c)
set -eu
kvpool=${1:?}
failed=0
documents=$(mktemp)
trap 'rm -f "$documents"' EXIT

# expect EXIT_STATUS PATTERN ARGUMENT... : runs kvpool; its output has PATTERN
expect() {
    wanted=$1 pattern=$2 && shift 2
    got=0
    output=$("$kvpool" "$@" 2>&1) || got=$?
    if [ "$got" != "$wanted" ] || ! printf '%s' "$output" | grep -q -- "$pattern"; then
        echo "kvpool $*: exit $got, wanted $wanted and '$pattern':" && echo "$output" && failed=1
    fi
}

# json ARGUMENT... : its output is one line of JSON; looked at together at the end
json() {
    "$kvpool" "$@" --json >>"$documents" || true
}

for command in status models tenants domains sessions version; do
    expect 0 . "$command"
    json "$command"
    expect 0 "usage: kvpool $command" "$command" --help
done
# Of an ordinary terminal; notes behind the table of payers come on top.
for command in status models tenants domains sessions; do
    "$kvpool" "$command" | sed 's/  [0-9]* quarantined$//' | awk -v name="$command" \
        'length > 80 { print "kvpool " name ": " length " columns: " $0; wide = 1 } END { exit wide }' || failed=1
done
expect 0 'alice .*tenant .*4.0 KiB .*none .* 75 % .*] *50 %' status
expect 0 'alice .*  3 quarantined' status
expect 0 '^device on  *99.8 GiB  1.0 TiB 1000009 86399 s 4294967295 ' status
expect 0 '^  *evicted without a copy below: 12 busy, 3 late$' status
expect 0 '^disk   recovering  *1023 B  1.0 TiB 9999999   168 h  *7  1.0 TiB 99.9 GiB$' status
expect 0 '^  *copies that failed: 2$' status
expect 0 'up 1 d 01:01:01, draining, 1 sessions' status
expect 0 '^pool 3.0 KiB of 8.0 KiB in use, 4.0 KiB committed  .*]  38 %' status # 1 KiB is idle
expect 0 'fallback: no_huge_pages' status
for command in status tenants domains; do # without a limit: 4 of the pool's 8 KiB, everywhere
    expect 0 '^NAME .* HITS  FULL$' "$command"
    expect 0 '^alice .* none .*] *50 %' "$command"
done
expect 0 'readers: bob' domains
expect 0 '7fffffffffffffff .*mapped' sessions
expect 0 'kvpoold fake' version
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
expect 0 'is set' quota alice --weight 2
expect 2 'at least one' quota a
expect 2 'no value of --weight' quota alice --weight 0
expect 2 'no value of --weight' quota alice --weight 1048577
expect 1 'no such tenant' quota nobody --weight 2
expect 2 'no value' quota a --limit 12Q
expect 2 'no value' quota a --limit -1
expect 2 'a value is missing' quota a --limit
expect 0 'match, messages' bench --requests 300 --depth 16
expect 2 '--depth from 1' bench --depth 257
expect 2 'no command' nonsense
expect 2 'too many' status twice
expect 2 EMSGSIZE create-domain "$(printf '%0129d' 0)" # over the cap of a name
expect 2 'usage'
expect 0 'usage' --help
json drain
json kick 00000000000000ff
json bench --requests 100
json quota nobody --weight 2
json status --dir /nonexistent
expect 1 '"status": "NOT_FOUND"' quota nobody --weight 2 --json
expect 3 'is kvpoold running' --dir /nonexistent status
expect 3 '"status": "ENOENT"' --dir /nonexistent status --json
expect 0 'not reached' --dir /nonexistent version
python3 -c 'import json, sys; n = [json.loads(line) for line in open(sys.argv[1])]; assert len(n) == 11, len(n)' \
    "$documents" || failed=1
exit $failed
