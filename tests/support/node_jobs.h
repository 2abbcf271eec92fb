/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_jobs.h -- for tests of a series whose root is a directory that each node has for itself,
 * with or without a mirror: jobs whose ranks are threads, and whose nodes are directories. Include
 * it after cmocka.h. Its variables belong to the program that includes it.
 */
#ifndef SUPPORT_NODE_JOBS_H
#define SUPPORT_NODE_JOBS_H

#include <dirent.h>
#include <sys/stat.h>

#include "base/base.h"
#include "engine/engine.h"
#include "object/object.h"
#include "sidestep/sidestep_tools.h"
#include "support/comm_threads.h"
#include "support/object_sim.h"
#include "support/scratch.h"
#include "support/unit.h"
#include "support/world.h"

static struct scratch scratch;

/* The fixture of each test. */
static inline int make_nodes(void **test UNUSED)
{
    return scratch_make(&scratch, NULL) ? 0 : -1;
}

static inline int tear_down(void **test UNUSED)
{
    fault_arm("", 0, false, 0);
    scratch_remove(&scratch);
    return 0;
}

/* Let ${trial} fail the first call of storage, then one ${stride} calls later, and so on, until
 * there is none. It makes its own nodes, and returns the point that failed. */
static inline void fail_at_each(const char *(*trial)(unsigned long nth, bool sticky), bool sticky,
                                unsigned long stride)
{
    unsigned long nth = 1;

    scratch_remove(&scratch);
    while (trial(nth, sticky) != NULL)
        nth += stride;
    assert_true(nth > 50);
}

/* What the ranks of a job do, and what came of it. */
struct job {
    int ranks;
    const char *nodes; /* per rank: the letter of its node, "aabb" */
    uint32_t keep_last;
    bool shared;        /* without SIDESTEP_SERIES_PER_NODE */
    bool background;    /* saves are not waited for */
    bool may_fail_save; /* a save that fails is no failure of the test */
    char tears;        /* on this node, something takes the name of a part meanwhile; 0: none ... */
    uint64_t tears_at; /* ... of the part of this step; 0: of each */
    bool resumes;
    int64_t back_to;    /* resume this step; -1: the newest */
    const char *mirror; /* NULL: there is none */
    const struct sidestep_mirror_options *to_mirror;
    struct object_bucket *bucket; /* s3://runs, of the mirror; NULL: there is none */
    int first_client;             /* of the bucket, with rank 0 */
    bool is_slow;                 /* saves are half a second apart */
    bool flushes;                 /* after each save */
    uint64_t saves[8];            /* steps; 0 ends */
    bool from_resumed;            /* these are added to the step that is resumed */
    unsigned attempt;             /* that of the job, which its contents tell; 0: all are equal */
    int dying_rank;               /* dies at its collective call ${dies_at} (0: none does) */
    unsigned long dies_at;
    void (*before)(uint64_t step); /* rank 0, before it saves this step, and before it closes (0) */
    /* The small files of each rank: gives them to a save, and looks at them where the step was
     * loaded. Each returns the number of failures. */
    int (*give)(int rank, uint64_t step, struct sidestep_state_dict *state);
    int (*look)(int rank, uint64_t step, const char *path);
    /* Results, of rank 0 */
    enum sidestep_status opened, resumed, saved, flushed, closed;
    uint64_t step;       /* that was resumed */
    unsigned resumed_of; /* the attempt that saved it */
    uint64_t last;       /* step that was saved; 0: none */
    char message[1024], rejected[2048], path[4096];
};

static inline const char *node_path(char node, const char *name)
{
    static _Thread_local char paths[4][256];
    static _Thread_local unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%c%s%s", scratch.path, node, name[0] != '\0' ? "/" : "",
             name);
    return path;
}

/* What attempt ${attempt} saves as ${step}. */
static inline uint64_t seed_of(uint64_t step, unsigned attempt)
{
    return step + 1000 * (uint64_t)attempt;
}

/* Which attempt saved the contents? -1: none did. */
static inline int find_attempt(const struct world *loaded, uint64_t step, unsigned last)
{
    for (unsigned attempt = 0; attempt <= last; attempt++)
        if (world_check(loaded, seed_of(step, attempt)) == 0)
            return (int)attempt;
    return -1;
}

static inline enum sidestep_status resume(struct sidestep_series *series, const struct job *job,
                                          int rank, uint64_t *step, char rejected[2048], int *of,
                                          struct sidestep_error *err)
{
    struct world loaded;
    enum sidestep_status status;

