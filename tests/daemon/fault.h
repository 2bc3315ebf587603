/*
 * tests/daemon/fault.h - the Nth call of a program that can fail does.
 *
 * A program says by WRAP() which calls those are, and its link arguments (--wrap) name the same.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "tests/support/test.h"

static _Atomic int calls_left; /* of all threads: the one that takes it to 0 fails; 0: none does */
static int failed_errno;       /* of that one; to be set in front of calls_left */

static inline bool is_this_one(void)
{
    int left = calls_left;

    while (left > 0 && !atomic_compare_exchange_weak(&calls_left, &left, left - 1))
        ;
    if (left != 1)
        return false;
    errno = failed_errno;
    return true;
}

#define WRAP(result, failure, name, parameters, arguments)                                         \
    result __real_##name parameters;                                                               \
    result __wrap_##name parameters;                                                               \
    result __wrap_##name parameters                                                                \
    {                                                                                              \
        return is_this_one() ? (failure) : __real_##name arguments;                                \
    }

/* As an argument of a wrapped write: each second call takes only some of it. */
static inline size_t some_of(size_t num_bytes)
{
    static unsigned count;

    return num_bytes > 8 && count++ % 2 == 0 ? num_bytes / 2 : num_bytes;
}

static inline size_t count_entries(const char *path)
{
    size_t count = 0;
    DIR *folder = opendir(path);

    assert_non_null(folder);
    while (readdir(folder))
        count++;
    assert_int_equal(closedir(folder), 0);
    return count;
}

static inline size_t count_descriptors(void)
{
    return count_entries("/proc/self/fd");
}
