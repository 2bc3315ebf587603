#!/bin/sh
# tests/check_layers.sh - fails on an include that goes up, or on a third party a folder may not use.
# usage: check_layers.sh SOURCE_ROOT
set -eu
cd "${1:?usage: check_layers.sh SOURCE_ROOT}"
status=0

# folder | folders it may include | third-party headers it may include (ERE)
while IFS='|' read -r folder may third; do
    [ -d "$folder" ] || continue
    others=$(for f in daemon proto gpu pool offload client-lib tests deploy; do
        case " $folder $may " in *" $f "*) ;; *) printf '%s|' "$f" ;; esac
    done)
    up="#include \"(${others%|})/"
    known='openssl/|protobuf-c|zmq\.h|liburing|xxhash|cuda|microhttpd|yaml\.h|jansson|cmocka'
    if grep -rnE "$up" "$folder" --include='*.[ch]' --include='*.cu'; then
        echo "check_layers: $folder/ may include only: $folder/ $may" >&2
        status=1
    fi
    if grep -rnE "#include [<\"](${known})" "$folder" --include='*.[ch]' --include='*.cu' |
        grep -vE "#include [<\"](${third:-NONE})"; then
        echo "check_layers: $folder/ may use of third parties only: ${third:-nothing}" >&2
        status=1
    fi
done <<TABLE
proto||openssl/|protobuf-c
pool||
gpu||cuda
offload|gpu|liburing|xxhash
daemon|proto pool gpu offload|zmq\.h|yaml\.h|microhttpd|jansson
client-lib|proto|zmq\.h
TABLE
exit $status
