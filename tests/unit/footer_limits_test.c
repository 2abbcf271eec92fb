/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * footer_limits_test.c -- footers that exceed a limit are not written, and failures are reported.
 */
#include <sys/mman.h>

#include "base/fault.h"
#include "base/owned.h"
#include "support/footer_sample.h"
#include "support/unit.h"

#define KEY(text)                                                                                  \
    {                                                                                              \
        .key = text                                                                                \
    }

/* ------------------------------------------------------------------ what is not written */

static void refuses(const struct sample *sample, enum sidestep_status status, const char *words)
{
    OWNED_BUFFER bytes = {0};
    struct sidestep_error err = {0};

    if (footer_encode(&sample->footer, SAMPLE_ITEMS_END, &bytes, &err) != status ||
        strstr(err.message, words) == NULL)
        fail_msg("status %d, '%s', not '%s'", err.status, err.message, words);
    assert_int_equal(bytes.length, 0);
}

TEST(footers_that_a_reader_refuses_are_not_written)
{
    struct sample s;
    OWNED_BUFFER bytes = {0};

    sample_init(&s);
    s.footer.required_features = 2;
    refuses(&s, SIDESTEP_EUNSUPPORTED, "footer of rank 3, shard 1: feature bit 1 is required");
    sample_init(&s);
    s.footer.rank = 4;
    refuses(&s, SIDESTEP_EINVAL, "rank 4 of 4 ranks");
    sample_init(&s);
    s.footer.count = FOOTER_MAX_ITEMS + 1;
    refuses(&s, SIDESTEP_EINVAL, "16777217 items (at most 16777216)");
    sample_init(&s);
    s.items[BIG].block_count = 2;
    refuses(&s, SIDESTEP_EINVAL, "'big': 2 block hashes, but 2099200 bytes have 3");
    sample_init(&s);
    s.items[BIG].box.ndim = 1;
    refuses(&s, SIDESTEP_EINVAL, "'big': 2 dimensions, and 1 of its box");
    sample_init(&s);
    s.items[BIG].dtype = SIDESTEP_DTYPE_END;
    refuses(&s, SIDESTEP_EUNSUPPORTED, "'big': dtype number 29 is newer");
    sample_init(&s);
    s.items[BIG].data_offset = UINT64_C(1) << 32;
    refuses(&s, SIDESTEP_EINVAL, "'big': data at 4294967296");
    sample_init(&s);
    s.items[BIG].offset--;
    s.items[BIG].offset -= s.items[BIG].offset % 64;
    s.items[WEIGHT].bytes = s.items[BIG].offset + 1;
    refuses(&s, SIDESTEP_EINVAL, "'big': starts at 1024, before the end of the previous item");
    sample_init(&s);
    s.items[OBJECT].raw_hash.high ^= 1;
    refuses(&s, SIDESTEP_EINVAL, "'step': its hash does not match its block hashes");
    sample_init(&s);
    assert_int_equal(footer_encode(&s.footer, s.items[NOTHING].offset - 1, &bytes, NULL),
                     SIDESTEP_EINVAL);
    assert_int_equal(footer_encode(&s.footer, s.items[NOTHING].offset, &bytes, NULL), SIDESTEP_OK);
}

/* Gaps, and archives around the data of a tensor, have limits, because they are read in one
 * piece. */
TEST(limits_of_gaps_and_archives)
{
    struct sample s;
    OWNED_BUFFER bytes = {0};

    sample_init(&s);
    uint64_t end = s.items[SAMPLES - 1].offset + s.items[SAMPLES - 1].bytes;
    assert_int_equal(footer_encode(&s.footer, end + FOOTER_MAX_GAP_BYTES, &bytes, NULL),
                     SIDESTEP_OK);
    assert_int_equal(footer_encode(&s.footer, end + FOOTER_MAX_GAP_BYTES + 1, &bytes, NULL),
                     SIDESTEP_EINVAL);
    s.footer.count = WEIGHT + 1;
    s.items[WEIGHT].bytes = s.items[WEIGHT].data_bytes + FOOTER_MAX_ENVELOPE_BYTES;
    assert_int_equal(footer_encode(&s.footer, SAMPLE_ITEMS_END, &bytes, NULL), SIDESTEP_OK);
    s.items[WEIGHT].bytes++;
    refuses(&s, SIDESTEP_EINVAL, "an archive of 1048577 bytes around its data (at most 1048576)");
    sample_init(&s);
    s.footer.count = WEIGHT + 1;
    s.items[WEIGHT].offset += FOOTER_MAX_GAP_BYTES;
    struct sidestep_error err = {0};
    end = s.items[WEIGHT].offset + s.items[WEIGHT].bytes;
    assert_int_equal(footer_encode(&s.footer, end, &bytes, &err), SIDESTEP_OK);
    s.items[WEIGHT].offset++;
    assert_int_equal(footer_encode(&s.footer, end + 1, &bytes, &err), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "a gap of 4194305 bytes before it (at most 4194304)"));
}

