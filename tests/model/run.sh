#!/bin/sh
# tests/model/run.sh - pytest in the environment of deploy/python-env, which it makes.
# usage: run.sh BUILD PYTEST_ARGUMENT... : exit status 77 (skipped) where packages cannot be had
#   run.sh BUILD --long: also what takes minutes a test (hours together)
#   run.sh BUILD test_llama.py: beside llama.cpp, once it is there:
#       nice BUILD/python/bin/python -m pip install llama-cpp-python    (5 to 30 minutes)
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
KVPOOLD_BUILD=${1:?usage: run.sh BUILD PYTEST_ARGUMENT...}
shift
export KVPOOLD_BUILD OPENBLAS_NUM_THREADS=1
"$source/deploy/python-env" "$KVPOOLD_BUILD/python"
cd "$source/tests/model"
exec "$KVPOOLD_BUILD/python/bin/python" -m pytest -p no:cacheprovider --tb=short -rs "$@"
