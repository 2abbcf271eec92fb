/* SPDX-License-Identifier: BSD-3-Clause */
/* save_plan_test.c -- makes plans from the states of several ranks. */
#include <errno.h>

#include "base/fault.h"
#include "base/owned.h"
#include "plan/save_plan.h"
#include "plan/tiling.h"
#include "support/plan_world.h"
#include "support/prng.h"
#include "support/tilings.h"
#include "support/unit.h"

#define MEMORY ((void *)0x10000) /* an address that plans do not use */

/* ---------------------------------------------------------------- rules */

TEST(each_box_has_one_writer)
{
    struct plan_world w;

    plan_world_open(&w, 3);
    for (uint32_t r = 0; r < 3; r++) {
        plan_world_add_object(&w, r, "step");
        plan_world_add_rows(&w, r, "sharded", r * 2, r * 2 + 2, 6, 4, 0);
        plan_world_add_rows(&w, r, "plain", 0, 5, 5, 2, 0);
        plan_world_add_rows(&w, r, "replicated", 0, 5, 5, 2, SIDESTEP_TENSOR_REPLICATED);
        plan_world_add_rows(&w, r, "mixed", 0, 5, 5, 2, r == 1 ? 0 : SIDESTEP_TENSOR_REPLICATED);
    }
    plan_world_add_object(&w, 2, "late");
    assert_int_equal(plan_world_plan(&w, NULL), SIDESTEP_OK);
    for (uint32_t r = 0; r < 3; r++) {
        const struct save_plan_item *item = plan_world_find(&w, r, "sharded");

        assert_non_null(item);
        assert_int_equal(item->box.offsets[0], r * 2);
        assert_memory_equal(item->box.lengths, DIMS(2, 4), 16);
        assert_int_equal(plan_world_find(&w, r, "plain") != NULL, r == 0);
        assert_int_equal(plan_world_find(&w, r, "mixed") != NULL, r == 0);
        assert_int_equal(plan_world_find(&w, r, "step") != NULL, r == 0);
        assert_int_equal(plan_world_find(&w, r, "late") != NULL, r == 2);
        assert_int_equal(plan_world_find(&w, r, "replicated") != NULL,
                         r == 1); /* rank 0 has more */
        assert_int_equal(w.plans[r].global_digest, w.plans[0].global_digest);
    }
    assert_true(w.plans[0].global_digest != 0);
    /* Tensors as in the state, then objects. */
    assert_int_equal(w.plans[0].count, 4);
    assert_int_equal(w.plans[0].items[0].entry, 1);
    assert_int_equal(w.plans[0].items[1].entry, 2);
    assert_int_equal(w.plans[0].items[2].entry, 4);
    assert_int_equal(w.plans[0].items[3].entry, 0);
    plan_world_close(&w);
}

TEST(empty_tensors_are_written_once_and_empty_boxes_not)
{
    struct plan_world w;

    plan_world_open(&w, 3);
    plan_world_add_rows(&w, 0, "w", 0, 1, 2, 4, 0);
    plan_world_add_rows(&w, 1, "w", 1, 2, 2, 4, 0);
    plan_world_add_rows(&w, 2, "w", 2, 2, 2, 4, 0);
    plan_world_add_rows(&w, 1, "empty", 0, 0, 0, 4, 0);
    plan_world_add_rows(&w, 2, "empty", 0, 0, 0, 4, SIDESTEP_TENSOR_REPLICATED);
    assert_int_equal(plan_world_plan(&w, NULL), SIDESTEP_OK);
    assert_int_equal(w.plans[0].count, 1);
    assert_int_equal(w.plans[1].count, 2);
    assert_int_equal(w.plans[2].count, 0);
    assert_non_null(plan_world_find(&w, 1, "empty"));
    plan_world_close(&w);
    plan_world_open(&w, 2); /* the lowest rank, whatever box it has */
    for (uint32_t r = 0; r < 2; r++)
        plan_world_add(&w, r, "empty", SIDESTEP_INT8, &(struct box){2, DIMS(0, 1 - r), DIMS(0, 1)},
                       DIMS(0, 2), 0);
    assert_int_equal(plan_world_plan(&w, NULL), SIDESTEP_OK);
    assert_int_equal(w.plans[0].count, 1);
    assert_int_equal(w.plans[1].count, 0);
    plan_world_close(&w);
    plan_world_open(&w, 2); /* nothing at all */
    assert_int_equal(plan_world_plan(&w, NULL), SIDESTEP_OK);
    assert_int_equal(w.plans[1].count, 0);
    plan_world_close(&w);
}

