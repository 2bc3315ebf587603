/* tests/daemon/test_config.c - what daemon/config.h promises: defaults, bounds, every mistake
 * named. */
#include "daemon/config.h"
#include "daemon/keep.h"
#include "daemon/settings.h"
#include "tests/daemon/files.h"

#include <errno.h>

static const char *const files[] = {"kvpoold.yaml", NULL};

/* Loads @text; answers what config_load() does. */
static int load(const char *text, struct config **out_config, struct config_error *out_error)
{
    struct directory directory;

    directory_make(&directory);
    int result = config_load(directory_write(&directory, files[0], text), out_config, out_error);
    directory_remove(&directory, files);
    return result;
}

static struct config *load_good(const char *text)
{
    struct config *config = NULL;
    struct config_error error;

    int result = load(text, &config, &error);
    for (size_t i = 0; result && i < error.count && i < CONFIG_MAX_ERRORS; i++)
        print_error("%s\n", error.texts[i]);
    assert_int_equal(result, 0);
    assert_int_equal(error.count, 0);
    return config;
}

/* Refused, with texts that hold @expected, in order, and no others. */
static void refuse(const char *text, const char *const *expected)
{
    struct config *config = NULL;
    struct config_error error;
    size_t count = 0;

    assert_int_equal(load(text, &config, &error), CONFIG_REFUSED);
    assert_null(config);
    while (expected[count])
        count++;
    for (size_t i = 0; i < error.count && i < CONFIG_MAX_ERRORS; i++) {
        if (i < count && strstr(error.texts[i], expected[i]))
            continue;
        print_error("%zu: %s, expected %s\n", i, error.texts[i], i < count ? expected[i] : "none");
        fail();
    }
    assert_int_equal(error.count, count);
}

#define REFUSE(text, ...) refuse(text, (const char *const[]){__VA_ARGS__, NULL})

/* ---- the table ------------------------------------------------------------------------------ */

static void every_default_is_within_its_own_bounds(void **state)
{
    (void)state;
    for (size_t i = 0; i < num_settings; i++) {
        struct config config = {0};
        char value[SETTING_TEXT];
        setting_default(&settings[i], value);
        assert_int_equal(setting_apply(&settings[i], value, &config), 0);
        assert_true(strlen(settings[i].help) > 10);
        assert_ptr_equal(setting_find(settings[i].name), &settings[i]);
        settings_finish(&config);
    }
}

/* The struct is the settings and the two lists: a field without a row would stay zero. */
static void the_table_covers_the_struct(void **state)
{
    size_t bytes = 0;

    (void)state;
    for (size_t i = 0; i < num_settings; i++)
        bytes += settings[i].kind == SETTING_BOOL ? sizeof(bool) : sizeof(uint64_t);
    assert_in_range(offsetof(struct config, tenants) - bytes, 0, 7);
}

static void no_file_gives_the_defaults(void **state)
{
    struct config *config;
    struct config_error error;

    (void)state;
    assert_int_equal(config_load(NULL, &config, &error), 0);
    assert_string_equal(config->run_directory, "/run/kvpoold");
    assert_int_equal(config->pool_bytes, 1 << 30);
    assert_int_equal(config->page_bytes, 2 << 20);
    assert_int_equal(config->operator_mode, 0600);
    assert_int_equal(config->deadline_ms, 30000);
    assert_true(config->http);
    assert_false(config->strict);
    assert_int_equal(config->num_tenants, 1);
    assert_string_equal(config->tenants[0].name, "default");
    assert_int_equal(config->tenants[0].uids[0], geteuid());
    assert_true(config->tenants[0].quota.limit_bytes == CONFIG_UNLIMITED);
    config_destroy(config);
    config = load_good("# nothing\n");
    config_destroy(config);
}

