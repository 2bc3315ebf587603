/*
 * tests/bench/kv_peer.c - stores, overwrites and fetches values in redis or memcached over a unix
 * socket: what somebody would use instead of a mapped arena. By command only: kv_peers.sh.
 *
 * usage: kv_peer redis|memcached SOCKET VALUE_BYTES TOTAL_MIB DEPTH
 *
 * DEPTH requests are outstanding. The client parses no more than it must: a line, a length, the
 * value straight into one reused buffer. Each value begins with its number, which is checked.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 16, LINE_BYTES = 256 };

static struct peer {
    bool is_memcached;
    int fd;
    size_t value_bytes;
    char *value, *fetched;
    char read[READ_BYTES];
    size_t at, end; /* of read[] */
    long num_wrong;
} peer;

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "kv_peer: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int buffer_bytes = 4 << 20;

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    peer.fd = socket(AF_UNIX, SOCK_STREAM, 0);
    (void)setsockopt(peer.fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes));
    if (connect(peer.fd, (struct sockaddr *)&address, sizeof(address)))
        give_up(path);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static void write_all(struct iovec *parts, int num_parts)
{
    while (num_parts > 0) {
        ssize_t num = writev(peer.fd, parts, num_parts);
        if (num < 0 && errno != EINTR)
            give_up("write");
        for (; num > 0 && (size_t)num >= parts->iov_len; parts++, num_parts--)
            num -= (ssize_t)parts->iov_len;
        if (num > 0) {
            parts->iov_base = (char *)parts->iov_base + num;
            parts->iov_len -= (size_t)num;
        }
    }
}

static size_t read_some(void *out, size_t max)
{
    ssize_t num = read(peer.fd, out, max);

    if (num <= 0)
        give_up("read");
    return (size_t)num;
}

static void read_line(char out[LINE_BYTES])
{
    size_t length = 0;

    for (;;) {
        if (peer.at == peer.end) {
            peer.end = read_some(peer.read, sizeof(peer.read));
            peer.at = 0;
        }
        char byte = peer.read[peer.at++];
        if (byte == '\n')
            break;
        if (byte != '\r' && length + 1 < LINE_BYTES)
            out[length++] = byte;
    }
    out[length] = '\0';
}

/* What was read ahead first, then straight into the buffer; and the line end behind it. */
static void read_value(void)
{
    char line[LINE_BYTES];
    size_t have = peer.end - peer.at;

    if (have > peer.value_bytes)
        have = peer.value_bytes;
    memcpy(peer.fetched, &peer.read[peer.at], have);
    peer.at += have;
    while (have < peer.value_bytes)
        have += read_some(peer.fetched + have, peer.value_bytes - have);
    read_line(line);
}

/* ---- verbs ---------------------------------------------------------------------------------- */

static void send_store(long number)
{
    char head[128], key[64];
    int key_bytes = snprintf(key, sizeof(key), "block:%032lx", number);
    int num = peer.is_memcached
                  ? snprintf(head, sizeof(head), "set %s 0 0 %zu\r\n", key, peer.value_bytes)
                  : snprintf(head, sizeof(head), "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%zu\r\n",
                             key_bytes, key, peer.value_bytes);
    struct iovec parts[] = {
        {head, (size_t)num}, {peer.value, peer.value_bytes}, {(char[]){'\r', '\n'}, 2}};

    memcpy(peer.value, &number, sizeof(number));
    write_all(parts, 3);
}

static void take_stored(long number)
{
    char line[LINE_BYTES];

    (void)number;
    read_line(line);
    peer.num_wrong += strcmp(line, peer.is_memcached ? "STORED" : "+OK") != 0;
}

static void send_fetch(long number)
{
    char head[128], key[64];
    int key_bytes = snprintf(key, sizeof(key), "block:%032lx", number);
    int num = peer.is_memcached ? snprintf(head, sizeof(head), "get %s\r\n", key)
                                : snprintf(head, sizeof(head), "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n",
                                           key_bytes, key);
    struct iovec part = {head, (size_t)num};

    write_all(&part, 1);
}

static void take_fetched(long number)
{
    char line[LINE_BYTES];

    read_line(line);
    if (strncmp(line, peer.is_memcached ? "VALUE" : "$", peer.is_memcached ? 5 : 1) != 0 ||
        strcmp(line, "$-1") == 0) {
        peer.num_wrong++; /* evicted: give it more memory */
        return;
    }
    read_value();
    if (peer.is_memcached)
        read_line(line); /* END */
    peer.num_wrong += memcmp(peer.fetched, &number, sizeof(number)) != 0;
}

/* GB/s of @count values in @order, @depth outstanding. */
static double run(const long *order, long count, long depth, void (*send)(long number),
                  void (*take)(long number))
{
    double start = now_s();

    for (long sent = 0, done = 0; done < count; done++) {
        while (sent < count && sent - done < depth)
            send(order[sent++]);
        take(order[done]);
    }
    return (double)count * (double)peer.value_bytes / (now_s() - start) / 1e9;
}

static void shuffle(long *order, long count)
{
    for (long i = count - 1; i > 0; i--) {
        long other = random() % (i + 1), swap = order[i];
        order[i] = order[other];
        order[other] = swap;
    }
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: kv_peer redis|memcached SOCKET VALUE_BYTES TOTAL_MIB DEPTH\n");
        return 2;
    }
    peer.is_memcached = strcmp(argv[1], "memcached") == 0;
    peer.value_bytes = strtoul(argv[3], NULL, 10);
    long count = atol(argv[4]) * (1 << 20) / (long)peer.value_bytes, depth = atol(argv[5]);
    long *order = calloc((size_t)count, sizeof(*order));
    peer.value = calloc(1, peer.value_bytes);
    peer.fetched = calloc(1, peer.value_bytes);
    if (!order || !peer.value || !peer.fetched)
        give_up("memory");
    memset(peer.value, 'v', peer.value_bytes);
    memset(peer.fetched, 0, peer.value_bytes);
    for (long i = 0; i < count; i++)
        order[i] = i;
    connect_to(argv[2]);

    double store = run(order, count, depth, send_store, take_stored);
    double overwrite = run(order, count, depth, send_store, take_stored);
    shuffle(order, count);
    double fetch = run(order, count, depth, send_fetch, take_fetched);
    printf("%-10s %8zu B, depth %3ld: store %6.2f GB/s, overwrite %6.2f GB/s, fetch %6.2f GB/s%s\n",
           argv[1], peer.value_bytes, depth, store, overwrite, fetch,
           peer.num_wrong ? "  WRONG OR MISSING VALUES" : "");
    return peer.num_wrong != 0;
}
