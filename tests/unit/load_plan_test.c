/* SPDX-License-Identifier: BSD-3-Clause */
/* load_plan_test.c -- which stored chunks fill which shards, down to the bytes that arrive. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/owned.h"
#include "plan/load_plan.h"
#include "support/prng.h"
#include "support/tilings.h"

#define DIMS(...) ((int64_t[]){__VA_ARGS__})
#define MAX_ENTRIES 8u

static float data[256];

/* ---------------------------------------------------------------- what is saved, and wanted */

static struct metadata new_metadata(void)
{
    struct metadata m = {0};

    m.entries = arena_new(&m.arena, MAX_ENTRIES, sizeof(*m.entries));
    assert_non_null(m.entries);
    return m;
}

/* Chunks are stored one behind the other in "file". */
static struct metadata_entry *save_tensor(struct metadata *m, const char *name,
                                          enum sidestep_dtype dtype, uint32_t ndim,
                                          const int64_t *shape, const struct box *boxes,
                                          size_t count)
{
    struct metadata_entry *entry = &m->entries[m->count++];
    uint64_t offset = 0;

    *entry = (struct metadata_entry){
        .name = name,
        .dtype = dtype,
        .dtype_name = sidestep_dtype_name(dtype),
        .ndim = ndim,
        .shape = arena_copy(&m->arena, shape, ndim * sizeof(*shape)),
        .chunk_count = count,
        .chunks = arena_new(&m->arena, count, sizeof(*entry->chunks)),
    };
    assert_true(entry->shape != NULL && entry->chunks != NULL);
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = box_volume(&boxes[i]) * sidestep_dtype_size(dtype);

        entry->chunks[i].box = (struct box){
            boxes[i].ndim, arena_copy(&m->arena, boxes[i].offsets, boxes[i].ndim * sizeof(*shape)),
            arena_copy(&m->arena, boxes[i].lengths, boxes[i].ndim * sizeof(*shape))};
        entry->chunks[i].storage =
            (struct metadata_storage){.file = "file", .offset = offset, .length = bytes};
        offset += bytes;
    }
    return entry;
}

static struct metadata_entry *save_object(struct metadata *m, const char *name)
{
    struct metadata_entry *entry = &m->entries[m->count++];

    *entry = (struct metadata_entry){
        .name = name, .is_object = true, .storage = {.file = "objects", .length = 5}};
    return entry;
}

static struct sidestep_state_dict *new_state(void)
{
    struct sidestep_state_dict *state = NULL;

    assert_int_equal(sidestep_state_dict_new(&state, NULL), SIDESTEP_OK);
    return state;
}

static void want(struct sidestep_state_dict *state, const char *name, enum sidestep_dtype dtype,
                 const int64_t *shape, const struct box *box, const int64_t *strides, void *memory)
{
    const struct sidestep_tensor tensor = {
        .struct_size = sizeof(tensor),
        .name = name,
        .dtype = dtype,
        .ndim = box->ndim,
        .shape = shape,
        .offsets = box->offsets,
        .lengths = box->lengths,
        .strides = strides,
        .data = memory,
    };

    assert_int_equal(sidestep_state_dict_add_tensor(state, &tensor, NULL), SIDESTEP_OK);
}

static void want_rows(struct sidestep_state_dict *state, const char *name, int64_t begin,
                      int64_t end, int64_t rows, int64_t columns)
{
    want(state, name, SIDESTEP_FLOAT32, DIMS(rows, columns),
         &(struct box){2, DIMS(begin, 0), DIMS(end - begin, columns)}, NULL, data);
}

static void save_rows(struct metadata *m, const char *name, int64_t rows, int64_t columns,
                      int64_t step)
{
    struct box boxes[16];
    int64_t numbers[16][4];
    size_t count = 0;

    for (int64_t row = 0; row < rows; row += step, count++) {
        int64_t end = row + step < rows ? row + step : rows;

        memcpy(numbers[count], DIMS(row, 0, end - row, columns), sizeof(numbers[count]));
        boxes[count] = (struct box){2, numbers[count], numbers[count] + 2};
    }
    save_tensor(m, name, SIDESTEP_FLOAT32, 2, DIMS(rows, columns), boxes, count);
}

/* ---------------------------------------------------------------- names */

