/*
 * tests/daemon/test_keep.c - what daemon/keep.h promises, with real holders ($KVPOOLD), real kills,
 * and daemons that are children of this test.
 */
#include "daemon/hold.h"
#include "daemon/keep.h"
#include "gpu/gpu.h"
#include "tests/daemon/files.h"
#include "tests/daemon/holder.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { NUM_ITEMS = 200 };

static struct directory directory;
static int made[NUM_ITEMS]; /* descriptors of items, until the end of the test */
static size_t num_made;
static struct keep_options options;

static int setup(void **state)
{
    (void)state;
    directory_make(&directory);
    options = (struct keep_options){.kind = KEEP_HOLDER,
                                    .directory = directory.path,
                                    .max_items = 1024,
                                    .program = getenv("KVPOOLD")};
    assert_non_null(options.program);
    return 0;
}

/* Every test ends with the holder gone, and nothing but its lock left. */
static int teardown(void **state)
{
    static const char *const left[] = {HOLD_LOCK, NULL};
    pid_t pid = holder_pid(directory.path);

    (void)state;
    while (num_made > 0)
        (void)close(made[--num_made]);
    (void)unlink(directory_name(&directory, HOLD_SOCKET));
    if (pid > 0)
        await_end(pid);
    directory_remove(&directory, left);
    return 0;
}

/* ---- daemons -------------------------------------------------------------------------------- */

static int item_make(uint32_t number)
{
    int fd = memfd_create("item", MFD_CLOEXEC);

    if (fd < 0 || pwrite(fd, &number, sizeof(number), 0) != sizeof(number))
        return -1;
    return fd;
}

static void item_name(char *out, size_t size, uint32_t number)
{
    (void)snprintf(out, size, "%u.file", number);
}

static int items_add(struct keep *keep, uint32_t first, uint32_t count)
{
    char name[KEEP_MAX_NAME];
    int err = 0;

    for (uint32_t i = first; !err && i < first + count; i++) {
        item_name(name, sizeof(name), i);
        made[num_made] = item_make(i);
        err = keep_add(keep, name, made[num_made++]);
    }
    return err;
}

/* As the daemon's loop does it. Returns whether the mark was passed. */
static bool run_until_kept(struct keep *keep, uint64_t mark)
{
    uint64_t end = now_ms() + HOLDER_WAIT_MS;

    while (!keep_passed(keep, mark) && now_ms() < end) {
        struct pollfd event = {.fd = keep_event_fd(keep), .events = POLLIN};
        (void)poll(&event, 1, 100);
        keep_run(keep, now_ms());
    }
    return keep_passed(keep, mark);
}

static void say(int fd)
{
    (void)!write(fd, "x", 1);
}

/* A child that @live is all of; when it says that it is ready, it is killed. */
static void daemon_live_and_be_killed(void (*live)(int ready_fd))
{
    int fds[2], status;
    char byte = 0;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child == 0) {
        live(fds[1]);
        _exit(1); /* it was to be killed */
    }
    (void)close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    (void)close(fds[0]);
}

static void live_with_items(int ready_fd)
{
    struct keep *keep = NULL;

    if (keep_create(&options, &keep) || items_add(keep, 0, NUM_ITEMS) ||
        !run_until_kept(keep, keep_mark(keep)))
        return;
    say(ready_fd);
    (void)pause();
}

static struct keep *create(void)
{
    struct keep *keep = NULL;

    assert_int_equal(keep_create(&options, &keep), 0);
    return keep;
}

/* All of @count items with the right bytes; their descriptors are closed. */
static void check_taken(struct keep *keep, size_t count)
{
    bool seen[NUM_ITEMS] = {false};
    size_t num_taken;
    const struct keep_item *items = keep_taken(keep, &num_taken);

    assert_int_equal(num_taken, count);
    for (size_t i = 0; i < num_taken; i++) {
        char name[KEEP_MAX_NAME];
        uint32_t number = NUM_ITEMS;
        assert_int_equal(pread(items[i].fd, &number, sizeof(number), 0), sizeof(number));
        assert_true(number < NUM_ITEMS && !seen[number]);
        seen[number] = true;
        item_name(name, sizeof(name), number);
        assert_string_equal(items[i].name, name);
        assert_int_equal(fcntl(items[i].fd, F_GETFD), FD_CLOEXEC);
        (void)close(items[i].fd);
    }
}

