#!/bin/sh
# tests/bench/kv_peers.sh - blocks in redis and memcached, beside the daemon's fetch and store.
set -eu
build=${1:-build}
runs=${2:-3}

if [ "$build" = --help ] || [ "$build" = -h ]; then
    cat <<TEXT
usage: tests/bench/kv_peers.sh [BUILD [RUNS]]
Installs redis-server and memcached where they are missing (apt-get, as root), starts each on a unix
socket in a temporary directory, stores, overwrites and fetches 1 GiB in values of 64 KiB and 2 MiB,
1 and 16 outstanding; then runs the rows of bench_daemon (blocks in the pool) and bench_tiers (in the
pinned host tier below it) that do the same. RUNS times in turn (3).
TEXT
    exit 0
fi
[ -x "$build/tests/bench/kv_peer" ] || ninja -C "$build" tests/bench/kv_peer tests/bench/bench_tiers
for program in redis-server memcached; do
    command -v $program >/dev/null || apt-get install -y --no-install-recommends $program
done
dir=$(mktemp -d)
server=
stop() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -z "$server" ] || wait "$server" 2>/dev/null || true
    server=
    rm -f "$dir/socket"
}
trap 'stop; rm -rf "$dir"' EXIT INT TERM

# start PROGRAM: on $dir/socket, with room for all values, nothing on disk
start() {
    case $1 in
    redis) redis-server --port 0 --unixsocket "$dir/socket" --save '' --appendonly no \
        --dir "$dir" >"$dir/log" 2>&1 & ;;
    memcached) memcached -u "$(id -un)" -s "$dir/socket" -m 4096 -I 8m -t 2 >"$dir/log" 2>&1 & ;;
    esac
    server=$!
    for _ in $(seq 100); do
        [ -S "$dir/socket" ] && return
        sleep 0.1
    done
    echo "kv_peers: $1 does not listen" >&2 && exit 1
}

for _ in $(seq "$runs"); do
    for bytes in 65536 2097152; do
        for depth in 1 16; do
            for program in redis memcached; do
                start $program
                "$build/tests/bench/kv_peer" $program "$dir/socket" $bytes 1024 $depth
                stop
            done
        done
    done
    KVPOOLD="$build/daemon/kvpoold" "$build/tests/bench/bench_daemon" | grep mapped |
        awk '{gib = /2 MiB/ ? 2048 : 64
              for (i = 1; i <= NF; i++) if ($i == "us/block") us = $(i - 1)
              printf "%s = %.2f GB/s\n", $0, gib * 1.024 / us}' || true
    KVPOOLD="$build/daemon/kvpoold" "$build/tests/bench/bench_tiers" --rounds 9 |
        grep '^host:.*copied' || true
done
