/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_posix_file_test.c -- O_DIRECT together with the page cache, and requests that a kernel
 * refuses.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/owned.h"
#include "store/store.h"
#include "support/scratch.h"
#include "support/unit.h"

#define assert_ok(call) assert_int_equal((call), SIDESTEP_OK)
#define FILE_BYTES ((size_t)1 << 20)

struct bench {
    struct scratch scratch;
    struct store_dir *root;
    unsigned char *memory; /* aligned to 64 KiB; FILE_BYTES and a little */
    struct sidestep_error err;
};

static int setup(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));

    *state = b;
    b->memory = aligned_alloc(1 << 16, FILE_BYTES + (1 << 16));
    if (b->memory == NULL || !scratch_make(&b->scratch, NULL))
        return -1;
    for (size_t i = 0; i < FILE_BYTES; i++)
        b->memory[i] = (unsigned char)(i * 7 + i / 4096);
    return (int)store_dir_open(store_posix(), NULL, b->scratch.path, &b->root, NULL);
}

static int teardown(void **state)
{
    struct bench *b = *state;

    fault_arm("", 0, false, 0);
    store_dir_close(b->root);
    scratch_remove(&b->scratch);
    free(b->memory);
    free(b);
    return 0;
}

static struct store_file *create(struct bench *b, uint32_t flags)
{
    struct store_file *file = NULL;

    assert_ok(store_file_create(b->root, "f", flags, &file, &b->err));
    return file;
}

/* Skip the test if the file system does not support direct requests. */
static struct store_file *create_direct(struct bench *b)
{
    struct store_file *file = create(b, STORE_DIRECT);

    if (store_file_alignment(file) == 0) {
        store_file_discard(file);
        print_message("skipped: no O_DIRECT in %s\n", b->scratch.path);
        skip();
    }
    return file;
}

/* All ways of reading give the same bytes. */
static void assert_file_is(struct bench *b, const unsigned char *expected, size_t bytes)
{
    static const uint32_t ways[] = {0, STORE_DROP_CACHE, STORE_DIRECT,
                                    STORE_DIRECT | STORE_DROP_CACHE};
    OWNED unsigned char *seen = aligned_alloc(1 << 16, FILE_BYTES + (1 << 16));

    for (size_t i = 0; i < ARRAY_LENGTH(ways); i++) {
        OWNED_FILE *file = NULL;
        struct store_stat st;
        memset(seen, 0, bytes);
        assert_ok(store_file_open(b->root, "f", ways[i], &file, &b->err));
        assert_ok(store_file_stat(file, &st, &b->err));
        assert_int_equal(st.size, bytes);
        assert_ok(store_file_read_at(file, seen, bytes, 0, &b->err));
        assert_memory_equal(seen, expected, bytes);
    }
}

TEST(direct_and_buffered_requests_mix)
{
    struct bench *b = *fixture;
    OWNED_FILE *file = create_direct(b);
    size_t alignment = store_file_alignment(file), bytes = FILE_BYTES - 1000;
    size_t whole = bytes / alignment * alignment;

    assert_true(alignment >= 4096 && (alignment & (alignment - 1)) == 0);
    assert_ok(store_file_allocate(file, bytes, &b->err));
    /* Write the tail first, so that direct requests are next to cached pages. */
    assert_ok(store_file_write_at(file, b->memory + whole, bytes - whole, whole, &b->err));
    assert_ok(store_file_write_at(file, b->memory, whole, 0, &b->err));
    /* Unaligned in memory only, and in the file only. */
    memmove(b->memory + FILE_BYTES + 1, b->memory + alignment, alignment);
    assert_ok(store_file_write_at(file, b->memory + FILE_BYTES + 1, alignment, alignment, &b->err));
    assert_ok(store_file_write_at(file, b->memory + 5 * alignment + 8, alignment, 5 * alignment + 8,
                                  &b->err));
    assert_ok(store_file_sync(file, &b->err));
    assert_ok(store_file_close(TAKE(file), &b->err));
    assert_file_is(b, b->memory, bytes);
}