/* ---- kept ----------------------------------------------------------------------------------- */

static void what_a_killed_daemon_had_comes_back(void **state)
{
    struct gpu_fallback fallback;

    (void)state;
    for (int life = 0; life < 3; life++) { /* the first finds nothing, and is killed too */
        daemon_live_and_be_killed(live_with_items);
        struct keep *keep = create();
        assert_false(keep_fallback(keep, &fallback));
        check_taken(keep, NUM_ITEMS);
        assert_int_equal(keep_counters(keep)->taken, NUM_ITEMS);
        assert_int_equal(keep_counters(keep)->items, NUM_ITEMS);
        for (uint32_t i = 0; i < NUM_ITEMS; i++) {
            char name[KEEP_MAX_NAME];
            item_name(name, sizeof(name), i);
            keep_remove(keep, name);
        }
        assert_int_equal(keep_counters(keep)->items, 0);
        keep_destroy(keep);
    }
}

static void what_is_taken_stays_kept_for_the_one_after(void **state)
{
    (void)state;
    daemon_live_and_be_killed(live_with_items);
    for (int life = 0; life < 3; life++) {
        struct keep *keep = create();
        check_taken(keep, NUM_ITEMS);
        keep_destroy(keep); /* a clean stop */
    }
}

static void what_was_removed_does_not_come_back(void **state)
{
    (void)state;
    daemon_live_and_be_killed(live_with_items);
    struct keep *keep = create();
    check_taken(keep, NUM_ITEMS);
    keep_remove(keep, "0.file");
    keep_remove(keep, "199.file");
    keep_remove(keep, "never.there");
    int fd = item_make(0);
    assert_int_equal(keep_add(keep, "0.file", fd), 0); /* the same name again */
    assert_int_equal(keep_add(keep, "0.file", fd), -EEXIST);
    assert_int_equal(keep_add(keep, "a b", fd), -EINVAL);
    assert_true(run_until_kept(keep, keep_mark(keep)));
    keep_destroy(keep);
    (void)close(fd);
    keep = create();
    check_taken(keep, NUM_ITEMS - 1);
    keep_destroy(keep);
}

static void a_holder_with_nothing_ends_with_its_daemon(void **state)
{
    (void)state;
    struct keep *keep = create();
    pid_t pid = holder_pid(directory.path);
    assert_true(pid > 0 && pid != getpid());
    assert_int_equal(getsid(pid), pid); /* whoever ends our session does not end it */
    keep_destroy(keep);
    await_end(pid);
    assert_int_equal(access(directory_name(&directory, HOLD_SOCKET), F_OK), -1);
}

static void to_forget_gives_everything_up_at_once(void **state)
{
    (void)state;
    daemon_live_and_be_killed(live_with_items);
    struct keep *keep = create();
    check_taken(keep, NUM_ITEMS);
    pid_t pid = holder_pid(directory.path);
    assert_int_equal(keep_forget(keep), 0);
    await_end(pid);
    assert_int_equal(keep_counters(keep)->items, 0);
    keep_destroy(keep);
    assert_int_equal(holder_pid(directory.path), 0);
    keep = create();
    check_taken(keep, 0);
    keep_destroy(keep);
}

/* By a daemon that has no holder itself. */
static void what_an_earlier_daemon_left_is_forgotten_too(void **state)
{
    (void)state;
    daemon_live_and_be_killed(live_with_items);
    pid_t pid = holder_pid(directory.path);
    assert_true(is_alive(pid));
    assert_int_equal(keep_forget_left(directory.path), 0);
    await_end(pid);
    assert_int_equal(keep_forget_left(directory.path), 0); /* nobody is there, and none started */
    assert_int_equal(holder_pid(directory.path), 0);
    assert_int_equal(keep_forget_left("/nowhere/at/all"), -EINVAL);
}

static void what_a_living_daemon_has_is_not(void **state)
{
    (void)state;
    struct keep *keep = create();
    assert_int_equal(items_add(keep, 0, 3), 0);
    assert_true(run_until_kept(keep, keep_mark(keep)));
    assert_int_equal(keep_forget_left(directory.path), -EBUSY);
    keep_destroy(keep);
    keep = create();
    check_taken(keep, 3);
    keep_destroy(keep);
}

