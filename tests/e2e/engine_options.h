/* tests/e2e/engine_options.h - what an engine is told to do. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct options {
    const char *dir, *token, *dtype, *name;
    uint32_t system_tokens, question_tokens, decode_tokens, system_seed, seed, window, rounds;
    bool by_socket, hold, is_f16;
};

/* argv into *out; ends the process after --help, and where it makes no sense. */
void options_parse(char **argv, struct options *out);
