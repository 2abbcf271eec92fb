/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plan.c -- measures the time that rank 0 needs to plan and to commit a save by many ranks of 1,000
 * small tensors each: 64 ranks in the part `plan`, and more in the part `scale` (scale.c).
 *
 * On one machine the ranks would compete for processors. So this part calls functions of the
 * library directly, one rank after the other. It writes and seals the shards of the other ranks.
 * Then it times the work of rank 0: on the caller's thread, which stops the trainer, and in the
 * background (collect, publish, commit). Collectives belong to the host program and are not
 * measured.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/owned.h"
#include "base/random.h"
#include "commit/commit.h"
#include "save/pipeline.h"
#include "plan/save_plan.h"
#include "snapshot/image.h"

#define TENSORS 1000
#define COLUMNS 8
#define MEMORY_FACTOR 16

struct plan_bench {
    unsigned ranks;
    int tensors;                         /* number of tensors of each rank */
    struct sidestep_state_dict **states; /* one for each rank, as the next four */
    struct buffer *tables;
    const void **starts; /* of the tables */
    size_t *lengths;     /* of the tables */
    size_t *sizes;       /* of the plans */
    struct buffer plans;
    uint64_t digest;       /* of rank 0's layout */
    struct save_plan plan; /* of rank 0 */
    struct image image;
    float data[COLUMNS];
    char path[4096];
};

static struct sidestep_state_dict *make_state(struct plan_bench *p, int64_t rank)
{
    struct sidestep_state_dict *state = NULL;
    struct sidestep_error err = {0};
    char name[64];

    bench_check(sidestep_state_dict_new(&state, &err), &err);
    for (int i = 0; i < p->tensors; i++) {
        struct sidestep_tensor tensor = {
            .struct_size = sizeof(tensor),
            .name = name,
            .dtype = SIDESTEP_FLOAT32,
            .ndim = 2,
            .shape = (int64_t[]){p->ranks, COLUMNS},
            .offsets = (int64_t[]){rank, 0},
            .lengths = (int64_t[]){1, COLUMNS},
            .data = p->data,
        };
        snprintf(name, sizeof(name), "model.layers.%d.mlp.weight.%d", i / 12, i);
        bench_check(sidestep_state_dict_add_tensor(state, &tensor, &err), &err);
    }
    return state;
}

/* Do and time rank 0's part of planning. It has received the other ranks' tables. */
static double plan_anew(struct plan_bench *p)
{
    struct sidestep_error err = {0};
    double began = bench_now();

    save_plan_release(&p->plan);
    image_release(&p->image);
    buffer_release(&p->plans);
    buffer_release(&p->tables[0]);
    p->digest = save_plan_digest(p->states[0]);
    bench_check(save_plan_table_encode(p->states[0], NULL, &p->tables[0], &err), &err);
    for (unsigned r = 0; r < p->ranks; r++) {
        p->starts[r] = p->tables[r].bytes;
        p->lengths[r] = p->tables[r].length;
    }
    bench_check(save_plan_build(p->starts, p->lengths, p->ranks, NULL, &p->plans, p->sizes, &err),
                &err);
    bench_check(save_plan_decode(p->plans.bytes, p->sizes[0], p->states[0], &p->plan, &err), &err);
    bench_check(image_build(&p->image, &p->plan, p->states[0], &err), &err);
    bench_check(image_bind(&p->image, &p->plan, p->states[0], &err), &err);
    return bench_now() - began;
}

/* The same if no rank's layout has changed. */
static double plan_reused(struct plan_bench *p)
{
    struct sidestep_error err = {0};
    double began = bench_now();

    if (save_plan_digest(p->states[0]) != p->digest)
        bench_die("the digest of an unchanged layout differs");
    bench_check(image_bind(&p->image, &p->plan, p->states[0], &err), &err);
    return bench_now() - began;
}

static const struct store_queue_config one_at_a_time = {.depth = 1};

