/* SPDX-License-Identifier: BSD-3-Clause */
/* object_store_test.c -- a struct store over a bucket: directories, files that are read, and files
 * that are written in parts. */
#include "base/base.h"
#include "object/object_url.h"
#include "support/object_sim.h"
#include "support/unit.h"

#define assert_ok(call) assert_int_equal((call), SIDESTEP_OK)
#define MIB ((size_t)1 << 20)

struct world {
    struct object_bucket *bucket;
    struct store *store;
    struct store_dir *root;
    struct sidestep_error err;
    /* What happens to requests of this name: the first ${faults} of them. */
    const char *request;
    enum object_fate fate;
    unsigned faults;
};

static enum object_fate choose_fate(void *context, int client UNUSED, const char *request,
                                    const char *key UNUSED)
{
    struct world *w = context;

    if (w->request == NULL || strcmp(w->request, request) != 0 || w->faults == 0)
        return OBJECT_DONE;
    w->faults--;
    return w->fate;
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    w->bucket = object_sim_new(0, OBJECT_MIN_PART_BYTES);
    object_sim_set_hook(w->bucket, choose_fate, w);
    assert_ok(object_store_new("runs", object_sim_client(w->bucket, 0), &w->store, &w->err));
    assert_ok(store_dir_open(w->store, NULL, "s3://runs/a/b", &w->root, &w->err));
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    store_dir_close(w->root);
    object_store_free(&w->store);
    object_sim_free(&w->bucket);
    free(w);
    return 0;
}

TEST(urls_are_taken_apart)
{
    struct sidestep_error err;
    struct object_url url;
    static const char *const wrong[] = {"s3://",          "s3://ab/x",      "s3://Upper/x",
                                        "s3:///x",        "s3://runs//x",   "s3://runs/a/../b",
                                        "s3://runs/./b",  "s3://runs/a//b", "s3://-runs/x",
                                        "s3://runs/\xff", "/runs/x"};

    assert_true(object_url_is_one("s3://b"));
    assert_false(object_url_is_one("s3:/b"));
    assert_ok(object_url_parse("s3://my.bucket-1", &url, &err));
    assert_string_equal(url.bucket, "my.bucket-1");
    assert_string_equal(url.key, "");
    assert_ok(object_url_parse("s3://runs/a b/\xc3\xa9/", &url, &err));
    assert_string_equal(url.key, "a b/\xc3\xa9");
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        assert_int_equal(object_url_parse(wrong[i], &url, &err), SIDESTEP_EINVAL);
        assert_non_null(strstr(err.message, i == 0 ? "BUCKET" : "'"));
    }
    char path[OBJECT_KEY_BYTES + 20] = "s3://runs/";
    memset(path + 10, 'k', OBJECT_KEY_BYTES - 1);
    assert_ok(object_url_parse(path, &url, &err));
    path[10 + OBJECT_KEY_BYTES - 1] = 'k';
    assert_int_equal(object_url_parse(path, &url, &err), SIDESTEP_EINVAL);
}

static void write_file(struct world *w, const char *name, const void *bytes, size_t length)
{
    struct store_file *file = NULL;

    assert_ok(store_file_create(w->root, name, 0, &file, &w->err));
    assert_ok(store_file_write_at(file, bytes, length, 0, &w->err));
    assert_ok(store_file_sync(file, &w->err));
    assert_ok(store_file_close(file, &w->err));
}

TEST_WITH(a_small_file_is_one_put, setup, teardown)
{
    struct world *w = *fixture;
    struct store_file *file = NULL;
    struct store_stat stat;
    char seen[6] = "";
    size_t length;

    write_file(w, "f", "hello", 5);
    assert_int_equal(object_sim_request_count(w->bucket), 1);
    assert_memory_equal(object_sim_bytes(w->bucket, "a/b/f", &length), "hello", 5);
    assert_ok(store_file_open(w->root, "f", 0, &file, &w->err));
    assert_ok(store_file_stat(file, &stat, &w->err));
    assert_int_equal(stat.size, 5);
    assert_ok(store_file_read_at(file, seen, 4, 1, &w->err));
    assert_string_equal(seen, "ello");
    assert_int_equal(store_file_read_at(file, seen, 5, 1, &w->err), SIDESTEP_ECORRUPT);
    store_file_discard(file);
}

