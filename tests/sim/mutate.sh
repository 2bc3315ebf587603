#!/bin/sh
# tests/sim/mutate.sh - plants a bug at a time into a copy of pool/ and asks whether the simulator sees it.
#
# Each row of the table below is one bug: FILE | what is wrong | sed script. A script that changes
# nothing fails too: then the core has moved on, and the row has to follow it.
set -eu
cd "$(dirname "$0")/../.."

usage() {
    cat <<TEXT
usage: tests/sim/mutate.sh [--seconds T] [WORD...]
Builds the simulator with each planted bug (only those whose line has one of the WORDs) and runs it
for up to T seconds (default 20). Ends with "N caught, N missed"; the exit status is 1 if one was missed.
TEXT
}

seconds=20
case ${1:-} in
-h | --help) usage && exit 0 ;;
--seconds) seconds=${2:?} && shift 2 ;;
esac

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM
cp -r pool tests "$folder"

# build NAME : the simulator of the copy
build() {
    # shellcheck disable=SC2086 # a list of flags on purpose
    ${CC:-cc} -std=gnu17 -O1 -g -D_GNU_SOURCE -I "$folder" -o "$folder/$1" \
        "$folder"/pool/*.c "$folder"/tests/sim/*.c
}

is_wanted() {
    line=$1 && shift
    [ $# -gt 0 ] || return 0
    for word in "$@"; do
        case $line in *"$word"*) return 0 ;; esac
    done
    return 1
}

caught=0
missed=0
while IFS='|' read -r file what script; do
    case $file in '' | '#'*) continue ;; esac
    is_wanted "$file $what" "$@" || continue
    cp "pool/$file" "$folder/pool/$file"
    sed -i -E "$script" "$folder/pool/$file"
    if cmp -s "pool/$file" "$folder/pool/$file"; then
        echo "stale   $what ($file: the script changes nothing)"
        missed=$((missed + 1))
        continue
    fi
    build mutant
    if "$folder/mutant" --seconds "$seconds" >"$folder/out" 2>&1; then
        echo "MISSED  $what ($file)"
        missed=$((missed + 1))
    else
        why=$(grep -hE '^sim: |Assertion' "$folder/out" | head -1)
        event=$(sed -nE 's/^sim: seed ([0-9]+) failed at event ([0-9]+).*/seed \1, event \2/p' "$folder/out")
        echo "caught  $what: $why ($event)"
        caught=$((caught + 1))
    fi
    cp "pool/$file" "$folder/pool/$file"
done <<'TABLE'
block.c|a block that a copy reads is evicted with its granule|s/if \(block->num_readers\+\+ == 0 \&\& block->is_evictable\)/if (block->num_readers++ == 0 \&\& false)/; s/assert\(block->is_evictable \&\& block->num_readers == 0\)/assert(block->is_evictable)/
evict.c|the operator evicts a block that a copy reads|s/while \(id != NONE \&\& pool->blocks\[id\].num_readers > 0\)/while (false)/
block.c|slots of a vanished engine are free at once|s/is_in_transfer\(block\) \|\| pool->taking_from != NONE/is_in_transfer(block)/
block.c|a slot is free while a copy still writes it|s/is_in_transfer\(block\) \|\| pool->taking_from != NONE/pool->taking_from != NONE/
block.c|a slot that a copy wrote is not quarantined after it|s/if \(taker != NONE \&\& pool->sessions\[taker\].is_attached\)/if (false)/
block.c|a cleared block is found|s/(block->arena != arena \|\|) !block_is_published\(pool, block\) \|\|/\1 block->state != BLOCK_PUBLISHED ||/
arriving.c|waiters of a filler that went are forgotten|s/for_each_waiter\(pool, when_gone, .*\);/return;/
arriving.c|waiters of a session that ended are replied to|s/if \(pool->waiters\[id\].session == session\)$/if (false)/
arriving.c|waiters are not woken by publish|s/for_each_waiter\(pool, when_published, .*\);/return;/
arriving.c|deadlines are ignored|s/now_ms >= waiter->deadline_ms/false/
table.c|a tail in a chunk that forks share is written in place|s/ \|\|$/;/; s/^ *chunk_at\(pool->table_chunks, sequence->table_chunk\)->refs > 1;$//
grow.c|a tail that a copy reads is written in place|s/return block->num_readers > 0 \? TAIL_SHARED : TAIL_CACHED/return TAIL_CACHED/; s/return block->num_readers > 0 \? TAIL_SHARED : TAIL_OWN/return TAIL_OWN/
grow.c|the source of a copy is let go of before the copy ends|s/sequence->growth.old_tails\[group\] = entry->block;.*$/block_let_go(pool, entry->block, SLOT_TO_HEAD);/
transfer.c|a failed copy counts as a good one|s/has_failed \|= error != 0/has_failed |= false/
transfer.c|the source of a copy is not pinned|s/^ *block_pin\(pool, from\);//; s/^ *block_unpin\(pool, transfer.from\);//
step.c|a step ends under a running attend|s/if \(step->num_running > 0\) \{/if (false) {/
step.c|a failed attend completes its layer|s/if \(!error \&\& /if (/
step.c|an abandoned step keeps its tokens|s/grow_undo\(pool, sequence\);/sequence->is_filled = true;/
match.c|a sliding group needs one block less than its window|s/(start = window_start\(.*\));/\1 + 1;/
plan.c|a granule is dropped with its cached blocks|s/^ *granule_evict_all\(pool, id, plan->payer\);.*$//
arena.c|a slot keeps its generation|s/slot->generation = \+\+pool->generation;.*/slot->generation = 1;/
plan.c|limits are ignored|s/plan->limit = ignore_limits \?/plan->limit = true ?/
TABLE
echo "$caught caught, $missed missed"
[ "$missed" -eq 0 ]
