/*
 * tests/daemon/test_state_file.c - what daemon/state_file.h and state_writer.h promise, also as the
 * Nth call to the system fails: N = 1, 2, 3 ... until it succeeds.
 */
#include "daemon/state_file.h"
#include "daemon/state_writer.h"
#include "tests/daemon/fault.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

WRAP(int, -1, fsync, (int fd), (fd))
WRAP(int, -1, renameat, (int from, const char *old, int to, const char *new), (from, old, to, new))
WRAP(int, -1, close, (int fd), (fd))
WRAP(ssize_t, -1, write, (int fd, const void *bytes, size_t num_bytes),
     (fd, bytes, some_of(num_bytes)))

static char directory[64];

static int make(void **state)
{
    (void)state;
    calls_left = 0;
    failed_errno = ENOSPC;
    (void)snprintf(directory, sizeof(directory), "/tmp/kvpool-state-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static const char *path_of(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

static int unmake(void **state)
{
    static const char *const names[] = {"epochs", "epochs.damaged", "domains", "models",
                                        ".epochs.new"};

    (void)state;
    calls_left = 0;
    for (size_t at = 0; at < ARRAY_SIZE(names); at++)
        (void)unlink(path_of(names[at]));
    return rmdir(directory); /* and nothing else is left in it */
}

static void file_is(const char *expected)
{
    void *bytes = NULL;
    size_t num_bytes = 0;

    assert_int_equal(state_file_read(directory, "epochs", &bytes, &num_bytes), 0);
    assert_int_equal(num_bytes, strlen(expected));
    assert_memory_equal(bytes, expected, num_bytes);
    free(bytes);
}

static void what_was_written_is_read(void **state)
{
    void *bytes = NULL;
    size_t num_bytes = 0;
    struct stat status;

    (void)state;
    assert_int_equal(state_file_read(directory, "epochs", &bytes, &num_bytes), -ENOENT);
    assert_int_equal(state_file_write(directory, "epochs", "one", 3), 0);
    file_is("one");
    assert_int_equal(state_file_write(directory, "epochs", "", 0), 0);
    file_is("");
    assert_int_equal(stat(path_of("epochs"), &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(status.st_size, 48); /* magic, length, SHA-256 */
}

/* Any bit, any length. */
static void what_is_not_as_it_was_written_is_damaged(void **state)
{
    void *bytes = NULL;
    size_t num_bytes = 0;
    uint8_t byte;

    (void)state;
    assert_int_equal(state_file_write(directory, "epochs", "twelve bytes", 12), 0);
    for (off_t at = 0; at < 60; at++) {
        int fd = open(path_of("epochs"), O_RDWR);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        assert_int_equal(state_file_read(directory, "epochs", &bytes, &num_bytes),
                         STATE_FILE_DAMAGED);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        (void)close(fd);
    }
    file_is("twelve bytes");
    for (off_t size = 59; size >= 0; size--) {
        assert_int_equal(truncate(path_of("epochs"), size), 0);
        assert_int_equal(state_file_read(directory, "epochs", &bytes, &num_bytes),
                         STATE_FILE_DAMAGED);
    }
    assert_null(bytes);
    assert_int_equal(state_file_set_aside(directory, "epochs"), 0);
    assert_int_equal(access(path_of("epochs.damaged"), F_OK), 0);
    assert_int_equal(state_file_read(directory, "epochs", &bytes, &num_bytes), -ENOENT);
}

/* A failure leaves the old one, unless only the directory's own durability is in doubt. */
static void a_write_that_fails_leaves_what_was_there(void **state)
{
    int failures = 0, num_errors = 0, err;

    (void)state;
    assert_int_equal(state_file_write(directory, "epochs", "old", 3), 0);
    do {
        calls_left = ++failures;
        err = state_file_write(directory, "epochs", "new and longer", 14);
        bool was_reached = calls_left == 0;
        calls_left = 0;
        if (!was_reached)
            break;
        if (err) {
            num_errors++;
            assert_int_equal(err, -ENOSPC);
            void *bytes = NULL;
            size_t num_bytes = 0;
            assert_int_equal(state_file_read(directory, "epochs", &bytes, &num_bytes), 0);
            assert_true(num_bytes == 3 || num_bytes == 14);
            free(bytes);
            assert_int_equal(access(path_of(".epochs.new"), F_OK), -1);
        }
    } while (failures < 50);
    assert_true(failures > 5 && failures < 50);
    assert_int_equal(num_errors, failures - 2); /* but for the last close, all count */
    file_is("new and longer");
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void *copy_of(const char *text)
{
    return strdup(text);
}

static enum state_name reap(struct state_writer *writer, int *out_err)
{
    enum state_name name = NUM_STATE_NAMES;
    struct pollfd poller = {.fd = state_writer_event_fd(writer), .events = POLLIN};

    while (!state_writer_reap(writer, &name, out_err))
        assert_int_equal(poll(&poller, 1, 10000), 1);
    return name;
}

static void the_thread_writes_what_it_is_given(void **state)
{
    struct state_writer *writer;
    struct pollfd poller = {.events = POLLIN};
    enum state_name name;
    int err = 1;

    (void)state;
    assert_int_equal(state_writer_create(directory, &writer), 0);
    assert_false(state_writer_reap(writer, &name, &err));
    state_writer_submit(writer, STATE_EPOCHS, copy_of("one"), 3, NULL);
    assert_int_equal(reap(writer, &err), STATE_EPOCHS);
    assert_int_equal(err, 0);
    file_is("one");
    assert_false(state_writer_reap(writer, &name, &err));
    poller.fd = state_writer_event_fd(writer);
    assert_int_equal(poll(&poller, 1, 0), 0); /* quiet again */
    state_writer_submit(writer, STATE_EPOCHS, copy_of("two"), 3, NULL);
    state_writer_submit(writer, STATE_DOMAINS, copy_of("three"), 5, NULL);
    state_writer_submit(writer, STATE_MODELS, copy_of("four"), 4, NULL);
    state_writer_destroy(writer); /* what was submitted is written first */
    file_is("two");
    assert_int_equal(access(path_of("domains"), F_OK), 0);
    assert_int_equal(access(path_of("models"), F_OK), 0);
}

static void the_thread_tells_what_failed(void **state)
{
    struct state_writer *writer;
    int err = 0;

    (void)state;
    assert_int_equal(state_writer_create(directory, &writer), 0);
    assert_int_equal(mkdir(path_of(".epochs.new"), 0700), 0);
    state_writer_submit(writer, STATE_EPOCHS, copy_of("one"), 3, NULL);
    assert_int_equal(reap(writer, &err), STATE_EPOCHS);
    assert_int_equal(err, -EISDIR);
    assert_int_equal(rmdir(path_of(".epochs.new")), 0);
    state_writer_submit(writer, STATE_EPOCHS, copy_of("one"), 3, NULL);
    assert_int_equal(reap(writer, &err), STATE_EPOCHS);
    assert_int_equal(err, 0);
    state_writer_destroy(writer);
    state_writer_destroy(NULL);
}

/* A domain that is in the file has its secret. */
static void a_secret_is_made_in_front_of_the_file(void **state)
{
    struct state_writer *writer;
    struct stat status;
    int err = 0;

    (void)state;
    assert_int_equal(state_writer_create(directory, &writer), 0);
    state_writer_submit(writer, STATE_DOMAINS, copy_of("one"), 3, "commons");
    assert_int_equal(reap(writer, &err), STATE_DOMAINS);
    assert_int_equal(err, 0);
    assert_int_equal(stat(path_of("secrets/commons"), &status), 0);
    assert_int_equal(status.st_size, 32);
    assert_int_equal(access(path_of("domains"), F_OK), 0);
    assert_int_equal(unlink(path_of("domains")), 0);
    assert_int_equal(chmod(path_of("secrets/commons"), 0644), 0);
    state_writer_submit(writer, STATE_DOMAINS, copy_of("one"), 3, "commons");
    assert_int_equal(reap(writer, &err), STATE_DOMAINS);
    assert_int_equal(err, -EPERM);
    assert_int_equal(access(path_of("domains"), F_OK), -1);
    state_writer_destroy(writer);
    assert_int_equal(unlink(path_of("secrets/commons")), 0);
    assert_int_equal(rmdir(path_of("secrets")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_written_is_read, make, unmake),
        cmocka_unit_test_setup_teardown(what_is_not_as_it_was_written_is_damaged, make, unmake),
        cmocka_unit_test_setup_teardown(a_write_that_fails_leaves_what_was_there, make, unmake),
        cmocka_unit_test_setup_teardown(the_thread_writes_what_it_is_given, make, unmake),
        cmocka_unit_test_setup_teardown(the_thread_tells_what_failed, make, unmake),
        cmocka_unit_test_setup_teardown(a_secret_is_made_in_front_of_the_file, make, unmake),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