    world_make(&loaded, rank, job->ranks, WORLD_BY_ROWS, 1, true);
    if (job->back_to >= 0) {
        *step = (uint64_t)job->back_to;
        status = sidestep_series_load_step(series, *step, loaded.state, NULL, NULL, err);
    } else {
        status = sidestep_series_load(series, loaded.state, NULL, step, NULL, rejected, err);
    }
    *of = status == SIDESTEP_OK ? find_attempt(&loaded, *step, job->attempt) : 0;
    world_free(&loaded);
    return status;
}

/* Somebody makes a directory with the name of a step, which has a file. */
static inline void make_theirs(char node, uint64_t step)
{
    char name[32];

    snprintf(name, sizeof(name), "step-%llu", (unsigned long long)step);
    (void)mkdir(node_path(node, name), 0777);
    snprintf(name, sizeof(name), "step-%llu/theirs", (unsigned long long)step);
    (void)mkdir(node_path(node, name), 0777);
}

static inline enum sidestep_status save(struct sidestep_engine *engine,
                                        struct sidestep_series *series, const struct job *job,
                                        int rank, uint64_t step, struct sidestep_error *err)
{
    struct sidestep_save *save = NULL;
    struct world world;

    world_make(&world, rank, job->ranks, WORLD_BY_ROWS, 1, false);
    world_fill(&world, seed_of(step, job->attempt));
    if (job->give != NULL && job->give(rank, step, world.state) != 0)
        return FAIL(err, SIDESTEP_EINVAL, "the small files");
    bool tears = job->tears != 0 && job->tears == job->nodes[rank] &&
                 (job->tears_at == 0 || job->tears_at == step);
    if (tears)
        sidestep_engine_pause(engine);
    enum sidestep_status status =
        job->background ? sidestep_series_save_async(series, step, world.state, NULL, &save, err)
                        : sidestep_series_save(series, step, world.state, NULL, NULL, err);
    if (tears)
        make_theirs(job->tears, step);
    if (tears)
        sidestep_engine_resume(engine);
    if (status == SIDESTEP_OK && job->background)
        status = sidestep_save_finish(&save, NULL, err);
    world_free(&world);
    return status;
}

static inline bool add_bucket(struct sidestep_engine *engine, struct object_bucket *bucket,
                              int client, struct sidestep_error *err)
{
    struct store *store = NULL;

    return object_store_new("runs", object_sim_client(bucket, client), &store, err) ==
               SIDESTEP_OK &&
           buckets_add(&engine->buckets, store, err) == SIDESTEP_OK;
}

/* Does a rank know how many directories there are, and who leads? */
static inline bool is_told(struct sidestep_series *series, const struct job *job, int rank)
{
    struct sidestep_series_status status = {.struct_size = sizeof(status)};
    uint64_t directories = 0;

    for (int i = 0; i < job->ranks; i++)
        directories += strchr(job->nodes, job->nodes[i]) == &job->nodes[i];
    return sidestep_series_status(series, &status) == SIDESTEP_OK &&
           status.directories == directories &&
           status.leads == (strchr(job->nodes, job->nodes[rank]) == &job->nodes[rank]);
}