/* What the device wants of direct requests to "f"; 0: the kernel does not tell. */
static size_t told_alignment(struct bench *b)
{
#ifdef STATX_DIOALIGN
    struct statx stx;
    char path[600];

    snprintf(path, sizeof(path), "%s/f", b->scratch.path);
    if (statx(AT_FDCWD, path, 0, STATX_DIOALIGN, &stx) == 0 && (stx.stx_mask & STATX_DIOALIGN) != 0)
        return stx.stx_dio_offset_align;
#endif
    return 0;
}

TEST(reads_need_no_whole_page)
{
    struct bench *b = *fixture;
    OWNED_FILE *file = create_direct(b);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    assert_true(store_file_alignment(file) % page == 0);
    assert_ok(store_file_write_at(file, b->memory, FILE_BYTES, 0, &b->err));
    assert_ok(store_file_close(TAKE(file), &b->err));
    if (told_alignment(b) == 0 || told_alignment(b) > 4096) {
        print_message("skipped: statx() tells no alignment of up to 4096 here\n");
        skip();
    }
    assert_ok(store_file_open(b->root, "f", STORE_DIRECT, &file, &b->err));
    assert_int_equal(store_file_alignment(file), 4096);
    memset(b->memory, 0, 4096);
    assert_ok(store_file_read_at(file, b->memory, 4096, 5 * 4096, &b->err));
    assert_memory_equal(b->memory, b->memory + 5 * 4096, 4096);
}

struct page_writer {
    struct bench *bench;
    struct store_file *file;
    size_t first, step;
    bool unaligned;
    bool failed;
};

static void *write_pages(void *argument)
{
    struct page_writer *w = argument;
    size_t alignment = store_file_alignment(w->file);
    OWNED unsigned char *copy = malloc(alignment + 1);

    for (size_t at = w->first * alignment; at < FILE_BYTES; at += w->step * alignment) {
        const unsigned char *from = w->bench->memory + at;
        if (w->unaligned)
            from = memcpy(copy + 1, from, alignment);
        w->failed |= store_file_write_at(w->file, from, alignment, at, NULL) != SIDESTEP_OK;
    }
    return NULL;
}