/* Replicate ${rows} of ${row_bytes} on 4 ranks, and return how many each rank writes. */
static void check_split(int64_t rows, int64_t row_bytes, const int64_t *wanted)
{
    struct plan_world w;
    int64_t begin = 0;

    plan_world_open(&w, 4);
    for (uint32_t r = 0; r < 4; r++) {
        struct box box = {3, DIMS(0, 0, 0), DIMS(1, rows, row_bytes)};

        plan_world_add(&w, r, "big", SIDESTEP_UINT8, &box, box.lengths, SIDESTEP_TENSOR_REPLICATED);
    }
    assert_int_equal(plan_world_plan(&w, NULL), SIDESTEP_OK);
    for (uint32_t r = 0; r < 4; r++) {
        const struct save_plan_item *item = plan_world_find(&w, r, "big");

        assert_int_equal(item != NULL, wanted[r] != 0);
        if (item == NULL)
            continue;
        assert_memory_equal(item->box.offsets, DIMS(0, begin, 0), 24);
        assert_memory_equal(item->box.lengths, DIMS(1, wanted[r], row_bytes), 24);
        begin += wanted[r];
    }
    assert_int_equal(begin, rows);
    plan_world_close(&w);
}

TEST(large_replicas_are_written_in_parts)
{
    const int64_t mib = 1 << 20, split = (int64_t)PLAN_SPLIT_BYTES;

    check_split(16, mib, DIMS(4, 4, 4, 4));
    check_split(18, mib, DIMS(5, 5, 4, 4));
    check_split(8, mib, DIMS(8, 0, 0, 0)); /* not larger than the limit */
    check_split(9, mib, DIMS(5, 4, 0, 0)); /* parts have at least half of it */
    check_split(12, mib, DIMS(4, 4, 4, 0));
    check_split(3, split, DIMS(1, 1, 1, 0)); /* no more parts than rows */
    check_split(2, 3 * split, DIMS(1, 1, 0, 0));
}

/* A large box goes to the rank with the fewest bytes, and small ones balance the rest. */
TEST(bytes_are_balanced)
{
    struct plan_world w;
    uint64_t load[4] = {0};
    char name[16];

    plan_world_open(&w, 4);
    for (uint32_t r = 0; r < 4; r++)
        for (int i = 0; i < 40; i++) {
            snprintf(name, sizeof(name), "w%d", i);
            plan_world_add_rows(&w, r, name, 0, 1 + i, 1 + i, 1024, SIDESTEP_TENSOR_REPLICATED);
        }
    plan_world_add_rows(&w, 3, "own", 0, 100, 100, 1024, 0);
    assert_int_equal(plan_world_plan(&w, NULL), SIDESTEP_OK);
    for (uint32_t r = 0; r < 4; r++)
        for (size_t i = 0; i < w.plans[r].count; i++)
            load[r] += box_volume(&w.plans[r].items[i].box) / 1024;
    uint64_t total = load[0] + load[1] + load[2] + load[3];
    assert_int_equal(total, 40 * 41 / 2 + 100);
    for (uint32_t r = 0; r < 4; r++)
        assert_true(load[r] >= total / 4 - 2 && load[r] <= total / 4 + 2);
    plan_world_close(&w);
}

