/* SPDX-License-Identifier: BSD-3-Clause */
/* store_test.c -- checks the contract of store/store.h on every backend. */
#include <pthread.h>

#include "base/fault.h"
#include "base/owned.h"
#include "store/store.h"
#include "support/store_files.h"
#include "support/unit.h"

static void writes_are_read_back(void **state)
{
    struct bench *b = *state;
    OWNED_FILE *file = NULL;
    struct store_stat st;
    char seen[11] = "";

    assert_ok(store_file_create(b->root, "f", 0, &file, &b->err));
    assert_ok(store_file_write_at(file, "world", 5, 6, &b->err));
    assert_ok(store_file_write_at(file, "hello ", 6, 0, &b->err));
    assert_ok(store_file_write_at(file, NULL, 0, 100, &b->err));
    assert_ok(store_file_read_at(file, seen, 11, 0, &b->err));
    assert_memory_equal(seen, "hello world", 11);
    assert_ok(store_file_read_at(file, seen, 3, 8, &b->err));
    assert_memory_equal(seen, "rld", 3);
    assert_ok(store_file_read_at(file, seen, 0, 999, &b->err));
    assert_ok(store_file_stat(file, &st, &b->err));
    assert_int_equal(st.size, 11);
    assert_int_equal(st.kind, STORE_FILE);
    assert_ok(store_file_sync(file, &b->err));
    assert_ok(store_file_close(TAKE(file), &b->err));
    assert_ok(store_file_close(NULL, &b->err));
    assert_ok(store_dir_sync(b->root, &b->err));
    assert_contents(b, b->root, "f", "hello world");
}

static void a_read_beyond_the_end_says_where_it_is(void **state)
{
    struct bench *b = *state;
    OWNED_FILE *file = NULL;
    char seen[8];

    put(b, b->root, "f", "12345");
    assert_ok(store_file_open(b->root, "f", 0, &file, &b->err));
    assert_int_equal(store_file_read_at(file, seen, 6, 0, &b->err), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(b->err.message, "'f': "));
    assert_non_null(strstr(b->err.message, "file ends at 5"));
    assert_int_equal(store_file_read_at(file, seen, 1, UINT64_MAX, &b->err), SIDESTEP_ECORRUPT);
    assert_int_equal(store_file_read_at(file, seen, 2, INT64_MAX, NULL), SIDESTEP_ECORRUPT);
}

static void sizes_beyond_all_files_are_refused(void **state)
{
    struct bench *b = *state;
    OWNED_FILE *file = NULL;

    assert_ok(store_file_create(b->root, "f", 0, &file, &b->err));
    assert_int_equal(store_file_write_at(file, "x", 1, INT64_MAX, &b->err), SIDESTEP_ENOSPC);
    assert_int_equal(b->err.sys_errno, EFBIG);
    assert_int_equal(store_file_write_at(file, "x", 1, UINT64_MAX, &b->err), SIDESTEP_ENOSPC);
    assert_int_equal(store_file_allocate(file, UINT64_MAX, &b->err), SIDESTEP_ENOSPC);
    assert_int_equal(store_file_truncate(file, UINT64_MAX, &b->err), SIDESTEP_ENOSPC);
}

static void create_never_takes_what_is_there(void **state)
{
    struct bench *b = *state;
    struct store_file *file = NULL;

    put(b, b->root, "f", "mine");
    assert_ok(store_dir_make(b->root, "d", &b->err));
    assert_int_equal(store_file_create(b->root, "f", 0, &file, &b->err), SIDESTEP_EEXISTS);
    assert_int_equal(b->err.sys_errno, EEXIST);
    assert_non_null(strstr(b->err.message, "create 'f'"));
    assert_int_equal(store_file_create(b->root, "d", 0, &file, &b->err), SIDESTEP_EEXISTS);
    assert_int_equal(store_dir_make(b->root, "f", &b->err), SIDESTEP_EEXISTS);
    assert_int_equal(store_dir_make(b->root, "d", &b->err), SIDESTEP_EEXISTS);
    assert_null(file);
    assert_contents(b, b->root, "f", "mine");
}

