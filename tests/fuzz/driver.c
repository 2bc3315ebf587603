/*
 * tests/fuzz/driver.c - libFuzzer's place in builds without it: seeded mutations of valid inputs.
 * usage: fuzz_X [SECONDS [SEED]], or fuzz_X FILE...: replays files
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fuzz/fuzz.h"

enum { MAX_BYTES = 8192, MAX_SEEDS = 64 };

static uint64_t random_state;

static uint64_t random_next(void) /* splitmix64 */
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* One small change. Lengths and numbers are where decoders break, so extreme bytes are likelier. */
static size_t mutate(uint8_t *bytes, size_t num_bytes)
{
    static const uint8_t extremes[] = {0, 1, 0x7f, 0x80, 0xff, 0xfe, 0x08, 0x0a, 0x2a};
    size_t at = num_bytes ? random_next() % num_bytes : 0;

    switch (random_next() % 6) {
    case 0:
        bytes[at] ^= (uint8_t)(1U << random_next() % 8);
        return num_bytes;
    case 1:
        bytes[at] = extremes[random_next() % sizeof(extremes)];
        return num_bytes;
    case 2:
        bytes[at] = (uint8_t)random_next();
        return num_bytes;
    case 3: /* cut */
        return num_bytes ? at : 0;
    case 4: { /* repeat a piece at the end */
        size_t length = num_bytes ? random_next() % (num_bytes - at) : 0;
        if (num_bytes + length > MAX_BYTES)
            return num_bytes;
        memmove(bytes + num_bytes, bytes + at, length);
        return num_bytes + length;
    }
    default: /* take one byte out */
        if (num_bytes < 2)
            return num_bytes;
        memmove(bytes + at, bytes + at + 1, num_bytes - at - 1);
        return num_bytes - 1;
    }
}

static int replay(const char *path)
{
    static uint8_t bytes[MAX_BYTES];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    size_t num_bytes = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    return LLVMFuzzerTestOneInput(bytes, num_bytes);
}

int main(int argc, char **argv)
{
    static uint8_t seeds[MAX_SEEDS][MAX_BYTES], bytes[MAX_BYTES];
    size_t sizes[MAX_SEEDS], num_seeds = 0;
    char *rest = NULL;
    double seconds = argc > 1 ? strtod(argv[1], &rest) : 2;

    if (rest && *rest) {
        int failed = 0;
        for (int i = 1; i < argc; i++)
            failed |= replay(argv[i]);
        return failed;
    }
    random_state = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    while (num_seeds < MAX_SEEDS) {
        size_t size = fuzz_seed(num_seeds, seeds[num_seeds], MAX_BYTES);
        if (size == 0)
            break;
        sizes[num_seeds++] = size;
    }
    if (num_seeds == 0)
        return 1;

    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    uint64_t num_inputs = 0;
    do {
        for (int i = 0; i < 1000; i++, num_inputs++) {
            size_t seed = random_next() % num_seeds, size = sizes[seed];
            memcpy(bytes, seeds[seed], size);
            for (uint64_t n = random_next() % 8; n > 0; n--)
                size = mutate(bytes, size);
            LLVMFuzzerTestOneInput(bytes, size);
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec) <
             seconds);
    printf("%llu inputs, no complaint\n", (unsigned long long)num_inputs);
    return 0;
}
