/* SPDX-License-Identifier: BSD-3-Clause */
/* box_test.c -- compares boxes with 128-bit arithmetic and element-by-element copies. */
#include "base/owned.h"
#include "model/box.h"
#include "model/display.h"
#include "support/guard.h"
#include "support/prng.h"
#include "support/tilings.h"
#include "support/unit.h"

#define NDIM TILING_NDIM
#define INT64_BIG ((int64_t)1 << 62)

/* ---------------------------------------------------------------- box_check */

TEST(check_says_what_is_wrong)
{
    static const struct {
        uint32_t ndim;
        int64_t shape[3], offsets[3], lengths[3];
        size_t item_bytes;
        const char *words; /* NULL: fine */
    } cases[] = {
        {0, {0}, {0}, {0}, 4, NULL},
        {1, {4}, {0}, {4}, 4, NULL},
        {1, {4}, {4}, {0}, 4, NULL},
        {2, {0, 5}, {0, 2}, {0, 3}, 4, NULL},
        {1, {-1}, {0}, {0}, 4, "shape[0] is -1"},
        {2, {3, 3}, {0, -2}, {1, 1}, 4, "offsets[1] is -2"},
        {2, {3, 3}, {0, 0}, {-7, 1}, 4, "lengths[0] is -7"},
        {1, {4}, {5}, {0}, 4, "dimension 0, 0 elements at offset 5 lie outside 4"},
        {1, {4}, {3}, {2}, 4, "dimension 0, 2 elements at offset 3 lie outside 4"},
        {1, {4}, {INT64_MAX}, {INT64_MAX}, 4, "lie outside 4"},
        {1, {INT64_BIG - 1}, {0}, {1}, 1, NULL},
        {1, {INT64_BIG}, {0}, {1}, 1, "more than 2^62 bytes"},
        {1, {INT64_BIG / 4}, {0}, {1}, 4, "more than 2^62 bytes"},
        {1, {INT64_BIG / 4 - 1}, {0}, {1}, 4, NULL},
        {2, {INT64_MAX, INT64_MAX}, {0, 0}, {1, 1}, 1, "more than 2^62 bytes"},
        {3, {INT64_MAX, INT64_MAX, 0}, {0, 0, 0}, {1, 1, 0}, 16, NULL},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct box box = {cases[i].ndim, cases[i].offsets, cases[i].lengths};
        struct sidestep_error err = {0};
        enum sidestep_status status = box_check(&box, cases[i].shape, cases[i].item_bytes, &err);

        assert_int_equal(status, cases[i].words != NULL ? SIDESTEP_EINVAL : SIDESTEP_OK);
        if (cases[i].words != NULL && strstr(err.message, cases[i].words) == NULL)
            fail_msg("case %zu: '%s' lacks '%s'", i, err.message, cases[i].words);
    }
}

TEST(check_limits_dimensions)
{
    int64_t ones[SIDESTEP_MAX_NDIM + 1], zeros[SIDESTEP_MAX_NDIM + 1] = {0};
    struct box box = {SIDESTEP_MAX_NDIM, zeros, ones};
    struct sidestep_error err = {0};

    for (size_t i = 0; i < ARRAY_LENGTH(ones); i++)
        ones[i] = 1;
    assert_int_equal(box_check(&box, ones, 16, &err), SIDESTEP_OK);
    box.ndim++;
    assert_int_equal(box_check(&box, ones, 16, &err), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "65 dimensions, the limit is 64"));
}

static int64_t edge_number(struct prng *p)
{
    static const int64_t edges[] = {0,
                                    1,
                                    2,
                                    3,
                                    -1,
                                    INT64_MAX,
                                    INT64_MIN,
                                    (int64_t)1 << 31,
                                    (int64_t)1 << 20,
                                    INT64_BIG,
                                    INT64_BIG - 1};

    return prng_below(p, 3) != 0 ? edges[prng_below(p, ARRAY_LENGTH(edges))]
                                 : (int64_t)(prng_next(p) >> prng_below(p, 63));
}