static void a_name_is_one_component(void **state)
{
    static const char *const bad[] = {"", ".", "..", "a/b", "/", "/tmp", "../f", "f/"};
    struct bench *b = *state;
    struct store_dir *dir = NULL;
    struct store_file *file = NULL;
    struct store_stat st;

    put(b, b->root, "f", "x");
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        const char *name = bad[i];
        assert_int_equal(store_dir_open(b->store, b->root, name, &dir, NULL), SIDESTEP_EUNSAFE);
        assert_int_equal(store_dir_make(b->root, name, NULL), SIDESTEP_EUNSAFE);
        assert_int_equal(store_dir_remove(b->root, name, NULL), SIDESTEP_EUNSAFE);
        assert_int_equal(store_stat(b->root, name, &st, NULL), SIDESTEP_EUNSAFE);
        assert_int_equal(store_unlink(b->root, name, NULL), SIDESTEP_EUNSAFE);
        assert_int_equal(store_file_create(b->root, name, 0, &file, NULL), SIDESTEP_EUNSAFE);
        assert_int_equal(store_rename(b->root, name, b->root, "g", STORE_REPLACE, NULL),
                         SIDESTEP_EUNSAFE);
        assert_int_equal(store_rename(b->root, "f", b->root, name, STORE_REPLACE, NULL),
                         SIDESTEP_EUNSAFE);
        if (strcmp(name, ".") != 0) /* the directory itself: see store_link_here() */
            assert_int_equal(store_link(b->root, name, b->root, "g", NULL), SIDESTEP_EUNSAFE);
        assert_int_equal(store_link(b->root, "f", b->root, name, NULL), SIDESTEP_EUNSAFE);
    }
}

static void open_goes_down_and_nowhere_else(void **state)
{
    static const struct {
        const char *path;
        enum sidestep_status status;
    } cases[] = {
        {"a/b/f", SIDESTEP_OK},
        {"top", SIDESTEP_OK},
        {"a", SIDESTEP_EUNSAFE},
        {"a/b", SIDESTEP_EUNSAFE},
        {"a/none", SIDESTEP_ENOTFOUND},
        {"none/f", SIDESTEP_ENOTFOUND},
        {"top/f", SIDESTEP_ENOTFOUND},
        {"", SIDESTEP_EUNSAFE},
        {".", SIDESTEP_EUNSAFE},
        {"..", SIDESTEP_EUNSAFE},
        {"/", SIDESTEP_EUNSAFE},
        {"/etc/passwd", SIDESTEP_EUNSAFE},
        {"./top", SIDESTEP_EUNSAFE},
        {"a/./b/f", SIDESTEP_EUNSAFE},
        {"a//b/f", SIDESTEP_EUNSAFE},
        {"a/../top", SIDESTEP_EUNSAFE},
        {"a/b/../../top", SIDESTEP_EUNSAFE},
        {"../top", SIDESTEP_EUNSAFE},
        {"top/", SIDESTEP_EUNSAFE},
        {"a/b/f/", SIDESTEP_EUNSAFE},
    };
    struct bench *b = *state;
    OWNED_DIR *a = make_dir(b, b->root, "a");
    OWNED_DIR *inner = make_dir(b, a, "b");

    put(b, b->root, "top", "t");
    put(b, inner, "f", "f");
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        OWNED_FILE *file = NULL;
        enum sidestep_status status = store_file_open(b->root, cases[i].path, 0, &file, &b->err);
        if (status != cases[i].status)
            fail_msg("'%s': %s", cases[i].path, b->err.message);
        assert_int_equal(file != NULL, status == SIDESTEP_OK);
        /* For a reader, a name that is there but is no file is not damage. */
        store_file_discard(TAKE(file));
        enum sidestep_status read = store_file_open_to_read(b->root, cases[i].path, 0, &file, NULL);
        if (read != status)
            assert_true(status == SIDESTEP_EUNSAFE && read == SIDESTEP_EIO);
    }
    assert_int_equal(store_file_open_to_read(b->root, "a", 0, NULL, &b->err), SIDESTEP_EIO);
    assert_int_equal(b->err.status, SIDESTEP_EIO);
}