/* Parts of a large box go to the ranks with the fewest bytes. */
TEST(parts_go_to_idle_ranks)
{
    struct plan_world w;

    plan_world_open(&w, 4);
    plan_world_add_rows(&w, 0, "busy0", 0, 64, 64, 1 << 18, 0);
    plan_world_add_rows(&w, 2, "busy2", 0, 64, 64, 1 << 18, 0);
    for (uint32_t r = 0; r < 4; r++)
        plan_world_add_rows(&w, r, "big", 0, 10, 10, 1 << 18, SIDESTEP_TENSOR_REPLICATED);
    assert_int_equal(plan_world_plan(&w, NULL), SIDESTEP_OK);
    assert_null(plan_world_find(&w, 0, "big"));
    assert_null(plan_world_find(&w, 2, "big"));
    assert_memory_equal(plan_world_find(&w, 1, "big")->box.lengths, DIMS(5, 1 << 18), 16);
    assert_memory_equal(plan_world_find(&w, 3, "big")->box.offsets, DIMS(5, 0), 16);
    plan_world_close(&w);

    plan_world_open(&w, 4); /* rows are in the order of the ranks, whatever their loads */
    plan_world_add_rows(&w, 0, "busy0", 0, 64, 64, 1 << 18, 0);
    plan_world_add_rows(&w, 1, "busy1", 0, 1, 1, 1 << 18, 0);
    plan_world_add_rows(&w, 2, "busy2", 0, 64, 64, 1 << 18, 0);
    for (uint32_t r = 0; r < 4; r++)
        plan_world_add_rows(&w, r, "big", 0, 10, 10, 1 << 18, SIDESTEP_TENSOR_REPLICATED);
    assert_int_equal(plan_world_plan(&w, NULL), SIDESTEP_OK);
    assert_memory_equal(plan_world_find(&w, 1, "big")->box.offsets, DIMS(0, 0), 16);
    assert_memory_equal(plan_world_find(&w, 3, "big")->box.offsets, DIMS(5, 0), 16);
    plan_world_close(&w);

    plan_world_open(&w, 3); /* parts count as load, too */
    plan_world_add_rows(&w, 0, "big", 0, 10, 10, 1 << 18, SIDESTEP_TENSOR_REPLICATED);
    plan_world_add_rows(&w, 1, "big", 0, 10, 10, 1 << 18, SIDESTEP_TENSOR_REPLICATED);
    for (uint32_t r = 0; r < 3; r++)
        plan_world_add_rows(&w, r, "small", 0, 1, 1, 4, SIDESTEP_TENSOR_REPLICATED);
    assert_int_equal(plan_world_plan(&w, NULL), SIDESTEP_OK);
    assert_non_null(plan_world_find(&w, 2, "small"));
    plan_world_close(&w);
}

/* Bytes that rank ${rank} writes. */
static uint64_t written_by(const struct plan_world *w, uint32_t rank)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < w->plans[rank].count; i++)
        bytes += 4 * box_volume(&w->plans[rank].items[i].box);
    return bytes;
}

/* The ranks of a host share one link.  So a host of three ranks writes as much as one of one. */
TEST(hosts_are_balanced_before_ranks)
{
    static const uint32_t hosts[] = {0, 0, 0, 1}, pairs[] = {0, 0, 1, 1};
    const uint64_t mib = 1 << 20;
    struct plan_world w;
    char name[16];

    plan_world_open(&w, 4);
    w.hosts = hosts;
    for (uint32_t r = 0; r < 4; r++)
        plan_world_add_rows(&w, r, "big", 0, 96, 96, 1 << 18, SIDESTEP_TENSOR_REPLICATED);
    assert_int_equal(plan_world_plan(&w, NULL), SIDESTEP_OK);
    for (uint32_t r = 0; r < 4; r++)
        assert_int_equal(written_by(&w, r), (r == 3 ? 48 : 16) * mib);
    plan_world_close(&w);

    plan_world_open(&w, 4); /* small boxes */
    w.hosts = hosts;
    for (uint32_t r = 0; r < 4; r++)
        for (int i = 0; i < 60; i++) {
            snprintf(name, sizeof(name), "w%d", i);
            plan_world_add_rows(&w, r, name, 0, 1, 1, 1024, SIDESTEP_TENSOR_REPLICATED);
        }
    assert_int_equal(plan_world_plan(&w, NULL), SIDESTEP_OK);
    for (uint32_t r = 0; r < 4; r++)
        assert_int_equal(written_by(&w, r), (r == 3 ? 30 : 10) * 4096);
    plan_world_close(&w);

    plan_world_open(&w, 4); /* what one rank has alone counts for its host */
    w.hosts = pairs;
    plan_world_add_rows(&w, 0, "own", 0, 64, 64, 1 << 18, 0);
    for (uint32_t r = 0; r < 4; r++)
        plan_world_add_rows(&w, r, "big", 0, 64, 64, 1 << 18, SIDESTEP_TENSOR_REPLICATED);
    assert_int_equal(plan_world_plan(&w, NULL), SIDESTEP_OK);
    assert_null(plan_world_find(&w, 1, "big"));
    for (uint32_t r = 2; r < 4; r++)
        assert_int_equal(written_by(&w, r), 32 * mib);
    plan_world_close(&w);
}

