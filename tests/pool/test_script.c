/* tests/pool/test_script.c - what tests/pool/script.c promises: every rule of the shell's grammar.
 */
#include "tests/pool/script.h"
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

static struct script_command command;
static char error[256];

static int parse(const char *line)
{
    script_command_finish(&command);
    command = (struct script_command){0};
    error[0] = '\0';
    return script_parse(line, &command, error, sizeof(error));
}

/* Each line is refused, with a message that names @word. */
static void assert_wrong(const char *line, const char *word)
{
    if (parse(line) != -EINVAL)
        fail_msg("'%s' was read", line);
    if (!strstr(error, word))
        fail_msg("'%s': '%s' does not name '%s'", line, error, word);
}

static void assert_tokens(const char *line, const uint32_t *tokens, size_t num_tokens)
{
    assert_int_equal(parse(line), 0);
    assert_int_equal(command.num_tokens, num_tokens);
    for (size_t i = 0; i < num_tokens; i++)
        assert_int_equal(command.tokens[i], tokens[i]);
}

static void comments_and_empty_lines_are_no_commands(void **state)
{
    (void)state;
    assert_int_equal(parse(""), 1);
    assert_int_equal(parse(" \t\r\n"), 1);
    assert_int_equal(parse("# pool blocks=1"), 1);
}

static void a_pool_has_blocks_and_defaults(void **state)
{
    (void)state;
    assert_int_equal(parse("pool blocks=7"), 0);
    assert_int_equal(command.verb, VERB_POOL);
    assert_int_equal(command.blocks, 7);
    assert_int_equal(command.block_tokens, 16);
    assert_int_equal(command.watermark, 0);
    assert_int_equal(parse("pool watermark=3 blocks=7 block_tokens=4\r\n"), 0);
    assert_int_equal(command.block_tokens, 4);
    assert_int_equal(command.watermark, 3);
    assert_wrong("pool", "blocks=");
    assert_wrong("pool blocks=", "blocks=");
    assert_wrong("pool blocks=1 blocks=1", "blocks=");
    assert_wrong("pool blocks=1 block_tokens=0", "block_tokens=");
    assert_wrong("pool blocks=1 block_tokens=65536", "block_tokens=");
}

static void numbers_are_decimal_and_nothing_else(void **state)
{
    (void)state;
    assert_wrong("pool blocks=0x10", "0x10");
    assert_wrong("pool blocks=-1", "-1");
    assert_wrong("pool blocks=+1", "+1");
    assert_wrong("pool blocks=1k", "1k");
    assert_wrong("pool blocks=99999999999999999999", "blocks"); /* bounds come after reading */
    assert_wrong("evict", "evict");
    assert_int_equal(parse("evict 18446744073709551614"), 0);
    assert_int_equal(command.number, UINT64_MAX - 1);
    assert_int_equal(parse("evict 010"), 0);
    assert_int_equal(command.number, 10);
}

static void tokens_are_single_ranges_and_repeats(void **state)
{
    static const uint32_t one[] = {5}, mixed[] = {1, 2, 3, 9, 9, 4294967295u, 0};

    (void)state;
    assert_tokens("append S tokens=5", one, 1);
    assert_tokens("append S tokens=5..5", one, 1);
    assert_tokens("append S tokens=5*1", one, 1);
    assert_tokens("append S tokens=1..3,9*2,4294967295,0", mixed, 7);
    assert_tokens("append S tokens=", NULL, 0);
    assert_wrong("append S", "tokens=");
    assert_wrong("append S tokens", "tokens");
    assert_wrong("append S tokens=5..3", "5..3");
    assert_wrong("append S tokens=7*0", "7*0");
    assert_wrong("append S tokens=4294967296", "4294967296");
    assert_wrong("append S tokens=1..4294967296", "4294967296");
    assert_wrong("append S tokens=,1", "missing");
    assert_wrong("append S tokens=1,", "missing");
    assert_wrong("append S tokens=1...3", ".3");
    assert_wrong("append S tokens=1..", "missing");
    assert_wrong("append S tokens=*3", "missing");
    assert_wrong("append S tokens=1*2*3", "2*3");
    assert_wrong("append S tokens=1*2..3", "1*2");
    assert_wrong("append S tokens=1-3", "1-3");
}