static void what_is_missing_is_not_found(void **state)
{
    struct bench *b = *state;
    struct store_dir *dir = NULL;
    struct store_file *file = NULL;
    struct store_stat st;

    assert_int_equal(store_file_open(b->root, "no", 0, &file, &b->err), SIDESTEP_ENOTFOUND);
    assert_int_equal(b->err.sys_errno, ENOENT);
    assert_non_null(strstr(b->err.message, "open 'no'"));
    assert_non_null(strstr(b->err.message, "No such file or directory"));
    assert_int_equal(store_dir_open(b->store, b->root, "no", &dir, &b->err), SIDESTEP_ENOTFOUND);
    assert_non_null(strstr(b->err.message, "'no'"));
    assert_int_equal(store_stat(b->root, "no", &st, &b->err), SIDESTEP_ENOTFOUND);
    assert_int_equal(store_unlink(b->root, "no", &b->err), SIDESTEP_ENOTFOUND);
    assert_int_equal(store_dir_remove(b->root, "no", &b->err), SIDESTEP_ENOTFOUND);
    assert_int_equal(store_rename(b->root, "no", b->root, "f", STORE_REPLACE, &b->err),
                     SIDESTEP_ENOTFOUND);
    assert_int_equal(store_link(b->root, "no", b->root, "f", &b->err), SIDESTEP_ENOTFOUND);
    put(b, b->root, "f", "x");
    assert_int_equal(store_dir_open(b->store, b->root, "f", &dir, &b->err), SIDESTEP_ENOTFOUND);
    assert_int_equal(b->err.sys_errno, ENOTDIR);
}

struct listing {
    struct bench *bench;
    char names[4][8];
    size_t count;
    size_t stop_at;
    bool unlink;
};

static bool list_one(void *context, const char *name)
{
    struct listing *listing = context;

    assert_true(listing->count < ARRAY_LENGTH(listing->names));
    snprintf(listing->names[listing->count++], sizeof(listing->names[0]), "%s", name);
    if (listing->unlink)
        assert_ok(store_unlink(listing->bench->root, name, NULL));
    return listing->count != listing->stop_at;
}

static void a_listing_names_everything_once(void **state)
{
    struct bench *b = *state;
    struct listing all = {.bench = b}, one = {.bench = b, .stop_at = 1};
    struct listing gone = {.bench = b, .unlink = true}, none = {.bench = b};
    int seen = 0;

    put(b, b->root, "f1", "");
    put(b, b->root, ".f2", "");
    put(b, b->root, "f3", "");
    assert_ok(store_dir_list(b->root, list_one, &all, &b->err));
    assert_int_equal(all.count, 3);
    for (size_t i = 0; i < 3; i++)
        seen |= strcmp(all.names[i], "f1") == 0    ? 1
                : strcmp(all.names[i], ".f2") == 0 ? 2
                : strcmp(all.names[i], "f3") == 0  ? 4
                                                   : 8;
    assert_int_equal(seen, 7);
    assert_ok(store_dir_list(b->root, list_one, &one, &b->err));
    assert_int_equal(one.count, 1);
    assert_ok(store_dir_list(b->root, list_one, &gone, &b->err));
    assert_int_equal(gone.count, 3);
    assert_ok(store_dir_list(b->root, list_one, &none, &b->err));
    assert_int_equal(none.count, 0);
}