static void write_shard(struct plan_bench *p, struct commit *commit, struct image *image)
{
    struct sidestep_error err = {0};
    struct store_file *file = NULL;
    struct pipeline pipeline;
    struct workers *none = NULL;
    struct pipeline_writers writers = {.config = &one_at_a_time, .threads = 1};
    struct pool pool = {0};
    OWNED_BUFFER bytes = {0};
    OWNED struct footer_item *items = memory_new(image->count, sizeof(*items));

    bench_check(workers_new(0, "none", &none, &err), &err);
    writers.workers = none;
    bench_check(pool_reserve(&pool, pipeline_full_pool_bytes(image), none, &err), &err);
    bench_check(pipeline_init(&pipeline, image, &pool, pool.length, &err), &err);
    pipeline_stage(&pipeline, none);
    bench_check(commit_shard_create(commit, 0, 0, &file, &err), &err);
    bench_check(pipeline_write(&pipeline, file, &writers, &err), &err);
    for (size_t i = 0; i < image->count; i++)
        items[i] = image->items[i].footer;
    struct footer footer = {.rank = commit->rank,
                            .shard_count = 1,
                            .world_size = p->ranks,
                            .layout_digest = p->plan.global_digest,
                            .count = image->count,
                            .items = items};
    memcpy(footer.save_id, commit->save_id_bytes, SAVE_ID_BYTES);
    bench_check(footer_encode(&footer, image->body_bytes, &bytes, &err), &err);
    bench_check(store_file_write_at(file, bytes.bytes, bytes.length, image->body_bytes, &err),
                &err);
    bench_check(commit_shard_seal(commit, 0, file, &err), &err);
    bench_check(commit_vote_yes(commit, &err), &err);
    pipeline_release(&pipeline);
    pool_release(&pool);
    workers_free(&none);
}

static void open_commit(struct plan_bench *p, struct commit *commit, unsigned rank)
{
    struct sidestep_error err = {0};

    *commit = (struct commit){.store = store_posix(),
                              .clock = clock_system(),
                              .rank = rank,
                              .world_size = p->ranks,
                              .request.timeout_ns = 60000000000u,
                              .request.step = -1,
                              .layout_digest = p->plan.global_digest};
    bench_check(commit_open(commit, p->path, &err), &err);
}

/* Write the shards and votes of all other ranks. */
static void write_others(struct plan_bench *p, const struct commit *first)
{
    struct sidestep_error err = {0};
    const uint8_t *at = p->plans.bytes + p->sizes[0];

    for (unsigned r = 1; r < p->ranks; at += p->sizes[r++]) {
        struct save_plan plan = {0};
        struct image image = {0};
        struct commit commit;
        bench_check(save_plan_decode(at, p->sizes[r], p->states[r], &plan, &err), &err);
        bench_check(image_build(&image, &plan, p->states[r], &err), &err);
        bench_check(image_bind(&image, &plan, p->states[r], &err), &err);
        open_commit(p, &commit, r);
        commit_set_save_id(&commit, first->save_id_bytes);
        bench_check(commit_join(&commit, &err), &err);
        write_shard(p, &commit, &image);
        commit_close(&commit);
        image_release(&image);
        save_plan_release(&plan);
    }
}

/* What collect, publish and commit took. */
struct commit_cost {
    double seconds, cpu, extra_bytes;
    uint64_t metadata_bytes; /* of the file .metadata */
};
static struct commit_cost commit_all(struct plan_bench *p)
{
    struct commit_cost took;
    struct sidestep_error err = {0};
    struct commit_contents contents = {0};
    enum commit_outcome outcome;
    struct commit commit;
    char path[4200];
    uint8_t id[SAVE_ID_BYTES];

    bench_check(random_bytes(id, sizeof(id), &err), &err);
    open_commit(p, &commit, 0);
    bench_check(commit_begin(&commit, id, &err), &err);
    write_others(p, &commit);
    write_shard(p, &commit, &p->image);
    bench_peak_reset();
    uint64_t before = bench_resident_bytes();
    double began = bench_now(), cpu = bench_cpu();
    bench_check(commit_collect_votes(&commit, &contents, &err), &err);
    bench_check(commit_publish(&commit, &contents, &outcome, &err), &err);
    commit_contents_release(&contents);
    took.seconds = bench_now() - began;
    took.cpu = bench_cpu() - cpu;
    uint64_t peak = bench_peak_bytes();
    took.extra_bytes = (double)(peak > before ? peak - before : 0);
    commit_close(&commit);
    snprintf(path, sizeof(path), "%s/.metadata", p->path);
    took.metadata_bytes = bench_file_bytes(path);
    return took;
}