static void names_are_sorted_out(void **test)
{
    struct metadata m = new_metadata();
    struct sidestep_state_dict *state = new_state();
    struct load_plan plan;

    (void)test;
    save_rows(&m, "w", 2, 3, 2);
    save_rows(&m, "shape", 2, 3, 2);
    save_tensor(&m, "dtype", SIDESTEP_FLOAT32, 1, DIMS(4), &(struct box){1, DIMS(0), DIMS(4)}, 1);
    struct metadata_entry *strange = save_tensor(&m, "strange", SIDESTEP_DTYPE_NONE, 1, DIMS(4),
                                                 &(struct box){1, DIMS(0), DIMS(4)}, 1);
    strange->dtype_name = "float128";
    save_object(&m, "was object");
    save_rows(&m, "was tensor", 2, 3, 2);
    save_rows(&m, "z unexpected", 2, 3, 2);
    save_object(&m, "a unexpected");
    assert_int_equal(metadata_index(&m, NULL), SIDESTEP_OK);

    want_rows(state, "w", 0, 1, 2, 3);
    want_rows(state, "z missing", 0, 1, 2, 3);
    want_rows(state, "a missing", 0, 1, 2, 3);
    want_rows(state, "a missing", 1, 2, 2, 3);
    want_rows(state, "shape", 0, 1, 3, 3);
    want_rows(state, "shape", 1, 2, 3, 3);
    want(state, "dtype", SIDESTEP_BFLOAT16, DIMS(4), &(struct box){1, DIMS(0), DIMS(4)}, NULL,
         data);
    want(state, "strange", SIDESTEP_INT8, DIMS(4), &(struct box){1, DIMS(0), DIMS(4)}, NULL, data);
    want(state, "was object", SIDESTEP_INT8, NULL, &(struct box){0, NULL, NULL}, NULL, data);
    assert_int_equal(sidestep_state_dict_add_value(state, "was tensor", NULL, 0, NULL, NULL), 0);
    assert_int_equal(load_plan_build(&m, state, &plan, NULL), SIDESTEP_OK);

    assert_int_equal(plan.count, 1);
    assert_string_equal(plan.chunks[0].entry->name, "w");
    assert_int_equal(plan.wanted_bytes, 12);
    assert_int_equal(plan.missing_count, 2);
    assert_string_equal(plan.missing[0], "a missing");
    assert_string_equal(plan.missing[1], "z missing");
    assert_int_equal(plan.unexpected_count, 2);
    assert_string_equal(plan.unexpected[0], "a unexpected");
    assert_string_equal(plan.unexpected[1], "z unexpected");
    assert_int_equal(plan.mismatched_count, 5);
    assert_string_equal(plan.mismatched[0], "dtype: saved float32 [4], wanted bfloat16 [4]");
    assert_string_equal(plan.mismatched[1], "shape: saved float32 [2,3], wanted float32 [3,3]");
    assert_string_equal(plan.mismatched[2], "strange: saved float128 [4], wanted int8 [4]");
    assert_string_equal(plan.mismatched[3], "was object: saved object, wanted int8 []");
    assert_string_equal(plan.mismatched[4], "was tensor: saved float32 [2,3], wanted object");
    load_plan_release(&plan);
    metadata_release(&m);
    sidestep_state_dict_free(&state);
}