static void renames_replace_or_not_or_swap(void **state)
{
    struct bench *b = *state;
    OWNED_DIR *d = make_dir(b, b->root, "d");

    put(b, b->root, "f", "f");
    put(b, d, "g", "g");
    assert_int_equal(store_rename(b->root, "f", d, "g", STORE_NOREPLACE, &b->err),
                     SIDESTEP_EEXISTS);
    assert_non_null(strstr(b->err.message, "rename 'f'"));
    assert_ok(store_rename(b->root, "f", d, "g", STORE_EXCHANGE, &b->err));
    assert_contents(b, b->root, "f", "g");
    assert_contents(b, d, "g", "f");
    assert_int_equal(store_rename(b->root, "f", d, "no", STORE_EXCHANGE, &b->err),
                     SIDESTEP_ENOTFOUND);
    assert_ok(store_rename(b->root, "f", d, "h", STORE_NOREPLACE, &b->err));
    assert_ok(store_rename(d, "h", d, "g", STORE_REPLACE, &b->err));
    assert_contents(b, d, "g", "g");
    assert_false(exists(b, "f"));
}

static void a_directory_replaces_only_an_empty_one(void **state)
{
    struct bench *b = *state;
    OWNED_DIR *from = make_dir(b, b->root, "from");
    OWNED_DIR *full = make_dir(b, b->root, "full");

    put(b, from, "f", "f");
    put(b, full, "g", "g");
    assert_ok(store_dir_make(b->root, "empty", &b->err));
    assert_int_equal(store_rename(b->root, "from", b->root, "full", STORE_REPLACE, &b->err),
                     SIDESTEP_EEXISTS);
    assert_int_equal(store_rename(b->root, "from", b->root, "empty", STORE_NOREPLACE, &b->err),
                     SIDESTEP_EEXISTS);
    assert_ok(store_rename(b->root, "from", b->root, "empty", STORE_REPLACE, &b->err));
    assert_false(exists(b, "from"));
    assert_int_not_equal(store_rename(b->root, "empty", from, "below", STORE_REPLACE, &b->err), 0);
}

static void a_handle_stays_with_its_directory(void **state)
{
    struct bench *b = *state;
    OWNED_DIR *d = make_dir(b, b->root, "d");
    struct store_stat by_handle, by_name, other;

    assert_ok(store_rename(b->root, "d", b->root, "e", STORE_NOREPLACE, &b->err));
    put(b, d, "f", "f");
    assert_ok(store_dir_make(b->root, "d", &b->err));
    assert_ok(store_dir_stat(d, &by_handle, &b->err));
    assert_ok(store_stat(b->root, "e", &by_name, &b->err));
    assert_ok(store_stat(b->root, "d", &other, &b->err));
    assert_int_equal(by_handle.kind, STORE_DIRECTORY);
    assert_int_equal(by_handle.device, by_name.device);
    assert_int_equal(by_handle.inode, by_name.inode);
    assert_int_not_equal(by_handle.inode, other.inode);
    assert_int_equal(store_dir_remove(b->root, "e", &b->err), SIDESTEP_EEXISTS);
    assert_ok(store_unlink(d, "f", &b->err));
    assert_ok(store_dir_remove(b->root, "e", &b->err));
    assert_int_equal(store_dir_make(d, "x", &b->err), SIDESTEP_ENOTFOUND);
    assert_ok(store_dir_sync(b->root, &b->err));
}

/* If the storage tells. */
static void the_path_of_a_handle_follows_it(void **state)
{
    struct bench *b = *state;
    OWNED_DIR *dir = make_dir(b, b->root, "old");
    OWNED_DIR *again = NULL;
    struct store_stat mine, found;
    char path[4096];

    if (dir->store->ops->dir_path == NULL) {
        assert_int_equal(store_dir_path(dir, path, sizeof(path), &b->err), SIDESTEP_EUNSUPPORTED);
        return;
    }
    assert_ok(store_rename(b->root, "old", b->root, "new", STORE_NOREPLACE, &b->err));
    assert_ok(store_dir_path(dir, path, sizeof(path), &b->err));
    assert_string_equal(strrchr(path, '/'), "/new");
    assert_ok(store_dir_open(b->store, NULL, path, &again, &b->err));
    assert_ok(store_dir_stat(dir, &mine, &b->err));
    assert_ok(store_dir_stat(again, &found, &b->err));
    assert_int_equal(mine.inode, found.inode);
    assert_int_not_equal(store_dir_path(dir, path, strlen(path), NULL), SIDESTEP_OK);
}