static inline int run_rank(struct sidestep_comm *comm, void *context)
{
    struct job *shared = context; /* rank 0 writes to it while others still run */
    const struct job asked = *shared, *job = &asked;
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = job->keep_last};
    struct sidestep_series_options options = {.struct_size = sizeof(options),
                                              .flags = job->shared ? 0 : SIDESTEP_SERIES_PER_NODE,
                                              .retention = job->keep_last != 0 ? &keep : NULL};
    struct sidestep_engine *engine = NULL;
    struct sidestep_series *series = NULL;
    struct sidestep_error err = {0};
    struct job mine = *job;
    int bad = 0, of = 0;

    options.mirror = job->mirror;
    options.mirror_options = job->to_mirror;
    mine.opened = comm_threads_open(comm, &engine, &err);
    EXPECT(mine.opened == SIDESTEP_OK || job->dies_at != 0);
    if (mine.opened != SIDESTEP_OK) { /* on each rank, or this one died and nobody waits for it */
        if (comm->rank == 0)
            shared->opened = shared->resumed = shared->saved = shared->closed = mine.opened;
        return bad;
    }
    EXPECT(job->bucket == NULL ||
           add_bucket(engine, job->bucket, job->first_client + comm->rank, &err));
    engine->timeout_ms = job->mirror != NULL ? 3000 : engine->timeout_ms;
    mine.opened = sidestep_series_open(engine, node_path(job->nodes[comm->rank], ""), &options,
                                       &series, &err);
    mine.resumed = mine.saved = mine.opened;
    EXPECT(mine.opened != SIDESTEP_OK || is_told(series, job, comm->rank));
    if (mine.opened == SIDESTEP_OK && job->resumes) {
        mine.resumed = resume(series, job, comm->rank, &mine.step, mine.rejected, &of, &err);
        EXPECT(of >= 0);
        mine.resumed_of = (unsigned)of;
        if (mine.resumed == SIDESTEP_OK)
            EXPECT(sidestep_series_path(series, mine.step, mine.path, &err) == SIDESTEP_OK);
        if (mine.resumed == SIDESTEP_OK && job->look != NULL)
            EXPECT(job->look(comm->rank, mine.step, mine.path) == 0);
        EXPECT(job->look == NULL || /* closing ends what was put together */
               comm_agree_all(&engine->comm, SIDESTEP_OK, &err) == SIDESTEP_OK ||
               job->may_fail_save);
    }
    for (int i = 0; mine.resumed == SIDESTEP_OK && job->saves[i] != 0; i++) {
        if (job->before != NULL && comm->rank == 0)
            job->before(job->saves[i]);
        mine.last = job->saves[i] + (job->from_resumed ? mine.step : 0);
        enum sidestep_status status = save(engine, series, job, comm->rank, mine.last, &err);
        EXPECT(status == SIDESTEP_OK || job->may_fail_save);
        mine.saved = mine.saved == SIDESTEP_OK ? status : mine.saved;
        if (job->flushes && mine.flushed == SIDESTEP_OK)
            mine.flushed = sidestep_series_flush(series, &err);
        if (job->is_slow)
            usleep(500000);
    }
    if (job->before != NULL && comm->rank == 0)
        job->before(0);
    mine.closed = sidestep_series_close(&series, &err);
    EXPECT(mine.closed == SIDESTEP_OK || job->may_fail_save);
    if (comm->rank == 0) {
        snprintf(mine.message, sizeof(mine.message), "%s", err.message);
        *shared = mine;
    }
    (void)sidestep_engine_close(&engine, &err);
    return bad;
}

static inline void run(struct job *job)
{
    if (job->back_to == 0)
        job->back_to = -1;
    int bad = job->dies_at == 0 ? comm_threads_run(job->ranks, run_rank, job)
                                : comm_threads_run_dying(job->ranks, job->dying_rank, job->dies_at,
                                                         run_rank, job);
    assert_int_equal(bad, 0);
}

static inline void add_saves(struct job *job, uint64_t first, uint64_t last)
{
    for (uint64_t step = first; step <= last; step++)
        job->saves[step - first] = step;
}

/* Save these steps, from the beginning or from the newest. */
static inline void save_steps(int ranks, const char *nodes, bool resumes, uint64_t first,
                              uint64_t last)
{
    struct job job = {.ranks = ranks, .nodes = nodes, .resumes = resumes};

    add_saves(&job, first, last);
    run(&job);
    assert_int_equal(job.saved, SIDESTEP_OK);
}

static inline struct job try_resume(int ranks, const char *nodes)
{
    struct job job = {.ranks = ranks, .nodes = nodes, .resumes = true};

    run(&job);
    return job;
}

static inline void expect_resume(int ranks, const char *nodes, uint64_t step)
{
    struct job job = try_resume(ranks, nodes);

    if (job.resumed != SIDESTEP_OK)
        fail_msg("resume: %d %s; %s", (int)job.resumed, job.message, job.rejected);
    assert_int_equal(job.step, step);
}

static inline void shell(const char *format, const char *a, const char *b)
{
    char command[640];

    snprintf(command, sizeof(command), format, a, b);
    assert_int_equal(system(command), 0);
}

/* The state of an entry of a node; NULL: there is none. Its ranks, too. */
static inline const char *state_of(char node, const char *name, char ranks[32])
{
    struct sidestep_list list = {0};
    struct sidestep_error err = {0};
    const char *state = NULL;

    if (sidestep_list_root(node_path(node, ""), &list, &err) != SIDESTEP_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < list.count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(&list, i);
        if (strcmp(entry->name, name) != 0)
            continue;
        state = sidestep_presence_name(entry->state);
        if (ranks != NULL)
            snprintf(ranks, 32, "%s of %u", entry->part_ranks != NULL ? entry->part_ranks : "",
                     entry->ranks);
    }
    sidestep_list_release(&list);
    return state;
}

static inline bool has(char node, const char *name)
{
    return access(node_path(node, name), F_OK) == 0;
}

/* No hidden directory or file of a save or of a view is left. */
static inline void expect_nothing_left(char node)
{
    DIR *dir = opendir(node_path(node, ""));

    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strncmp(entry->d_name, ".sidestep.", 10) == 0)
            fail_msg("'%s' is left on node %c", entry->d_name, node);
    closedir(dir);
}

#endif