static void a_time_limit_without_a_daemon_ends_it(void **state)
{
    (void)state;
    options.limit_ms = 400;
    daemon_live_and_be_killed(live_with_items);
    pid_t pid = holder_pid(directory.path);
    assert_true(is_alive(pid));
    struct keep *keep = create(); /* within the limit */
    check_taken(keep, NUM_ITEMS);
    (void)usleep(600000);
    assert_true(is_alive(pid)); /* a daemon is there */
    uint64_t begin = now_ms();
    keep_destroy(keep);
    await_end(pid);
    assert_in_range(now_ms() - begin, 390, 3000);
    keep = create();
    check_taken(keep, 0);
    keep_destroy(keep);
}

static void whose_socket_is_gone_holds_for_nobody(void **state)
{
    (void)state;
    daemon_live_and_be_killed(live_with_items);
    pid_t pid = holder_pid(directory.path);
    assert_int_equal(unlink(directory_name(&directory, HOLD_SOCKET)), 0);
    await_end(pid);
}

/* ---- lost keepers --------------------------------------------------------------------------- */

static void a_killed_holder_is_replaced_and_has_everything_again(void **state)
{
    struct gpu_fallback fallback;
    struct keep *keep = NULL;

    (void)state;
    keep = create();
    assert_int_equal(items_add(keep, 0, NUM_ITEMS), 0);
    uint64_t mark = keep_mark(keep);
    assert_true(run_until_kept(keep, mark));
    pid_t first = holder_pid(directory.path);
    assert_int_equal(kill(first, SIGKILL), 0);
    await_end(first);
    keep_run(keep, now_ms());
    assert_false(keep_passed(keep, mark)); /* K1 */
    assert_int_equal(keep_counters(keep)->keepers_lost, 1);
    assert_true(run_until_kept(keep, mark));
    assert_false(keep_fallback(keep, &fallback));
    pid_t second = holder_pid(directory.path);
    assert_true(second > 0 && second != first);
    assert_int_equal(waitpid(first, NULL, WNOHANG), -1); /* no zombie of ours */
    keep_destroy(keep);
    keep = create();
    check_taken(keep, NUM_ITEMS);
    keep_destroy(keep);
}

static void without_a_holder_the_state_has_a_name(void **state)
{
    struct gpu_fallback fallback;

    (void)state;
    options.program = "/nowhere/at/all";
    struct keep *keep = create();
    assert_true(keep_fallback(keep, &fallback));
    assert_string_equal(fallback.name, "memory-not-kept");
    assert_int_equal(fallback.reason, -ENOENT);
    assert_int_equal(items_add(keep, 0, 3), 0);
    assert_false(keep_passed(keep, keep_mark(keep)));
    keep_run(keep, now_ms());
    assert_true(keep_fallback(keep, &fallback));
    keep_destroy(keep);
    options.program = getenv("KVPOOLD");
    options.kind = KEEP_NONE;
    keep = create();
    assert_true(keep_fallback(keep, &fallback));
    assert_int_equal(fallback.reason, 0); /* it was asked for */
    assert_int_equal(items_add(keep, 0, 3), 0);
    assert_true(keep_passed(keep, keep_mark(keep)));
    keep_destroy(keep);
    (void)close(open(directory_name(&directory, HOLD_LOCK), O_CREAT | O_CLOEXEC, 0600));
}

static void a_program_that_is_no_holder_is_not_waited_for(void **state)
{
    struct gpu_fallback fallback;

    (void)state;
    options.program = "/bin/true";
    uint64_t begin = now_ms();
    struct keep *keep = create();
    assert_true(now_ms() - begin < 4500);
    assert_true(keep_fallback(keep, &fallback));
    assert_int_equal(fallback.reason, -EPIPE);
    keep_destroy(keep);
    (void)close(open(directory_name(&directory, HOLD_LOCK), O_CREAT | O_CLOEXEC, 0600));
}

/* ---- strangers ------------------------------------------------------------------------------ */

