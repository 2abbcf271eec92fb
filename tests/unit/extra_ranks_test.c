/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * extra_ranks_test.c -- the files that several ranks give to one save: in a new directory, in one
 * that is there, and in a bucket.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "base/owned.h"
#include "checkpoint/checkpoint.h"
#include "support/comm_threads.h"
#include "support/object_rig.h"
#include "support/scratch.h"
#include "support/unit.h"

#define RANKS 3

static struct scratch scratch;
static struct rig rig;
static const char path_in_bucket[] = PATH;

enum where { NEW, IN_PLACE, BUCKET, PLACES };

/* A file that rank ${rank} adds. */
struct given {
    uint32_t rank;
    const char *name, *text; /* text NULL: an alias */
    uint32_t flags;
};

struct job {
    const char *path;
    const struct given *files;
    size_t count;
    enum sidestep_status status[RANKS];
    struct sidestep_error err[RANKS];
};

static int setup(void **state)
{
    (void)state;
    rig_make(&rig, 0);
    return scratch_make(&scratch, NULL) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    object_sim_free(&rig.bucket);
    scratch_remove(&scratch);
    return 0;
}
EACH_TEST(setup, teardown);

/* On directories the engine has its bucket, too, and does not use it. */
static int save(struct sidestep_comm *comm, void *context)
{
    struct job *job = context;
    struct sidestep_error *err = &job->err[comm->rank];
    struct sidestep_engine *engine = rig_engine(&rig, comm, comm->rank);
    struct world world;

    world_make(&world, comm->rank, comm->size, WORLD_BY_ROWS, 1, false);
    for (size_t i = 0; i < job->count; i++) {
        const struct given *file = &job->files[i];
        if (file->rank != (uint32_t)comm->rank)
            continue;
        uint32_t flags = file->flags | (file->text == NULL ? SIDESTEP_FILE_ALIAS : 0);
        if (sidestep_state_dict_add_file(world.state, file->name, file->text,
                                         file->text != NULL ? strlen(file->text) : 0, flags,
                                         err) != SIDESTEP_OK)
            return 1;
    }
    job->status[comm->rank] = sidestep_save(engine, job->path, world.state, NULL, NULL, err);
    enum sidestep_status closed = sidestep_engine_close(&engine, NULL);
    world_free(&world);
    return closed != SIDESTEP_OK;
}

/* Save ${files}, and check what the ranks report: ${expected}.  A rank that reads from storage that
 * rank 0 gave up, before the ranks agree on the status, reports EABORTED with rank 0's reason.
 */
static void save_all(const char *path, const struct given *files, size_t count,
                     enum sidestep_status expected, struct sidestep_error *err)
{
    struct job job = {.path = path, .files = files, .count = count};

    assert_int_equal(comm_threads_run(RANKS, save, &job), 0);
    for (int rank = 0; rank < RANKS; rank++)
        if (job.status[rank] != expected &&
            (expected == SIDESTEP_OK || rank == 0 || job.status[rank] != SIDESTEP_EABORTED))
            fail_msg("%s, rank %d: status %d: %s", path, rank, job.status[rank],
                     job.err[rank].message);
    if (err != NULL)
        *err = job.err[RANKS - 1];
}

static const char *path_of(enum where where)
{
    static char path[512];

    if (where == BUCKET)
        return path_in_bucket;
    snprintf(path, sizeof(path), "%s/%s", scratch.path, where == NEW ? "new" : "in-place");
    if (where == IN_PLACE)
        (void)mkdir(path, 0777);
    return path;
}

/* Does the checkpoint have exactly the ${count} files ${expected}, each with the bytes and the
 * rank?
 */
static void check_files(const char *path, const struct given *expected, size_t count)
{
    struct sidestep_engine *engine = rig_engine(&rig, NULL, 60);
    struct sidestep_error err = {0};
    struct store *store = engine->store;
    struct reader *reader = NULL;
    const char *kind;

    if (path == path_in_bucket)
        assert_int_equal(buckets_find(&engine->buckets, path, &store, &err), SIDESTEP_OK);
    assert_int_equal(reader_open(store, path, READER_ALL, &reader, &err), SIDESTEP_OK);
    assert_int_equal(reader->manifest.extra_count, count);
    for (size_t i = 0; i < count; i++) {
        const struct extra_file *file = reader_find_extra(reader, expected[i].name);
        OWNED void *bytes = NULL;
        assert_non_null(file);
        assert_int_equal(file->rank, expected[i].rank);
        assert_int_equal(file->is_alias, expected[i].text == NULL);
        assert_int_equal(reader_check_extra(reader, file, true, &kind, &err), SIDESTEP_OK);
        if (expected[i].text == NULL)
            continue;
        assert_int_equal(reader_read_extra(reader, file, &bytes, &err), SIDESTEP_OK);
        assert_int_equal(file->bytes, strlen(expected[i].text));
        assert_memory_equal(bytes, expected[i].text, strlen(expected[i].text));
    }
    reader_close(&reader);
    assert_int_equal(sidestep_engine_close(&engine, &err), SIDESTEP_OK);
}