static void links_are_the_same_file(void **state)
{
    struct bench *b = *state;
    OWNED_DIR *d = make_dir(b, b->root, "d");
    struct store_stat first, second;

    put(b, b->root, "f", "text");
    assert_ok(store_link(b->root, "f", d, "g", &b->err));
    assert_ok(store_stat(b->root, "f", &first, &b->err));
    assert_ok(store_stat(d, "g", &second, &b->err));
    assert_int_equal(first.inode, second.inode);
    assert_int_equal(store_link(b->root, "f", d, "g", &b->err), SIDESTEP_EEXISTS);
    assert_int_equal(store_link(b->root, "d", b->root, "e", &b->err), SIDESTEP_EUNSAFE);
    assert_ok(store_unlink(b->root, "f", &b->err));
    assert_contents(b, d, "g", "text");
}

static void unlink_and_remove_keep_to_their_kind(void **state)
{
    struct bench *b = *state;
    OWNED_FILE *file = NULL;
    char seen[4];

    put(b, b->root, "f", "text");
    assert_ok(store_dir_make(b->root, "d", &b->err));
    assert_ok(store_file_open(b->root, "f", 0, &file, &b->err));
    assert_int_not_equal(store_unlink(b->root, "d", &b->err), SIDESTEP_OK);
    assert_int_not_equal(store_dir_remove(b->root, "f", &b->err), SIDESTEP_OK);
    assert_true(exists(b, "d") && exists(b, "f"));
    assert_ok(store_unlink(b->root, "f", &b->err));
    assert_ok(store_dir_remove(b->root, "d", &b->err));
    assert_false(exists(b, "d") || exists(b, "f"));
    /* What is open stays. */
    assert_ok(store_file_read_at(file, seen, 4, 0, &b->err));
    assert_memory_equal(seen, "text", 4);
}

static void sizes_change_by_truncate_only(void **state)
{
    struct bench *b = *state;
    OWNED_FILE *file = NULL;
    struct store_stat st;
    char seen[6];

    assert_ok(store_file_create(b->root, "f", 0, &file, &b->err));
    assert_ok(store_file_allocate(file, 0, &b->err));
    assert_ok(store_file_allocate(file, 100000, &b->err));
    assert_ok(store_file_stat(file, &st, &b->err));
    assert_int_equal(st.size, 0);
    assert_ok(store_file_write_at(file, "abcdef", 6, 0, &b->err));
    assert_ok(store_file_truncate(file, 2, &b->err));
    assert_ok(store_file_truncate(file, 6, &b->err));
    assert_ok(store_file_read_at(file, seen, 6, 0, &b->err));
    assert_memory_equal(seen, "ab\0\0\0\0", 6);
}

static void what_was_opened_to_read_is_not_written(void **state)
{
    struct bench *b = *state;
    OWNED_FILE *file = NULL;

    put(b, b->root, "f", "text");
    assert_ok(store_file_open(b->root, "f", 0, &file, &b->err));
    assert_int_equal(store_file_write_at(file, "x", 1, 0, &b->err), SIDESTEP_EIO);
    assert_int_equal(store_file_lock(file, true, &b->err), SIDESTEP_EIO);
    assert_int_not_equal(store_file_truncate(file, 0, &b->err), SIDESTEP_OK);
    assert_contents(b, b->root, "f", "text");
}