static void chunks_come_in_file_order(void **test)
{
    struct metadata m = new_metadata();
    struct sidestep_state_dict *state = new_state();
    struct load_plan plan;

    (void)test;
    save_rows(&m, "w", 6, 2, 2);
    m.entries[0].chunks[0].storage = (struct metadata_storage){.file = "b", .offset = 10};
    m.entries[0].chunks[1].storage = (struct metadata_storage){.file = "b", .offset = 0};
    m.entries[0].chunks[2].storage = (struct metadata_storage){.file = "a", .offset = 99};
    struct metadata_entry *object = save_object(&m, "step");
    object->storage = (struct metadata_storage){.file = "b", .offset = 5};
    assert_int_equal(metadata_index(&m, NULL), SIDESTEP_OK);
    want_rows(state, "w", 0, 3, 6, 2);
    want_rows(state, "w", 3, 6, 6, 2);
    want_rows(state, "w", 6, 6, 6, 2); /* nothing of it */
    assert_int_equal(sidestep_state_dict_add_value(state, "step", NULL, 0, NULL, NULL), 0);
    assert_int_equal(load_plan_build(&m, state, &plan, NULL), SIDESTEP_OK);

    assert_int_equal(plan.count, 4);
    assert_ptr_equal(plan.chunks[0].storage, &m.entries[0].chunks[2].storage);
    assert_ptr_equal(plan.chunks[1].storage, &m.entries[0].chunks[1].storage);
    assert_ptr_equal(plan.chunks[2].storage, &object->storage);
    assert_ptr_equal(plan.chunks[3].storage, &m.entries[0].chunks[0].storage);
    assert_int_equal(plan.chunks[1].target_count, 2); /* rows 2 and 3 */
    assert_ptr_equal(plan.chunks[1].targets[0], &state->entries[0]);
    assert_ptr_equal(plan.chunks[1].targets[1], &state->entries[1]);
    assert_int_equal(plan.chunks[0].target_count, 1);
    assert_ptr_equal(plan.chunks[0].targets[0], &state->entries[1]);
    assert_int_equal(plan.chunks[2].target_count, 1);
    assert_true(plan.chunks[2].entry->is_object);
    assert_ptr_equal(plan.chunks[2].targets[0], state_dict_find(state, "step"));
    assert_int_equal(plan.chunks[2].box.ndim, 0);
    assert_int_equal(plan.wanted_bytes, 48);
    load_plan_release(&plan);
    metadata_release(&m);
    sidestep_state_dict_free(&state);
}

/* ---------------------------------------------------------------- what is refused */

/* Rows [begin, end) of 4 x 2 are wanted from these chunks, two rows each. */
static void check_damage(const struct box *boxes, size_t count, int64_t begin, int64_t end,
                         const char *words)
{
    struct metadata m = new_metadata();
    struct sidestep_state_dict *state = new_state();
    struct sidestep_error err = {0};
    struct load_plan plan = {0};

    save_tensor(&m, "w", SIDESTEP_FLOAT32, 2, DIMS(4, 2), boxes, count);
    assert_int_equal(metadata_index(&m, NULL), SIDESTEP_OK);
    want_rows(state, "w", begin, end, 4, 2);
    enum sidestep_status status = load_plan_build(&m, state, &plan, &err);
    assert_int_equal(status, words != NULL ? SIDESTEP_ECORRUPT : SIDESTEP_OK);
    if (words != NULL) {
        assert_int_equal(err.status, SIDESTEP_ECORRUPT);
        if (strstr(err.message, words) == NULL)
            fail_msg("'%s' lacks '%s'", err.message, words);
        assert_int_equal(load_plan_build(&m, state, &plan, NULL), SIDESTEP_ECORRUPT);
    }
    load_plan_release(&plan);
    metadata_release(&m);
    sidestep_state_dict_free(&state);
}

static void damaged_metadata_is_refused(void **test)
{
    const struct box top = {2, DIMS(0, 0), DIMS(2, 2)}, bottom = {2, DIMS(2, 0), DIMS(2, 2)};
    const struct box boxes[][3] = {
        {top, bottom},
        {top, bottom, {2, DIMS(4, 0), DIMS(0, 2)}},
        {top, bottom, {2, DIMS(1, 0), DIMS(1, 1)}},
        {top, bottom, {2, DIMS(0, 0), DIMS(2, INT64_MAX)}},
        {top, bottom, {2, DIMS(-1, 0), DIMS(1, 1)}},
        {top, bottom, {1, DIMS(0), DIMS(4)}},
    };

    (void)test;
    check_damage(boxes[0], 2, 0, 4, NULL);
    check_damage(boxes[0], 1, 0, 2, NULL); /* what is missing is not wanted */
    check_damage(boxes[0], 1, 1, 3,
                 "'w': the stored chunks do not cover the box [1:3,0:2] of the shape [4,2]");
    check_damage(boxes[0], 0, 0, 1, "do not cover");
    check_damage(boxes[0], 0, 2, 2, NULL);
    check_damage(boxes[1], 3, 0, 4, NULL);
    check_damage(boxes[2], 3, 3, 4, "'w': stored chunks overlap, one is [1:2,0:1]");
    check_damage(boxes[3], 3, 0, 4, "'w': stored chunk 2: in dimension 1");
    check_damage(boxes[4], 3, 0, 4, "'w': stored chunk 2: offsets[0] is -1");
    check_damage(boxes[5], 3, 0, 4, "'w': a chunk has 1 dimensions, but the tensor has 2");
}