TEST_WITH(nothing_appears_before_the_end, setup, teardown)
{
    struct world *w = *fixture;
    struct store_file *file = NULL;
    struct store_stat stat;

    assert_ok(store_file_create(w->root, "f", 0, &file, &w->err));
    assert_ok(store_file_write_at(file, "x", 1, 0, &w->err));
    assert_int_equal(store_stat(w->root, "f", &stat, &w->err), SIDESTEP_ENOTFOUND);
    store_file_discard(file);
    assert_int_equal(object_sim_count(w->bucket), 0);
}

TEST_WITH(a_version_that_was_replaced_is_not_mixed, setup, teardown)
{
    struct world *w = *fixture;
    struct store_file *file = NULL;
    char seen[4];

    write_file(w, "f", "old!", 4);
    assert_ok(store_file_open(w->root, "f", 0, &file, &w->err));
    write_file(w, "f", "new!", 4);
    assert_int_equal(store_file_read_at(file, seen, 4, 0, &w->err), SIDESTEP_ENOTFOUND);
    assert_non_null(strstr(w->err.message, "was replaced"));
    store_file_discard(file);
}

static bool join_names(void *context, const char *name)
{
    char *names = context;

    strcat(strcat(names, name), " ");
    return true;
}

TEST_WITH(directories_are_prefixes, setup, teardown)
{
    struct world *w = *fixture;
    struct store_stat stat;
    char names[64] = "";
    char path[64];

    assert_true(object_sim_put(w->bucket, "a/b/one", "", 0));
    assert_true(object_sim_put(w->bucket, "a/b/two/deep", "", 0));
    assert_true(object_sim_put(w->bucket, "a/b/two/deeper/x", "", 0));
    assert_true(object_sim_put(w->bucket, "a/b//odd", "", 0));
    assert_true(object_sim_put(w->bucket, "a/bc", "", 0));
    assert_ok(store_dir_list(w->root, join_names, names, &w->err));
    assert_string_equal(names, "one two ");
    assert_ok(store_stat(w->root, "two", &stat, &w->err));
    assert_int_equal(stat.kind, STORE_DIRECTORY);
    assert_ok(store_stat(w->root, "one", &stat, &w->err));
    assert_int_equal(stat.kind, STORE_FILE);
    assert_int_equal(store_stat(w->root, "on", &stat, &w->err), SIDESTEP_ENOTFOUND);
    assert_int_equal(store_stat(w->root, "../b", &stat, &w->err), SIDESTEP_EUNSAFE);
    assert_ok(store_dir_path(w->root, path, sizeof(path), &w->err));
    assert_string_equal(path, "s3://runs/a/b");
    assert_ok(store_unlink(w->root, "one", &w->err));
    assert_int_equal(store_stat(w->root, "one", &stat, &w->err), SIDESTEP_ENOTFOUND);
    assert_int_equal(store_rename(w->root, "two", w->root, "three", STORE_REPLACE, &w->err),
                     SIDESTEP_EUNSUPPORTED);
}

static uint8_t pattern(size_t at)
{
    return (uint8_t)(at * 2654435761u >> 24);
}

/* A file of ${length} bytes in windows of 4 MiB, in another order than theirs. */
static void write_windows(struct world *w, struct store_file *file, size_t length)
{
    size_t window = 4 * MIB + 4096, count = (length + window - 1) / window;
    uint8_t *bytes = malloc(window);

    for (size_t i = 0; i < count; i++) {
        size_t at = ((i ^ 1) < count ? i ^ 1 : i) * window;
        size_t part = at + window <= length ? window : length - at;
        for (size_t k = 0; k < part; k++)
            bytes[k] = pattern(at + k);
        assert_ok(store_file_write_at(file, bytes, part, at, &w->err));
    }
    free(bytes);
}