/* Parts are as large as the loads ask for, and not equal. */
TEST(parts_level_loads)
{
    const uint64_t mib = 1 << 20;
    struct plan_world w;

    plan_world_open(&w, 4);
    plan_world_add_rows(&w, 0, "own", 0, 40, 40, 1 << 18, 0);
    plan_world_add_rows(&w, 2, "less", 0, 10, 10, 1 << 18, 0);
    for (uint32_t r = 0; r < 4; r++)
        plan_world_add_rows(&w, r, "big", 0, 130, 130, 1 << 18, SIDESTEP_TENSOR_REPLICATED);
    assert_int_equal(plan_world_plan(&w, NULL), SIDESTEP_OK);
    for (uint32_t r = 0; r < 4; r++)
        assert_int_equal(written_by(&w, r), 45 * mib);
    plan_world_close(&w);
}

/* ---------------------------------------------------------------- disagreements */

static void fails_with(struct plan_world *w, const char *words)
{
    struct sidestep_error err = {0};

    assert_int_equal(plan_world_plan(w, &err), SIDESTEP_EINVAL);
    if (strstr(err.message, words) == NULL)
        fail_msg("'%s' lacks '%s'", err.message, words);
    plan_world_close(w);
}

TEST(disagreements_name_tensor_and_ranks)
{
    struct plan_world w;

    plan_world_open(&w, 4);
    plan_world_add_rows(&w, 1, "w", 0, 2, 4, 4, 0);
    plan_world_add_rows(&w, 3, "w", 2, 4, 4, 5, 0);
    fails_with(&w, "'w' has the shape [4,4] on rank 1, but [4,5] on rank 3");

    plan_world_open(&w, 2);
    plan_world_add_rows(&w, 0, "w", 0, 2, 4, 4, 0);
    plan_world_add(&w, 1, "w", SIDESTEP_BFLOAT16, &(struct box){2, DIMS(2, 0), DIMS(2, 4)},
                   DIMS(4, 4), 0);
    fails_with(&w, "'w' is float32 on rank 0, but bfloat16 on rank 1");

    plan_world_open(&w, 3);
    plan_world_add_rows(&w, 1, "w", 0, 4, 4, 4, 0);
    plan_world_add_object(&w, 2, "w");
    fails_with(&w, "'w' is a tensor on rank 1, but an object on rank 2");

    plan_world_open(&w, 3);
    plan_world_add_rows(&w, 0, "w", 0, 2, 4, 4, 0);
    plan_world_add_rows(&w, 1, "w", 1, 3, 4, 4, 0);
    plan_world_add_rows(&w, 2, "w", 3, 4, 4, 4, 0);
    fails_with(&w, "'w': the box [1:3,0:4] of rank 1 overlaps the box [0:2,0:4] of rank 0");

    plan_world_open(&w, 3);
    plan_world_add_rows(&w, 1, "w", 0, 2, 4, 4, 0);
    plan_world_add_rows(&w, 2, "w", 3, 4, 4, 4, 0);
    fails_with(&w, "'w': the boxes of all ranks leave gaps in the shape [4,4] (the lowest rank "
                   "that lists it is 1)");
}

