#!/bin/sh
# tests/daemon/check_install.sh - `meson install` puts what deploy/ promises where it belongs.
# usage: check_install.sh BUILD_ROOT PREFIX
set -eu
build=${1:?usage: check_install.sh BUILD_ROOT PREFIX}
prefix=${2:?usage: check_install.sh BUILD_ROOT PREFIX}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

meson install -C "$build" --no-rebuild --quiet --destdir "$root"
status=0
for file in lib/systemd/system/kvpoold.service lib/sysusers.d/kvpoold.conf \
    share/doc/kvpoold/kvpoold.yaml share/man/man8/kvpoold.8 share/man/man5/kvpoold.yaml.5; do
    if ! [ -f "$root$prefix/$file" ]; then
        echo "check_install: $prefix/$file is missing" >&2
        status=1
    fi
done
if grep -n '@[A-Z]*@' "$root$prefix/lib/systemd/system/kvpoold.service"; then
    echo "check_install: kvpoold.service has a word that was not replaced" >&2
    status=1
fi
exit $status