static bool reference_check(uint32_t ndim, const int64_t *shape, const int64_t *offsets,
                            const int64_t *lengths, size_t item_bytes)
{
    __extension__ unsigned __int128 bytes = item_bytes;
    bool empty = false;

    for (uint32_t d = 0; d < ndim; d++) {
        __extension__ __int128 end = offsets[d];

        end += lengths[d];
        if (shape[d] < 0 || offsets[d] < 0 || lengths[d] < 0 || end > shape[d])
            return false;
        empty = empty || shape[d] == 0;
    }
    for (uint32_t d = 0; d < ndim && !empty; d++) {
        bytes *= (uint64_t)shape[d]; /* under 2^62 * 2^63 */
        if (bytes >= (uint64_t)INT64_BIG)
            return false;
    }
    return true;
}

TEST(check_agrees_with_wide_arithmetic)
{
    for (uint64_t seed = 0; seed < 50000; seed++) {
        struct prng p = prng_new(seed);
        int64_t shape[NDIM], offsets[NDIM], lengths[NDIM];
        uint32_t ndim = (uint32_t)prng_below(&p, NDIM + 1);
        size_t item_bytes = (size_t)1 << prng_below(&p, 5);

        for (uint32_t d = 0; d < ndim; d++) {
            shape[d] = edge_number(&p);
            offsets[d] = prng_below(&p, 2) != 0 ? 0 : edge_number(&p);
            lengths[d] = prng_below(&p, 2) != 0 ? shape[d] : edge_number(&p);
        }
        struct box box = {ndim, offsets, lengths};
        bool accepted = box_check(&box, shape, item_bytes, NULL) == SIDESTEP_OK;
        PRNG_ASSERT(&p, accepted == reference_check(ndim, shape, offsets, lengths, item_bytes));
    }
}

/* ---------------------------------------------------------------- small questions */

TEST(shapes_and_strides)
{
    static const struct {
        uint32_t ndim;
        int64_t lengths[3], strides[3];
        bool row_major;
        uint64_t volume;
    } cases[] = {
        {0, {0}, {0}, true, 1},
        {1, {5}, {1}, true, 5},
        {1, {5}, {2}, false, 5},
        {1, {5}, {-1}, false, 5},
        {1, {1}, {77}, true, 1},
        {2, {2, 3}, {3, 1}, true, 6},
        {2, {2, 3}, {4, 1}, false, 6},
        {2, {2, 3}, {1, 2}, false, 6},
        {3, {2, 1, 3}, {3, -9, 1}, true, 6},
        {2, {0, 3}, {9, 9}, true, 0},
        {2, {2, 3}, {0, 1}, false, 6},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct box box = {cases[i].ndim, cases[i].lengths, cases[i].lengths};
        int64_t strides[3];

        assert_int_equal(box_is_row_major(box.ndim, box.lengths, cases[i].strides),
                         cases[i].row_major);
        assert_int_equal(box_volume(&box), cases[i].volume);
        box_row_major_strides(box.ndim, box.lengths, strides);
        assert_true(box_is_row_major(box.ndim, box.lengths, strides));
    }
    int64_t huge[] = {0, INT64_MAX, INT64_MAX}, strides[3];
    box_row_major_strides(3, huge, strides); /* wraps, which must not trap */
    assert_int_equal(box_volume(&(struct box){3, huge, huge}), 0);
}

static bool holds(const struct box *box, const int64_t *at)
{
    for (uint32_t d = 0; d < box->ndim; d++)
        if (at[d] < box->offsets[d] || at[d] >= box->offsets[d] + box->lengths[d])
            return false;
    return true;
}

/* The next element of ${box} in row-major order; starts from and ends with box->offsets. */
static bool next_element(const struct box *box, int64_t *at)
{
    for (uint32_t d = box->ndim; d-- > 0;) {
        if (++at[d] < box->offsets[d] + box->lengths[d])
            return true;
        at[d] = box->offsets[d];
    }
    return false;
}

struct random_box {
    int64_t offsets[NDIM];
    int64_t lengths[NDIM];
    struct box box;
};