TEST(world_sizes_are_limited)
{
    struct sidestep_error err = {0};
    struct buffer out = {0};

    assert_int_equal(save_plan_build(NULL, NULL, 0, NULL, &out, NULL, &err), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "0 ranks; the limits are 1 and 1048576"));
    assert_int_equal(save_plan_build(NULL, NULL, SIDESTEP_MAX_RANKS + 1, NULL, &out, NULL, &err),
                     SIDESTEP_EINVAL);
}

/* ---------------------------------------------------------------- any layout */

static uint32_t random_world(struct prng *p, struct plan_world *w, struct random_tiling *tensors,
                             uint32_t count)
{
    char name[8];

    plan_world_open(w, 1 + (uint32_t)prng_below(p, PLAN_WORLD_MAX));
    for (uint32_t k = 0; k < count; k++) {
        struct random_tiling *t = &tensors[k];
        bool large = prng_below(p, 3) == 0;

        tiling_random_shape(p, t, (uint32_t)prng_below(p, TILING_NDIM + 1), large ? 1000 : 5);
        tiling_random_cuts(p, t, prng_below(p, 6));
        snprintf(name, sizeof(name), "t%u", k);
        for (size_t i = 0; i < t->count; i++) { /* each box on one rank at least */
            uint32_t must = (uint32_t)prng_below(p, w->size);
            uint32_t flags = prng_below(p, 2) != 0 ? SIDESTEP_TENSOR_REPLICATED : 0;
            struct box box = tiling_box(t, i);

            for (size_t other = 0; other < i; other++) { /* empty boxes may be the same twice */
                struct box earlier = tiling_box(t, other);

                if (box_equal(&box, &earlier))
                    must = UINT32_MAX;
            }
            for (uint32_t r = 0; must != UINT32_MAX && r < w->size; r++)
                if (r == must || prng_below(p, 3) == 0)
                    plan_world_add(w, r, name, SIDESTEP_FLOAT64, &box, t->shape,
                                   prng_below(p, 20) != 0 ? flags : 0);
        }
    }
    for (uint32_t r = 0; r < w->size; r++)
        if (prng_below(p, 2) == 0)
            plan_world_add_object(w, r, "object");
    return w->size;
}

/* What all ranks together write of one tensor, and who might have. */
static void check_tensor(struct prng *p, const struct plan_world *w, const char *name,
                         const struct random_tiling *t)
{
    struct box parts[TILING_BOXES * PLAN_WORLD_MAX];
    enum tiling_result result;
    size_t count = 0;

    for (uint32_t r = 0; r < w->size; r++)
        for (size_t i = 0; i < w->plans[r].count; i++) {
            const struct save_plan_item *item = &w->plans[r].items[i];

            if (strcmp(w->states[r]->entries[item->entry].name, name) == 0)
                parts[count++] = item->box;
        }
    PRNG_ASSERT(p, tiling_check(t->ndim, t->shape, parts, count, &result, NULL, NULL) == 0);
    PRNG_ASSERT(p, result == TILING_EXACT);
    for (size_t i = 0; i < count; i++)
        PRNG_ASSERT(p, box_volume(&parts[i]) != 0);
}

