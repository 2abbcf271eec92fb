/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * box.c -- see box.h.  It has the inner loop of every save and load.
 *
 * To copy the common part of two boxes, nested loops go over "units": the longest pieces that are
 * contiguous on both sides.  Dimensions that continue each other on both sides are merged first, so
 * a contiguous shard is one unit and one memcpy, whatever its number of dimensions.
 */
#include "model/box.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"

#define MAX_TENSOR_BYTES (((uint64_t)1 << 62) - 1)
/* Planes are copied in square tiles with this many units a side.  A tile of 8-byte units fits into
 * the L1 cache, so a transposed plane uses all of each cache line before the line is evicted. */
#define TILE_UNITS 32u

static enum sidestep_status check_volume(uint32_t ndim, const int64_t *shape, size_t item_bytes,
                                         struct sidestep_error *err)
{
    uint64_t bytes = item_bytes;

    for (uint32_t d = 0; d < ndim; d++)
        if (shape[d] == 0)
            return SIDESTEP_OK;
    for (uint32_t d = 0; d < ndim; d++)
        if (!checked_mul(bytes, (uint64_t)shape[d], &bytes) || bytes > MAX_TENSOR_BYTES)
            return FAIL(err, SIDESTEP_EINVAL, "the shape has more than 2^62 bytes");
    return SIDESTEP_OK;
}

enum sidestep_status box_check(const struct box *box, const int64_t *shape, size_t item_bytes,
                               struct sidestep_error *err)
{
    if (box->ndim > SIDESTEP_MAX_NDIM)
        return FAIL(err, SIDESTEP_EINVAL, "%u dimensions, the limit is %u", box->ndim,
                    SIDESTEP_MAX_NDIM);
    for (uint32_t d = 0; d < box->ndim; d++) {
        long long size = shape[d], offset = box->offsets[d], length = box->lengths[d];

        if (size < 0)
            return FAIL(err, SIDESTEP_EINVAL, "shape[%u] is %lld", d, size);
        if (offset < 0)
            return FAIL(err, SIDESTEP_EINVAL, "offsets[%u] is %lld", d, offset);
        if (length < 0)
            return FAIL(err, SIDESTEP_EINVAL, "lengths[%u] is %lld", d, length);
        if (offset > size || length > size - offset)
            return FAIL(err, SIDESTEP_EINVAL,
                        "in dimension %u, %lld elements at offset %lld lie outside %lld", d, length,
                        offset, size);
    }
    return check_volume(box->ndim, shape, item_bytes, err);
}

uint64_t box_volume(const struct box *box)
{
    uint64_t volume = 1;

    for (uint32_t d = 0; d < box->ndim; d++)
        if (box->lengths[d] == 0)
            return 0;
    for (uint32_t d = 0; d < box->ndim; d++)
        volume *= (uint64_t)box->lengths[d];
    return volume;
}

bool box_equal(const struct box *a, const struct box *b)
{
    size_t bytes = a->ndim * sizeof(*a->offsets);

    return a->ndim == b->ndim && (bytes == 0 || (memcmp(a->offsets, b->offsets, bytes) == 0 &&
                                                 memcmp(a->lengths, b->lengths, bytes) == 0));
}

bool box_is_whole(const struct box *box, const int64_t *shape)
{
    for (uint32_t d = 0; d < box->ndim; d++)
        if (box->offsets[d] != 0 || box->lengths[d] != shape[d])
            return false;
    return true;
}

bool box_intersect(const struct box *a, const struct box *b, int64_t *offsets, int64_t *lengths)
{
    assert(a->ndim == b->ndim);
    for (uint32_t d = 0; d < a->ndim; d++) {
        int64_t a_end = a->offsets[d] + a->lengths[d];
        int64_t b_end = b->offsets[d] + b->lengths[d];
        int64_t begin = a->offsets[d] > b->offsets[d] ? a->offsets[d] : b->offsets[d];
        int64_t end = a_end < b_end ? a_end : b_end;

        if (begin >= end)
            return false;
        offsets[d] = begin;
        lengths[d] = end - begin;
    }
    return true;
}

