/* tests/fuzz/fuzz.h - what a fuzz target is: libFuzzer's entry, and seeds for our own driver. */
#pragma once

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t num_bytes);

/* A valid input to mutate, written to @out; returns its bytes, or 0 past the last one. */
size_t fuzz_seed(size_t index, uint8_t *out, size_t max);
