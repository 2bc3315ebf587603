#!/bin/sh
# tests/client-lib/check_example.sh - the README has client-lib/example.c as it is; and it runs.
# usage: check_example.sh SOURCE_ROOT FAKE_KVPOOLD EXAMPLE
set -eu
cd "${1:?}"
sed -n '/^```c$/,/^```$/p' README.md | sed '1d;$d' | diff - client-lib/example.c ||
    { echo "README.md and client-lib/example.c differ" >&2 && exit 1; }
"${2:?}" "${3:?}" | grep -x '0 of 40 tokens were cached'
