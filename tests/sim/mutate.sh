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
plan.c|a block that a copy reads is evicted with its granule|s/if \(slot->num_readers == 0 \&\&$/if (true \&\&/
evict.c|the operator evicts a block that a copy reads|s/while \(id != NONE \&\& pool->slots\[id\].num_readers > 0\)/while (false)/
place.c|slots of a vanished engine are free at once|s/if \(!is_in_transfer \&\& taker == NONE\) \{/if (!is_in_transfer) {/
place.c|a slot is free while a copy still writes it|s/bool is_in_transfer = slot->is_incoming \|\| slot->num_readers > 0;/bool is_in_transfer = slot->num_readers > 0;/
place.c|a slot that a copy wrote is not quarantined after it|s/if \(taker != NONE \&\& pool->sessions\[taker\].is_attached\)/if (false)/
block.c|a cleared block is found|s/(block->arena != arena \|\|) !block_is_published\(pool, block\) \|\|/\1 block->state != BLOCK_PUBLISHED ||/
arriving.c|waiters of a session that ended are replied to|s/if \(pool->waiters\[id\].session == session\)$/if (false)/
arriving.c|waiters are not woken by publish|s/for_each_waiter\(pool, when_published, .*\);/return;/
arriving.c|deadlines are ignored|s/now_ms >= waiter->deadline_ms/false/
table.c|a tail in a chunk that forks share is written in place|s/ \|\|$/;/; s/^ *chunk_at\(pool->table_chunks, sequence->table_chunk\)->refs > 1;$//
grow.c|a tail that a copy reads is written in place|s/return block_slot\(pool, block\)->num_readers > 0 \? TAIL_SHARED : TAIL_CACHED/return TAIL_CACHED/; s/return block_slot\(pool, block\)->num_readers > 0 \? TAIL_SHARED : TAIL_OWN/return TAIL_OWN/
grow.c|the source of a copy is let go of before the copy ends|s/sequence->growth.old_tails\[group\] = entry->block;.*$/block_let_go(pool, entry->block, SLOT_TO_HEAD);/
transfer.c|a failed copy counts as a good one|s/has_failed \|= error != 0/has_failed |= false/
transfer.c|the source of a copy is not pinned|s/^ *place_pin\(pool, from\);//; s/^ *place_unpin\(pool, transfer->from, false\);//
step.c|a step ends under a running attend|s/if \(step->num_running > 0\) \{/if (false) {/
step.c|a failed attend completes its layer|s/layer_mark\(step, layer, error == 0\)/layer_mark(step, layer, true)/
step.c|an abandoned step keeps its tokens|s/grow_undo\(pool, sequence\);/sequence->is_filled = true;/
match.c|a sliding group needs one block less than its window|s/(start = window_start\(.*\));/\1 + 1;/
plan.c|a granule is dropped with its cached blocks|s/^ *granule_evict_all\(pool, id, payer\);.*$//
arena.c|a slot keeps its generation|s/^        \+\+pool->generation;.*/        1;/
plan.c|limits are ignored|s/ignore_limits \? POOL_UNLIMITED : .*;/POOL_UNLIMITED;/
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
place.c|a place that goes is not told to be gone|s/^    if \(block->present >> tier \& 1\)$/    if (false)/
place.c|a slot that a copy reads is free when its block goes|s/bool is_in_transfer = slot->is_incoming \|\| slot->num_readers > 0;/bool is_in_transfer = slot->is_incoming;/
place.c|a block that was cleared on its way arrives|s/bool is_cleared = block->state .*;/bool is_cleared = false;/
block.c|a block written in place keeps its copies below|s/if \(slot != NONE \&\& tier != POOL_TIER_DEVICE\)$/if (false)/
block.c|a block that is published anew loses its copies below|s/^    block->present \|= other->present;//
promote.c|a failed promotion counts as good|s/place_arrived\(pool, to, error == 0\)/place_arrived(pool, to, true)/
promote.c|what could not be read stays|s/^        drop_source\(pool, from\);/        (void)0;/
promote.c|a lost block keeps its key|s/^        block_unpublish\(pool, id\);/        (void)0;/
promote.c|deadlines of promotions are ignored|s/pool->now_ms >= sequence->promotion.deadline_ms/false/
promote.c|a clear forgets who waits for promotions|s/if \(sequence_is_stale\(pool, .*\)\)/if (false)/
promote.c|waiters of a session that ended are granted|s/^            stop_waiting\(pool, \&pool->sequences\[id\]\);/            (void)0;/
promote.c|only the last block is waited for|s/^    if \(block == NONE\) \{/    if (block == NONE || sequence->promotion.num_positions < 2) {/
promote.c|waiters are left behind with a failed copy|s/^        pool->transfers\[transfer\].waiters = waiters;//
promote.c|a block on its way is copied once more|s/!\(\(pool->blocks\[block\].present \| pool->blocks\[block\].incoming\) \& DEVICE_BIT\)/!(pool->blocks[block].present \& DEVICE_BIT)/
promote.c|an undone resume loses its sequence|s/if \(sequence->promotion.is_resume\) \{/if (false) {/
promote.c|a tier that is off is read|s/ \& pool->found_tiers;/;/
prefetch.c|prefetched blocks stay held|s/^            block_let_go\(pool, id, SLOT_TO_HEAD\);//
allocate.c|an allocation does not wait for what is below|s/if \(match->num_below > 0 \|\| match->has_incoming\) \{/if (false) {/
allocate.c|who hits what comes up does not wait|s/match->num_below > 0 \|\| match->has_incoming/match->num_below > 0/
allocate.c|hits are counted before they are granted|s/^        promote_begin\(pool, sequence\);/        promote_begin(pool, sequence); allocation_count(pool, sequence);/
demote.c|a failed store counts as good|s/place_arrived\(pool, transfer->to, error == 0\)/place_arrived(pool, transfer->to, true)/
demote.c|who wants nothing stored is not asked|s/block->is_wanted \&\& !block->is_unwanted/block->is_wanted/
demote.c|everything is stored|s/block->is_wanted \&\& !block->is_unwanted/true/
demote.c|a tier that is not on is written|s/pool->tiers\[tier\].mode == POOL_TIER_ON/true/
demote.c|bytes under way are not capped|s/tier->store_bytes \+ block_bytes\(pool, below\) > config->max_store_bytes/false/
demote.c|bytes per second are not capped|s/tier->store_credit <= 0/false/
demote.c|what may be stored piles up|s/if \(tier->store_credit > most\)/if (false)/
demote.c|bytes of failed stores stay under way|s/^    tier->store_bytes -= block_bytes\(pool, arena\);/    tier->store_bytes -= error ? 0 : block_bytes(pool, arena);/
demote.c|a block is stored twice in a tier|s/return \(block->present \| block->incoming\) >> \(tier \+ 1\) != 0;/return false;/
publish.c|all of a prompt's sliding groups is stored|s/naming->is_wanted = position >= window_start\(model, group, hit\);/naming->is_wanted = true;/
publish.c|generated blocks count as prompt|s/\(position \+ UINT64_C\(1\)\) \* block_tokens > prompt\)/false)/
sequence.c|a preempt wants the block that its tail was cut from|s/at < length \/ block_tokens/at < sequence->num_positions/
allocate.c|a store evicts what its allocation waits for|s/^(    int answer = begin_promotion.*)$/    if (pool->num_tiers > 1) mark_hits(pool, sequence, match);\n\1/
match.c|a lowered limit hides what is on the device|s/if \(!\(pool->blocks\[\*match_hit\(pool, group, at\)\].present \& DEVICE_BIT\)\)/if (true)/
sequence.c|a preempt wants what its windows left|s/at >= window_start\(model, group, hit\)\)/true)/
tier.c|a tier that is off is found|s/^        pool->found_tiers \&= .*;/        (void)0;/
match.c|hits below count for the device|s/^        out\[furthest\]\+\+;/        out[POOL_TIER_DEVICE]++;/
restore.c|slots of a granule that comes back are free at once|s/^        slot_take\(pool, id\);/        continue;/
restore.c|a restored slot gets another generation|s/^        slot->generation = restored->generation;/        (void)0;/
restore.c|generations begin anew after a restart|s/^        pool->generation = slot->generation;/        (void)0;/
restore.c|what nobody restored anything in stays committed|s/if \(was_restoring \&\& .*\)$/if (false)/
restore.c|a block restored in two tiers is two blocks|s/uint32_t block = block_find_form\(.*\);/uint32_t block = NONE;/
restore.c|what is not to be stored is, after a restart|s/^    pool->blocks\[block\].is_unwanted \|= restored->is_unstorable;//; s/block = (block_restore\(pool, id, )restored\);/{ struct pool_restored r = *restored; r.is_unstorable = false; block = \1\&r); }/
place.c|a medium is not told what is not to be stored|s/\.is_unstorable = block->is_unwanted/.is_unstorable = false/
payer.c|guarantees below the device are the device's|s/quota\[arena->tier\].guarantee \+/quota[POOL_TIER_DEVICE].guarantee +/
plan.c|limits below the device are the device's|s/quota\[plan->tier\].limit/quota[POOL_TIER_DEVICE].limit/
TABLE
echo "$caught caught, $missed missed"
[ "$missed" -eq 0 ]
