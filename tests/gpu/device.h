/* tests/gpu/device.h - a device to test with: made, waited for, compared. */
#pragma once

#include "gpu/gpu.h"

#define KiB ((uint64_t)1 << 10)
#define MiB ((uint64_t)1 << 20)
#define PAGE (2 * MiB)

enum { EXIT_SKIP = 77 };

/* Where the arenas of a test's device come from: the word a test program is called with. */
enum source { SOURCE_MOUNT, SOURCE_MEMFD };

/*
 * Reads argv. Answers 0, or the status to exit with: a machine where the private mount cannot be
 * had skips what was to be tested in it, in so many words.
 */
int source_choose(int argc, char **argv, enum source *out_source);

/* What this process gets if it asks for a private mount. */
bool can_mount(void);

/* A device of @num_pages pages in the chosen source; a failure fails the test. */
struct gpu_device *device_create(enum source source, uint64_t num_pages);
struct gpu_device *device_create_with(const struct gpu_device_options *options);

/* Arena @number of blocks of @block_bytes, and up to @max_granules granules. */
void arena_open(struct gpu_device *device, uint32_t number, uint64_t block_bytes,
                uint32_t max_granules, bool is_shared);

/* Waits for the one operation that is under way, by the event; answers its status. */
int device_wait(struct gpu_device *device, uint64_t cookie);

/* The status of the operation, or what the call that queues it answered. */
int commit_now(struct gpu_device *device, uint32_t arena, uint32_t granule);
int decommit_now(struct gpu_device *device, uint32_t arena, uint32_t granule);
int trim_now(struct gpu_device *device, uint32_t arena);
int close_now(struct gpu_device *device, uint32_t arena);

/* Of this process. */
uint32_t count_descriptors(void);
uint32_t count_mappings(void);

/* Runs @attack in a child: what it returns, or minus the signal that it died of. */
int in_child(int (*attack)(void *argument), void *argument);