/* Does a lower rank list this very box? And all who do, declare it replicated? */
static void check_writer(struct prng *p, const struct plan_world *w, uint32_t rank,
                         const struct state_entry *mine, const struct box *part)
{
    bool lower = false, replicated = true;

    for (uint32_t r = 0; r < w->size; r++) {
        const struct state_entry *entry = state_dict_find(w->states[r], mine->name);

        while (entry != NULL && !box_equal(&entry->box, &mine->box))
            entry = entry->next_same_name == SIZE_MAX
                        ? NULL
                        : &w->states[r]->entries[entry->next_same_name];
        if (entry == NULL)
            continue;
        lower = lower || r < rank;
        replicated = replicated && (entry->flags & SIDESTEP_TENSOR_REPLICATED) != 0;
    }
    PRNG_ASSERT(p, !lower || (replicated && !mine->is_object));
    PRNG_ASSERT(p, mine->is_object || replicated || box_equal(part, &mine->box));
    uint64_t bytes = mine->is_object ? 0 : 8 * box_volume(&mine->box);
    if (!mine->is_object && !box_equal(part, &mine->box))
        PRNG_ASSERT(p, bytes > PLAN_SPLIT_BYTES && 8 * box_volume(part) >= PLAN_SPLIT_BYTES / 2);
}

TEST(every_layout_is_written_exactly_once)
{
    enum { TENSORS = 5 };
    uint64_t splits = 0;

    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct prng p = prng_new(seed);
        struct random_tiling tensors[TENSORS] = {0};
        struct sidestep_error err = {0};
        struct plan_world w;
        char name[8];

        random_world(&p, &w, tensors, TENSORS);
        if (plan_world_plan(&w, &err) != SIDESTEP_OK)
            fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
        for (uint32_t k = 0; k < TENSORS; k++) {
            snprintf(name, sizeof(name), "t%u", k);
            check_tensor(&p, &w, name, &tensors[k]);
        }
        for (uint32_t r = 0; r < w.size; r++)
            for (size_t i = 0; i < w.plans[r].count; i++) {
                const struct save_plan_item *item = &w.plans[r].items[i];
                const struct state_entry *entry = &w.states[r]->entries[item->entry];

                check_writer(&p, &w, r, entry, &item->box);
                splits += !entry->is_object && !box_equal(&item->box, &entry->box);
            }
        /* The same tables make the same bytes. */
        OWNED_BY(buffer_release) struct buffer again = w.out;
        w.out = (struct buffer){0};
        PRNG_ASSERT(&p, plan_world_plan(&w, NULL) == SIDESTEP_OK);
        PRNG_ASSERT(&p, again.length == w.out.length &&
                            memcmp(again.bytes, w.out.bytes, again.length) == 0);
        plan_world_close(&w);
    }
    assert_true(splits > 50);
}

/* ---------------------------------------------------------------- digests */

static uint64_t digest_of(const struct sidestep_tensor *tensors, size_t count)
{
    struct sidestep_state_dict *state = NULL;

    assert_int_equal(sidestep_state_dict_new(&state, NULL), SIDESTEP_OK);
    for (size_t i = 0; i < count; i++) {
        struct sidestep_tensor t = tensors[i];

        t.struct_size = sizeof(t);
        t.data = t.data != NULL ? t.data : MEMORY;
        assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL), SIDESTEP_OK);
    }
    uint64_t digest = save_plan_digest(state);
    sidestep_state_dict_free(&state);
    return digest;
}