static void locks_exclude_other_handles(void **state)
{
    struct bench *b = *state;
    OWNED_FILE *first = NULL, *second = NULL, *third = NULL;

    assert_ok(store_file_create(b->root, "f", 0, &first, &b->err));
    assert_ok(store_file_open(b->root, "f", STORE_WRITE, &second, &b->err));
    assert_ok(store_file_open(b->root, "f", 0, &third, &b->err));
    assert_ok(store_file_lock(first, true, &b->err));
    assert_ok(store_file_lock(first, true, &b->err));
    assert_int_equal(store_file_lock(second, true, &b->err), SIDESTEP_ELOCKED);
    assert_non_null(strstr(b->err.message, "lock 'f': held by another"));
    assert_int_equal(store_file_lock(third, false, &b->err), SIDESTEP_ELOCKED);
    assert_ok(store_file_lock(first, false, &b->err));
    assert_ok(store_file_lock(third, false, &b->err));
    assert_int_equal(store_file_lock(second, true, &b->err), SIDESTEP_ELOCKED);
    assert_ok(store_file_close(TAKE(first), &b->err));
    store_file_discard(TAKE(third));
    assert_ok(store_file_lock(second, true, &b->err));
}

/* Asking for a lock needs no permission to write, takes no lock, and sees locks of other
 * handles. */
static void a_lock_is_asked_about(void **state)
{
    struct bench *b = *state;
    OWNED_FILE *holder = NULL, *stranger = NULL;
    bool is_locked = false;

    assert_ok(store_file_create(b->root, "f", 0, &holder, &b->err));
    assert_ok(store_file_open(b->root, "f", 0, &stranger, &b->err));
    for (int exclusive = 0; exclusive <= 1; exclusive++) {
        assert_ok(store_file_lock(holder, exclusive == 1, &b->err));
        assert_ok(store_file_is_locked(stranger, &is_locked, &b->err));
        assert_true(is_locked);
        assert_ok(store_file_is_locked(holder, &is_locked, &b->err));
        assert_false(is_locked);
    }
    assert_ok(store_file_close(TAKE(holder), &b->err));
    assert_ok(store_file_is_locked(stranger, &is_locked, &b->err));
    assert_false(is_locked);
    assert_ok(store_file_open(b->root, "f", STORE_WRITE, &holder, &b->err));
    assert_ok(store_file_lock(holder, true, &b->err)); /* the questions took no lock */
}

static void traits_have_a_name(void **state)
{
    struct bench *b = *state;
    struct store_traits traits;

    assert_ok(store_dir_traits(b->root, &traits, &b->err));
    assert_true(strlen(traits.type_name) > 0);
    assert_int_equal(traits.is_volatile,
                     b->kind == ON_TMPFS || strcmp(traits.type_name, "tmpfs") == 0);
    assert_false(traits.is_network);
}

#define PIECES 64
#define PIECE_BYTES 777
struct writer {
    struct bench *bench;
    struct store_file *file;
    int first;
    bool failed;
};

static bool count_name(void *context, const char *name)
{
    *(size_t *)context += strcmp(name, "f") == 0;
    return true;
}

static void *write_pieces(void *argument)
{
    struct writer *w = argument;
    char piece[PIECE_BYTES], seen[PIECE_BYTES];

    for (int i = w->first; i < PIECES && !w->failed; i += 4) {
        uint64_t offset = (uint64_t)i * PIECE_BYTES;
        size_t names = 0;
        memset(piece, i + 1, sizeof(piece));
        w->failed |= store_file_write_at(w->file, piece, sizeof(piece), offset, NULL) != 0 ||
                     store_file_read_at(w->file, seen, sizeof(seen), offset, NULL) != 0 ||
                     memcmp(piece, seen, sizeof(piece)) != 0 ||
                     store_dir_list(w->bench->root, count_name, &names, NULL) != 0 || names != 1;
    }
    return NULL;
}