void box_row_major_strides(uint32_t ndim, const int64_t *lengths, int64_t *strides)
{
    uint64_t stride = 1; /* unsigned, because it may wrap if the box has no elements */

    for (uint32_t d = ndim; d-- > 0;) {
        strides[d] = (int64_t)stride;
        stride *= lengths[d] != 0 ? (uint64_t)lengths[d] : 1;
    }
}

bool box_is_row_major(uint32_t ndim, const int64_t *lengths, const int64_t *strides)
{
    int64_t expected = 1;

    for (uint32_t d = 0; d < ndim; d++)
        if (lengths[d] == 0)
            return true;
    for (uint32_t d = ndim; d-- > 0;) {
        if (lengths[d] != 1 && strides[d] != expected)
            return false;
        expected *= lengths[d];
    }
    return true;
}

/* ---------------------------------------------------------------- the walk */

/* One of the nested loops: its iterations, and the bytes from one to the next on each side. */
struct loop {
    uint64_t count;
    int64_t a_step;
    int64_t b_step;
};

/*
 * The common part of two boxes, on sides A and B.  loops[0] is the innermost.  There are always at
 * least two loops, so that planes need no special case.
 */
struct walk {
    uint64_t unit; /* bytes that are contiguous on both sides */
    uint32_t depth;
    struct loop loops[SIDESTEP_MAX_NDIM + 2];
};

static void walk_init(struct walk *walk, uint32_t ndim, const int64_t *lengths,
                      const int64_t *a_strides, const int64_t *b_strides, size_t item_bytes)
{
    int64_t item = (int64_t)item_bytes;
    struct loop *last = NULL;

    walk->unit = item_bytes;
    walk->depth = 0;
    for (uint32_t d = ndim; d-- > 0;) {
        if (lengths[d] == 1)
            continue;
        struct loop loop = {(uint64_t)lengths[d], a_strides[d] * item, b_strides[d] * item};
        int64_t unit = (int64_t)walk->unit;

        if (last == NULL && loop.a_step == unit && loop.b_step == unit) {
            walk->unit *= loop.count;
        } else if (last != NULL && loop.a_step == last->a_step * (int64_t)last->count &&
                   loop.b_step == last->b_step * (int64_t)last->count) {
            last->count *= loop.count;
        } else {
            last = &walk->loops[walk->depth++];
            *last = loop;
        }
    }
    while (walk->depth < 2)
        walk->loops[walk->depth++] = (struct loop){1, (int64_t)MAX_TENSOR_BYTES, 0};
}

/* Bytes from the first element of ${outer} to the first one of ${inner}. */
static int64_t bytes_to(uint32_t ndim, const int64_t *outer, const int64_t *inner,
                        const int64_t *strides, size_t item_bytes)
{
    int64_t elements = 0;

    for (uint32_t d = 0; d < ndim; d++)
        if (inner[d] != outer[d])
            elements += (inner[d] - outer[d]) * strides[d];
    return elements * (int64_t)item_bytes;
}

/* Advance loops[from]; where a loop ends, advance the next outer one.  False: all have ended. */
static bool walk_carry(const struct walk *walk, uint64_t *indices, uint32_t from)
{
    for (uint32_t i = 0; i < from && i < walk->depth; i++)
        indices[i] = 0;
    for (uint32_t i = from; i < walk->depth; i++) {
        if (++indices[i] < walk->loops[i].count)
            return true;
        indices[i] = 0;
    }
    return false;
}

/*
 * Go to the first unit that ends behind byte ${position} of side A, counted from the walk's first
 * byte.  A must be row-major: each loop's step covers the loops inside it.  False: there is no such
 * unit.
 */
static bool walk_seek(const struct walk *walk, uint64_t position, uint64_t *indices)
{
    for (uint32_t i = walk->depth; i-- > 0;) {
        uint64_t step = (uint64_t)walk->loops[i].a_step;

        indices[i] = position / step;
        if (indices[i] >= walk->loops[i].count)
            return walk_carry(walk, indices, i + 1);
        position -= indices[i] * step;
    }
    return position < walk->unit || walk_carry(walk, indices, 0);
}

