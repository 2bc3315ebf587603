/* daemon/token.h - secrets that are files: the tokens of tenants and of the HTTP port. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOKEN_MIN_BYTES = 16, TOKEN_MAX_BYTES = 128 /* HELLO_MAX_TOKEN */ };

struct token {
    size_t num_bytes; /* 0: there is none, and nothing matches it */
    uint8_t bytes[TOKEN_MAX_BYTES];
};

enum token_answer {
    TOKEN_INVALID = 1, /* not one line of 16 to 128 bytes of printable ASCII without spaces */
    TOKEN_EXPOSED      /* others than owner and group may read or write the file */
};

/* One line; white space around it is no part of it. 0, an enum token_answer, or negative errno. */
int token_read(const char *path, struct token *out_token);

/* What to do about an answer or error of token_read(). */
const char *token_text(int result);

/* Takes as long for any @bytes of one length: what is guessed right cannot be timed. */
bool token_matches(const struct token *token, const void *bytes, size_t num_bytes);
