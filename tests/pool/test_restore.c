/* tests/pool/test_restore.c - what pool/restore.c promises: what survived comes back. */
#include "tests/pool/fixture.h"

#include <string.h>

static const uint32_t other_form[FIXTURE_BLOCK] = {9, 9, 9, 9};

/* A second pool like @f's, with its arenas; what @effect (PRESENT) told is what it will restore. */
static struct fixture *restarted(void)
{
    struct fixture *f = fixture_create_tiers(4, 4, 8, 4);

    assert_int_equal(pool_arena_reserve(f->pool, 0, 0), 0);
    return f;
}

/* What a record beside the block at @position of text 1 says. */
static struct pool_restored record_of(struct fixture *writer, uint32_t position, uint32_t slot)
{
    const struct pool_effect *effect = nth_effect(writer, POOL_EFFECT_PRESENT, position);

    return (struct pool_restored){.slot = slot,
                                  .generation = 40 + slot,
                                  .key = *effect->key,
                                  .parent = effect->parent,
                                  .form = effect->form,
                                  .num_form = effect->num_form};
}

static struct fixture *writer;

static int setup(void **state)
{
    writer = fixture_create_tiers(4, 4, 8, 0);
    must_alloc(writer, 1, 1, 12); /* three blocks, in slots 1, 2 and 3 */
    *state = restarted();
    return 0;
}

static int teardown(void **state)
{
    fixture_destroy(writer);
    fixture_destroy(*state);
    return 0;
}
#define restore_test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static int restore(struct fixture *f, enum pool_tier tier, uint32_t position, uint32_t slot)
{
    const struct pool_restored restored = record_of(writer, position, slot);
    int answer = pool_restore_block(f->pool, tier_arena_of(f, 0, 0, 0, tier), &restored);

    pool_check(f->pool);
    return answer;
}

static int restore_granule(struct fixture *f, enum pool_tier tier, uint32_t granule)
{
    int answer = pool_restore_granule(f->pool, tier_arena_of(f, 0, 0, 0, tier), granule);

    pool_check(f->pool);
    return answer;
}

static int restore_end(struct fixture *f, enum pool_tier tier, uint32_t granule)
{
    int answer = pool_restore_end(f->pool, tier_arena_of(f, 0, 0, 0, tier), granule);

    pool_check(f->pool);
    return answer;
}

static void what_was_on_the_device_is_hit_at_once(void **state)
{
    struct fixture *f = *state;
    struct pool_place places[3];
    uint32_t count;

    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(restore_granule(f, POOL_TIER_DEVICE, i), 0);
        assert_int_equal(restore(f, POOL_TIER_DEVICE, i, 1 + i), 0);
        assert_int_equal(restore_end(f, POOL_TIER_DEVICE, i), 0);
    }
    assert_int_equal(count_effects(f, POOL_EFFECT_COMMIT), 0);
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 2);
    assert_int_equal(count_effects(f, POOL_EFFECT_PRESENT), 0); /* the caller knows */
    assert_evictable(f, "2,1"); /* the last one restored is the coldest */
    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 12), 0);
    assert_int_equal(f->found.matched, 8);
    assert_int_equal(pool_table(f->pool, (struct pool_name){0, 1}, 0, places, 3, &count), 0);
    assert_int_equal(places[0].slot, 1);
    assert_int_equal(places[0].generation, 41);
    assert_int_equal(places[1].generation, 42);
    assert_true(places[2].generation > 42); /* no generation is given twice */
}

/*
 * Block 1 was looked at for a copy below; then block 0 was restored before it in the order, and not
 * yet. An allocation that hits both and is refused puts them back: block 0 is still to be looked
 * at.
 */