TEST(digests_tell_layouts_apart)
{
    const struct sidestep_path_item path[] = {{.key = "w"}, {.index = 1}},
                                    key[] = {{.key = "w"}, {.key = "1"}};
#define W .name = "w", .dtype = SIDESTEP_FLOAT32, .ndim = 2, .shape = DIMS(4, 4)
#define W1 .name = "w.1", .dtype = SIDESTEP_FLOAT32
    const struct sidestep_tensor layouts[] = {
        {W},
        {.name = "v", .dtype = SIDESTEP_FLOAT32, .ndim = 2, .shape = DIMS(4, 4)},
        {.name = "w", .dtype = SIDESTEP_INT32, .ndim = 2, .shape = DIMS(4, 4)},
        {.name = "w", .dtype = SIDESTEP_FLOAT32, .ndim = 2, .shape = DIMS(2, 8)},
        {.name = "w", .dtype = SIDESTEP_FLOAT32, .ndim = 1, .shape = DIMS(16)},
        {.name = "w", .dtype = SIDESTEP_FLOAT32},
        {W, .lengths = DIMS(2, 4)},
        {W, .lengths = DIMS(2, 4), .offsets = DIMS(2, 0)},
        {W, .flags = SIDESTEP_TENSOR_REPLICATED},
        {W, .flags = SIDESTEP_TENSOR_REQUIRES_GRAD},
        {W, .path = path, .path_length = 1, .flags = 3},
        {W1},
        {W1, .path = path, .path_length = 2},
        {W1, .path = key, .path_length = 2},
    };
    const struct sidestep_tensor same[] = {
        {W, .data = (void *)0x20000},
        {W, .strides = DIMS(1, 4)},
        {W, .offsets = DIMS(0, 0)},
        {W, .path = path, .path_length = 1},
    };
    const struct sidestep_tensor pair[] = {layouts[0], layouts[1]};
    const struct sidestep_tensor riap[] = {layouts[1], layouts[0]};

    for (size_t i = 0; i < ARRAY_LENGTH(layouts); i++)
        for (size_t k = 0; k < i; k++)
            assert_true(digest_of(&layouts[i], 1) != digest_of(&layouts[k], 1));
    for (size_t i = 0; i < ARRAY_LENGTH(same); i++)
        assert_true(digest_of(&same[i], 1) == digest_of(&layouts[0], 1));
    assert_true(digest_of(pair, 2) != digest_of(riap, 2));
    assert_true(digest_of(pair, 2) != digest_of(pair, 1));
    assert_true(digest_of(NULL, 0) != 0);
}

/* A name longer than the buffer in which the digest collects what it hashes. */
TEST(digests_cover_long_names_and_objects)
{
    struct sidestep_state_dict *a = NULL, *b = NULL;
    char name[SIDESTEP_MAX_NAME + 1];

    memset(name, 'x', SIDESTEP_MAX_NAME);
    name[SIDESTEP_MAX_NAME] = '\0';
    assert_int_equal(sidestep_state_dict_new(&a, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_new(&b, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_add_bytes(a, name, NULL, 0, "one", 3, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_add_bytes(b, name, NULL, 0, "other", 5, NULL), 0);
    assert_true(save_plan_digest(a) == save_plan_digest(b)); /* contents are no layout */
    name[SIDESTEP_MAX_NAME - 1] = 'y';
    assert_int_equal(sidestep_state_dict_add_bytes(a, name, NULL, 0, "", 0, NULL), SIDESTEP_OK);
    name[SIDESTEP_MAX_NAME - 1] = 'z';
    assert_int_equal(sidestep_state_dict_add_bytes(b, name, NULL, 0, "", 0, NULL), SIDESTEP_OK);
    assert_true(save_plan_digest(a) != save_plan_digest(b));
    sidestep_state_dict_free(&a);
    sidestep_state_dict_free(&b);
}

/* The plan's digest covers what the tables do not spell out. */
TEST(paths_change_the_global_digest)
{
    uint64_t digests[2];

    for (int i = 0; i < 2; i++) {
        const struct sidestep_path_item whole[] = {{.key = "a.b"}},
                                        steps[] = {{.key = "a"}, {.key = "b"}};
        struct plan_world w;

        plan_world_open(&w, 2);
        assert_int_equal(sidestep_state_dict_add_bytes(w.states[1], "a.b", i == 0 ? whole : steps,
                                                       i == 0 ? 1 : 2, "x", 1, NULL),
                         0);
        assert_int_equal(plan_world_plan(&w, NULL), SIDESTEP_OK);
        digests[i] = w.plans[0].global_digest;
        plan_world_close(&w);
    }
    assert_true(digests[0] != digests[1]);
}

TEST(every_allocation_may_fail)
{
    struct plan_world w;

    plan_world_sample(&w);
    for (unsigned long n = 1;; n++) {
        struct sidestep_error err = {0};

        fault_arm("memory", n, false, ENOMEM);
        enum sidestep_status status = plan_world_plan(&w, &err);
        bool fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_int_equal(status, fired ? SIDESTEP_ENOMEM : SIDESTEP_OK);
        if (!fired)
            break;
    }
    plan_world_close(&w);
}