TEST(neighbours_may_write_in_different_ways)
{
    struct bench *b = *fixture;
    OWNED_FILE *file = create_direct(b);
    struct page_writer writers[4];
    pthread_t threads[4];

    for (size_t i = 0; i < 4; i++) {
        writers[i] = (struct page_writer){
            .bench = b, .file = file, .first = i, .step = 4, .unaligned = i % 2 != 0};
        assert_int_equal(pthread_create(&threads[i], NULL, write_pages, &writers[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_false(writers[i].failed);
    }
    assert_ok(store_file_sync(file, &b->err));
    assert_ok(store_file_close(TAKE(file), &b->err));
    assert_file_is(b, b->memory, FILE_BYTES);
}

TEST(refused_direct_requests_go_buffered)
{
    struct bench *b = *fixture;
    OWNED_FILE *file = create_direct(b);

    fault_arm("posix.pwrite", 1, false, EINVAL);
    assert_ok(store_file_write_at(file, b->memory, FILE_BYTES, 0, &b->err));
    assert_non_null(fault_fired());
    assert_int_equal(store_file_alignment(file), 0);
    assert_ok(store_file_close(TAKE(file), &b->err));
    assert_file_is(b, b->memory, FILE_BYTES);
}

TEST(without_direct_descriptors_all_is_buffered)
{
    struct bench *b = *fixture;
    OWNED_FILE *file = NULL;

    fault_arm("posix.direct", 1, false, EINVAL);
    file = create(b, STORE_DIRECT);
    assert_int_equal(store_file_alignment(file), 0);
    assert_ok(store_file_write_at(file, b->memory, FILE_BYTES, 0, &b->err));
    assert_ok(store_file_close(TAKE(file), &b->err));
    assert_file_is(b, b->memory, FILE_BYTES);
}

TEST(interrupted_calls_are_done_again)
{
    static const char *const points[] = {"posix.pwrite", "posix.pread", "posix.fsync",
                                         "posix.dir_sync", "posix.lock"};
    struct bench *b = *fixture;
    unsigned char seen[100];

    for (size_t i = 0; i < ARRAY_LENGTH(points); i++) {
        OWNED_FILE *file = create(b, 0);
        fault_arm(points[i], 1, false, EINTR);
        assert_ok(store_file_write_at(file, b->memory, 100, 0, &b->err));
        assert_ok(store_file_read_at(file, seen, 100, 0, &b->err));
        assert_memory_equal(seen, b->memory, 100);
        assert_ok(store_file_lock(file, true, &b->err));
        assert_ok(store_file_sync(file, &b->err));
        assert_ok(store_file_close(TAKE(file), &b->err));
        assert_ok(store_dir_sync(b->root, &b->err));
        assert_string_equal(fault_fired(), points[i]);
        assert_ok(store_unlink(b->root, "f", &b->err));
    }
}

TEST(a_failed_sync_is_not_retried)
{
    struct bench *b = *fixture;
    OWNED_FILE *file = create(b, 0);

    fault_arm("posix.fsync", 1, false, EIO);
    assert_ok(store_file_write_at(file, b->memory, 100, 0, &b->err));
    assert_int_equal(store_file_sync(file, &b->err), SIDESTEP_EIO);
    assert_non_null(strstr(b->err.message, "sync 'f': Input/output error"));
    assert_int_equal(store_file_sync(file, &b->err), SIDESTEP_EIO);
    assert_int_equal(b->err.sys_errno, EIO);
    assert_non_null(strstr(b->err.message, "'f' is lost: an earlier sync failed"));
    assert_int_equal(fault_hits(), 1); /* no second attempt */
    assert_int_equal(store_file_close(TAKE(file), &b->err), SIDESTEP_EIO);
    assert_non_null(strstr(b->err.message, "an earlier sync failed"));
}

TEST(a_failed_close_is_reported)
{
    struct bench *b = *fixture;
    OWNED_FILE *file = create(b, STORE_DIRECT);

    fault_arm("posix.close", 1, false, EDQUOT);
    assert_int_equal(store_file_close(TAKE(file), &b->err), SIDESTEP_ENOSPC);
    assert_non_null(strstr(b->err.message, "close 'f': Disk quota exceeded"));
}

TEST(a_directory_that_cannot_be_synced_is_an_error_on_disks)
{
    static const int refusals[] = {EINVAL, ENOTSUP, EBADF, EIO};
    struct bench *b = *fixture;
    struct store_traits traits;

    assert_ok(store_dir_traits(b->root, &traits, &b->err));
    for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
        bool is_tolerated = traits.is_network && refusals[i] != EIO;
        fault_arm("posix.dir_sync", 1, false, refusals[i]);
        assert_int_equal(store_dir_sync(b->root, &b->err),
                         is_tolerated ? SIDESTEP_OK : SIDESTEP_EIO);
        if (!is_tolerated)
            assert_non_null(strstr(b->err.message, "sync directory '"));
    }
}

TEST(missing_storage_features_are_unsupported)
{
    static const struct {
        const char *point;
        int sys_errno;
        enum sidestep_status rename, lock, allocate;
    } cases[] = {
        {"posix.renameat2", EINVAL, SIDESTEP_EUNSUPPORTED, SIDESTEP_OK, SIDESTEP_OK},
        {"posix.renameat2", ENOSYS, SIDESTEP_EUNSUPPORTED, SIDESTEP_OK, SIDESTEP_OK},
        {"posix.renameat2", EXDEV, SIDESTEP_EUNSUPPORTED, SIDESTEP_OK, SIDESTEP_OK},
        {"posix.renameat2", EEXIST, SIDESTEP_EEXISTS, SIDESTEP_OK, SIDESTEP_OK},
        {"posix.lock", ENOLCK, SIDESTEP_OK, SIDESTEP_EUNSUPPORTED, SIDESTEP_OK},
        {"posix.lock", ENOSYS, SIDESTEP_OK, SIDESTEP_EUNSUPPORTED, SIDESTEP_OK},
        {"posix.lock", EOPNOTSUPP, SIDESTEP_OK, SIDESTEP_EUNSUPPORTED, SIDESTEP_OK},
        {"posix.lock", EINVAL, SIDESTEP_OK, SIDESTEP_EUNSUPPORTED, SIDESTEP_OK},
        {"posix.lock", EACCES, SIDESTEP_OK, SIDESTEP_ELOCKED, SIDESTEP_OK},
        {"posix.lock", EIO, SIDESTEP_OK, SIDESTEP_EIO, SIDESTEP_OK},
        {"posix.fallocate", EOPNOTSUPP, SIDESTEP_OK, SIDESTEP_OK, SIDESTEP_OK},
        {"posix.fallocate", ENOSYS, SIDESTEP_OK, SIDESTEP_OK, SIDESTEP_OK},
        {"posix.fallocate", EINVAL, SIDESTEP_OK, SIDESTEP_OK, SIDESTEP_OK},
        {"posix.fallocate", ENOSPC, SIDESTEP_OK, SIDESTEP_OK, SIDESTEP_ENOSPC},
        {"posix.fallocate", EDQUOT, SIDESTEP_OK, SIDESTEP_OK, SIDESTEP_ENOSPC},
        {"posix.fallocate", EFBIG, SIDESTEP_OK, SIDESTEP_OK, SIDESTEP_ENOSPC},
        {"posix.fallocate", EIO, SIDESTEP_OK, SIDESTEP_OK, SIDESTEP_EIO},
    };
    struct bench *b = *fixture;

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        OWNED_FILE *file = create(b, 0);
        fault_arm(cases[i].point, 1, false, cases[i].sys_errno);
        assert_int_equal(store_file_lock(file, true, &b->err), cases[i].lock);
        assert_int_equal(store_file_allocate(file, 8192, &b->err), cases[i].allocate);
        assert_int_equal(store_rename(b->root, "f", b->root, "g", STORE_NOREPLACE, &b->err),
                         cases[i].rename);
        if (cases[i].rename == SIDESTEP_EUNSUPPORTED)
            assert_non_null(strstr(b->err.message, "rename 'f' to 'g' without replacing"));
        fault_arm("", 0, false, 0);
        assert_ok(store_unlink(b->root, cases[i].rename == SIDESTEP_OK ? "g" : "f", &b->err));
    }
}

TEST(failing_requests_name_file_and_place)
{
    struct bench *b = *fixture;
    OWNED_FILE *file = create(b, 0);

    fault_arm("posix.pwrite", 1, false, EIO);
    assert_int_equal(store_file_write_at(file, b->memory, 100, 7, &b->err), SIDESTEP_EIO);
    assert_string_equal(b->err.message, "write 100 bytes at 7 of 'f': Input/output error");
    assert_int_equal(b->err.sys_errno, EIO);
    fault_arm("posix.pread", 1, false, ESTALE);
    assert_int_equal(store_file_read_at(file, b->memory, 100, 7, &b->err), SIDESTEP_EIO);
    assert_string_equal(b->err.message, "read 100 bytes at 7 of 'f': Stale file handle");
    fault_arm("posix.openat2", 1, false, EMFILE);
    struct store_file *other = NULL;
    assert_int_equal(store_file_open(b->root, "f", 0, &other, &b->err), SIDESTEP_EIO);
    assert_string_equal(b->err.message, "open 'f': Too many open files");
}

EACH_TEST(setup, teardown);
