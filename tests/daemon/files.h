/* tests/daemon/files.h - a temporary directory of a test, and files in it. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/test.h"

struct directory {
    char path[64];
    char file[128]; /* the one that was named last */
};

static inline void directory_make(struct directory *directory)
{
    (void)snprintf(directory->path, sizeof(directory->path), "/tmp/kvpoold-test-XXXXXX");
    assert_non_null(mkdtemp(directory->path));
}

static inline const char *directory_name(struct directory *directory, const char *name)
{
    (void)snprintf(directory->file, sizeof(directory->file), "%s/%s", directory->path, name);
    return directory->file;
}

static inline const char *directory_write(struct directory *directory, const char *name,
                                          const char *text)
{
    FILE *file = fopen(directory_name(directory, name), "w");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(directory->file, 0600), 0);
    return directory->file;
}

/* Fails if a test left something behind that it did not say. */
static inline void directory_remove(struct directory *directory, const char *const *names)
{
    for (size_t i = 0; names[i]; i++)
        assert_int_equal(unlink(directory_name(directory, names[i])), 0);
    assert_int_equal(rmdir(directory->path), 0);
}
