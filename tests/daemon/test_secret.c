/*
 * tests/daemon/test_secret.c - what daemon/secret.h promises, also as the Nth call to the system
 * fails: N = 1, 2, 3 ... until it succeeds.
 */
#include "daemon/secret.h"
#include "tests/daemon/fault.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

WRAP(int, -1, fsync, (int fd), (fd))
WRAP(int, -1, renameat, (int from, const char *old, int to, const char *new), (from, old, to, new))
WRAP(int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(ssize_t, -1, getrandom, (void *to, size_t num_bytes, unsigned flags), (to, num_bytes, flags))
WRAP(ssize_t, -1, read, (int fd, void *to, size_t num_bytes), (fd, to, num_bytes))
WRAP(ssize_t, -1, write, (int fd, const void *bytes, size_t num_bytes),
     (fd, bytes, some_of(num_bytes)))

static char directory[64];

static const char *path_of(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof(path), "%s/secrets/%s", directory, name);
    return path;
}

static int make(void **state)
{
    (void)state;
    calls_left = 0;
    failed_errno = ENOSPC;
    (void)snprintf(directory, sizeof(directory), "/tmp/kvpool-secret-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int unmake(void **state)
{
    (void)state;
    calls_left = 0;
    (void)unlink(path_of("one"));
    (void)unlink(path_of("two"));
    if (rmdir(path_of("")) < 0) /* and nothing else is left in it */
        return -1;
    return rmdir(directory);
}

static void a_secret_is_made_once(void **state)
{
    uint8_t one[KEY_BYTES] = {0}, again[KEY_BYTES] = {0}, two[KEY_BYTES] = {0};
    struct stat status;

    (void)state;
    assert_int_equal(secret_get(directory, "one", one), 0);
    assert_int_equal(secret_get(directory, "one", again), 0);
    assert_memory_equal(one, again, KEY_BYTES);
    assert_int_equal(secret_get(directory, "two", two), 0);
    assert_memory_not_equal(one, two, KEY_BYTES);
    assert_int_equal(stat(path_of("one"), &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(status.st_size, KEY_BYTES);
    assert_int_equal(stat(path_of(""), &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
}

static void what_is_not_as_it_should_be_is_refused(void **state)
{
    uint8_t secret[KEY_BYTES];

    (void)state;
    assert_int_equal(secret_get(directory, "one", secret), 0);
    assert_int_equal(chmod(path_of("one"), 0640), 0);
    assert_int_equal(secret_get(directory, "one", secret), -EPERM);
    assert_int_equal(chmod(path_of("one"), 0600), 0);
    assert_int_equal(truncate(path_of("one"), KEY_BYTES - 1), 0);
    assert_int_equal(secret_get(directory, "one", secret), -EINVAL);
    assert_int_equal(symlink("one", path_of("two")), 0);
    assert_int_equal(secret_get(directory, "two", secret), -ELOOP);
}

/* There is a whole one afterwards, or none; and it is the one that is read then. */
static void a_secret_is_made_whole_or_not_at_all(void **state)
{
    int failures = 0, err = -1;

    (void)state;
    while (err != 0 && failures < 50) {
        uint8_t secret[KEY_BYTES], kept[KEY_BYTES];
        (void)unlink(path_of("one"));
        calls_left = ++failures;
        err = secret_get(directory, "one", secret);
        calls_left = 0;
        struct stat status;
        if (stat(path_of("one"), &status) == 0)
            assert_int_equal(status.st_size, KEY_BYTES);
        assert_int_equal(access(path_of(".one.new"), F_OK), -1);
        assert_int_equal(secret_get(directory, "one", kept), 0);
        if (err == 0)
            assert_memory_equal(secret, kept, KEY_BYTES);
    }
    assert_in_range(failures, 6, 20); /* mkdir, getrandom, write twice, fsync, rename, fsync */
    calls_left = 2;                   /* behind mkdir */
    uint8_t secret[KEY_BYTES];
    assert_int_equal(secret_get(directory, "one", secret), -ENOSPC); /* it could not be read */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_secret_is_made_once, make, unmake),
        cmocka_unit_test_setup_teardown(what_is_not_as_it_should_be_is_refused, make, unmake),
        cmocka_unit_test_setup_teardown(a_secret_is_made_whole_or_not_at_all, make, unmake),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