/* ---------------------------------------------------------------- copying units */

static inline __attribute__((always_inline)) void copy_each(char *to, int64_t to_step,
                                                            const char *from, int64_t from_step,
                                                            uint64_t count, size_t unit)
{
    for (int64_t i = 0; i < (int64_t)count; i++)
        memcpy(to + i * to_step, from + i * from_step, unit);
}

static void copy_units(char *to, int64_t to_step, const char *from, int64_t from_step,
                       uint64_t count, size_t unit)
{
    switch (unit) { /* a constant size makes memcpy one move */
    case 1:
        copy_each(to, to_step, from, from_step, count, 1);
        break;
    case 2:
        copy_each(to, to_step, from, from_step, count, 2);
        break;
    case 4:
        copy_each(to, to_step, from, from_step, count, 4);
        break;
    case 8:
        copy_each(to, to_step, from, from_step, count, 8);
        break;
    case 16:
        copy_each(to, to_step, from, from_step, count, 16);
        break;
    default:
        copy_each(to, to_step, from, from_step, count, unit);
    }
}

/* Copy ${rows} iterations of loops[1], each with ${columns} of loops[0], from A to B or back. */
static void copy_plane(const struct walk *walk, char *a, char *b, uint64_t rows, uint64_t columns,
                       bool a_to_b)
{
    struct loop inner = walk->loops[0], outer = walk->loops[1];
    const char *from = a_to_b ? a : b;
    char *to = a_to_b ? b : a;
    int64_t from_in = a_to_b ? inner.a_step : inner.b_step;
    int64_t to_in = a_to_b ? inner.b_step : inner.a_step;
    int64_t from_out = a_to_b ? outer.a_step : outer.b_step;
    int64_t to_out = a_to_b ? outer.b_step : outer.a_step;

    /* The longer loop goes inside. */
    if (rows > columns && columns < TILE_UNITS) {
        int64_t step = from_in;
        uint64_t count = rows;

        from_in = from_out, from_out = step;
        step = to_in, to_in = to_out, to_out = step;
        rows = columns, columns = count;
    }
    if (rows == 1) {
        copy_units(to, to_in, from, from_in, columns, walk->unit);
        return;
    }
    for (uint64_t row = 0; row < rows; row += TILE_UNITS) {
        uint64_t row_end = min_u64(row + TILE_UNITS, rows);

        for (uint64_t column = 0; column < columns; column += TILE_UNITS) {
            uint64_t count = min_u64(columns - column, TILE_UNITS);

            for (uint64_t i = row; i < row_end; i++)
                copy_units(to + (int64_t)i * to_out + (int64_t)column * to_in, to_in,
                           from + (int64_t)i * from_out + (int64_t)column * from_in, from_in, count,
                           walk->unit);
        }
    }
}

/*
 * The state of a transfer.  buffer[0] is byte ${begin} of side A, counted as in walk_seek().
 * Positions are signed, because the range may begin before the walk's first byte.
 */
struct transfer {
    const struct walk *walk;
    int64_t begin;
    int64_t end;
    char *buffer;
    char *memory; /* the walk's first unit */
    bool gather;
    void (*visit)(void *context, const struct box_rows *rows); /* NULL: move the bytes */
    void *context;
    uint64_t moved;
};

/* Transfer ${rows} iterations of loops[1], each with ${columns} of loops[0].  The first unit is at
 * ${position}. */
static void transfer_plane(struct transfer *t, int64_t position, char *memory, uint64_t rows,
                           uint64_t columns)
{
    struct loop inner = t->walk->loops[0], outer = t->walk->loops[1];
    uint64_t at = (uint64_t)(position - t->begin);

    t->moved += rows * columns * t->walk->unit;
    if (t->visit == NULL) {
        copy_plane(t->walk, t->buffer + at, memory, rows, columns, !t->gather);
        return;
    }
    for (uint64_t row = 0; row < rows; row++) {
        struct box_rows found = {
            .at = at + row * (uint64_t)outer.a_step,
            .memory = memory + (int64_t)row * outer.b_step,
            .bytes = t->walk->unit,
            .count = columns,
            .at_step = columns > 1 ? inner.a_step : 0,
            .memory_step = columns > 1 ? inner.b_step : 0,
        };
        t->visit(t->context, &found);
    }
}