static void random_box(struct prng *p, uint32_t ndim, int64_t most, struct random_box *out)
{
    for (uint32_t d = 0; d < ndim; d++) {
        out->offsets[d] = prng_between(p, 0, most / 2);
        out->lengths[d] = prng_below(p, 20) == 0 ? 0 : prng_between(p, 1, most);
    }
    out->box = (struct box){ndim, out->offsets, out->lengths};
}

TEST(intersections_hold_what_both_hold)
{
    for (uint64_t seed = 0; seed < 5000; seed++) {
        struct prng p = prng_new(seed);
        uint32_t ndim = (uint32_t)prng_below(&p, NDIM + 1);
        struct random_box a, b, both;

        random_box(&p, ndim, 4, &a);
        random_box(&p, ndim, 4, &b);
        both.box = (struct box){ndim, both.offsets, both.lengths};
        bool meet = box_intersect(&a.box, &b.box, both.offsets, both.lengths);
        uint64_t common = 0;
        int64_t at[NDIM];

        memcpy(at, a.offsets, sizeof(at));
        for (bool more = box_volume(&a.box) != 0; more; more = next_element(&a.box, at)) {
            common += holds(&b.box, at);
            PRNG_ASSERT(&p, holds(&b.box, at) == (meet && holds(&both.box, at)));
        }
        PRNG_ASSERT(&p, meet == (common != 0));
        PRNG_ASSERT(&p, !meet || box_volume(&both.box) == common);
        PRNG_ASSERT(&p, box_equal(&a.box, &a.box));
    }
}

/* ---------------------------------------------------------------- moving */

/* A box with its own memory: any order of the dimensions, gaps, and negative strides. */
struct layout {
    struct random_box box;
    int64_t strides[NDIM];
    unsigned char *block;
    size_t block_bytes;
    struct box_memory memory;
};

static void random_layout(struct prng *p, uint32_t ndim, int64_t most, size_t item_bytes,
                          bool zeros, struct layout *out)
{
    uint32_t order[NDIM] = {0, 1, 2, 3};
    int64_t stride = 1 + (int64_t)prng_below(p, 2) * (int64_t)prng_below(p, 2), first = 0;

    random_box(p, ndim, most, &out->box);
    for (uint32_t i = ndim; i-- > 1 && prng_below(p, 2) == 0;) {
        uint32_t k = (uint32_t)prng_below(p, i + 1), swap = order[i];

        order[i] = order[k];
        order[k] = swap;
    }
    for (uint32_t i = ndim; i-- > 0;) {
        uint32_t d = order[i];
        int64_t length = out->box.lengths[d] > 0 ? out->box.lengths[d] : 1;

        out->strides[d] = stride;
        stride = stride * length + (prng_below(p, 4) == 0 ? prng_between(p, 0, 2) : 0);
        if (prng_below(p, 5) == 0) {
            first += out->strides[d] * (length - 1);
            out->strides[d] = -out->strides[d];
        }
        if (zeros && prng_below(p, 4) == 0)
            out->strides[d] = 0;
    }
    out->block_bytes = (size_t)stride * item_bytes;
    unsigned char bytes[64];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)prng_next(p);
    out->block = malloc(out->block_bytes);
    assert_non_null(out->block);
    for (size_t i = 0; i < out->block_bytes; i++)
        out->block[i] = (unsigned char)(bytes[i % 61] + i / 61);
    out->memory = (struct box_memory){
        .box = out->box.box,
        .strides = out->strides,
        .data = out->block + (size_t)first * item_bytes,
        .item_bytes = item_bytes,
    };
}

static unsigned char *element(const struct box_memory *memory, const int64_t *at)
{
    int64_t elements = 0;

    for (uint32_t d = 0; d < memory->box.ndim; d++)
        elements += (at[d] - memory->box.offsets[d]) * memory->strides[d];
    return (unsigned char *)memory->data + elements * (int64_t)memory->item_bytes;
}