static void assert_pattern(struct world *w, const char *key, size_t length)
{
    size_t seen;
    const uint8_t *bytes = object_sim_bytes(w->bucket, key, &seen);

    assert_non_null(bytes);
    assert_int_equal(seen, length);
    for (size_t at = 0; at < length; at++)
        if (bytes[at] != pattern(at))
            fail_msg("byte %zu differs", at);
}

TEST_WITH(a_large_file_goes_in_parts, setup, teardown)
{
    struct world *w = *fixture;
    struct store_file *file = NULL;
    size_t length = 70 * MIB + 12345;

    assert_ok(store_file_create(w->root, "big", 0, &file, &w->err));
    assert_ok(store_file_allocate(file, length, &w->err));
    write_windows(w, file, length);
    assert_ok(store_file_truncate(file, length, &w->err));
    assert_ok(store_file_sync(file, &w->err));
    assert_ok(store_file_sync(file, &w->err));
    assert_ok(store_file_close(file, &w->err));
    assert_pattern(w, "a/b/big", length);
    assert_int_equal(object_sim_upload_count(w->bucket), 0);
}

TEST_WITH(gaps_are_zero, setup, teardown)
{
    struct world *w = *fixture;
    struct store_file *file = NULL;
    size_t seen;

    assert_ok(store_file_create(w->root, "gaps", 0, &file, &w->err));
    assert_ok(store_file_allocate(file, 20 * MIB, &w->err));
    assert_ok(store_file_write_at(file, "end", 3, 40 * MIB, &w->err));
    assert_ok(store_file_write_at(file, "in", 2, 17 * MIB, &w->err));
    assert_ok(store_file_sync(file, &w->err));
    assert_ok(store_file_close(file, &w->err));
    const uint8_t *bytes = object_sim_bytes(w->bucket, "a/b/gaps", &seen);
    assert_int_equal(seen, 40 * MIB + 3);
    for (size_t at = 0; at < 40 * MIB; at++)
        if (bytes[at] != (at == 17 * MIB ? 'i' : at == 17 * MIB + 1 ? 'n' : 0))
            fail_msg("byte %zu is not zero", at);
    assert_memory_equal(bytes + 40 * MIB, "end", 3);
}

TEST_WITH(a_part_that_was_sent_cannot_change, setup, teardown)
{
    struct world *w = *fixture;
    struct store_file *file = NULL;

    assert_ok(store_file_create(w->root, "big", 0, &file, &w->err));
    assert_ok(store_file_allocate(file, 20 * MIB, &w->err));
    write_windows(w, file, 20 * MIB);
    assert_int_equal(store_file_write_at(file, "x", 1, 5, &w->err), SIDESTEP_EUNSUPPORTED);
    assert_int_equal(store_file_truncate(file, 5, &w->err), SIDESTEP_EUNSUPPORTED);
    store_file_discard(file);
    assert_int_equal(object_sim_upload_count(w->bucket), 0);
    assert_int_equal(object_sim_count(w->bucket), 0);
}

TEST_WITH(each_fault_of_an_upload_fails_it, setup, teardown)
{
    struct world *w = *fixture;
    static const char *const requests[] = {"upload_begin", "upload_part", "upload_complete"};

    for (size_t r = 0; r < ARRAY_LENGTH(requests); r++)
        for (int fate = OBJECT_REFUSED; fate <= OBJECT_LATE; fate++) {
            struct store_file *file = NULL;
            w->request = requests[r], w->fate = (enum object_fate)fate, w->faults = 1;
            assert_ok(store_file_create(w->root, "big", 0, &file, &w->err));
            assert_ok(store_file_allocate(file, 20 * MIB, &w->err));
            enum sidestep_status status = store_file_write_at(file, "x", 1, 33 * MIB, &w->err);
            if (status == SIDESTEP_OK)
                status = store_file_sync(file, &w->err);
            assert_true(status == SIDESTEP_EIO || status == SIDESTEP_ETIMEDOUT);
            assert_int_equal(store_file_sync(file, &w->err), status);
            store_file_discard(file);
            assert_int_equal(w->faults, 0);
        }
    /* An upload whose beginning got no answer has no id: only a sweep finds it. */
    assert_int_equal(object_sim_upload_count(w->bucket), 2);
}