static void a_refusal_leaves_what_is_to_be_stored(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(restore_granule(f, POOL_TIER_DEVICE, 1), 0);
    assert_int_equal(restore(f, POOL_TIER_DEVICE, 1, 2), 0);
    assert_int_equal(restore_end(f, POOL_TIER_DEVICE, 1), 0);
    must_alloc(f, 8, 3, 8); /* two pages are left: less than 4 */
    advance(f);
    assert_int_equal(copies_done(f, 0), 1);
    assert_int_equal(restore_granule(f, POOL_TIER_DEVICE, 3), 0);
    assert_int_equal(restore(f, POOL_TIER_DEVICE, 0, 4), 0);
    assert_int_equal(restore_end(f, POOL_TIER_DEVICE, 3), 0);
    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 16), POOL_NO_BLOCKS);
    pool_check(f->pool);
    advance(f);
    assert_int_equal(copies_done(f, 1), 1);
    assert_int_equal(tier_stats(f, POOL_TIER_HOST).stores_done, 2);
}

static void what_was_on_disk_is_promoted(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(restore_granule(f, POOL_TIER_DISK, 5), 0);
    assert_int_equal(restore(f, POOL_TIER_DISK, 0, 6), 0);
    assert_int_equal(restore_end(f, POOL_TIER_DISK, 5), 0);
    const struct pool_effect *stored = nth_effect(f, POOL_EFFECT_STORED, 0);
    assert_int_equal(stored->arena, arena_of(f, 0, 0, 0));
    assert_int_equal(stored->slot, 0); /* none on the device */
    assert_null(stored->parent);
    assert_int_equal(stored->tokens[3], 1003);
    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 12, .cookie = 7), POOL_PENDING);
    assert_int_equal(nth_effect(f, POOL_EFFECT_COPY, 0)->from_slot, 6);
    assert_int_equal(copy_done(f, 0, 0), 0);
    assert_reply(f, 7, 0);
}

static void places_of_one_key_become_one_block(void **state)
{
    struct fixture *f = *state;

    for (enum pool_tier tier = POOL_TIER_DISK; tier + 1 > POOL_TIER_DEVICE; tier--) {
        assert_int_equal(restore_granule(f, tier, 0), 0);
        assert_int_equal(restore(f, tier, 0, 1), 0);
        assert_int_equal(restore_end(f, tier, 0), 0);
        if (tier == POOL_TIER_DEVICE)
            break;
    }
    assert_int_equal(count_effects(f, POOL_EFFECT_STORED), 1);
    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 5), 0);
    assert_int_equal(f->found.below, 0);
    assert_int_equal(release(f, 1, 0), 0);
    assert_int_equal(pool_evict(f->pool, 9), 1);
    assert_int_equal(pool_tier_evict(f->pool, POOL_TIER_HOST, 9), 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 0);
    assert_int_equal(pool_tier_evict(f->pool, POOL_TIER_DISK, 9), 1);
    assert_int_equal(count_effects(f, POOL_EFFECT_REMOVED), 1);
}

static void a_second_place_in_one_tier_is_refused(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(restore_granule(f, POOL_TIER_DISK, 0), 0);
    assert_int_equal(restore_granule(f, POOL_TIER_DISK, 1), 0);
    assert_int_equal(restore(f, POOL_TIER_DISK, 0, 1), 0);
    assert_int_equal(restore(f, POOL_TIER_DISK, 0, 2), POOL_EXISTS);
    assert_int_equal(restore_end(f, POOL_TIER_DISK, 0), 0);
    assert_int_equal(restore_end(f, POOL_TIER_DISK, 1), 0);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).evictable, 1);
    assert_int_equal(tier_stats(f, POOL_TIER_DISK).uncommitted, 7); /* granule 1 went back */
    assert_int_equal(count_effects(f, POOL_EFFECT_DECOMMIT), 1);
    assert_int_equal(nth_effect(f, POOL_EFFECT_DECOMMIT, 0)->index, 1);
}