/* box_transfer(), one byte at a time. */
static uint64_t reference_transfer(const struct box *stored, uint64_t begin, uint64_t bytes,
                                   unsigned char *buffer, const struct box_memory *memory,
                                   enum box_direction direction)
{
    uint64_t moved = 0, position = 0;
    int64_t at[NDIM] = {0};

    if (box_volume(stored) == 0)
        return 0;
    if (stored->ndim != 0)
        memcpy(at, stored->offsets, stored->ndim * sizeof(*at));
    do {
        for (size_t k = 0; k < memory->item_bytes; k++, position++) {
            if (!holds(&memory->box, at) || position < begin || position - begin >= bytes)
                continue;
            unsigned char *in_memory = element(memory, at) + k;
            unsigned char *in_buffer = buffer + (position - begin);
            if (direction == BOX_GATHER)
                *in_buffer = *in_memory;
            else
                *in_memory = *in_buffer;
            moved++;
        }
    } while (next_element(stored, at));
    return moved;
}

/* Move what box_visit_rows() found, with a simple loop. */
struct by_rows {
    unsigned char *buffer;
    enum box_direction direction;
};

static void move_rows(void *context, const struct box_rows *rows)
{
    const struct by_rows *by = context;

    assert_true(rows->count != 0 && rows->bytes != 0);
    for (uint64_t i = 0; i < rows->count; i++) {
        unsigned char *in_buffer = by->buffer + rows->at + (int64_t)i * rows->at_step;
        unsigned char *in_memory = (unsigned char *)rows->memory + (int64_t)i * rows->memory_step;
        if (by->direction == BOX_GATHER)
            memcpy(in_buffer, in_memory, rows->bytes);
        else
            memcpy(in_memory, in_buffer, rows->bytes);
    }
}

static void transfer_case(struct prng *p, uint32_t ndim, int64_t most)
{
    static const size_t sizes[] = {1, 2, 4, 8, 16, 12};
    enum box_direction direction = prng_below(p, 2) == 0 ? BOX_GATHER : BOX_SCATTER;
    size_t item_bytes = sizes[prng_below(p, ARRAY_LENGTH(sizes))];
    struct random_box stored;
    struct layout layout;

    random_box(p, ndim, most, &stored);
    random_layout(p, ndim, most, item_bytes, direction == BOX_GATHER, &layout);
    uint64_t size = box_volume(&stored.box) * item_bytes;
    uint64_t begin = prng_below(p, 4) == 0 ? 0 : prng_below(p, size + 2);
    uint64_t bytes = prng_below(p, 4) == 0 ? size : prng_below(p, size + 20);
    unsigned char *buffer = malloc(bytes + 1), *wanted_buffer = malloc(bytes + 1);
    unsigned char *wanted_block = malloc(layout.block_bytes);
    assert_true(buffer != NULL && wanted_buffer != NULL && wanted_block != NULL);
    for (uint64_t i = 0; i < bytes; i++)
        buffer[i] = wanted_buffer[i] = (unsigned char)(i * 7 + 3);

    /* The reference works in place; afterwards the block is restored. */
    unsigned char *before = malloc(layout.block_bytes);
    assert_non_null(before);
    memcpy(before, layout.block, layout.block_bytes);
    uint64_t wanted =
        reference_transfer(&stored.box, begin, bytes, wanted_buffer, &layout.memory, direction);
    memcpy(wanted_block, layout.block, layout.block_bytes);
    memcpy(layout.block, before, layout.block_bytes);

    unsigned char *guarded = guard_copy(buffer, bytes);
    uint64_t moved = box_transfer(&stored.box, begin, bytes, guarded, &layout.memory, direction);
    PRNG_ASSERT(p, moved == wanted);
    PRNG_ASSERT(p, bytes == 0 || memcmp(guarded, wanted_buffer, bytes) == 0);
    PRNG_ASSERT(p, memcmp(layout.block, wanted_block, layout.block_bytes) == 0);
    guard_free(guarded);

    memcpy(layout.block, before, layout.block_bytes);
    guarded = guard_copy(buffer, bytes);
    struct by_rows by = {guarded, direction};
    moved = box_visit_rows(&stored.box, begin, bytes, &layout.memory, move_rows, &by);
    PRNG_ASSERT(p, moved == wanted);
    PRNG_ASSERT(p, bytes == 0 || memcmp(guarded, wanted_buffer, bytes) == 0);
    PRNG_ASSERT(p, memcmp(layout.block, wanted_block, layout.block_bytes) == 0);
    guard_free(guarded);
    free(before);
    free(wanted_block);
    free(wanted_buffer);
    free(buffer);
    free(layout.block);
}