/* A footer at each limit is written; one past it is refused. */
TEST(limits_of_names_and_paths)
{
    OWNED_ARENA arena = {0};
    OWNED_BUFFER bytes = {0};
    struct sidestep_path_item path[SIDESTEP_MAX_PATH_ITEMS + 1];
    char name[SIDESTEP_MAX_NAME + 2] = {0};
    struct sample s;
    struct footer footer;

    sample_init(&s);
    memset(name, 'n', SIDESTEP_MAX_NAME);
    s.items[BIG].name = name;
    for (size_t i = 0; i < ARRAY_LENGTH(path); i++)
        path[i] = (struct sidestep_path_item)KEY(name);
    s.items[BIG].path = path;
    s.items[BIG].path_length = SIDESTEP_MAX_PATH_ITEMS;
    sample_encode(&s, &bytes);
    assert_int_equal(sample_read(bytes.bytes, bytes.length, &arena, &footer, NULL), SIDESTEP_OK);
    sample_assert_equal(&s.items[BIG], &footer.items[BIG]);

    s.items[BIG].path_length = SIDESTEP_MAX_PATH_ITEMS + 1;
    refuses(&s, SIDESTEP_EINVAL, "nnn...': a path of 65 items (1 to 64 are allowed)");
    s.items[BIG].path_length = 0;
    refuses(&s, SIDESTEP_EINVAL, "nnn...': a path of 0 items (1 to 64 are allowed)");
    s.items[BIG].path_length = 1;
    name[SIDESTEP_MAX_NAME] = 'n';
    refuses(&s, SIDESTEP_EINVAL, "a name of 4097 bytes (1 to 4096 are allowed)");
    s.items[BIG].name = "big";
    refuses(&s, SIDESTEP_EINVAL, "'big': a key of 4097 bytes in its path (at most 4096)");
    path[0].key = "\xff";
    refuses(&s, SIDESTEP_EINVAL, "'big': key 0 of its path is not UTF-8");
    s.items[BIG].name = "";
    refuses(&s, SIDESTEP_EINVAL, "a name of 0 bytes");
}

/* The hashes of 128 TiB: one page of zeroes, mapped many times. */
TEST(limit_of_bytes)
{
    uint64_t blocks = FOOTER_MAX_BYTES / 8;
    const uint64_t *zero_hashes =
        mmap(NULL, 8 * blocks, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct footer_item item = {.name = "step",
                               .is_object = true,
                               .path_length = 1,
                               .path = (const struct sidestep_path_item[]){KEY("step")}};
    struct footer footer = {.world_size = 1, .shard_count = 1, .count = 1, .items = &item};
    OWNED_BUFFER bytes = {0};
    struct sidestep_error err = {0};

    assert_ptr_not_equal(zero_hashes, MAP_FAILED);
    item.bytes = item.data_bytes = item.raw_bytes = blocks * HASH_BLOCK_BYTES;
    item.block_count = blocks;
    item.blocks = zero_hashes;
    item.raw_hash = hash_block_list(zero_hashes, blocks);
    assert_int_equal(footer_encode(&footer, item.bytes, &bytes, &err), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "(at most 1073741824): use more shards"));
    munmap((void *)(uintptr_t)zero_hashes, 8 * blocks);
}

TEST(limit_of_a_claimed_size)
{
    static const struct {
        uint64_t footer_bytes;
        enum sidestep_status status;
        const char *words;
    } claims[] = {
        {FOOTER_MAX_BYTES + 1, SIDESTEP_ECORRUPT, "a footer of 1073741825 bytes in a file of"},
        {FOOTER_MAX_BYTES, SIDESTEP_ENOMEM, "cannot allocate 1073741888 bytes"},
        {63, SIDESTEP_ECORRUPT, "a footer of 63 bytes"},
        {UINT64_MAX, SIDESTEP_ECORRUPT, "a footer of 18446744073709551615 bytes"},
    };
    uint8_t trailer[FOOTER_TRAILER_BYTES] = "SIDESTEP";

    for (size_t i = 0; i < ARRAY_LENGTH(claims); i++) {
        OWNED_ARENA arena = {.limit_bytes = 1 << 20};
        struct sample_file file;
        struct footer footer;
        struct sidestep_error err = {0};
        sample_put_le(trailer + 32, claims[i].footer_bytes, 8);
        sample_put_le(trailer + 56, hash_block(trailer, 56), 8);
        sample_file_init(&file, UINT64_C(1) << 62, trailer, sizeof(trailer));
        assert_int_equal(footer_read(&file.source, &arena, &footer, NULL, &err), claims[i].status);
        assert_non_null(strstr(err.message, claims[i].words));
    }
}