static void chunks_without_storage_are_refused_if_needed(void **test)
{
    struct metadata m = new_metadata();
    struct sidestep_state_dict *state = new_state();
    struct sidestep_error err = {0};
    struct load_plan plan;

    (void)test;
    save_rows(&m, "w", 4, 2, 2);
    save_object(&m, "step")->storage.file = NULL;
    m.entries[0].chunks[1].storage.file = NULL;
    assert_int_equal(metadata_index(&m, NULL), SIDESTEP_OK);
    want_rows(state, "w", 0, 2, 4, 2);
    assert_int_equal(load_plan_build(&m, state, &plan, &err), SIDESTEP_OK);
    load_plan_release(&plan);
    want_rows(state, "w", 2, 3, 4, 2);
    assert_int_equal(load_plan_build(&m, state, &plan, &err), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "'w': the metadata does not say where the chunk "
                                        "[2:4,0:2] is stored"));
    sidestep_state_dict_free(&state);
    state = new_state();
    assert_int_equal(sidestep_state_dict_add_value(state, "step", NULL, 0, NULL, NULL), 0);
    assert_int_equal(load_plan_build(&m, state, &plan, &err), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "'step': the metadata does not say where the object is"));
    metadata_release(&m);
    sidestep_state_dict_free(&state);
}

static void expanded_shards_are_refused(void **test)
{
    static const struct {
        int64_t lengths[2], strides[2];
        const char *words;
    } cases[] = {
        {{2, 2}, {2, 0}, "stride is 0 in dimension 1 (length 2): its elements share memory"},
        {{2, 2}, {0, 1}, "'w': cannot load into a shard whose stride is 0 in dimension 0"},
        {{1, 2}, {0, 1}, NULL},
        {{2, 2}, {-2, 1}, NULL},
        {{2, 0}, {0, 0}, NULL},
    };

    (void)test;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct metadata m = new_metadata();
        struct sidestep_state_dict *state = new_state();
        struct sidestep_error err = {0};
        struct load_plan plan = {0};

        save_rows(&m, "w", 2, 2, 2);
        assert_int_equal(metadata_index(&m, NULL), SIDESTEP_OK);
        want(state, "w", SIDESTEP_FLOAT32, DIMS(2, 2),
             &(struct box){2, DIMS(0, 0), cases[i].lengths}, cases[i].strides, data + 8);
        enum sidestep_status status = load_plan_build(&m, state, &plan, &err);
        assert_int_equal(status, cases[i].words != NULL ? SIDESTEP_EINVAL : SIDESTEP_OK);
        assert_true(cases[i].words == NULL || strstr(err.message, cases[i].words) != NULL);
        load_plan_release(&plan);
        metadata_release(&m);
        sidestep_state_dict_free(&state);
    }
}

/* ---------------------------------------------------------------- bytes, there and back */

/* A shard with memory of its own: any order of dimensions, gaps, backward strides. */
struct shard {
    struct box box;
    int64_t strides[TILING_NDIM];
    unsigned char *block;
    unsigned char *first;
};

static void shard_open(struct prng *p, struct box box, size_t item_bytes, struct shard *out)
{
    uint32_t order[TILING_NDIM] = {0, 1, 2, 3};
    int64_t stride = 1, first = 0;

    *out = (struct shard){.box = box};
    for (uint32_t i = box.ndim; i-- > 1;) {
        uint32_t k = prng_below(p, 3) != 0 ? i : (uint32_t)prng_below(p, i + 1), swap = order[i];

        order[i] = order[k];
        order[k] = swap;
    }
    for (uint32_t i = box.ndim; i-- > 0;) {
        uint32_t d = order[i];
        int64_t length = box.lengths[d] > 0 ? box.lengths[d] : 1;

        out->strides[d] = stride;
        stride = stride * length + (prng_below(p, 4) == 0);
        if (prng_below(p, 6) == 0) {
            first += out->strides[d] * (length - 1);
            out->strides[d] = -out->strides[d];
        }
    }
    out->block = calloc((size_t)stride, item_bytes);
    assert_non_null(out->block);
    out->first = out->block + first * (int64_t)item_bytes;
}