TEST(transfers_move_what_a_simple_loop_moves)
{
    for (uint64_t seed = 0; seed < 6000; seed++) {
        struct prng p = prng_new(seed);

        transfer_case(&p, (uint32_t)prng_below(&p, NDIM + 1), 7);
    }
}

/* Planes larger than a tile, and rows longer than one. */
TEST(large_planes_are_moved_whole)
{
    for (uint64_t seed = 0; seed < 150; seed++) {
        struct prng p = prng_new(seed);

        transfer_case(&p, 2, 150);
        transfer_case(&p, 1, 500);
    }
}

/* The last of 2^31 rows is reached without a visit to the others. */
TEST(rows_outside_the_range_are_not_visited)
{
    int64_t zeros[2] = {0, 0}, lengths[2] = {(int64_t)1 << 31, 4}, strides[2] = {0, 1};
    struct box box = {2, zeros, lengths};
    unsigned char data[6] = "abcde", buffer[10] = {0};
    struct box_memory memory = {{2, zeros, (int64_t[]){(int64_t)1 << 31, 3}}, strides, data, 1};
    uint64_t size = (uint64_t)lengths[0] * 4;

    assert_int_equal(box_transfer(&box, size - 7, 7, buffer, &memory, BOX_GATHER), 5);
    assert_memory_equal(buffer, "bc\0abc\0", 7);
    assert_int_equal(box_transfer(&box, size - 1, 7, buffer, &memory, BOX_GATHER), 0);
    assert_int_equal(box_transfer(&box, size, 7, buffer, &memory, BOX_GATHER), 0);
    assert_int_equal(box_transfer(&box, UINT64_MAX, 7, buffer, &memory, BOX_GATHER), 0);
    assert_int_equal(box_transfer(&box, size - 4, UINT64_MAX, buffer, &memory, BOX_GATHER), 3);
}

TEST(copies_move_common_elements)
{
    for (uint64_t seed = 0; seed < 4000; seed++) {
        struct prng p = prng_new(seed);
        uint32_t ndim = (uint32_t)prng_below(&p, NDIM + 1);
        size_t item_bytes = (size_t)1 << prng_below(&p, 5);
        struct layout from, to;
        int64_t at[NDIM] = {0};

        random_layout(&p, ndim, 6, item_bytes, true, &from);
        random_layout(&p, ndim, 6, item_bytes, false, &to);
        unsigned char *wanted = malloc(to.block_bytes), *got = malloc(to.block_bytes);
        assert_true(wanted != NULL && got != NULL);
        memcpy(wanted, to.block, to.block_bytes);
        box_copy(&from.memory, &to.memory);
        memcpy(got, to.block, to.block_bytes);
        memcpy(to.block, wanted, to.block_bytes);
        memcpy(at, to.box.offsets, sizeof(at));
        for (bool more = box_volume(&to.box.box) != 0; more; more = next_element(&to.box.box, at))
            if (holds(&from.box.box, at))
                memcpy(element(&to.memory, at), element(&from.memory, at), item_bytes);
        PRNG_ASSERT(&p, memcmp(got, to.block, to.block_bytes) == 0);
        free(got);
        free(wanted);
        free(from.block);
        free(to.block);
    }
}