static void ids_that_differ_are_another_block(void **state)
{
    struct fixture *f = *state;
    struct pool_restored restored = record_of(writer, 0, 2);

    restored.form = other_form;
    assert_int_equal(restore_granule(f, POOL_TIER_DISK, 0), 0);
    assert_int_equal(restore_granule(f, POOL_TIER_DISK, 1), 0);
    assert_int_equal(restore(f, POOL_TIER_DISK, 0, 1), 0);
    assert_int_equal(
        pool_restore_block(f->pool, tier_arena_of(f, 0, 0, 0, POOL_TIER_DISK), &restored), 0);
    assert_int_equal(match(f, .seed = 1, .count = 5), 0);
    assert_int_equal(f->found.matched, 4);
    assert_int_equal(restore_end(f, POOL_TIER_DISK, 0), 0);
    assert_int_equal(restore_end(f, POOL_TIER_DISK, 1), 0);
}

static void slots_are_given_to_nobody_until_the_end(void **state)
{
    struct fixture *f = *state;

    for (uint32_t granule = 0; granule < 4; granule++)
        assert_int_equal(restore_granule(f, POOL_TIER_DEVICE, granule), 0);
    assert_int_equal(stat_of(f, "quarantined"), 4);
    assert_int_equal(alloc(f, .id = 1, .seed = 2, .count = 4), POOL_NO_BLOCKS);
    assert_int_equal(pool_evict(f->pool, 9), 0);
    assert_int_equal(restore(f, POOL_TIER_DEVICE, 0, 3), 0);
    for (uint32_t granule = 0; granule < 4; granule++)
        assert_int_equal(restore_end(f, POOL_TIER_DEVICE, granule), 0);
    assert_int_equal(stat_of(f, "quarantined"), 0);
    assert_int_equal(stat_of(f, "uncommitted"), 3);
    assert_int_equal(alloc(f, .id = 1, .seed = 2, .count = 16), 0);
    assert_int_equal(stat_of(f, "evictions"), 1);
}

static void what_cannot_be_is_refused(void **state)
{
    struct fixture *f = *state;
    uint32_t disk = tier_arena_of(f, 0, 0, 0, POOL_TIER_DISK);
    struct pool_restored restored = record_of(writer, 0, 1);

    assert_int_equal(pool_restore_granule(f->pool, 99, 0), POOL_INVALID);
    assert_int_equal(pool_restore_granule(f->pool, disk, UINT32_MAX), POOL_INVALID);
    assert_int_equal(pool_restore_block(f->pool, disk, &restored), POOL_INVALID); /* no granule */
    assert_int_equal(restore_granule(f, POOL_TIER_DISK, 0), 0);
    assert_int_equal(restore_granule(f, POOL_TIER_DISK, 0), POOL_EXISTS);
    restored.num_form = 2;
    assert_int_equal(pool_restore_block(f->pool, disk, &restored), POOL_INVALID);
    restored.num_form = FIXTURE_BLOCK;
    restored.slot = 0;
    assert_int_equal(pool_restore_block(f->pool, disk, &restored), POOL_INVALID);
    assert_int_equal(restore(f, POOL_TIER_DISK, 0, 1), 0);
    assert_int_equal(restore(f, POOL_TIER_DISK, 1, 1), POOL_INVALID); /* it has one */
    assert_int_equal(restore_end(f, POOL_TIER_DISK, 0), 0);
    for (uint32_t granule = 1; granule < 8; granule++)
        assert_int_equal(restore_granule(f, POOL_TIER_DISK, granule), 0);
    assert_int_equal(restore_granule(f, POOL_TIER_DISK, 8), POOL_NO_BLOCKS);
    for (uint32_t granule = 1; granule < 8; granule++)
        assert_int_equal(restore_end(f, POOL_TIER_DISK, granule), 0);
}

static void new_granules_do_not_meet_restored_ones(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(restore_granule(f, POOL_TIER_DEVICE, 1), 0);
    assert_int_equal(restore(f, POOL_TIER_DEVICE, 0, 2), 0);
    assert_int_equal(restore_end(f, POOL_TIER_DEVICE, 1), 0);
    assert_int_equal(alloc(f, .id = 1, .seed = 2, .count = 12), 0);
    assert_table(f, 1, "1,3,4"); /* slot 2 keeps what it has */
    assert_int_equal(stat_of(f, "evictions"), 0);
}

