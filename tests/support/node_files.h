/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_files.h -- small files of the jobs of node_jobs.h: what each rank gives to a save, and
 * whether all of it is where the checkpoint was loaded. Include it after cmocka.h.
 */
#ifndef SUPPORT_NODE_FILES_H
#define SUPPORT_NODE_FILES_H

#include "support/node_jobs.h"

static int small_ranks; /* of the world that saved */

/* The contents of a small file of ${rank}; NULL: it gives none of this name. "own/R" is of rank R
 * alone; "vocabulary" is the same on all; of "first" that of rank 0 is taken; "sub/empty" has no
 * bytes. */
static inline const char *small_text(const char *name, int rank, uint64_t step, char text[64])
{
    bool is_own = strncmp(name, "own/", 4) == 0;

    if (is_own && atoi(name + 4) != rank)
        return NULL;
    if (strcmp(name, "sub/empty") == 0)
        return rank == small_ranks - 1 ? "" : NULL;
    snprintf(text, 64, "%s of step %llu and rank %d", name, (unsigned long long)step,
             strcmp(name, "vocabulary") == 0 ? -1 : rank);
    return text;
}

static const char *const small_names[] = {"own/0", "own/1",      "own/2",    "own/3",
                                          "first", "vocabulary", "sub/empty"};

static inline int give_small(int rank, uint64_t step, struct sidestep_state_dict *state)
{
    struct sidestep_error err = {0};
    char text[64];
    int bad = 0;

    for (size_t i = 0; i < ARRAY_LENGTH(small_names); i++) {
        const char *name = small_names[i], *content = small_text(name, rank, step, text);
        uint32_t flags = strcmp(name, "first") == 0 ? SIDESTEP_FILE_FIRST_RANK : 0;
        if (content != NULL)
            bad += sidestep_state_dict_add_file(state, name, content, strlen(content), flags,
                                                &err) != SIDESTEP_OK;
    }
    if (rank == 0)
        bad += sidestep_state_dict_add_file(state, "here", NULL, 0, SIDESTEP_FILE_ALIAS, &err) !=
               SIDESTEP_OK;
    return bad;
}

/* Is the file there, by the checkpoint's list and under its own name? */
static inline int look_at_one(struct sidestep_checkpoint *checkpoint, const char *path,
                              const char *name, const char *wanted)
{
    struct sidestep_error err = {0};
    size_t length = 0, expected = strlen(wanted);
    char file[4096 + 64], text[64] = "";
    void *bytes = NULL;

    bool is_bad =
        sidestep_checkpoint_read_file(checkpoint, name, &bytes, &length, &err) != SIDESTEP_OK ||
        length != expected || memcmp(bytes, wanted, length) != 0;
    sidestep_bytes_free(&bytes);
    if (!is_bad && strncmp(path, "s3:", 3) != 0) {
        snprintf(file, sizeof(file), "%s/%s", path, name);
        FILE *stream = fopen(file, "re");
        is_bad = stream == NULL || fread(text, 1, sizeof(text), stream) != expected ||
                 memcmp(text, wanted, expected) != 0;
        if (stream != NULL)
            fclose(stream);
    }
    if (is_bad)
        fprintf(stderr, "# '%s' of '%s': %s; '%s'\n", name, path, err.message, text);
    return is_bad;
}

static inline int look_at_small(int rank UNUSED, uint64_t step, const char *path)
{
    struct sidestep_checkpoint *checkpoint = NULL;
    struct sidestep_error err = {0};
    char text[64];
    int bad = 0;

    if (sidestep_checkpoint_open(path, &checkpoint, &err) != SIDESTEP_OK) {
        fprintf(stderr, "# %s\n", err.message);
        return 1;
    }
    size_t count = 1; /* the alias */
    for (size_t i = 0; i < ARRAY_LENGTH(small_names); i++) {
        const char *wanted = NULL;
        for (int giver = 0; wanted == NULL && giver < small_ranks; giver++)
            wanted = small_text(small_names[i], giver, step, text);
        count += wanted != NULL;
        bad += wanted != NULL && look_at_one(checkpoint, path, small_names[i], wanted);
    }
    bad += sidestep_checkpoint_file_count(checkpoint) != count;
    sidestep_checkpoint_close(&checkpoint);
    return bad;
}

/* Save these steps with small files, from the beginning or from the newest. */
static inline void save_small(int ranks, const char *nodes, bool resumes, uint64_t first,
                              uint64_t last)
{
    struct job job = {.ranks = ranks, .nodes = nodes, .resumes = resumes, .give = give_small};

    small_ranks = ranks;
    add_saves(&job, first, last);
    run(&job);
    if (job.saved != SIDESTEP_OK)
        fail_msg("%s", job.message);
}

/* Resume, and look at the small files where it was loaded. */
static inline void expect_small(int ranks, const char *nodes, uint64_t step)
{
    struct job job = {.ranks = ranks, .nodes = nodes, .resumes = true, .look = look_at_small};

    run(&job);
    if (job.resumed != SIDESTEP_OK)
        fail_msg("resume: %d %s; %s", (int)job.resumed, job.message, job.rejected);
    assert_int_equal(job.step, step);
}

#endif