TEST(marked_blocks_are_those_that_hold_something)
{
    for (uint64_t seed = 0; seed < 5000; seed++) {
        struct prng p = prng_new(seed);
        uint32_t ndim = (uint32_t)prng_below(&p, NDIM + 1);
        size_t item_bytes = (size_t)1 << prng_below(&p, 5), block_bytes = 1 + prng_below(&p, 40);
        struct random_box stored, wanted;
        uint64_t position = 0;
        int64_t at[NDIM] = {0};

        random_box(&p, ndim, 6, &stored);
        random_box(&p, ndim, 6, &wanted);
        size_t blocks = (box_volume(&stored.box) * item_bytes + block_bytes - 1) / block_bytes;
        uint8_t *bitmap = calloc(blocks + 1, 1), *reference = calloc(blocks + 1, 1);
        assert_true(bitmap != NULL && reference != NULL);
        memcpy(at, stored.offsets, sizeof(at));
        for (bool more = blocks != 0; more; more = next_element(&stored.box, at))
            for (size_t k = 0; k < item_bytes; k++, position++)
                if (holds(&wanted.box, at))
                    reference[position / block_bytes] = 1;
        uint8_t *guarded = guard_copy(bitmap, blocks);
        box_mark_blocks(&stored.box, &wanted.box, item_bytes, block_bytes, guarded);
        PRNG_ASSERT(&p, blocks == 0 || memcmp(guarded, reference, blocks) == 0);
        guard_free(guarded);
        free(bitmap);
        free(reference);
    }
}

/* ---------------------------------------------------------------- texts */

TEST(texts_fit_and_are_harmless)
{
    int64_t many[SIDESTEP_MAX_NDIM], zeros[SIDESTEP_MAX_NDIM] = {0};
    char name[SIDESTEP_MAX_NAME + 1];

    assert_string_equal(display_time(0).text, "1970-01-01T00:00:00Z");
    assert_string_equal(display_time(1767323045).text, "2026-01-02T03:04:05Z");
    assert_string_equal(display_time(INT64_MIN).text, "1970-01-01T00:00:00Z");
    assert_string_equal(display_time(INT64_MAX).text, "9999-12-31T23:59:59Z");
    assert_string_equal(display_bytes(1000).text, "1000 B");
    assert_string_equal(display_bytes(3 << 19).text, "1.5 MiB");
    assert_string_equal(display_bytes(UINT64_MAX).text, "16.0 EiB");
    assert_string_equal(display_shape(0, NULL).text, "[]");
    assert_string_equal(display_shape(2, (int64_t[]){2, 3}).text, "[2,3]");
    assert_string_equal(display_box(&(struct box){2, (int64_t[]){1, 0}, (int64_t[]){2, 0}}).text,
                        "[1:3,0:0]");
    assert_string_equal(display_box(&(struct box){0, NULL, NULL}).text, "[]");
    for (size_t i = 0; i < SIDESTEP_MAX_NDIM; i++)
        many[i] = INT64_MAX;
    struct display_text shown = display_box(&(struct box){SIDESTEP_MAX_NDIM, zeros, many});
    assert_string_equal(shown.text + strlen(shown.text) - 5, ",...]");
    shown = display_shape(SIDESTEP_MAX_NDIM, many);
    assert_string_equal(shown.text + strlen(shown.text) - 5, ",...]");

    assert_string_equal(display_name("a\x1b[2J\n\x7f.w\xc3\xa9").text,
                        "a\\x1b[2J\\x0a\\x7f.w\xc3\xa9");
    for (size_t length = 0; length < 400; length++) {
        for (size_t i = 0; i < length; i++) /* two-byte characters and control characters */
            name[i] = i % 5 == 4 ? '\n' : i % 5 % 2 == 0 ? '\xc3' : '\xa9';
        name[length] = '\0';
        shown = display_name(name);
        size_t shown_length = strnlen(shown.text, sizeof(shown.text));
        assert_true(shown_length < sizeof(shown.text));
        assert_null(strchr(shown.text, '\n'));
        const char *dots = strstr(shown.text, "...");
        if (dots != NULL) {
            assert_string_equal(dots, "...");
            assert_true((unsigned char)dots[-1] != 0xc3);
        }
        assert_int_equal(dots != NULL, length / 5 * 8 + length % 5 >= sizeof(shown.text));
    }
}