/* Copy between a shard and the whole row-major tensor, one element at a time; or compare. */
enum walk { FROM_WHOLE, COMPARE };

static bool shard_walk(const struct shard *s, const int64_t *shape, unsigned char *whole,
                       size_t item_bytes, enum walk walk)
{
    int64_t at[TILING_NDIM] = {0};

    for (uint64_t left = box_volume(&s->box); left > 0; left--) {
        int64_t memory = 0, position = 0;

        for (uint32_t d = 0; d < s->box.ndim; d++) {
            memory += at[d] * s->strides[d];
            position = position * shape[d] + s->box.offsets[d] + at[d];
        }
        unsigned char *element = s->first + memory * (int64_t)item_bytes;
        unsigned char *original = whole + (size_t)position * item_bytes;
        if (walk == FROM_WHOLE)
            memcpy(element, original, item_bytes);
        else if (memcmp(element, original, item_bytes) != 0)
            return false;
        for (uint32_t d = s->box.ndim; d-- > 0;) {
            if (++at[d] < s->box.lengths[d])
                break;
            at[d] = 0;
        }
    }
    return true;
}

/* All bytes of a chunk in pieces of random length. */
static uint64_t move_in_pieces(struct prng *p, const struct box *chunk, uint64_t bytes,
                               unsigned char *file, const struct box_memory *memory,
                               enum box_direction direction)
{
    uint64_t moved = 0;

    for (uint64_t at = 0; at < bytes;) {
        uint64_t length = 1 + prng_below(p, prng_below(p, 3) == 0 ? bytes : 20);

        length = length < bytes - at ? length : bytes - at;
        moved += box_transfer(chunk, at, length, file + at, memory, direction);
        at += length;
    }
    return moved;
}

struct journey {
    enum sidestep_dtype dtype;
    size_t item_bytes;
    struct random_tiling saved;
    struct random_tiling wanted;
    unsigned char *whole;
    unsigned char *file; /* the chunks of ${saved}, one behind the other */
    struct shard shards[TILING_BOXES];
};

static void journey_save(struct prng *p, struct journey *j, struct metadata *m)
{
    struct box boxes[TILING_BOXES];

    for (size_t i = 0; i < j->saved.count; i++)
        boxes[i] = tiling_box(&j->saved, i);
    save_tensor(m, "w", j->dtype, j->saved.ndim, j->saved.shape, boxes, j->saved.count);
    PRNG_ASSERT(p, metadata_index(m, NULL) == SIDESTEP_OK);
    for (size_t i = 0; i < j->saved.count; i++) {
        const struct metadata_chunk *chunk = &m->entries[0].chunks[i];
        struct shard s;

        shard_open(p, chunk->box, j->item_bytes, &s);
        shard_walk(&s, j->saved.shape, j->whole, j->item_bytes, FROM_WHOLE);
        const struct box_memory memory = {s.box, s.strides, s.first, j->item_bytes};
        uint64_t moved = move_in_pieces(p, &chunk->box, chunk->storage.length,
                                        j->file + chunk->storage.offset, &memory, BOX_GATHER);
        PRNG_ASSERT(p, moved == chunk->storage.length);
        free(s.block);
    }
}

static void journey_load(struct prng *p, struct journey *j, const struct load_plan *plan)
{
    uint64_t moved = 0, last = 0;

    for (size_t i = 0; i < plan->count; i++) {
        const struct load_plan_chunk *chunk = &plan->chunks[i];

        PRNG_ASSERT(p, chunk->storage->offset >= last && chunk->target_count != 0);
        last = chunk->storage->offset;
        for (size_t k = 0; k < chunk->target_count; k++) {
            struct box_memory memory = state_entry_memory(chunk->targets[k]);
            uint64_t bytes = move_in_pieces(p, &chunk->box, chunk->storage->length,
                                            j->file + chunk->storage->offset, &memory, BOX_SCATTER);
            PRNG_ASSERT(p, bytes != 0);
            moved += bytes;
        }
    }
    PRNG_ASSERT(p, moved == plan->wanted_bytes);
    for (size_t i = 0; i < j->wanted.count; i++)
        PRNG_ASSERT(p, shard_walk(&j->shards[i], j->saved.shape, j->whole, j->item_bytes, COMPARE));
}