static void bounds_are_inclusive(void **state)
{
    (void)state;
    for (size_t i = 0; i < num_settings; i++) {
        const struct setting *setting = &settings[i];
        struct config config = {0};
        char value[64];

        if (setting->kind != SETTING_COUNT)
            continue;
        (void)snprintf(value, sizeof(value), "%llu", (unsigned long long)setting->max);
        assert_int_equal(setting_apply(setting, value, &config), 0);
        (void)snprintf(value, sizeof(value), "%llu", (unsigned long long)setting->max + 1);
        assert_int_equal(setting_apply(setting, value, &config), -EINVAL);
        (void)snprintf(value, sizeof(value), "%llu", (unsigned long long)setting->min);
        assert_int_equal(setting_apply(setting, value, &config), 0);
        (void)snprintf(value, sizeof(value), "%lld", (long long)setting->min - 1);
        assert_int_equal(setting_apply(setting, value, &config), -EINVAL);
    }
}

static void a_word_is_one_of_a_list(void **state)
{
    static const char *const words[] = {"auto", "none", "systemd", "holder"};
    static const char *const others[] = {"", "aut", "autos", "auto|none", "|", "Auto", "0"};
    const struct setting *setting = setting_find("keep");
    struct config config = {0};
    char text[SETTING_TEXT];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        assert_int_equal(setting_apply(setting, words[i], &config), 0);
        assert_int_equal(config.keep, i);
        setting_format(setting, &config, text);
        assert_string_equal(text, words[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        assert_int_equal(setting_apply(setting, others[i], &config), -EINVAL);
    assert_int_equal(config.keep, 3);
    setting_expect(setting, text);
    assert_string_equal(text, "one of auto, none, systemd, holder");
    setting_default(setting, text);
    assert_string_equal(text, "auto");
    assert_int_equal(setting->max + 1, NUM_KEEP_KINDS);
}

/* ---- files ---------------------------------------------------------------------------------- */

static const char whole_file[] = "run-directory: /tmp/run\n"
                                 "pool-bytes: 64GiB\n"
                                 "page-bytes: 64KiB\n"
                                 "deadline: 500ms\n"
                                 "session-mode: 0660\n"
                                 "strict: true\n"
                                 "tenants:\n"
                                 "  - name: chat\n"
                                 "    uids: [1000, 1001]\n"
                                 "    token-file: /etc/kvpoold/chat.token\n"
                                 "    guarantee: 8GiB\n"
                                 "    limit: 32GiB\n"
                                 "    weight: 3\n"
                                 "  - {name: batch, uids: [1002], limit: none}\n"
                                 "domains:\n"
                                 "  - name: public\n"
                                 "    readers: [chat, batch]\n"
                                 "    fillers: [chat]\n"
                                 "    limit: 16GiB\n";

static void check_whole(const struct config *config)
{
    assert_string_equal(config->run_directory, "/tmp/run");
    assert_true(config->pool_bytes == UINT64_C(64) << 30);
    assert_int_equal(config->page_bytes, 65536);
    assert_int_equal(config->deadline_ms, 500);
    assert_int_equal(config->session_mode, 0660);
    assert_true(config->strict);
    assert_int_equal(config->num_tenants, 2);
    assert_int_equal(config->tenants[0].num_uids, 2);
    assert_int_equal(config->tenants[0].uids[1], 1001);
    assert_string_equal(config->tenants[0].token_file, "/etc/kvpoold/chat.token");
    assert_true(config->tenants[0].quota.guarantee_bytes == UINT64_C(8) << 30);
    assert_int_equal(config->tenants[0].quota.weight, 3);
    assert_string_equal(config->tenants[1].name, "batch");
    assert_true(config->tenants[1].quota.limit_bytes == CONFIG_UNLIMITED);
    assert_int_equal(config->num_domains, 1);
    assert_int_equal(config->domains[0].num_readers, 2);
    assert_string_equal(config->domains[0].fillers[0], "chat");
    assert_true(config->domains[0].quota.limit_bytes == UINT64_C(16) << 30);
}

static void a_whole_file_is_read(void **state)
{
    struct config *config = load_good(whole_file);

    (void)state;
    check_whole(config);
    config_destroy(config);
}

static void what_is_printed_is_read_back(void **state)
{
    struct config *config = load_good(whole_file);
    char *text = NULL;
    size_t size = 0;

    (void)state;
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(config_print(config, out), 0);
    assert_int_equal(fclose(out), 0);
    config_destroy(config);
    config = load_good(text);
    check_whole(config);
    config_destroy(config);
    free(text);
}

static void a_path_may_have_any_printable_byte(void **state)
{
    struct config *config = load_good("state-directory: \"/var/a b\\\"c\\\\d#: \xc3\xa9\"\n");
    char *text = NULL;
    size_t size = 0;

    (void)state;
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(config_print(config, out), 0);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(config->state_directory, "/var/a b\"c\\d#: \xc3\xa9");
    config_destroy(config);
    config = load_good(text);
    assert_string_equal(config->state_directory, "/var/a b\"c\\d#: \xc3\xa9");
    config_destroy(config);
    free(text);
}

static void every_mistake_is_named_with_its_line(void **state)
{
    (void)state;
    REFUSE("pool-bytes: 12\n"
           "pol-bytes: 1GiB\n"
           "strict: maybe\n"
           "deadline: 30\n"
           "session-mode: 666\n"
           "max-sessions: -1\n"
           "run-directory: run\n"
           "max-models: [1]\n"
           "tenants:\n"
           "  - name: a b\n"
           "    uids: [1, x, 99999999999]\n"
           "    weigth: 3\n"
           "  - 17\n",
           "kvpoold.yaml:1: pool-bytes: expected a size from 1MiB to 64TiB, not '12'",
           ":2: pol-bytes: expected a setting, tenants or domains",
           ":3: strict: expected true or false, not 'maybe'",
           ":4: deadline: expected a duration from 10ms to 1h, not '30'",
           ":5: session-mode: expected an octal file mode from 0000 to 0777",
           ":6: max-sessions: expected a number from 1 to 65536, not '-1'",
           ":7: run-directory: expected an absolute path",
           ":8: max-models: expected a number from 1 to 4096",
           ":10: tenants[0].name: expected a name", ":11: tenants[0].uids: expected a list of user",
           ":11: tenants[0].uids: expected a list of user",
           ":12: tenants[0].weigth: expected name, uids", ":13: tenants[1].: expected name, uids",
           ":10: tenants: expected a name");
}

static void a_key_given_twice_is_a_mistake(void **state)
{
    (void)state;
    REFUSE("strict: true\nstrict: false\n", ":2: strict: is here twice");
    REFUSE("tenants: [{name: a, name: b, uids: [1]}]\n", ":1: name: is here twice");
}

static void what_is_no_yaml_is_named_with_its_line(void **state)
{
    (void)state;
    REFUSE("strict: true\nhttp: [\n", ":2: http: ", ":3: YAML: ");
    REFUSE("strict: true\n\thttp: true\n", ":2: YAML: ");
    REFUSE("strict: true\nhttp: \xff\n", ":2: YAML: ");
    REFUSE("- strict\n", ":1: YAML: expected a mapping");
    REFUSE("strict: true\n---\nstrict: false\n", ":2: YAML: expected one document");
    REFUSE("strict: &a true\nhttp: *a\n", ":2: http: expected true or false");
    REFUSE("{[a]: b}\n", ":1: : expected a setting");
}

static void what_is_wrong_together_is_named(void **state)
{
    (void)state;
    REFUSE("populate-bytes: 2GiB\n", ":1: populate-bytes: expected at most pool-bytes");
    REFUSE("page-bytes: 1MiB\n", ":1: page-bytes: expected 64KiB or 2MiB");
    REFUSE("populate-bytes: 3MiB\n", ":1: populate-bytes: expected a multiple of 2097152 bytes");
    REFUSE("pool-bytes: 5MiB\n", ":1: pool-bytes: expected whole pages");
    REFUSE("pool-bytes: 8MiB\n", "watermark-pages: expected less than the 4 pages");
    REFUSE("http-port: 9090\n", ":1: http-port: expected http-token-file beside it");
    REFUSE("deadline: 1h\n", ":1: deadline: expected at most max-deadline (its default)");
    REFUSE("disk-directory: /d\n", ":1: disk-directory: expected disk-max-bytes beside it");
    REFUSE("disk-max-bytes: 1GiB\n", ":1: disk-max-bytes: expected disk-directory beside it");
    REFUSE("state-directory: /d\ndisk-directory: /d\ndisk-max-bytes: 1GiB\n",
           ":2: disk-directory: expected another directory than state-directory");
    REFUSE("disk-directory: /d\ndisk-max-bytes: 64MiB\n",
           ":2: disk-max-bytes: expected room for one granule of 67108864 bytes");
    REFUSE("disk-granule-bytes: 100000\n", ":1: disk-granule-bytes: expected a multiple of 4096");
    REFUSE("disk-min-block-bytes: 8MiB\n",
           ":1: disk-min-block-bytes: expected at most disk-max-block-bytes");
    REFUSE("host-tier-bytes: 3MiB\n", ":1: host-tier-bytes: expected a multiple of 2097152");
    REFUSE("ahead-bytes: 2GiB\n", ":1: ahead-bytes: expected at most pool-bytes");
    REFUSE("store-when: never\n", ":1: store-when: expected one of evicted, second-use, at-once");
    REFUSE("tenants: [{name: a, uids: [1], disk-guarantee: 1MiB}]\n",
           "disk-max-bytes: expected at least the 1048576 bytes of all guarantees together");
    REFUSE("max-payers: 1\ntenants: [{name: a, uids: [1]}, {name: b, uids: [2]}]\n",
           ":1: max-payers: expected at least the 2");
}

static void tenants_and_domains_must_fit_together(void **state)
{
    (void)state;
    REFUSE("tenants:\n"
           "  - {name: a, uids: [1, 2]}\n"
           "  - {name: a, uids: [3]}\n"
           "  - {name: b, uids: [2]}\n"
           "  - {name: c}\n"
           "  - {name: d, uids: [5], guarantee: 2GiB, limit: 1GiB}\n"
           "  - {name: other, uids: [9]}\n"
           "domains:\n"
           "  - {name: a}\n"
           "  - {name: x, readers: [nobody], fillers: [a]}\n"
           "  - {name: x}\n",
           ":7: tenants[5].name: expected a name", ":3: a: expected each tenant once",
           ":4: b: expected uid 2 in one place, 'a' has it too",
           ":5: c: expected uids or token-file", ":6: d: expected a guarantee of at most its limit",
           ":7: tenants: expected a name", ":9: a: expected another name than a tenant's",
           ":10: x: expected names of tenants, not 'nobody'", ":11: x: expected each domain once",
           "pool-bytes: expected at least the 2147483648 bytes of all guarantees");
}

static void mistakes_beyond_the_cap_are_counted(void **state)
{
    char text[4096] = "";
    struct config *config = NULL;
    struct config_error error;

    (void)state;
    for (int i = 0; i < 100; i++)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "a%d: b\n", i);
    assert_int_equal(load(text, &config, &error), CONFIG_REFUSED);
    assert_int_equal(error.count, 100);
    assert_non_null(strstr(error.texts[CONFIG_MAX_ERRORS - 1], ":32: a31"));
}

static void what_a_terminal_would_obey_is_not_printed(void **state)
{
    (void)state;
    REFUSE("strict: \"\\e[31m\"\n", "not '?[31m'");
}

static void a_file_that_cannot_be_read_says_so(void **state)
{
    struct config *config = NULL;
    struct config_error error;
    char *large;

    (void)state;
    assert_int_equal(config_load("/nowhere/at/all", &config, &error), -ENOENT);
    assert_string_equal(error.texts[0],
                        "/nowhere/at/all: cannot be read: No such file or directory");
    assert_int_equal(config_load("/", &config, &error), -EISDIR);
    assert_int_equal(error.count, 1);

    large = calloc(1, CONFIG_MAX_FILE + 2);
    memset(large, '#', CONFIG_MAX_FILE + 1);
    assert_int_equal(load(large, &config, &error), -EFBIG);
    free(large);
    assert_null(config);
}

/* Whatever is in a file: it is taken or refused with a reason, and what is taken can be printed. */
static void a_damaged_file_is_taken_or_refused(void **state)
{
    static const char pieces[] = ":-[]{}#&*!|>'\"%@,\n \t0x\xff\xc3";
    static struct config_error error;
    struct directory directory;
    char text[sizeof(whole_file)];
    uint64_t seed = 1;

    (void)state;
    directory_make(&directory);
    for (int round = 0; round < 1000; round++) {
        memcpy(text, whole_file, sizeof(text));
        for (int change = 0; change <= round % 4; change++) {
            seed = seed * 6364136223846793005 + 1442695040888963407;
            text[(seed >> 33) % (sizeof(text) - 1)] = pieces[(seed >> 24) % (sizeof(pieces) - 1)];
        }
        struct config *config = NULL;
        int result = config_load(directory_write(&directory, files[0], text), &config, &error);
        assert_true(result == (config ? 0 : CONFIG_REFUSED));
        assert_true((error.count == 0) == (result == 0));
        for (size_t i = 0; i < error.count && i < CONFIG_MAX_ERRORS; i++)
            assert_non_null(strstr(error.texts[i], ": "));
        config_destroy(config);
    }
    directory_remove(&directory, files);
}

/* ---- reload --------------------------------------------------------------------------------- */

static void a_reload_changes_tenants_and_live_settings_only(void **state)
{
    struct config *current = load_good(whole_file);
    struct config *next = load_good("run-directory: /tmp/run\npool-bytes: 64GiB\n"
                                    "page-bytes: 64KiB\ndeadline: 1s\nsession-mode: 0660\n"
                                    "strict: true\nlog-json: true\n"
                                    "tenants: [{name: solo, uids: [7]}]\n");
    struct config_error error;

    (void)state;
    assert_int_equal(config_diff_reloadable(current, next, &error), 0);
    config_adopt_reloadable(current, next);
    config_destroy(next);
    assert_int_equal(current->num_tenants, 1);
    assert_string_equal(current->tenants[0].name, "solo");
    assert_int_equal(current->num_domains, 0);
    assert_int_equal(current->deadline_ms, 1000);
    assert_true(current->log_json);
    config_destroy(current);
}

static void a_reload_names_what_needs_a_restart(void **state)
{
    struct config *current = load_good(whole_file);
    struct config *next = load_good("strict: false\ndeadline: 1s\n");
    struct config_error error;

    (void)state;
    assert_int_equal(config_diff_reloadable(current, next, &error), CONFIG_REFUSED);
    assert_int_equal(error.count, 5);
    assert_string_equal(error.texts[2],
                        "reload: pool-bytes: needs a restart to change from 64GiB to 1GiB");
    config_destroy(next);
    check_whole(current);
    config_destroy(current);
}

static void socket_paths_fit(void **state)
{
    struct config *config = load_good("");
    char path[128];

    (void)state;
    assert_int_equal(config_socket_path(config, CONFIG_OPERATOR_SOCKET, path, sizeof(path)), 0);
    assert_string_equal(path, "/run/kvpoold/operator.sock");
    assert_int_equal(config_socket_path(config, CONFIG_HTTP_SOCKET, path, 10), -ENAMETOOLONG);
    config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_default_is_within_its_own_bounds),
        cmocka_unit_test(the_table_covers_the_struct),
        cmocka_unit_test(no_file_gives_the_defaults),
        cmocka_unit_test(bounds_are_inclusive),
        cmocka_unit_test(a_word_is_one_of_a_list),
        cmocka_unit_test(a_whole_file_is_read),
        cmocka_unit_test(what_is_printed_is_read_back),
        cmocka_unit_test(a_path_may_have_any_printable_byte),
        cmocka_unit_test(every_mistake_is_named_with_its_line),
        cmocka_unit_test(a_key_given_twice_is_a_mistake),
        cmocka_unit_test(what_is_no_yaml_is_named_with_its_line),
        cmocka_unit_test(what_is_wrong_together_is_named),
        cmocka_unit_test(tenants_and_domains_must_fit_together),
        cmocka_unit_test(mistakes_beyond_the_cap_are_counted),
        cmocka_unit_test(what_a_terminal_would_obey_is_not_printed),
        cmocka_unit_test(a_file_that_cannot_be_read_says_so),
        cmocka_unit_test(a_damaged_file_is_taken_or_refused),
        cmocka_unit_test(a_reload_changes_tenants_and_live_settings_only),
        cmocka_unit_test(a_reload_names_what_needs_a_restart),
        cmocka_unit_test(socket_paths_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