static void a_line_has_a_limit_of_tokens(void **state)
{
    (void)state;
    assert_int_equal(parse("append S tokens=1..16777216"), 0);
    assert_int_equal(command.num_tokens, SCRIPT_MAX_TOKENS);
    assert_wrong("append S tokens=0..16777216", "16777216");
    assert_wrong("append S tokens=0..4294967295", "16777216");
    assert_wrong("append S tokens=7*18446744073709551614", "16777216");
    assert_wrong("append S tokens=1..16777216,1", "16777216");
}

static void an_alloc_has_all_its_options(void **state)
{
    (void)state;
    assert_int_equal(parse("alloc S take=0 raw mapped unfilled session=X tokens=1 model=M tenant=T "
                           "layered=D salt=s=1 adapter=a:b extra=3:Ff00,0:0a"),
                     0);
    assert_string_equal(command.name, "S");
    assert_string_equal(command.session, "X");
    assert_string_equal(command.model, "M");
    assert_string_equal(command.tenant, "T");
    assert_string_equal(command.layered, "D");
    assert_true(command.has_salt && command.has_adapter);
    assert_string_equal(command.salt, "s=1");
    assert_string_equal(command.adapter, "a:b");
    assert_true(command.raw && command.mapped && command.unfilled);
    assert_int_equal(command.take, 0);
    assert_int_equal(command.num_extras, 2);
    assert_int_equal(command.extras[0].block, 0); /* ascending */
    assert_int_equal(command.extras[0].num_bytes, 1);
    assert_int_equal(command.extras[0].bytes[0], 0x0a);
    assert_int_equal(command.extras[1].block, 3);
    assert_memory_equal(command.extras[1].bytes, "\xff\x00", 2);

    assert_int_equal(parse("alloc S tokens=1"), 0);
    assert_true(command.take == SCRIPT_UNSET);
    assert_false(command.has_salt || command.has_adapter || command.raw);
    assert_wrong("alloc S", "tokens=");
    assert_wrong("alloc tokens=1", "alloc");
    assert_wrong("alloc S T tokens=1", "'T'");
    assert_wrong("alloc S tokens=1 raw raw", "raw");
    assert_wrong("alloc S tokens=1 rawest", "rawest");
    assert_wrong("alloc S tokens=1 raw=1", "raw=1");
    assert_wrong("alloc S tokens=1 group=1", "group=1");
    assert_wrong("alloc S tokens=1 salt=", "salt=");
    assert_wrong("alloc S tokens=1 session=", "session=");
    assert_wrong("find S tokens=1", "'S'");
    assert_wrong("find tokens=1 session=X", "session=X");
    assert_wrong("find tokens=1 take=1", "take=1");
}

static void extra_bytes_are_pairs_of_hex_digits(void **state)
{
    (void)state;
    assert_wrong("find tokens=1 extra=0:abc", "odd");
    assert_wrong("find tokens=1 extra=0:zz", "zz");
    assert_wrong("find tokens=1 extra=0:", "block 0");
    assert_wrong("find tokens=1 extra=0", "BLOCK:HEX");
    assert_wrong("find tokens=1 extra=", "BLOCK:HEX");
    assert_wrong("find tokens=1 extra=:ab", "missing");
    assert_wrong("find tokens=1 extra=0:ab,0:cd", "twice");
    assert_wrong("find tokens=1 extra=1:ab,0:ab,", "BLOCK:HEX");
}

static void names_are_bounded_and_have_no_marks(void **state)
{
    char line[200] = "release ";

    (void)state;
    memset(line + 8, 'n', SCRIPT_MAX_NAME);
    assert_int_equal(parse(line), 0);
    assert_int_equal(strlen(command.name), SCRIPT_MAX_NAME);
    line[8 + SCRIPT_MAX_NAME] = 'n';
    assert_wrong(line, "longer");
    assert_wrong("release D:3", "D:3");
    assert_wrong("release a,b", "a,b");
    assert_wrong("release a;b", "a;b");
    assert_wrong("release", "name");
    assert_wrong("release S S", "'S'");
    assert_wrong("fork S", "child");
}