static void threads_write_read_and_list_at_once(void **state)
{
    struct bench *b = *state;
    OWNED_FILE *file = NULL;
    pthread_t threads[4];
    struct writer writers[4];
    char seen[PIECE_BYTES];

    assert_ok(store_file_create(b->root, "f", 0, &file, &b->err));
    for (int i = 0; i < 4; i++) {
        writers[i] = (struct writer){.bench = b, .file = file, .first = i};
        assert_int_equal(pthread_create(&threads[i], NULL, write_pieces, &writers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_false(writers[i].failed);
    }
    for (int i = 0; i < PIECES; i++) {
        assert_ok(store_file_read_at(file, seen, 1, (uint64_t)i * PIECE_BYTES, &b->err));
        assert_int_equal(seen[0], i + 1);
    }
}

/* Each allocation fails once. Nothing leaks (sanitizers check this), and nothing is half done. */
static void handles_survive_short_memory(void **state)
{
    struct bench *b = *state;
    bool fired = b->kind != SIM; /* which takes its memory elsewhere */

    put(b, b->root, "f", "text");
    assert_ok(store_dir_make(b->root, "d", &b->err));
    for (unsigned long n = 1; fired; n++) {
        OWNED_DIR *dir = NULL;
        OWNED_FILE *opened = NULL, *created = NULL;
        fault_arm("memory", n, false, ENOMEM);
        enum sidestep_status a = store_dir_open(b->store, b->root, "d", &dir, &b->err);
        enum sidestep_status c = store_file_open(b->root, "f", 0, &opened, &b->err);
        enum sidestep_status d = store_file_create(b->root, "g", 0, &created, &b->err);
        fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_int_equal(fired,
                         a == SIDESTEP_ENOMEM || c == SIDESTEP_ENOMEM || d == SIDESTEP_ENOMEM);
        if (fired)
            assert_non_null(strstr(b->err.message, "cannot allocate"));
        if (created != NULL)
            assert_ok(store_unlink(b->root, "g", &b->err));
        else if (b->kind != FAULT)
            assert_false(exists(b, "g"));
        else
            (void)store_unlink(b->root, "g", NULL);
    }
}

#define CONTRACT(X)                                                                                \
    X(writes_are_read_back)                                                                        \
    X(a_read_beyond_the_end_says_where_it_is)                                                      \
    X(sizes_beyond_all_files_are_refused)                                                          \
    X(create_never_takes_what_is_there)                                                            \
    X(a_name_is_one_component)                                                                     \
    X(open_goes_down_and_nowhere_else)                                                             \
    X(what_is_missing_is_not_found)                                                                \
    X(a_listing_names_everything_once)                                                             \
    X(renames_replace_or_not_or_swap)                                                              \
    X(a_directory_replaces_only_an_empty_one)                                                      \
    X(a_handle_stays_with_its_directory)                                                           \
    X(the_path_of_a_handle_follows_it)                                                             \
    X(links_are_the_same_file)                                                                     \
    X(unlink_and_remove_keep_to_their_kind)                                                        \
    X(sizes_change_by_truncate_only)                                                               \
    X(what_was_opened_to_read_is_not_written)                                                      \
    X(locks_exclude_other_handles)                                                                 \
    X(a_lock_is_asked_about)                                                                       \
    X(traits_have_a_name)                                                                          \
    X(threads_write_read_and_list_at_once)                                                         \
    X(handles_survive_short_memory)

int main(void)
{
#define ON(kind, name, test) {name ": " #test, test, setup, teardown, (void *)(uintptr_t)(kind)},
#define ON_ALL(test)                                                                               \
    ON(ON_DISK, "posix", test)                                                                     \
    ON(ON_TMPFS, "posix on tmpfs", test)                                                           \
    ON(FAULT, "fault", test) ON(SIM, "sim", test)
    const struct CMUnitTest tests[] = {CONTRACT(ON_ALL)};

    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
