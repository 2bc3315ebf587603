#!/bin/sh
# tests/pool/check_shell.sh - what build/tests/pool/shell promises to whoever runs it: its statuses.
# usage: check_shell.sh SHELL
set -u
shell=${1:?usage: check_shell.sh SHELL}
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
failed=0

# expect STATUS WHAT: the status and the output (first: a pattern that must be in it) of the last run
expect() {
    if [ "$status" != "$1" ] || ! printf '%s\n' "$output" | grep -qE -- "$2"; then
        printf 'status %s, expected %s and /%s/ in:\n%s\n' "$status" "$1" "$2" "$output" >&2
        failed=1
    fi
}

from_input() {
    output=$(printf '%b' "$1" | "$shell" --model 2>&1) && status=0 || status=$?
}

# from_files TEXT...: each text is a file
from_files() {
    names= count=0
    for text; do
        count=$((count + 1)) names="$names $folder/$count.txt"
        printf '%b' "$text" >"$folder/$count.txt"
    done
    # shellcheck disable=SC2086 # a list on purpose
    output=$("$shell" --model $names 2>&1) && status=0 || status=$?
}

from_input 'pool blocks=1\n\n# nothing\ncheck\n'
expect 0 '^ok$'
[ "$(printf '%s\n' "$output" | wc -l)" = 2 ] || { echo "not one answer a line" >&2; failed=1; }
from_input 'pool blocks=1\npool blocks=1\ncheck\n'
expect 2 '^error: '
from_input 'pool blocks=1\nnonsense\n'
expect 2 "^error: .*'nonsense'"
from_input 'pool blocks=1\nche\0ck\n'
expect 2 '^error: '
from_input 'pool blocks=1\ntable S'
expect 0 '^NOT_FOUND$'

from_files 'pool blocks=1\n= ok\n' 'pool blocks=1\n'
expect 0 '^2 passed, 0 failed$'
from_files 'pool blocks=1\n= ok\ntable S\n= ok\n' 'pool blocks=1\n'
expect 1 '1.txt:3: table S'
expect 1 'expected: ok'
expect 1 'got: +NOT_FOUND'
expect 1 '^1 passed, 1 failed$'
from_files 'pool blocks=1\nnonsense\n= error\n'
expect 0 '^1 passed, 0 failed$'
from_files 'pool blocks=1\nnonsense\n'
expect 2 '^1 passed, 0 failed$'
from_files 'pool blocks=1\nnonsense\n= ok\n'
expect 2 '^0 passed, 1 failed$'
from_files 'pool blocks=1\ncheck\n= error\n'
expect 1 '^0 passed, 1 failed$'
from_files 'pool blocks=7\nstats\n= blocks=7\n= uncommitted=6\n= ok\ncheck\n= ok\n'
expect 1 'expected: uncommitted=6'
expect 1 'got: +uncommitted=7'
from_files '= ok\n'
expect 1 'follows no command'
output=$("$shell" "$folder/none.txt" 2>&1) && status=0 || status=$?
expect 1 '^0 passed, 1 failed$'
output=$("$shell" --help 2>&1) && status=0 || status=$?
expect 0 '^usage: shell'
output=$("$shell" --wrong 2>&1) && status=0 || status=$?
expect 2 "'--wrong'"
exit $failed