static void quotas_are_of_tenants_and_domains(void **state)
{
    (void)state;
    assert_int_equal(parse("tenant T"), 0);
    assert_int_equal(command.guarantee, 0);
    assert_true(command.limit == SCRIPT_UNSET);
    assert_int_equal(command.weight, 1);
    assert_int_equal(parse("domain D readers=T,U guarantee=1 limit=2 weight=3"), 0);
    assert_int_equal(command.num_readers, 2);
    assert_string_equal(command.readers[1], "U");
    assert_int_equal(command.guarantee, 1);
    assert_int_equal(command.limit, 2);
    assert_int_equal(command.weight, 3);
    assert_wrong("tenant T weight=0", "weight=");
    assert_wrong("tenant T readers=U", "readers=U");
    assert_wrong("domain D", "readers=");
    assert_wrong("domain D readers=", "readers=");
    assert_wrong("domain D readers=T,", "readers=");
}

static void a_model_has_groups(void **state)
{
    (void)state;
    assert_int_equal(parse("model M"), 0);
    assert_int_equal(command.num_groups, 1);
    assert_int_equal(command.groups[0].window, 0);
    assert_int_equal(command.groups[0].per_granule, 1);
    assert_int_equal(parse("model M per_granule=4,1 groups=full,sliding:2"), 0);
    assert_int_equal(command.num_groups, 2);
    assert_int_equal(command.groups[0].per_granule, 4);
    assert_int_equal(command.groups[1].window, 2);
    assert_int_equal(command.groups[1].per_granule, 1);
    assert_wrong("model M groups=sliding:1", "window");
    assert_wrong("model M groups=sliding:0", "window");
    assert_wrong("model M groups=sliding:", "missing");
    assert_wrong("model M groups=sliding", "sliding");
    assert_wrong("model M groups=full,", "full");
    assert_wrong("model M groups=full:2", "full:2");
    assert_wrong("model M groups=full,full,full,full,full,full,full,full,full", "groups");
    assert_wrong("model M per_granule=0", "per_granule=");
    assert_wrong("model M per_granule=1,1", "per_granule=");
    assert_wrong("model M groups=full,full per_granule=1", "per_granule=");
    assert_wrong("model M per_granule=65537", "per_granule=");
}

static void the_rest_is_as_strict(void **state)
{
    (void)state;
    assert_int_equal(parse("holds 1,2,0 model=M group=1 tenant=T"), 0);
    assert_int_equal(command.num_slots, 3);
    assert_int_equal(command.slots[1], 2);
    assert_int_equal(command.group, 1);
    assert_int_equal(parse("free-list"), 0);
    assert_int_equal(command.group, 0);
    assert_int_equal(parse("truncate S 0"), 0);
    assert_int_equal(parse("end-session X"), 0);
    assert_string_equal(command.name, "X");
    assert_wrong("holds", "slot");
    assert_wrong("holds 1..3", "1..3");
    assert_wrong("truncate S", "number");
    assert_wrong("truncate S tokens=1", "tokens=1");
    assert_wrong("stats now", "now");
    assert_wrong("clear all", "all");
    assert_wrong("resume S raw", "raw");
    assert_wrong("frobnicate", "frobnicate");
    assert_wrong("= ok", "=");
    assert_wrong("Pool blocks=1", "Pool");
}

