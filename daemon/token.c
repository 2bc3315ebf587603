/* daemon/token.c - secrets that are files: the tokens of tenants and of the HTTP port. */
#include "daemon/token.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

/* Cuts white space at both ends; what is left is printable and has none, or is no token. */
static int token_parse(const uint8_t *bytes, size_t num_bytes, struct token *out_token)
{
    while (num_bytes > 0 && is_space(bytes[num_bytes - 1]))
        num_bytes--;
    while (num_bytes > 0 && is_space(bytes[0])) {
        bytes++;
        num_bytes--;
    }
    if (num_bytes < TOKEN_MIN_BYTES || num_bytes > TOKEN_MAX_BYTES)
        return TOKEN_INVALID;
    for (size_t i = 0; i < num_bytes; i++)
        if (bytes[i] <= ' ' || bytes[i] >= 0x7f)
            return TOKEN_INVALID;
    *out_token = (struct token){.num_bytes = num_bytes};
    memcpy(out_token->bytes, bytes, num_bytes);
    return 0;
}

int token_read(const char *path, struct token *out_token)
{
    uint8_t bytes[2 * TOKEN_MAX_BYTES];
    struct stat status;
    int result = 0;

    /* Non-blocking: a FIFO without a writer must not stop the daemon. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    ssize_t count = read(fd, bytes, sizeof(bytes));
    if (count < 0 || fstat(fd, &status) < 0)
        result = -errno;
    else if (!S_ISREG(status.st_mode))
        result = TOKEN_INVALID;
    else if ((status.st_mode & (S_IROTH | S_IWOTH)) != 0)
        result = TOKEN_EXPOSED;
    else
        result = token_parse(bytes, (size_t)count, out_token);
    (void)close(fd);
    explicit_bzero(bytes, sizeof(bytes));
    return result;
}

const char *token_text(int result)
{
    const char *text = result < 0 ? strerrordesc_np(-result) : NULL;

    switch (result) {
    case 0:
        return "read";
    case TOKEN_INVALID:
        return "expected a file of one line, 16 to 128 bytes of printable ASCII without spaces";
    case TOKEN_EXPOSED:
        return "others may read or write it: chmod o-rw";
    default:
        return text ? text : "unknown error";
    }
}

bool token_matches(const struct token *token, const void *bytes, size_t num_bytes)
{
    const uint8_t *given = bytes;
    uint8_t difference = token->num_bytes == 0 || token->num_bytes != num_bytes;

    for (size_t i = 0; i < num_bytes; i++)
        difference |= given[i] ^ token->bytes[i % TOKEN_MAX_BYTES];
    return difference == 0;
}