static void a_second_daemon_is_refused(void **state)
{
    struct keep *keep = NULL, *second = NULL;

    (void)state;
    keep = create();
    assert_int_equal(items_add(keep, 0, 3), 0);
    assert_true(run_until_kept(keep, keep_mark(keep)));
    assert_int_equal(keep_create(&options, &second), -EBUSY);
    assert_int_equal(items_add(keep, 3, 1), 0); /* the first one does not notice */
    assert_true(run_until_kept(keep, keep_mark(keep)));
    assert_int_equal(keep_counters(keep)->keepers_lost, 0);
    keep_destroy(keep);
}

/* Through the open door, even: the mode of directory and socket says no before. */
static void another_user_gets_nothing(void **state)
{
    int status;

    (void)state;
    if (geteuid() != 0) { /* it takes root to be another one */
        (void)close(open(directory_name(&directory, HOLD_LOCK), O_CREAT | O_CLOEXEC, 0600));
        skip();
    }
    daemon_live_and_be_killed(live_with_items);
    struct stat of_socket;
    assert_int_equal(stat(directory_name(&directory, HOLD_SOCKET), &of_socket), 0);
    assert_int_equal(of_socket.st_mode & 07777, 0600);
    assert_int_equal(chmod(directory.path, 0777), 0);
    assert_int_equal(chmod(directory.file, 0777), 0);
    pid_t child = fork();
    if (child == 0) {
        struct hold_packet packet = {.kind = HOLD_TAKE};
        int item, answer = setresuid(65534, 65534, 65534);
        int fd = answer ? -1 : holder_dial(directory.path);
        if (fd < 0)
            _exit(1);
        (void)hold_send(fd, &packet, -1, 0);
        _exit(hold_receive(fd, &packet, &item, 0) == -EPIPE ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    struct keep *keep = create();
    check_taken(keep, NUM_ITEMS);
    keep_destroy(keep);
}

/* One that says what no daemon says is let go of; what is held is not. */
static void nonsense_does_no_harm(void **state)
{
    static const char *const texts[] = {"", "x", "GET / HTTP/1.1\r\n\r\n"};
    struct hold_packet packet = {.kind = 99};
    int item;

    (void)state;
    daemon_live_and_be_killed(live_with_items);
    for (size_t i = 1; i < ARRAY_SIZE(texts); i++) {
        int fd = holder_dial(directory.path);
        assert_int_equal(send(fd, texts[i], strlen(texts[i]), 0), strlen(texts[i]));
        assert_int_equal(hold_receive(fd, &packet, &item, 0), -EPIPE);
        (void)close(fd);
    }
    int fd = holder_dial(directory.path);
    packet = (struct hold_packet){.kind = HOLD_KEEP}; /* without a descriptor */
    assert_int_equal(hold_send(fd, &packet, -1, 0), 0);
    assert_int_equal(hold_receive(fd, &packet, &item, 0), 0);
    assert_int_equal(packet.kind, HOLD_KEPT);
    assert_int_equal(packet.status, -EINVAL);
    packet = (struct hold_packet){.kind = HOLD_TAKE, .magic = HOLD_MAGIC, .version = 77};
    assert_int_equal(send(fd, &packet, sizeof(packet), 0), sizeof(packet));
    assert_int_equal(hold_receive(fd, &packet, &item, 0), 0);
    assert_int_equal(packet.kind, HOLD_END);
    assert_int_equal(packet.status, -EPROTONOSUPPORT);
    (void)close(fd);
    struct keep *keep = create();
    check_taken(keep, NUM_ITEMS);
    keep_destroy(keep);
}

/* ---- limits --------------------------------------------------------------------------------- */

static void limit_descriptors(rlim_t max)
{
    const struct rlimit limit = {.rlim_cur = max, .rlim_max = max};

    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* Its holder has the same limit: it takes what it can, and says so of the rest. */
static void live_under_a_limit(int ready_fd)
{
    struct gpu_fallback fallback;
    struct keep *keep = NULL;

    limit_descriptors(NUM_ITEMS / 2);
    if (keep_create(&options, &keep))
        return;
    int fd = item_make(7);
    for (uint32_t i = 0; i < NUM_ITEMS; i++) {
        char name[KEEP_MAX_NAME];
        item_name(name, sizeof(name), i);
        if (keep_add(keep, name, fd))
            return;
    }
    if (!run_until_kept(keep, keep_mark(keep)) || !keep_fallback(keep, &fallback) ||
        fallback.reason != -EMFILE)
        return;
    uint64_t num_kept = keep_counters(keep)->items - keep_counters(keep)->refused;
    if (num_kept < NUM_ITEMS / 2 - 20 || num_kept >= NUM_ITEMS / 2)
        return;
    say(ready_fd);
    (void)pause();
}

static void a_holder_that_is_full_says_so(void **state)
{
    size_t num_taken;

    (void)state;
    daemon_live_and_be_killed(live_under_a_limit);
    struct keep *keep = create();
    const struct keep_item *items = keep_taken(keep, &num_taken);
    assert_in_range(num_taken, NUM_ITEMS / 2 - 20, NUM_ITEMS / 2 - 1);
    for (size_t i = 0; i < num_taken; i++)
        (void)close(items[i].fd);
    keep_destroy(keep);
}

static void live_again_under_a_limit(int ready_fd)
{
    struct keep *keep = NULL;
    size_t num_taken;

    limit_descriptors(NUM_ITEMS / 2);
    if (keep_create(&options, &keep))
        return;
    (void)keep_taken(keep, &num_taken);
    if (num_taken < NUM_ITEMS / 2 - 20 || num_taken >= NUM_ITEMS / 2 ||
        keep_counters(keep)->lost != NUM_ITEMS - num_taken)
        return;
    say(ready_fd);
    (void)pause();
}

static void a_daemon_takes_what_it_has_room_for(void **state)
{
    size_t num_taken;

    (void)state;
    daemon_live_and_be_killed(live_with_items);
    daemon_live_and_be_killed(live_again_under_a_limit);
    struct keep *keep = create(); /* what nobody could take is not held for ever */
    const struct keep_item *items = keep_taken(keep, &num_taken);
    assert_in_range(num_taken, NUM_ITEMS / 2 - 20, NUM_ITEMS / 2 - 1);
    for (size_t i = 0; i < num_taken; i++)
        (void)close(items[i].fd);
    keep_destroy(keep);
    options.max_items = 10;
    keep = create();
    (void)keep_taken(keep, &num_taken);
    assert_int_equal(num_taken, 10);
    assert_int_equal(keep_add(keep, "one-more", 0), -ENOSPC);
    assert_int_equal(keep_forget(keep), 0);
    keep_destroy(keep);
}

static void a_long_directory_is_no_obstacle(void **state)
{
    char name[121], path[256];

    (void)state;
    memset(name, 'd', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    (void)snprintf(path, sizeof(path), "%s/%s", directory.path, name);
    assert_int_equal(mkdir(path, 0700), 0);
    options.directory = path;
    daemon_live_and_be_killed(live_with_items);
    struct keep *keep = create();
    check_taken(keep, NUM_ITEMS);
    assert_int_equal(keep_forget(keep), 0);
    keep_destroy(keep);
    (void)snprintf(path, sizeof(path), "%s/%s/" HOLD_LOCK, directory.path, name);
    assert_int_equal(unlink(path), 0);
    *strrchr(path, '/') = '\0';
    assert_int_equal(rmdir(path), 0);
    (void)close(open(directory_name(&directory, HOLD_LOCK), O_CREAT | O_CLOEXEC, 0600));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_a_killed_daemon_had_comes_back),
        TEST(what_is_taken_stays_kept_for_the_one_after),
        TEST(what_was_removed_does_not_come_back),
        TEST(a_holder_with_nothing_ends_with_its_daemon),
        TEST(to_forget_gives_everything_up_at_once),
        TEST(what_an_earlier_daemon_left_is_forgotten_too),
        TEST(what_a_living_daemon_has_is_not),
        TEST(a_time_limit_without_a_daemon_ends_it),
        TEST(whose_socket_is_gone_holds_for_nobody),
        TEST(a_killed_holder_is_replaced_and_has_everything_again),
        TEST(without_a_holder_the_state_has_a_name),
        TEST(a_program_that_is_no_holder_is_not_waited_for),
        TEST(a_second_daemon_is_refused),
        TEST(another_user_gets_nothing),
        TEST(nonsense_does_no_harm),
        TEST(a_holder_that_is_full_says_so),
        TEST(a_daemon_takes_what_it_has_room_for),
        TEST(a_long_directory_is_no_obstacle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