static void what_is_restored_is_stored_further_below(void **state)
{
    struct fixture *f = *state;
    struct pool_restored restored = record_of(writer, 1, 2);

    restored.is_unstorable = true;
    assert_false(nth_effect(writer, POOL_EFFECT_PRESENT, 1)->is_unstorable);
    assert_int_equal(restore_granule(f, POOL_TIER_DEVICE, 0), 0);
    assert_int_equal(restore(f, POOL_TIER_DEVICE, 0, 1), 0);
    assert_int_equal(restore_end(f, POOL_TIER_DEVICE, 0), 0);
    assert_int_equal(restore_granule(f, POOL_TIER_DEVICE, 1), 0);
    assert_int_equal(pool_restore_block(f->pool, arena_of(f, 0, 0, 0), &restored), 0);
    assert_int_equal(restore_end(f, POOL_TIER_DEVICE, 1), 0);
    advance(f); /* 2 of 4 pages are short */
    assert_int_equal(copies_done(f, 0), 1);
    assert_int_equal(nth_effect(f, POOL_EFFECT_COPY, 0)->from_slot, 1);
}

static void what_was_generated_is_stored_once_it_is_prompt(void **state)
{
    struct fixture *f = *state;
    struct pool_restored restored = record_of(writer, 0, 1);

    restored.is_generated = true;
    assert_int_equal(restore_granule(f, POOL_TIER_DEVICE, 0), 0);
    assert_int_equal(pool_restore_block(f->pool, arena_of(f, 0, 0, 0), &restored), 0);
    assert_int_equal(restore_end(f, POOL_TIER_DEVICE, 0), 0);
    advance(f);
    assert_int_equal(count_effects(f, POOL_EFFECT_COPY), 0);
    assert_int_equal(alloc(f, .id = 1, .seed = 1, .count = 5), 0);
    assert_int_equal(release(f, 1, 0), 0);
    advance(f);
    assert_int_equal(copies_done(f, 0), 1);
}

static void records_say_what_may_be_stored(void **state)
{
    struct fixture *f = *state;

    must_alloc(f, 1, 3, 4);
    assert_int_equal(append(f, 1, 3, 4, 0), 0);
    assert_int_equal(publish(f, 1), 0);
    assert_int_equal(pool_session_set_store(f->pool, 0, POOL_STORE_NONE), 0);
    must_alloc(f, 2, 4, 4);
    const struct pool_effect *prompt = nth_effect(f, POOL_EFFECT_PRESENT, 0);
    const struct pool_effect *generated = nth_effect(f, POOL_EFFECT_PRESENT, 1);
    const struct pool_effect *unstorable = nth_effect(f, POOL_EFFECT_PRESENT, 2);
    assert_true(!prompt->is_generated && !prompt->is_unstorable);
    assert_true(generated->is_generated && !generated->is_unstorable);
    assert_true(!unstorable->is_generated && unstorable->is_unstorable);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        restore_test(what_was_on_the_device_is_hit_at_once),
        restore_test(a_refusal_leaves_what_is_to_be_stored),
        restore_test(what_was_on_disk_is_promoted),
        restore_test(places_of_one_key_become_one_block),
        restore_test(a_second_place_in_one_tier_is_refused),
        restore_test(ids_that_differ_are_another_block),
        restore_test(slots_are_given_to_nobody_until_the_end),
        restore_test(what_cannot_be_is_refused),
        restore_test(new_granules_do_not_meet_restored_ones),
        restore_test(what_is_restored_is_stored_further_below),
        restore_test(what_was_generated_is_stored_once_it_is_prompt),
        restore_test(records_say_what_may_be_stored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
