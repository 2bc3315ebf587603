/* tests/daemon/test_token.c - what daemon/token.h and listen.h promise. */
#include "daemon/listen.h"
#include "daemon/token.h"
#include "tests/daemon/files.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>

static const char *const files[] = {"token", NULL};
static const char secret[] = "0123456789abcdef";

static int read_text(const char *text, mode_t mode, struct token *out_token)
{
    struct directory directory;

    directory_make(&directory);
    const char *path = directory_write(&directory, "token", text);
    assert_int_equal(chmod(path, mode), 0);
    int result = token_read(path, out_token);
    directory_remove(&directory, files);
    return result;
}

static void a_token_is_one_line(void **state)
{
    struct token token;

    (void)state;
    assert_int_equal(read_text(" 0123456789abcdef\n\n", 0600, &token), 0);
    assert_int_equal(token.num_bytes, 16);
    assert_memory_equal(token.bytes, secret, 16);
    assert_int_equal(read_text("short\n", 0600, &token), TOKEN_INVALID);
    assert_int_equal(read_text("", 0600, &token), TOKEN_INVALID);
    assert_int_equal(read_text("0123456789abcdef\n0123456789abcdef\n", 0600, &token),
                     TOKEN_INVALID);
    assert_int_equal(read_text("0123456789abcdef\x01", 0600, &token), TOKEN_INVALID);
    assert_int_equal(read_text("0123456789 abcdef", 0600, &token), TOKEN_INVALID);
    assert_int_equal(read_text("0123456789\tabcdef", 0600, &token), TOKEN_INVALID);
    assert_int_equal(read_text("0123456789abcde~", 0600, &token), 0);
}

static void a_token_that_others_may_read_is_refused(void **state)
{
    struct token token = {0};

    (void)state;
    assert_int_equal(read_text(secret, 0644, &token), TOKEN_EXPOSED);
    assert_int_equal(read_text(secret, 0602, &token), TOKEN_EXPOSED);
    assert_int_equal(token.num_bytes, 0);
    assert_int_equal(read_text(secret, 0640, &token), 0);
}

static void what_is_no_file_is_refused(void **state)
{
    struct directory directory;
    struct token token;

    (void)state;
    directory_make(&directory);
    assert_int_equal(token_read(directory_name(&directory, "token"), &token), -ENOENT);
    assert_int_equal(token_read(directory.path, &token), -EISDIR);
    assert_int_equal(mkfifo(directory_name(&directory, "token"), 0600), 0);
    assert_int_equal(token_read(directory.file, &token), TOKEN_INVALID);
    directory_remove(&directory, files);
    for (int result = -200; result < 5; result++)
        assert_true(strlen(token_text(result)) > 3);
}

static void only_the_whole_token_matches(void **state)
{
    struct token token = {0};
    uint8_t long_guess[512] = {0};

    (void)state;
    assert_false(token_matches(&token, "", 0));
    assert_false(token_matches(&token, long_guess, sizeof(long_guess)));
    assert_int_equal(read_text(secret, 0600, &token), 0);
    assert_true(token_matches(&token, secret, 16));
    assert_false(token_matches(&token, secret, 15));
    assert_false(token_matches(&token, "0123456789abcdeF", 16));
    assert_false(token_matches(&token, "", 0));
    memcpy(long_guess, secret, 16);
    assert_false(token_matches(&token, long_guess, sizeof(long_guess)));
}

/* ---- listening sockets ---------------------------------------------------------------------- */

static mode_t mode_of(const char *path)
{
    struct stat status;

    assert_int_equal(stat(path, &status), 0);
    return status.st_mode & 0777;
}

static void a_socket_has_its_mode_whatever_the_umask(void **state)
{
    static const mode_t umasks[] = {0, 022, 077};
    struct directory directory;
    int fd;

    (void)state;
    directory_make(&directory);
    for (size_t i = 0; i < ARRAY_SIZE(umasks); i++) {
        mode_t before = umask(umasks[i]);
        assert_int_equal(listen_unix(directory_name(&directory, "token"), SOCK_STREAM, 0660, &fd),
                         0);
        assert_int_equal(mode_of(directory.file), 0660);
        assert_int_equal(close(fd), 0); /* its file stays behind, for the next round */
        (void)umask(before);
    }
    directory_remove(&directory, files);
}

/* Two daemons of one run directory: the second must not take the first one's sockets. */
static void a_socket_that_somebody_listens_on_stays(void **state)
{
    static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct directory directory;
    int first, second = -2;

    (void)state;
    directory_make(&directory);
    const char *path = directory_name(&directory, "token");
    memcpy(address.sun_path, path, strlen(path) + 1);
    assert_int_equal(listen_unix(path, SOCK_STREAM, 0600, &first), 0);
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        assert_int_equal(listen_unix(path, types[i], 0600, &second), -EADDRINUSE);
    assert_int_equal(second, -2);
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(close(client), 0);
    assert_int_equal(close(first), 0);
    assert_int_equal(listen_unix(path, SOCK_SEQPACKET, 0600, &second), 0); /* its process is gone */
    assert_int_equal(close(second), 0);
    directory_remove(&directory, files);
}

static void a_file_in_the_way_stays(void **state)
{
    struct directory directory;
    int fd = -2;

    (void)state;
    directory_make(&directory);
    (void)directory_write(&directory, "token", "kept");
    assert_int_equal(listen_unix(directory.file, SOCK_STREAM, 0600, &fd), -EEXIST);
    assert_int_equal(fd, -2);
    directory_remove(&directory, files);
    assert_int_equal(listen_unix("/nowhere/at/all", SOCK_STREAM, 0600, &fd), -ENOENT);

    char long_path[200];
    memset(long_path, 'x', sizeof(long_path));
    long_path[199] = '\0';
    assert_int_equal(listen_unix(long_path, SOCK_STREAM, 0600, &fd), -ENAMETOOLONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_is_one_line),
        cmocka_unit_test(a_token_that_others_may_read_is_refused),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(only_the_whole_token_matches),
        cmocka_unit_test(a_socket_has_its_mode_whatever_the_umask),
        cmocka_unit_test(a_socket_that_somebody_listens_on_stays),
        cmocka_unit_test(a_file_in_the_way_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
