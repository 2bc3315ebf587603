#!/bin/sh
# tests/sim/mutate.sh - plants a bug at a time into a copy of pool/ and asks whether the simulator sees it.
#
# Each row of the table below is one bug: FILE | what is wrong | sed script. A script that changes
# nothing fails too: then the core has moved on, and the row has to follow it. With --no-asserts the
# core is built without its asserts (pool_check() does nothing then), so that only what the simulator
# sees from outside counts.
set -eu
cd "$(dirname "$0")/../.."

usage() {
    cat <<TEXT
usage: tests/sim/mutate.sh [--seconds T] [--no-asserts] [WORD...]
Builds the simulator with each planted bug (only those whose line has one of the WORDs) and runs it
for up to T seconds (default 20). Ends with "N caught, N missed"; the exit status is 1 if one was missed.
TEXT
}

seconds=20
flags=
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --seconds) seconds=${2:?} && shift ;;
    --no-asserts) flags=-DNDEBUG ;;
    -*) usage >&2 && exit 2 ;;
    *) break ;;
    esac
    shift
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM
cp -r pool tests "$folder"
cp -r pool "$folder/original"

# compile FOLDER/FILE.c : into FOLDER/FILE.o of the copy
compile() {
    # shellcheck disable=SC2086 # no flag, or one
    ${CC:-cc} $flags -w -std=gnu17 -O1 -g -D_GNU_SOURCE -I "$folder" -c -o "$folder/${1%.c}.o" "$folder/$1"
}

for source in pool/*.c tests/sim/*.c; do
    compile "$source"
done

# Links what is compiled, and runs it.
try() {
    ${CC:-cc} -o "$folder/mutant" "$folder"/pool/*.o "$folder"/tests/sim/*.o &&
        timeout $((seconds * 3 + 60)) "$folder/mutant" --seconds "$seconds" >"$folder/out" 2>&1
}

if ! try; then
    echo "mutate: without a planted bug the simulator fails too:" >&2
    tail -3 "$folder/out" >&2
    exit 2
fi

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
    cp "$folder/original/$file" "$folder/pool/$file"
    sed -i -E "$script" "$folder/pool/$file"
    if cmp -s "$folder/original/$file" "$folder/pool/$file" || ! compile "pool/$file"; then
        echo "STALE   $what ($file: the script changes nothing, or not as meant)"
        missed=$((missed + 1))
    elif try; then
        echo "MISSED  $what ($file)"
        missed=$((missed + 1))
    else
        why=$(grep -hE '^sim: |Assertion' "$folder/out" | head -1)
        event=$(sed -nE 's/^sim: seed ([0-9]+) failed at event ([0-9]+).*/seed \1, event \2/p' "$folder/out")
        echo "caught  $what: ${why:-it does not end or crashes} ($event)"
        caught=$((caught + 1))
    fi
    cp "$folder/original/$file" "$folder/pool/$file"
    compile "pool/$file"
done <<'TABLE'
block.c|a block that a copy reads is evicted with its granule|s/if \(block->num_readers == 0\)$/if (true)/; s/ \&\& block->num_readers == 0\);/);/
evict.c|the operator evicts a block that a copy reads|s/while \(id != NONE \&\& pool->blocks\[id\].num_readers > 0\)/while (false)/
block.c|slots of a vanished engine are free at once|s/is_in_transfer\(block\) \|\| pool->taking_from != NONE/is_in_transfer(block)/
block.c|a slot is free while a copy still writes it|s/is_in_transfer\(block\) \|\| pool->taking_from != NONE/pool->taking_from != NONE/
block.c|a slot that a copy wrote is not quarantined after it|s/if \(taker != NONE \&\& pool->sessions\[taker\].is_attached\)/if (false)/
block.c|a cleared block is found|s/(block->arena != arena \|\|) !block_is_published\(pool, block\) \|\|/\1 block->state != BLOCK_PUBLISHED ||/
arriving.c|waiters of a session that ended are replied to|s/if \(pool->waiters\[id\].session == session\)$/if (false)/
arriving.c|waiters are not woken by publish|s/for_each_waiter\(pool, when_published, .*\);/return;/
arriving.c|deadlines are ignored|s/now_ms >= waiter->deadline_ms/false/
table.c|a tail in a chunk that forks share is written in place|s/ \|\|$/;/; s/^ *chunk_at\(pool->table_chunks, sequence->table_chunk\)->refs > 1;$//
grow.c|a tail that a copy reads is written in place|s/return block->num_readers > 0 \? TAIL_SHARED : TAIL_CACHED/return TAIL_CACHED/; s/return block->num_readers > 0 \? TAIL_SHARED : TAIL_OWN/return TAIL_OWN/
grow.c|the source of a copy is let go of before the copy ends|s/sequence->growth.old_tails\[group\] = entry->block;.*$/block_let_go(pool, entry->block, SLOT_TO_HEAD);/
transfer.c|a failed copy counts as a good one|s/has_failed \|= error != 0/has_failed |= false/
transfer.c|the source of a copy is not pinned|s/^ *block_pin\(pool, from\);//; s/^ *block_unpin\(pool, transfer.from\);//
step.c|a step ends under a running attend|s/if \(step->num_running > 0\) \{/if (false) {/
step.c|a failed attend completes its layer|s/layer_mark\(step, layer, error == 0\)/layer_mark(step, layer, true)/
step.c|an abandoned step keeps its tokens|s/grow_undo\(pool, sequence\);/sequence->is_filled = true;/
match.c|a sliding group needs one block less than its window|s/(start = window_start\(.*\));/\1 + 1;/
plan.c|a granule is dropped with its cached blocks|s/^ *granule_evict_all\(pool, id, payer\);.*$//
arena.c|a slot keeps its generation|s/^        \+\+pool->generation;.*/        1;/
plan.c|limits are ignored|s/plan->limit = ignore_limits \?/plan->limit = true ?/
arriving.c|waiters of a filler that went are forgotten|s/for_each_waiter\(pool, when_withdrawn, .*\);/return;/
publish.c|publish sees incomplete tokens|s/up_to\(pool, sequence, sequence->num_complete\)/up_to(pool, sequence, sequence->length)/
publish.c|a merge keeps the hold of its own block|s/^ *block_let_go\(pool, own, SLOT_TO_HEAD\);//
publish.c|a merge takes a block from under a running attend|s/!would_merge\(pool, sequence, first, position\)/true/
publish.c|windows slide by tokens that are not complete|s/slide_window\(pool, sequence, group, num_tokens\)/slide_window(pool, sequence, group, sequence->length)/
publish.c|what a mapped engine still has to write is published|s/\(uint32_t\)\(num_tokens \/ block_tokens\)/(uint32_t)(sequence->length \/ block_tokens)/
fork.c|a fork gets incomplete tokens|s/child->num_complete\)/child->length)/g
sequence.c|truncate, release and preempt do not wait for attends|s/if \(!step\)$/if (true)/
payer.c|guarantees are ignored|s/!ignore_guarantee \&\& !stays_guaranteed/false \&\& !stays_guaranteed/
session.c|a session's steps outlive it|s/^ *step_abandon\(pool, step\);//
session.c|a detached session keeps its quarantine|s/session->is_attached = false;//
arena.c|memory is not given back|s/\.kind = POOL_EFFECT_DECOMMIT/.kind = POOL_EFFECT_COMMIT/
transfer.c|an append whose session ended is replied to|s/if \(is_live\)$/if (true)/
match.c|a match returns the last token|s/count : count - 1\)/count : count)/
TABLE
echo "$caught caught, $missed missed"
[ "$missed" -eq 0 ]