/* "plan + commit, 64 x 1,000 tensors, ${how}" */
static const char *label(const struct bench_plan_size *size, const char *how, char text[64])
{
    snprintf(text, 64, "plan + commit, %u x 1,000 tensors, %s", size->ranks, how);
    return text;
}

static void measure(const struct bench *bench, const struct bench_plan_size *size,
                    struct plan_bench *p)
{
    char same[64], anew[64];
    struct bench_row rows[] = {
        {.what = label(size, "same layout", same), .kind = BENCH_DURATION, .goal = size->goal_same},
        {.what = label(size, "new layout", anew), .kind = BENCH_DURATION, .goal = size->goal_new},
        {.what = "... of which on the caller's thread, same layout", .kind = BENCH_DURATION},
        {.what = "... of which on the caller's thread, new layout", .kind = BENCH_DURATION},
        {.what = "processor time of that commit", .kind = BENCH_DURATION},
        {.what = "memory of that commit", .kind = BENCH_MEMORY, .goal = size->goal_memory},
    };
    struct commit_cost took = {0};

    for (unsigned i = 0; i < bench->runs; i++) {
        double fresh = plan_anew(p), reused = plan_reused(p);
        took = commit_all(p);
        bench_remove(p->path);
        bench_add(&rows[0].ours, reused + took.seconds);
        bench_add(&rows[1].ours, fresh + took.seconds);
        bench_add(&rows[2].ours, reused);
        bench_add(&rows[3].ours, fresh);
        bench_add(&rows[4].ours, took.cpu);
        bench_add(&rows[5].ours, took.extra_bytes);
    }
    if (size->goal_memory == 0)
        rows[5].goal = (double)((64u << 20) + MEMORY_FACTOR * took.metadata_bytes);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        bench_report(&rows[i]);
}

static void *new_array(size_t count, size_t size)
{
    void *array = calloc(count, size);

    if (array == NULL)
        bench_die("out of memory");
    return array;
}

static struct plan_bench *plan_bench_new(const char *path, unsigned ranks, int tensors)
{
    struct plan_bench *p = new_array(1, sizeof(*p));
    struct sidestep_error err = {0};

    p->ranks = ranks;
    p->tensors = tensors;
    p->states = new_array(ranks, sizeof(struct sidestep_state_dict *));
    p->tables = new_array(ranks, sizeof(*p->tables));
    p->starts = new_array(ranks, sizeof(void *));
    p->lengths = new_array(ranks, sizeof(*p->lengths));
    p->sizes = new_array(ranks, sizeof(*p->sizes));
    snprintf(p->path, sizeof(p->path), "%s", path);
    for (unsigned r = 0; r < ranks; r++) {
        p->states[r] = make_state(p, r);
        bench_check(save_plan_table_encode(p->states[r], NULL, &p->tables[r], &err), &err);
    }
    return p;
}

static void plan_bench_free(struct plan_bench *p)
{
    for (unsigned r = 0; r < p->ranks; r++) {
        sidestep_state_dict_free(&p->states[r]);
        buffer_release(&p->tables[r]);
    }
    save_plan_release(&p->plan);
    image_release(&p->image);
    buffer_release(&p->plans);
    free(p->states);
    free(p->tables);
    free(p->starts);
    free(p->lengths);
    free(p->sizes);
    free(p);
}

void bench_plan_ranks(const struct bench *bench, const struct bench_plan_size *size)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/checkpoint", bench->dir);
    struct plan_bench *p = plan_bench_new(path, size->ranks, TENSORS);
    measure(bench, size, p);
    plan_bench_free(p);
}

void bench_plan_save(const char *path, unsigned ranks, unsigned tensors)
{
    struct plan_bench *p = plan_bench_new(path, ranks, (int)tensors);

    (void)plan_anew(p);
    (void)commit_all(p);
    plan_bench_free(p);
}

void bench_plan(const struct bench *bench)
{
    bench_plan_ranks(bench,
                     &(struct bench_plan_size){.ranks = 64, .goal_same = 0.1, .goal_new = 0.5});
}
