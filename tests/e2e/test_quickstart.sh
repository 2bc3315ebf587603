#!/bin/sh
# tests/e2e/test_quickstart.sh - deploy/quickstart-small says what it promises, and leaves nothing
# behind; deploy/quickstart refuses mistakes before it installs or builds anything.
# usage: test_quickstart.sh SOURCE_FOLDER BUILD_FOLDER
set -eu
source=${1:?} build=${2:?}
TMPDIR=$(mktemp -d /tmp/kvpool-qs-XXXXXX)
export TMPDIR
trap 'rm -rf "$TMPDIR" "$TMPDIR.png"' EXIT
out=$TMPDIR.out

fail() {
    echo "$*; it said:" && cat "$out"
    rm -f "$out"
    exit 1
}

nothing_is_left() {
    [ -z "$(ls -A "$TMPDIR")" ] || fail "files are left: $(ls -A "$TMPDIR")"
    ! grep -q "$TMPDIR" /proc/mounts || fail "a mount is left"
    for process in /proc/[0-9]*; do
        ! tr '\0' ' ' 2>/dev/null <"$process/cmdline" | grep -q "$TMPDIR/" ||
            fail "process ${process#/proc/} is left"
    done
}

expect() { # expect PATTERN
    grep -Eq "$1" "$out" || fail "no '$1'"
}

"$source/deploy/quickstart-small" --no-install --built "$build" --tour >"$out" 2>&1 || fail "it failed"
for dtype in f32 f16; do
    expect "^one +$dtype +340 +0 .* 387 +1 +297216 "
    expect "^two +$dtype +340 +320 .* 67 +1 +51456 "
    expect "^  $dtype: 92 blocks in their tables, .* the pool keeps 30, .* 3\.1 times less"
done
expect '^All is released: 0 blocks are held'
expect '^The daemon is stopped'
expect '^> fork '
nothing_is_left

# One who interrupts it is left with nothing, too.
"$source/deploy/quickstart-small" --no-install --built "$build" >"$out" 2>&1 &
script=$!
tries=400
until ls "$TMPDIR"/*/run/session.sock >/dev/null 2>&1; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || fail "no daemon came"
    sleep 0.01
done
kill -TERM $script
status=0
wait $script || status=$?
[ $status = 130 ] || fail "exit status $status after SIGTERM"
nothing_is_left

! "$source/deploy/quickstart-small" --no-install --built "$TMPDIR" >"$out" 2>&1 || fail "nothing to run"
expect 'is it built'
nothing_is_left

refused() { # refused PATTERN ARGUMENT... : by deploy/quickstart, which has nothing to run here
    pattern=$1 && shift
    status=0
    "$source/deploy/quickstart" --no-install --built "$TMPDIR" "$@" >"$out" 2>&1 || status=$?
    [ $status = 2 ] || fail "exit status $status after $*"
    expect "$pattern"
    nothing_is_left
}
refused 'small has no model' --small --model gemma
refused 'small has no model' --dtype f16 --small
refused 'small has no model' --small --plot "$TMPDIR/picture.png"
refused 'ends with none of .png' --plot "$TMPDIR/picture.gif"
refused 'no folder' --plot "$TMPDIR/none/picture.png"
mkdir "$TMPDIR.png"
refused 'cannot write' --plot "$TMPDIR.png"
rmdir "$TMPDIR.png"
refused 'is it built' --plot "$TMPDIR/picture.svg"
refused 'is it built' --small
rm -f "$out"
