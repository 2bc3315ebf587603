#!/bin/sh
# tests/client-lib/python/run.sh - pytest in the environment of deploy/python-env, which it makes.
# usage: run.sh BUILD PYTEST_ARGUMENT... : exit status 77 (skipped) where packages cannot be had
set -eu
source=$(cd "$(dirname "$0")/../../.." && pwd)
KVPOOLD_BUILD=${1:?usage: run.sh BUILD PYTEST_ARGUMENT...}
shift
export KVPOOLD_BUILD
"$source/deploy/python-env" "$KVPOOLD_BUILD/python"
cd "$source/tests/client-lib/python"
exec "$KVPOOLD_BUILD/python/bin/python" -m pytest -p no:cacheprovider --tb=short "$@"
