/* SPDX-License-Identifier: BSD-3-Clause */
/* posix_bench.h -- a directory on the host's file system for tests of the POSIX store. */
#ifndef SUPPORT_POSIX_BENCH_H
#define SUPPORT_POSIX_BENCH_H

#include <fcntl.h>

#include "base/fault.h"
#include "base/owned.h"
#include "store/store.h"
#include "support/scratch.h"
#include "support/unit.h"

struct bench {
    struct scratch scratch;
    struct store_dir *root;
    int root_fd; /* a descriptor of the test, for what a store cannot do */
    int open_fds;
    struct sidestep_error err;
};

#define assert_ok(call) assert_int_equal((call), SIDESTEP_OK)

static inline int count_fds(void)
{
    int count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

static inline int setup(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));

    *state = b;
    b->open_fds = count_fds();
    if (!scratch_make(&b->scratch, NULL))
        return -1;
    b->root_fd = open(b->scratch.path, O_RDONLY | O_DIRECTORY);
    return (int)store_dir_open(store_posix(), NULL, b->scratch.path, &b->root, NULL);
}

static inline int teardown(void **state)
{
    struct bench *b = *state;

    fault_arm("", 0, false, 0);
    store_dir_close(b->root);
    close(b->root_fd);
    scratch_remove(&b->scratch);
    assert_int_equal(count_fds(), b->open_fds);
    free(b);
    return 0;
}

static inline void put(struct bench *b, const char *path, const char *text)
{
    OWNED_FD fd = openat(b->root_fd, path, O_WRONLY | O_CREAT | O_EXCL, 0666);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

#endif
