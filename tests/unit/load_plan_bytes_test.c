/* SPDX-License-Identifier: BSD-3-Clause */
/* load_plan_bytes_test.c -- saves any sharding and loads it into any other, bit for bit. */
#include "base/owned.h"
#include "plan/load_plan.h"
#include "support/prng.h"
#include "support/saved.h"
#include "support/tilings.h"
#include "support/unit.h"

/* A shard with its own memory: any order of dimensions, gaps, negative strides. */
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
    unsigned char *file; /* the chunks of ${saved}, in a row */
    struct shard shards[TILING_BOXES];
};

static void journey_save(struct prng *p, struct journey *j, struct metadata *m)
{
    struct box boxes[TILING_BOXES];

    for (size_t i = 0; i < j->saved.count; i++)
        boxes[i] = tiling_box(&j->saved, i);
    save_tensor(m, "w", j->dtype, j->saved.ndim, j->saved.shape, boxes, j->saved.count);
    PRNG_ASSERT(p, metadata_index_names(m, NULL) == SIDESTEP_OK);
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

TEST(any_sharding_loads_into_any_other)
{
    static const enum sidestep_dtype dtypes[] = {
        SIDESTEP_UINT8, SIDESTEP_BFLOAT16, SIDESTEP_FLOAT32, SIDESTEP_INT64, SIDESTEP_COMPLEX128};

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
        PRNG_ASSERT(&p, load_plan_build(&m, state, false, &plan, NULL) == SIDESTEP_OK);
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

/* One chunk is lost. A load fails if and only if it needs the chunk. */
TEST(lost_chunks_fail_only_loads_that_need_them)
{
    unsigned failed = 0, fine = 0;

    for (uint64_t seed = 0; seed < 4000; seed++) {
        struct prng p = prng_new(seed);
        struct metadata m = new_metadata();
        struct sidestep_state_dict *state = new_state();
        struct load_plan plan = {0};
        struct random_tiling saved = {0}, wanted;
        static char memory[1296];
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
        assert_int_equal(metadata_index_names(&m, NULL), SIDESTEP_OK);
        want(state, "w", SIDESTEP_UINT8, wanted.shape, &box, NULL, memory);
        enum sidestep_status status = load_plan_build(&m, state, false, &plan, NULL);
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
