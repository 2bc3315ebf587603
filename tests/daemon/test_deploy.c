/*
 * tests/daemon/test_deploy.c - what deploy/ says about settings is what settings.c does.
 * usage: test_daemon_deploy DEPLOY_FOLDER
 */
#include "daemon/config.h"
#include "daemon/settings.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *folder;
static char bytes[1 << 17];

static const char *path_of(const char *name)
{
    static char path[4096];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static const char *read_file(const char *name)
{
    FILE *file = fopen(path_of(name), "r");

    assert_non_null(file);
    size_t length = fread(bytes, 1, sizeof(bytes) - 1, file);
    assert_in_range(length, 1, sizeof(bytes) - 2);
    bytes[length] = '\0';
    assert_int_equal(fclose(file), 0);
    return bytes;
}

static void expect(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("missing:\n%s", part);
}

/* As roff wants it: a hyphen that is no minus would be changed. */
static void add_roff(char *out, size_t size, const char *text)
{
    size_t length = strlen(out);

    for (; *text && length + 3 < size; text++) {
        if (*text == '-')
            out[length++] = '\\';
        out[length++] = *text;
    }
    out[length] = '\0';
}

static void the_example_is_taken(void **state)
{
    struct config *config;
    struct config_error error;

    (void)state;
    if (config_load(path_of("kvpoold.yaml"), &config, &error))
        fail_msg("%s", error.texts[0]);
    assert_int_equal(config->num_tenants, 2);
    assert_int_equal(config->num_domains, 1);
    config_destroy(config);
}

static void the_example_has_every_setting_with_its_default(void **state)
{
    const char *example = read_file("kvpoold.yaml");
    struct config config = {0};
    char value[SETTING_TEXT], lines[2 * SETTING_TEXT];

    (void)state;
    assert_int_equal(settings_init(&config), 0);
    for (size_t i = 0; i < num_settings; i++) {
        setting_format(&settings[i], &config, value);
        (void)snprintf(lines, sizeof(lines), "\n# %.300s\n%.60s: %.300s\n", settings[i].help,
                       settings[i].name, value);
        expect(example, lines);
    }
    settings_finish(&config);
}

static void the_manual_has_every_setting_as_it_is(void **state)
{
    const char *manual = read_file("kvpoold.yaml.5");
    struct config config = {0};
    char value[SETTING_TEXT], expected[SETTING_TEXT], entry[4096];

    (void)state;
    assert_int_equal(settings_init(&config), 0);
    for (size_t i = 0; i < num_settings; i++) {
        setting_format(&settings[i], &config, value);
        setting_expect(&settings[i], expected);
        (void)snprintf(entry, sizeof(entry), ".TP\n\\fB");
        add_roff(entry, sizeof(entry), settings[i].name);
        strcat(entry, "\\fR: ");
        add_roff(entry, sizeof(entry), value);
        strcat(entry, "\n");
        add_roff(entry, sizeof(entry), settings[i].help);
        strcat(entry, ".\n.br\nExpected: ");
        add_roff(entry, sizeof(entry), expected);
        strcat(entry, settings[i].is_live ? ". SIGHUP changes it.\n" : ".\n");
        expect(manual, entry);
    }
    settings_finish(&config);
}

static void help_has_every_setting(void **state)
{
    char *text = NULL;
    size_t size;

    (void)state;
    FILE *out = open_memstream(&text, &size);
    config_print_help(out);
    assert_int_equal(fclose(out), 0);
    for (size_t i = 0; i < num_settings; i++) {
        expect(text, settings[i].name);
        expect(text, settings[i].help);
    }
    free(text);
}

/* Where the service puts things is where the defaults look for them. */
static void the_service_fits_the_defaults(void **state)
{
    const char *service = read_file("kvpoold.service.in");

    (void)state;
    expect(service, "\nRuntimeDirectory=kvpoold\n");
    expect(service, "\nStateDirectory=kvpoold\n");
    assert_string_equal(setting_find("run-directory")->initial, "/run/kvpoold");
    assert_string_equal(setting_find("state-directory")->initial, "/var/lib/kvpoold");
    expect(service, "\nFileDescriptorStoreMax=");
    expect(service, "\nNoNewPrivileges=yes\n");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_is_taken),
        cmocka_unit_test(the_example_has_every_setting_with_its_default),
        cmocka_unit_test(the_manual_has_every_setting_as_it_is),
        cmocka_unit_test(help_has_every_setting),
        cmocka_unit_test(the_service_fits_the_defaults),
    };
    if (argc != 2)
        return 2;
    folder = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