/* Files and objects under NAME that are extra files of a save by their names. */
static size_t count_stored(enum where where)
{
    size_t count = 0;

    for (size_t i = 0; where == BUCKET && i < object_sim_count(rig.bucket); i++)
        count += strstr(object_sim_key(rig.bucket, i), ".file") != NULL;
    if (where != BUCKET) {
        OWNED_NAMES struct name_list names = {0};
        struct sidestep_engine *engine = rig_engine(&rig, NULL, 60);
        struct store_dir *dir = NULL;
        assert_int_equal(store_dir_open(engine->store, NULL, path_of(where), &dir, NULL),
                         SIDESTEP_OK);
        assert_int_equal(name_list_read(dir, &names, NULL), SIDESTEP_OK);
        for (size_t i = 0; i < names.count; i++)
            count += file_name_parse(names.names[i]).kind == FILE_NAME_EXTRA;
        store_dir_close(dir);
        assert_int_equal(sidestep_engine_close(&engine, NULL), SIDESTEP_OK);
    }
    return count;
}

TEST(each_rank_has_files)
{
    static const struct given files[] = {
        {0, "trainer_state.json", "{}", 0},   {0, "model_0", NULL, 0},
        {1, "rng/state_1.pth", "one", 0},     {2, "rng/state_2.pth", "two", 0},
        {2, "rng/inner/state_2.pth", "2", 0},
    };

    for (enum where where = NEW; where < PLACES; where++) {
        save_all(path_of(where), files, ARRAY_LENGTH(files), SIDESTEP_OK, NULL);
        check_files(path_of(where), files, ARRAY_LENGTH(files));
        assert_int_equal(count_stored(where), where == NEW ? 0 : 4);
        save_all(path_of(where), files, 2, SIDESTEP_OK, NULL); /* in place */
        check_files(path_of(where), files, 2);
        assert_int_equal(count_stored(where), 1);
        save_all(path_of(where), files, 0, SIDESTEP_OK, NULL);
        check_files(path_of(where), files, 0);
        assert_int_equal(count_stored(where), 0);
    }
}

TEST(equal_files_are_kept_once)
{
    static const struct given files[] = {
        {0, "a", "same", 0}, {1, "a", "same", 0}, {2, "a", "same", SIDESTEP_FILE_FIRST_RANK},
        {1, "m", NULL, 0},   {2, "m", NULL, 0},
    };
    static const struct given kept[] = {{0, "a", "same", 0}, {1, "m", NULL, 0}};

    for (enum where where = NEW; where < PLACES; where++) {
        save_all(path_of(where), files, ARRAY_LENGTH(files), SIDESTEP_OK, NULL);
        check_files(path_of(where), kept, ARRAY_LENGTH(kept));
        assert_int_equal(count_stored(where), where == NEW ? 0 : 1);
    }
}

TEST(the_lowest_rank_is_taken_where_ranks_allow_it)
{
    static const struct given files[] = {
        {1, "hook.bin", "one", SIDESTEP_FILE_FIRST_RANK},
        {2, "hook.bin", "two", SIDESTEP_FILE_FIRST_RANK},
    };

    for (enum where where = NEW; where < PLACES; where++) {
        save_all(path_of(where), files, ARRAY_LENGTH(files), SIDESTEP_OK, NULL);
        check_files(path_of(where), files, 1);
    }
}

TEST(ranks_that_disagree_have_saved_nothing)
{
    static const struct {
        struct given files[2];
        enum sidestep_status status;
        const char *words[3];
    } cases[] = {
        {{{0, "a", "one", 0}, {2, "a", "two", 0}},
         SIDESTEP_EDISAGREE,
         {"'a'", "ranks 0 and 2", "different files"}},
        {{{0, "a", "one", SIDESTEP_FILE_FIRST_RANK}, {2, "a", "two", 0}},
         SIDESTEP_EDISAGREE,
         {"'a'", "ranks 0 and 2", "different files"}},
        {{{0, "a", NULL, 0}, {1, "a", "", 0}}, SIDESTEP_EDISAGREE, {"'a'", "ranks 0 and 1", "a"}},
        {{{0, "Name", "1", 0}, {1, "name", "1", 0}},
         SIDESTEP_EINVAL,
         {"'name' of rank 1", "of rank 0", "but for case"}},
        {{{1, "dir", "1", 0}, {2, "dir/x", "1", 0}},
         SIDESTEP_EINVAL,
         {"'dir/x' of rank 2", "of rank 1", "its directory"}},
        {{{1, "dir/x", "1", 0}, {2, "dir", "1", 0}},
         SIDESTEP_EINVAL,
         {"'dir' of rank 2", "of rank 1", "lies in a directory"}},
    };
    static const struct given before = {0, "before", "1", 0};

    for (enum where where = NEW; where < PLACES; where++)
        for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
            struct sidestep_error err = {0};
            save_all(path_of(where), &before, 1, SIDESTEP_OK, NULL);
            save_all(path_of(where), cases[i].files, 2, cases[i].status, &err);
            for (size_t w = 0; w < ARRAY_LENGTH(cases[i].words); w++)
                if (strstr(err.message, cases[i].words[w]) == NULL)
                    fail_msg("case %zu: '%s' is not in: %s", i, cases[i].words[w], err.message);
            check_files(path_of(where), &before, 1);
            assert_true(count_stored(where) <= 1);
        }
}