/* Transfer a part of a unit. */
static void transfer_cut(struct transfer *t, int64_t position, char *memory, uint64_t bytes)
{
    uint64_t at = (uint64_t)(position - t->begin);

    t->moved += bytes;
    if (t->visit == NULL) {
        char *inside = t->buffer + at;

        memcpy(t->gather ? inside : memory, t->gather ? memory : inside, bytes);
        return;
    }
    struct box_rows found = {.at = at, .memory = memory, .bytes = bytes, .count = 1};
    t->visit(t->context, &found);
}

/* Transfer those bytes of ${count} units of one row that lie in the range.  The first unit is at
 * ${row} of side A and at ${b} of side B. */
static void transfer_units(struct transfer *t, int64_t row, char *b, uint64_t count)
{
    struct loop inner = t->walk->loops[0];
    int64_t unit = (int64_t)t->walk->unit;

    for (uint64_t i = 0; i < count; i++) {
        int64_t position = row + (int64_t)i * inner.a_step;
        char *memory = b + (int64_t)i * inner.b_step;

        if (position >= t->end)
            return;
        if (position >= t->begin && unit <= t->end - position) { /* all whole units at once */
            uint64_t whole = (uint64_t)((t->end - unit - position) / inner.a_step) + 1;

            whole = min_u64(whole, count - i);
            transfer_plane(t, position, memory, 1, whole);
            i += whole - 1;
        } else { /* an end of the range cuts this unit */
            int64_t skip = position < t->begin ? t->begin - position : 0;
            int64_t stop = unit > t->end - position ? t->end - position : unit;

            transfer_cut(t, position + skip, memory + skip, (uint64_t)(stop - skip));
        }
    }
}

/* The number of rows, from indices[1] on, that lie in the range as a whole. */
static uint64_t whole_rows(const struct transfer *t, const uint64_t *indices, int64_t position)
{
    struct loop inner = t->walk->loops[0], outer = t->walk->loops[1];
    int64_t row_bytes = (int64_t)(inner.count - 1) * inner.a_step + (int64_t)t->walk->unit;

    if (indices[0] != 0 || position < t->begin || row_bytes > t->end - position)
        return 0;
    uint64_t rows = (uint64_t)((t->end - position - row_bytes) / outer.a_step) + 1;
    return min_u64(rows, outer.count - indices[1]);
}

static void transfer_run(struct transfer *t, uint64_t *indices)
{
    const struct walk *walk = t->walk;

    do {
        int64_t position = 0;
        char *b = t->memory;

        for (uint32_t i = 0; i < walk->depth; i++)
            if (indices[i] != 0) {
                position += (int64_t)indices[i] * walk->loops[i].a_step;
                b += (int64_t)indices[i] * walk->loops[i].b_step;
            }
        if (position >= t->end)
            return;
        uint64_t rows = whole_rows(t, indices, position);
        if (rows == 0) {
            transfer_units(t, position, b, walk->loops[0].count - indices[0]);
            continue;
        }
        transfer_plane(t, position, b, rows, walk->loops[0].count);
        indices[1] += rows - 1;
    } while (walk_carry(walk, indices, 1));
}