/* ------------------------------------------------------------------ failures around it */

/* A footer of 40 KiB: it is not read with its trailer. */
static void put_long_footer(struct buffer *bytes)
{
    static uint8_t footer[40 << 10], trailer[FOOTER_TRAILER_BYTES] = "SIDESTEP";

    sample_put_le(trailer + 32, sizeof(footer), 8);
    sample_put_le(trailer + 40, hash_block(footer, sizeof(footer)), 8);
    sample_put_le(trailer + 56, hash_block(trailer, 56), 8);
    buffer_put(bytes, footer, sizeof(footer));
    buffer_put(bytes, trailer, sizeof(trailer));
}

TEST(a_footer_is_read_at_once)
{
    OWNED_ARENA arena = {0};
    OWNED_BUFFER bytes = {0};
    struct sample sample;
    struct sample_file file;
    struct footer footer;

    sample_init(&sample);
    sample_encode(&sample, &bytes);
    sample_file_init(&file, SAMPLE_ITEMS_END, bytes.bytes, bytes.length);
    fault_arm("read", 2, false, EIO);
    assert_int_equal(footer_read(&file.source, &arena, &footer, NULL, NULL), SIDESTEP_OK);
    assert_int_equal(footer.count, SAMPLES);
    fault_arm("", 0, false, 0);
}

TEST(a_file_that_fails_or_changes)
{
    OWNED_BUFFER bytes = {0};

    put_long_footer(&bytes);
    for (unsigned n = 1; n <= 2; n++) {
        OWNED_ARENA arena = {0};
        struct sample_file file;
        struct footer footer;
        struct sidestep_error err = {0};
        sample_file_init(&file, SAMPLE_ITEMS_END, bytes.bytes, bytes.length);
        fault_arm("read", n, false, EIO);
        assert_int_equal(footer_read(&file.source, &arena, &footer, NULL, &err), SIDESTEP_EIO);
        assert_non_null(strstr(err.message, "the disk is gone"));
        fault_arm("", 0, false, 0);
    }
    OWNED_ARENA arena = {0};
    struct sample_file file;
    struct footer footer;
    struct sidestep_error err = {0};
    sample_file_init(&file, SAMPLE_ITEMS_END, bytes.bytes, bytes.length);
    file.reads_before_change = 1;
    assert_int_equal(footer_read(&file.source, &arena, &footer, NULL, &err), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "changed while it was read"));
}

TEST(every_allocation_may_fail)
{
    OWNED_BUFFER bytes = {0};
    struct sample sample;
    unsigned long fired = 0;

    sample_init(&sample);
    for (unsigned long n = 1;; n++) {
        OWNED_BUFFER out = {0};
        fault_arm("memory", n, false, ENOMEM);
        enum sidestep_status status = footer_encode(&sample.footer, SAMPLE_ITEMS_END, &out, NULL);
        if (fault_fired() == NULL)
            break;
        assert_int_equal(status, SIDESTEP_ENOMEM);
        fired++;
    }
    assert_true(fired >= 1);
    fault_arm("", 0, false, 0);
    sample_encode(&sample, &bytes);
    for (unsigned long n = 1;; n++, fired++) {
        OWNED_ARENA arena = {0};
        struct footer footer;
        fault_arm("memory", n, false, ENOMEM);
        enum sidestep_status status = sample_read(bytes.bytes, bytes.length, &arena, &footer, NULL);
        if (fault_fired() == NULL) {
            assert_int_equal(status, SIDESTEP_OK);
            break;
        }
        assert_int_equal(status, SIDESTEP_ENOMEM);
        assert_null(footer.items);
    }
    fault_arm("", 0, false, 0);
    assert_true(fired >= 2);
}

/* An arena serves many pieces from one allocation, so a limit makes each piece fail once. */
TEST(every_piece_of_an_arena_may_be_refused)
{
    OWNED_BUFFER bytes = {0};
    struct sample sample;
    enum sidestep_status status = SIDESTEP_ENOMEM;

    sample_init(&sample);
    sample_encode(&sample, &bytes);
    for (size_t limit = 16; status != SIDESTEP_OK; limit += 16) {
        OWNED_ARENA arena = {.limit_bytes = limit};
        struct footer footer;
        status = sample_read(bytes.bytes, bytes.length, &arena, &footer, NULL);
        assert_true(status == SIDESTEP_OK || status == SIDESTEP_ENOMEM);
    }
}