static void journey_want(struct prng *p, struct journey *j, struct sidestep_state_dict *state)
{
    for (size_t i = 0; i < j->wanted.count; i++) {
        struct shard *s = &j->shards[i];
        struct sidestep_tensor tensor = {
            .struct_size = sizeof(tensor), .name = "w", .dtype = j->dtype, .ndim = j->wanted.ndim};

        shard_open(p, tiling_box(&j->wanted, i), j->item_bytes, s);
        tensor.shape = j->wanted.shape, tensor.offsets = s->box.offsets;
        tensor.lengths = s->box.lengths, tensor.strides = s->strides, tensor.data = s->first;
        enum sidestep_status status = sidestep_state_dict_add_tensor(state, &tensor, NULL);
        /* Empty boxes may come twice; the state refuses the second. */
        PRNG_ASSERT(p, status == SIDESTEP_OK || box_volume(&s->box) == 0);
    }
}

static void any_sharding_loads_into_any_other(void **test)
{
    static const enum sidestep_dtype dtypes[] = {
        SIDESTEP_UINT8, SIDESTEP_BFLOAT16, SIDESTEP_FLOAT32, SIDESTEP_INT64, SIDESTEP_COMPLEX128};

    (void)test;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        struct prng p = prng_new(seed);
        struct metadata m = new_metadata();
        struct sidestep_state_dict *state = new_state();
        struct load_plan plan = {0};
        struct journey j = {.dtype = dtypes[prng_below(&p, ARRAY_LENGTH(dtypes))]};

        j.item_bytes = sidestep_dtype_size(j.dtype);
        tiling_random_shape(&p, &j.saved, (uint32_t)prng_below(&p, TILING_NDIM + 1), 7);
        j.wanted = j.saved;
        tiling_random_cuts(&p, &j.saved, prng_below(&p, TILING_BOXES));
        tiling_random_cuts(&p, &j.wanted, prng_below(&p, TILING_BOXES));
        struct box all = {j.saved.ndim, j.saved.shape, j.saved.shape};
        size_t bytes = box_volume(&all) * j.item_bytes;
        j.whole = malloc(bytes), j.file = calloc(bytes, 1);
        assert_true(j.whole != NULL && j.file != NULL);
        for (size_t i = 0; i < bytes; i++)
            j.whole[i] = (unsigned char)prng_next(&p);

        journey_save(&p, &j, &m);
        journey_want(&p, &j, state);
        PRNG_ASSERT(&p, load_plan_build(&m, state, &plan, NULL) == SIDESTEP_OK);
        PRNG_ASSERT(&p, plan.wanted_bytes == bytes);
        journey_load(&p, &j, &plan);
        for (size_t i = 0; i < j.wanted.count; i++)
            free(j.shards[i].block);
        free(j.whole);
        free(j.file);
        load_plan_release(&plan);
        metadata_release(&m);
        sidestep_state_dict_free(&state);
    }
}

/* One chunk is lost: a load fails if and only if it wanted something of it. */
static void lost_chunks_are_missed_by_those_who_want_them(void **test)
{
    unsigned failed = 0, fine = 0;

    (void)test;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        struct prng p = prng_new(seed);
        struct metadata m = new_metadata();
        struct sidestep_state_dict *state = new_state();
        struct load_plan plan = {0};
        struct random_tiling saved = {0}, wanted;
        int64_t offsets[TILING_NDIM], lengths[TILING_NDIM];
        struct box boxes[TILING_BOXES];

        tiling_random_shape(&p, &saved, (uint32_t)prng_between(&p, 1, TILING_NDIM), 6);
        wanted = saved;
        tiling_random_cuts(&p, &saved, TILING_BOXES);
        tiling_random_cuts(&p, &wanted, TILING_BOXES);
        for (size_t i = 0; i < saved.count; i++)
            boxes[i] = tiling_box(&saved, i);
        struct box lost = boxes[--saved.count];
        struct box box = tiling_box(&wanted, 0);
        save_tensor(&m, "w", SIDESTEP_UINT8, saved.ndim, saved.shape, boxes, saved.count);
        assert_int_equal(metadata_index(&m, NULL), SIDESTEP_OK);
        want(state, "w", SIDESTEP_UINT8, wanted.shape, &box, NULL, data);
        enum sidestep_status status = load_plan_build(&m, state, &plan, NULL);
        bool misses = box_intersect(&lost, &box, offsets, lengths);
        PRNG_ASSERT(&p, status == (misses ? SIDESTEP_ECORRUPT : SIDESTEP_OK));
        failed += misses;
        fine += !misses;
        load_plan_release(&plan);
        metadata_release(&m);
        sidestep_state_dict_free(&state);
    }
    assert_true(failed > 100 && fine > 100);
}

