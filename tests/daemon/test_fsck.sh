#!/bin/sh
# tests/daemon/test_fsck.sh - what kvpoold fsck says, once, of a disk that cannot be read.
# usage: test_fsck.sh KVPOOLD
set -eu
kvpoold=${1:?}
failed=0
disk=$(mktemp -d)
trap 'rm -rf "$disk"' EXIT

# expect PATTERN [OPTION] : one line has PATTERN, there is no other, and it ends with 2
expect() {
    pattern=$1 && shift
    got=0
    output=$("$kvpoold" fsck "$disk" "$@" 2>&1) || got=$?
    if [ "$got" != 2 ] || [ "$(printf '%s\n' "$output" | wc -l)" != 1 ] ||
        ! printf '%s' "$output" | grep -q -- "$pattern"; then
        echo "kvpoold fsck $*: exit $got, wanted 2 and one line of '$pattern':" && echo "$output"
        failed=1
    fi
}

expect 'No such file'
expect '^{"error":".*No such file' --json
: >"$disk/blocks"
expect 'is empty'
expect '^{"error":".*is empty' --json
head -c 65536 /dev/zero | tr '\0' x >"$disk/blocks"
expect 'something else than a disk tier'
expect '^{"error":".*something else than a disk tier' --json
exit $failed