static void lines_beyond_the_page_are_as_strict(void **state)
{
    (void)state;
    assert_int_equal(parse("pool devices=64,32 watermarks=2,0 block_tokens=4"), 0);
    assert_true(command.is_extended);
    assert_int_equal(command.devices.num, 2);
    assert_int_equal(command.devices.items[1], 32);
    assert_int_equal(command.watermarks.items[0], 2);
    assert_int_equal(parse("pool blocks=1 watermark=1"), 0);
    assert_false(command.is_extended);
    assert_wrong("pool devices=64 blocks=1", "devices=");
    assert_wrong("pool devices=64 watermark=1", "devices=");
    assert_wrong("pool devices=64,0", "0");
    assert_wrong("pool devices=1,2 watermarks=1", "watermarks=");
    assert_wrong("pool devices=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "16");
    assert_wrong("model M groups=full,full pages=1", "pages=");
    assert_wrong("model M layers=0", "layers=");
    assert_wrong("end-step P", "commit");
    assert_wrong("end-step P commit abandon", "commit");
    assert_wrong("complete", "a number");
    assert_wrong("clear session=X", "session=X");
    assert_int_equal(parse("clear tenant=T"), 0);
    assert_true(command.is_extended);
    assert_int_equal(parse("clear"), 0);
    assert_false(command.is_extended);
    assert_int_equal(parse("pool blocks=4 host=2 disk=8 ahead=3"), 0);
    assert_true(command.is_extended);
    assert_int_equal(command.disk, 8);
    assert_int_equal(parse("evict 3 tier=disk"), 0);
    assert_true(command.is_extended);
    assert_int_equal(parse("evict 3"), 0);
    assert_false(command.is_extended);
    assert_wrong("tier disk", "mode=");
    assert_wrong("tier mode=on", "mode=on");
    assert_wrong("store tier=disk", "tier=disk");
}

static void a_step_has_rows(void **state)
{
    (void)state;
    assert_int_equal(parse("step P S=0..3,9 T=7"), 0);
    assert_string_equal(command.name, "P");
    assert_int_equal(command.num_rows, 2);
    assert_string_equal(command.rows[0].sequence, "S");
    assert_int_equal(command.rows[0].num_tokens, 5);
    assert_string_equal(command.rows[1].sequence, "T");
    assert_int_equal(command.rows[1].first_token, 5);
    assert_int_equal(command.rows[1].num_tokens, 1);
    assert_int_equal(command.tokens[5], 7);
    assert_wrong("step P", "a sequence");
    assert_wrong("step P S", "S");
    assert_wrong("step P S=1 =2", "a name");
    assert_wrong("step P S=3..1", "3..1");
    assert_wrong("step P a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1 j=1 k=1 l=1 m=1 n=1 o=1 p=1 q=1",
                 "16");
}

static void text_grows(void **state)
{
    struct text text = {0};

    (void)state;
    for (int i = 0; i < 1000; i++)
        text_add(&text, "%03d,", i);
    assert_int_equal(text.length, 4000);
    assert_memory_equal(text.bytes + 3996, "999,", 5);
    text_add(&text, "%0500d", 7);
    assert_int_equal(strlen(text.bytes), 4500);
    text_clear(&text);
    assert_string_equal(text.bytes, "");
    text_finish(&text);
    assert_null(text.bytes);
}

static int finish(void **state)
{
    (void)state;
    script_command_finish(&command);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comments_and_empty_lines_are_no_commands),
        cmocka_unit_test(a_pool_has_blocks_and_defaults),
        cmocka_unit_test(numbers_are_decimal_and_nothing_else),
        cmocka_unit_test(tokens_are_single_ranges_and_repeats),
        cmocka_unit_test(a_line_has_a_limit_of_tokens),
        cmocka_unit_test(an_alloc_has_all_its_options),
        cmocka_unit_test(extra_bytes_are_pairs_of_hex_digits),
        cmocka_unit_test(names_are_bounded_and_have_no_marks),
        cmocka_unit_test(quotas_are_of_tenants_and_domains),
        cmocka_unit_test(a_model_has_groups),
        cmocka_unit_test(the_rest_is_as_strict),
        cmocka_unit_test(lines_beyond_the_page_are_as_strict),
        cmocka_unit_test(a_step_has_rows),
        cmocka_unit_test(text_grows),
    };

    return cmocka_run_group_tests(tests, NULL, finish);
}
