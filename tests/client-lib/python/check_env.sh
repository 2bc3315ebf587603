#!/bin/sh
# tests/client-lib/python/check_env.sh - deploy/python-env where it can do nothing says so.
set -eu
env=$(dirname "$0")/../../../deploy/python-env
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# expect EXIT_STATUS PATTERN COMMAND... : its output has PATTERN
expect() {
    wanted=$1 pattern=$2 && shift 2
    got=0
    output=$("$@" 2>&1) || got=$?
    if [ "$got" != "$wanted" ] || ! printf '%s' "$output" | grep -q -- "$pattern"; then
        echo "$*: exit $got, wanted $wanted and '$pattern':" && echo "$output" && exit 1
    fi
}

expect 0 'usage: deploy/python-env' "$env" --help
expect 2 "unknown argument '--wrong'" "$env" --wrong
expect 2 'usage' "$env" "$dir/one" "$dir/two"
# A registry that nobody serves: skipped, not failed; and tried again the next time.
for _ in 1 2; do
    expect 77 'cannot be had' env PIP_INDEX_URL=http://127.0.0.1:9/ PIP_EXTRA_INDEX_URL= \
        PIP_FIND_LINKS= PIP_CONFIG_FILE=/dev/null PIP_RETRIES=0 PIP_NO_CACHE_DIR=1 "$env" "$dir/env"
done
