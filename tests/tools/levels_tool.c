/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * levels_tool.c -- a training of one rank that saves to a near level with a mirror, for a rig that
 * kills it and takes a level away.
 *
 *      levels_tool NEAR FAR ATTEMPT STEPS [careless]
 *
 * The state of a step has the contents of ATTEMPT * 1000 + step, so that the steps of two attempts
 * differ. It prints, each on a line that is flushed: "resumed STEP ATTEMPT" (of the attempt that
 * saved it) or "resumed none"; "near STEP" once that is committed; "far STEP" once it is at the
 * mirror; "closed". The exit status is that of the command line for the same failure.
 *
 * careless, for a negative control: a mirror that cannot be used is taken for none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidestep/sidestep_tools.h"
#include "support/world.h"

#define PER_ATTEMPT 1000

static struct sidestep_error err = {.rank = -1};

static void on_event(void *context, const char *line)
{
    const char *step = strstr(line, "/step-");

    (void)context;
    if (strstr(line, "\"mirrored\"") != NULL && step != NULL)
        printf("far %llu\n", strtoull(step + strlen("/step-"), NULL, 10));
    fflush(stdout);
}

static enum sidestep_status open_series(struct sidestep_engine *engine, char **argv,
                                        bool is_careless, struct sidestep_series **series)
{
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_mirror_options to_mirror = SIDESTEP_MIRROR_OPTIONS_INIT;
    struct sidestep_retention near = SIDESTEP_RETENTION_INIT, far = SIDESTEP_RETENTION_INIT;

    near.keep_last = 2;
    far.keep_last = 3;
    to_mirror.retention = &far;
    to_mirror.threads = 1;
    options.retention = &near;
    options.mirror = argv[2];
    options.mirror_options = &to_mirror;
    enum sidestep_status status = sidestep_series_open(engine, argv[1], &options, series, &err);
    if (status == SIDESTEP_OK || !is_careless)
        return status;
    options.mirror = NULL;
    options.mirror_options = NULL;
    return sidestep_series_open(engine, argv[1], &options, series, &err);
}

/* Set ${*step} to that of the newest checkpoint; 0: there is none. */
static enum sidestep_status resume(struct sidestep_series *series, uint64_t attempt, uint64_t *step)
{
    struct world loaded;
    uint64_t found = 0;
    char rejected[2048] = "";

    *step = 0;
    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    enum sidestep_status status =
        sidestep_series_load(series, loaded.state, NULL, step, NULL, rejected, &err);
    while (status == SIDESTEP_OK && found <= attempt &&
           world_check(&loaded, found * PER_ATTEMPT + *step) != 0)
        found++;
    world_free(&loaded);
    fputs(rejected, stderr);
    if (status == SIDESTEP_ENOTFOUND)
        puts("resumed none");
    else if (status == SIDESTEP_OK && found <= attempt)
        printf("resumed %llu %llu\n", (unsigned long long)*step, (unsigned long long)found);
    else if (status == SIDESTEP_OK)
        puts("resumed what nobody saved");
    fflush(stdout);
    return status == SIDESTEP_ENOTFOUND ? SIDESTEP_OK : status;
}

static enum sidestep_status train(struct sidestep_series *series, uint64_t attempt, uint64_t steps)
{
    enum sidestep_status status;
    struct world world;
    uint64_t step;

    status = resume(series, attempt, &step);
    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, false);
    for (uint64_t last = step + steps; status == SIDESTEP_OK && step++ < last;) {
        world_fill(&world, attempt * PER_ATTEMPT + step);
        status = sidestep_series_save(series, step, world.state, NULL, NULL, &err);
        if (status == SIDESTEP_OK)
            printf("near %llu\n", (unsigned long long)step);
        fflush(stdout);
    }
    world_free(&world);
    return status;
}

int main(int argc, char **argv)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_series *series = NULL;
    bool is_careless = argc == 6 && strcmp(argv[5], "careless") == 0;

    if (argc != 5 && !is_careless)
        return 2;
    options.threads = 1;
    options.on_event = on_event;
    enum sidestep_status status = sidestep_engine_open(&engine, &options, &err);
    if (status == SIDESTEP_OK)
        status = open_series(engine, argv, is_careless, &series);
    if (status == SIDESTEP_OK)
        status = train(series, strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
    enum sidestep_status closed =
        sidestep_series_close(&series, status == SIDESTEP_OK ? &err : NULL);
    (void)sidestep_engine_close(&engine, NULL);
    status = status != SIDESTEP_OK ? status : closed;
    puts(status == SIDESTEP_OK ? "closed" : "failed");
    if (status != SIDESTEP_OK)
        fprintf(stderr, "%s: %s\n", sidestep_status_text(status), err.message);
    return sidestep_status_exit(status);
}