/* ---------------------------------------------------------------- many */

/* A grid of chunks and a grid of shards, shifted against each other. */
static void large_grids_meet_where_they_should(void **test)
{
    enum { SIDE = 64, CELL = 8 };
    struct metadata m = new_metadata();
    struct sidestep_state_dict *state = new_state();
    OWNED struct box *boxes = calloc(SIDE * SIDE, sizeof(*boxes));
    OWNED int64_t *offsets = calloc(SIDE * SIDE, 2 * sizeof(*offsets));
    const int64_t shape[] = {SIDE * CELL, SIDE * CELL}, cell[] = {CELL, CELL};
    struct load_plan plan;
    size_t targets = 0;

    (void)test;
    assert_true(boxes != NULL && offsets != NULL);
    for (int64_t i = 0; i < SIDE * SIDE; i++) {
        offsets[2 * i] = i / SIDE * CELL;
        offsets[2 * i + 1] = i % SIDE * CELL;
        boxes[i] = (struct box){2, offsets + 2 * i, cell};
    }
    save_tensor(&m, "w", SIDESTEP_FLOAT32, 2, shape, boxes, SIDE * SIDE);
    assert_int_equal(metadata_index(&m, NULL), SIDESTEP_OK);
    for (int64_t i = 0; i < (SIDE - 1) * (SIDE - 1); i++) {
        struct box box = {2, DIMS(i / (SIDE - 1) * CELL + 1, i % (SIDE - 1) * CELL + 1), cell};

        want(state, "w", SIDESTEP_FLOAT32, shape, &box, NULL, data);
    }
    assert_int_equal(load_plan_build(&m, state, &plan, NULL), SIDESTEP_OK);
    assert_int_equal(plan.count, SIDE * SIDE);
    for (size_t i = 0; i < plan.count; i++)
        targets += plan.chunks[i].target_count;
    assert_int_equal(targets, 4 * (SIDE - 1) * (SIDE - 1));
    load_plan_release(&plan);
    metadata_release(&m);
    sidestep_state_dict_free(&state);
}

static void every_allocation_may_fail(void **test)
{
    struct metadata m = new_metadata();
    struct sidestep_state_dict *state = new_state();

    (void)test;
    save_rows(&m, "w", 16, 2, 1);
    m.entries[0].chunk_count = 15;
    save_rows(&m, "v", 4, 2, 2);
    save_rows(&m, "other", 4, 2, 2);
    save_object(&m, "step");
    assert_int_equal(metadata_index(&m, NULL), SIDESTEP_OK);
    for (int64_t row = 0; row < 15; row++)
        want_rows(state, "w", row, row + 1, 16, 2);
    want_rows(state, "v", 0, 4, 4, 2);
    want_rows(state, "other", 0, 4, 5, 2);
    assert_int_equal(sidestep_state_dict_add_value(state, "step", NULL, 0, NULL, NULL), 0);
    for (unsigned long n = 1;; n++) {
        struct load_plan plan = {0};

        fault_arm("memory", n, false, ENOMEM);
        enum sidestep_status status = load_plan_build(&m, state, &plan, NULL);
        bool fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_int_equal(status, fired ? SIDESTEP_ENOMEM : SIDESTEP_OK);
        assert_int_equal(plan.count, fired ? 0 : 18);
        load_plan_release(&plan);
        if (!fired)
            break;
    }
    metadata_release(&m);
    sidestep_state_dict_free(&state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_sorted_out),
        cmocka_unit_test(chunks_come_in_file_order),
        cmocka_unit_test(damaged_metadata_is_refused),
        cmocka_unit_test(chunks_without_storage_are_refused_if_needed),
        cmocka_unit_test(expanded_shards_are_refused),
        cmocka_unit_test(any_sharding_loads_into_any_other),
        cmocka_unit_test(lost_chunks_are_missed_by_those_who_want_them),
        cmocka_unit_test(large_grids_meet_where_they_should),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
