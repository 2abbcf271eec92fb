/* SPDX-License-Identifier: BSD-3-Clause */
/* store_files.h -- makes, reads and compares small files and directories in a store, for tests. */
#ifndef SUPPORT_STORE_FILES_H
#define SUPPORT_STORE_FILES_H

#include "base/owned.h"
#include "store/store.h"
#include "support/store_bench.h"
#include "support/unit.h"

static inline int setup(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));
    enum backend_kind kind = (enum backend_kind)(uintptr_t)*state;

    *state = b;
    return bench_open(b, kind);
}

static inline int teardown(void **state)
{
    bench_close(*state);
    free(*state);
    return 0;
}

#define assert_ok(call) assert_int_equal((call), SIDESTEP_OK)

static inline void put(struct bench *b, struct store_dir *at, const char *name, const char *text)
{
    struct store_file *file = NULL;

    assert_ok(store_file_create(at, name, 0, &file, &b->err));
    assert_ok(store_file_write_at(file, text, strlen(text), 0, &b->err));
    assert_ok(store_file_sync(file, &b->err));
    assert_ok(store_file_close(file, &b->err));
}

static inline void assert_contents(struct bench *b, struct store_dir *at, const char *name,
                                   const char *text)
{
    OWNED_FILE *file = NULL;
    struct store_stat st;
    char seen[64] = "";

    assert_ok(store_file_open(at, name, 0, &file, &b->err));
    assert_ok(store_file_stat(file, &st, &b->err));
    assert_int_equal(st.size, strlen(text));
    assert_ok(store_file_read_at(file, seen, strlen(text), 0, &b->err));
    assert_string_equal(seen, text);
}

static inline struct store_dir *make_dir(struct bench *b, struct store_dir *at, const char *name)
{
    struct store_dir *dir = NULL;

    assert_ok(store_dir_make(at, name, &b->err));
    assert_ok(store_dir_open(b->store, at, name, &dir, &b->err));
    return dir;
}

static inline bool exists(struct bench *b, const char *name)
{
    struct store_stat st;
    enum sidestep_status status = store_stat(b->root, name, &st, &b->err);

    assert_true(status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND);
    return status == SIDESTEP_OK;
}

#endif