/* The caller has set the direction and the buffer of ${t}, or its ${visit}. */
static uint64_t transfer(const struct box *stored, uint64_t begin, uint64_t bytes,
                         const struct box_memory *memory, struct transfer *t)
{
    int64_t offsets[SIDESTEP_MAX_NDIM], lengths[SIDESTEP_MAX_NDIM];
    int64_t strides[SIDESTEP_MAX_NDIM] = {0};
    uint64_t indices[SIDESTEP_MAX_NDIM + 2];
    uint32_t ndim = stored->ndim;
    struct walk walk;

    if (bytes == 0 || !box_intersect(stored, &memory->box, offsets, lengths))
        return 0;
    uint64_t size = box_volume(stored) * memory->item_bytes;
    if (begin >= size)
        return 0;
    bytes = min_u64(bytes, size - begin);

    box_row_major_strides(ndim, stored->lengths, strides);
    walk_init(&walk, ndim, lengths, strides, memory->strides, memory->item_bytes);
    int64_t first = bytes_to(ndim, stored->offsets, offsets, strides, memory->item_bytes);
    t->walk = &walk;
    t->begin = (int64_t)begin - first;
    t->end = (int64_t)(begin + bytes) - first;
    t->memory = (char *)memory->data +
                bytes_to(ndim, memory->box.offsets, offsets, memory->strides, memory->item_bytes);
    if (walk_seek(&walk, t->begin > 0 ? (uint64_t)t->begin : 0, indices))
        transfer_run(t, indices);
    return t->moved;
}

uint64_t box_transfer(const struct box *stored, uint64_t begin, uint64_t bytes, void *buffer,
                      const struct box_memory *memory, enum box_direction direction)
{
    struct transfer t = {.buffer = buffer, .gather = direction == BOX_GATHER};

    return transfer(stored, begin, bytes, memory, &t);
}

uint64_t box_visit_rows(const struct box *stored, uint64_t begin, uint64_t bytes,
                        const struct box_memory *memory,
                        void (*visit)(void *context, const struct box_rows *rows), void *context)
{
    struct transfer t = {.visit = visit, .context = context};

    return transfer(stored, begin, bytes, memory, &t);
}

void box_copy(const struct box_memory *from, const struct box_memory *to)
{
    int64_t offsets[SIDESTEP_MAX_NDIM], lengths[SIDESTEP_MAX_NDIM];
    uint64_t indices[SIDESTEP_MAX_NDIM + 2] = {0};
    uint32_t ndim = from->box.ndim;
    struct walk walk;

    assert(from->item_bytes == to->item_bytes);
    if (!box_intersect(&from->box, &to->box, offsets, lengths))
        return;
    walk_init(&walk, ndim, lengths, from->strides, to->strides, from->item_bytes);
    char *a = (char *)from->data +
              bytes_to(ndim, from->box.offsets, offsets, from->strides, from->item_bytes);
    char *b =
        (char *)to->data + bytes_to(ndim, to->box.offsets, offsets, to->strides, to->item_bytes);
    do {
        char *a_plane = a, *b_plane = b;

        for (uint32_t i = 2; i < walk.depth; i++) {
            a_plane += (int64_t)indices[i] * walk.loops[i].a_step;
            b_plane += (int64_t)indices[i] * walk.loops[i].b_step;
        }
        copy_plane(&walk, a_plane, b_plane, walk.loops[1].count, walk.loops[0].count, true);
    } while (walk_carry(&walk, indices, 2));
}

void box_mark_blocks(const struct box *stored, const struct box *wanted, size_t item_bytes,
                     size_t block_bytes, uint8_t *marks)
{
    int64_t offsets[SIDESTEP_MAX_NDIM], lengths[SIDESTEP_MAX_NDIM];
    int64_t strides[SIDESTEP_MAX_NDIM] = {0};
    uint64_t indices[SIDESTEP_MAX_NDIM + 2];
    struct walk walk;

    assert(block_bytes != 0);
    if (!box_intersect(stored, wanted, offsets, lengths))
        return;
    box_row_major_strides(stored->ndim, stored->lengths, strides);
    walk_init(&walk, stored->ndim, lengths, strides, strides, item_bytes);
    uint64_t first =
        (uint64_t)bytes_to(stored->ndim, stored->offsets, offsets, strides, item_bytes);

    /* Go from block to block, not from unit to unit: a thin column has a million units. */
    for (uint64_t position = 0; walk_seek(&walk, position, indices);) {
        uint64_t at = 0;

        for (uint32_t i = 0; i < walk.depth; i++)
            at += indices[i] * (uint64_t)walk.loops[i].a_step;
        uint64_t block = (first + max_u64(at, position)) / block_bytes;
        marks[block] = 1;
        position = (block + 1) * block_bytes - first;
    }
}
