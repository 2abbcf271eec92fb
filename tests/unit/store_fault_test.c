/* SPDX-License-Identifier: BSD-3-Clause */
/* store_fault_test.c -- the store for fault injection fails each operation on command. */
#include "base/fault.h"
#include "base/owned.h"
#include "support/store_fault.h"
#include "support/store_sim.h"
#include "support/unit.h"

struct bench {
    struct sim *sim;
    struct store *store;
    struct store_dir *root;
    struct store_file *file; /* "f", 8 bytes */
    struct sidestep_error err;
};

#define assert_ok(call) assert_int_equal((call), SIDESTEP_OK)

static int setup(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));

    *state = b;
    b->sim = sim_new(0);
    b->store = store_fault_new(sim_store(b->sim, 0));
    assert_ok(store_dir_open(b->store, NULL, "/", &b->root, &b->err));
    assert_ok(store_dir_make(b->root, "d", &b->err));
    assert_ok(store_file_create(b->root, "f", 0, &b->file, &b->err));
    assert_ok(store_file_write_at(b->file, "original", 8, 0, &b->err));
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;

    fault_arm("", 0, false, 0);
    store_file_discard(b->file);
    store_dir_close(b->root);
    store_fault_free(&b->store);
    sim_free(&b->sim);
    free(b);
    return 0;
}

static bool exists(struct bench *b, const char *name)
{
    struct store_stat st;

    fault_arm("", 0, false, 0);
    return store_stat(b->root, name, &st, NULL) == SIDESTEP_OK;
}

static bool no_name(void *context, const char *name)
{
    (void)context, (void)name;
    return true;
}

/* Do each operation once. Returns the status of the first one that fails. */
static enum sidestep_status do_everything(struct bench *b)
{
    OWNED_DIR *dir = NULL;
    OWNED_FILE *created = NULL, *opened = NULL;
    struct store_stat st;
    struct store_traits traits;
    char bytes[8];

    TRY(store_dir_open(b->store, b->root, "d", &dir, &b->err));
    TRY(store_dir_make(b->root, "e", &b->err));
    TRY(store_dir_list(b->root, no_name, NULL, &b->err));
    TRY(store_dir_sync(b->root, &b->err));
    TRY(store_dir_stat(b->root, &st, &b->err));
    TRY(store_dir_traits(b->root, &traits, &b->err));
    TRY(store_dir_remove(b->root, "e", &b->err));
    TRY(store_stat(b->root, "f", &st, &b->err));
    TRY(store_link(b->root, "f", dir, "g", &b->err));
    TRY(store_rename(dir, "g", dir, "h", STORE_NOREPLACE, &b->err));
    TRY(store_unlink(dir, "h", &b->err));
    TRY(store_file_create(dir, "i", 0, &created, &b->err));
    TRY(store_file_allocate(created, 8, &b->err));
    TRY(store_file_write_at(created, "12345678", 8, 0, &b->err));
    TRY(store_file_truncate(created, 8, &b->err));
    TRY(store_file_lock(created, true, &b->err));
    TRY(store_file_sync(created, &b->err));
    TRY(store_file_open(dir, "i", 0, &opened, &b->err));
    TRY(store_file_read_at(opened, bytes, 8, 0, &b->err));
    TRY(store_file_stat(opened, &st, &b->err));
    return store_file_close(TAKE(created), &b->err);
}

/* Fault points of do_everything(): one per operation, two if names change. */
static const char *const points[] = {
    "store.dir_open",      "store.dir_make",      "store.dir_make.reply",
    "store.dir_list",      "store.dir_sync",      "store.dir_stat",
    "store.dir_traits",    "store.dir_remove",    "store.dir_remove.reply",
    "store.stat",          "store.link",          "store.link.reply",
    "store.rename",        "store.rename.reply",  "store.unlink",
    "store.unlink.reply",  "store.file_create",   "store.file_create.reply",
    "store.file_allocate", "store.file_write_at", "store.file_truncate",
    "store.file_lock",     "store.file_sync",     "store.file_open",
    "store.file_read_at",  "store.file_stat",     "store.file_close",
};

TEST(each_operation_fails_on_command)
{
    for (size_t i = 0; i < ARRAY_LENGTH(points); i++) {
        (void)teardown(fixture);
        assert_int_equal(setup(fixture), 0);
        struct bench *b = *fixture;
        fault_arm("store.", i + 1, false, EROFS);
        assert_int_equal(do_everything(b), SIDESTEP_EPERM);
        assert_string_equal(fault_fired(), points[i]);
        assert_int_equal(b->err.sys_errno, EROFS);
        assert_non_null(strstr(b->err.message, "injected"));
        assert_non_null(strstr(b->err.message, "Read-only file system"));
    }
    (void)teardown(fixture);
    assert_int_equal(setup(fixture), 0);
    fault_arm("store.", ARRAY_LENGTH(points) + 1, false, EROFS);
    assert_ok(do_everything(*fixture));
    assert_null(fault_fired());
}

TEST(a_lost_reply_means_the_call_took_effect)
{
    struct bench *b = *fixture;

    fault_arm("store.rename", 1, false, EIO);
    assert_int_equal(store_rename(b->root, "f", b->root, "g", STORE_REPLACE, &b->err),
                     SIDESTEP_EIO);
    assert_true(exists(b, "f") && !exists(b, "g"));
    fault_arm("store.rename.reply", 1, false, EIO);
    assert_int_equal(store_rename(b->root, "f", b->root, "g", STORE_REPLACE, &b->err),
                     SIDESTEP_EIO);
    assert_non_null(strstr(b->err.message, "done, but the reply was lost"));
    assert_true(!exists(b, "f") && exists(b, "g"));
    fault_arm("store.unlink.reply", 1, false, EIO);
    assert_int_equal(store_unlink(b->root, "g", &b->err), SIDESTEP_EIO);
    assert_false(exists(b, "g"));
    struct store_file *file = NULL;
    fault_arm("store.file_create.reply", 1, false, EIO);
    assert_int_equal(store_file_create(b->root, "h", 0, &file, &b->err), SIDESTEP_EIO);
    assert_null(file);
    assert_true(exists(b, "h"));
}

TEST(half_of_a_failed_write_arrives)
{
    struct bench *b = *fixture;
    char seen[8];

    fault_arm("store.file_write_at", 1, false, ENOSPC);
    assert_int_equal(store_file_write_at(b->file, "REPLACED", 8, 0, &b->err), SIDESTEP_ENOSPC);
    assert_ok(store_file_read_at(b->file, seen, 8, 0, &b->err));
    assert_memory_equal(seen, "REPLinal", 8);
}

EACH_TEST(setup, teardown);
