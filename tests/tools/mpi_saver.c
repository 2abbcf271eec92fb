/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_saver.c -- a small training over MPI, whose ranks the test rigs kill and stop.
 *
 *      mpi_saver train ROOT STEPS TIMEOUT_MS LOG [AT RANK EVENT]
 *          save steps 1 to STEPS of a series; each rank writes its progress to LOG.<rank>
 *      mpi_saver endure ROOT STEPS TIMEOUT_MS LOG [AT RANK EVENT]
 *          resume, and save STEPS more steps, even if a save fails
 *      mpi_saver once PATH TIMEOUT_MS LOG [AT RANK EVENT]
 *          one save by all ranks
 *      mpi_saver resume ROOT
 *          rank 0 prints "step N" or "none"
 *
 * At its AT-th EVENT ("staged", "written", "committed"), rank RANK writes its process id to LOG.pid
 * and stops itself. The rig then kills it or lets it continue. Two calls of close() with invalid
 * descriptors enclose the work, for nth_call. SAVER_SKIPS_FINALIZE: end without MPI_Finalize(),
 * because MPICH 4.0.2 hangs in it if hosts are connected by TCP.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sidestep/sidestep_series.h"
#include "sidestep/sidestep_mpi.h"
#include "support/mpi_asleep.h"
#include "support/world.h"

#define COUNT_FROM_HERE (-4242)
#define COUNT_TO_HERE (-4243)

static struct sidestep_comm comm;
static struct sidestep_engine *engine;
static struct sidestep_error err = {.rank = -1};
static const char *log_path;
static struct {
    char event[32]; /* "": never */
    unsigned long left;
} stop;

static int failed(const char *what)
{
    fprintf(stderr, "rank %d: %s: %s\n", comm.rank, what, err.message);
    fflush(stderr);
    return 1;
}

/* The engine calls this on the thread of the event. */
static void stop_at_event(void *context, const char *line)
{
    char path[512], tmp[520];

    (void)context;
    if (stop.event[0] == '\0' || strstr(line, stop.event) == NULL || --stop.left != 0)
        return;
    snprintf(path, sizeof(path), "%s.pid", log_path);
    snprintf(tmp, sizeof(tmp), "%s.tmp", path);
    FILE *file = fopen(tmp, "w");
    if (file != NULL) {
        fprintf(file, "%ld\n", (long)getpid());
        fclose(file);
        (void)rename(tmp, path);
    }
    raise(SIGSTOP);
}

/* Parse AT RANK EVENT. */
static void parse_stop(char **arguments, int count)
{
    log_path = arguments[0];
    if (count < 4 || atoi(arguments[2]) != comm.rank)
        return;
    stop.left = strtoul(arguments[1], NULL, 10);
    snprintf(stop.event, sizeof(stop.event), "\"%s\"", arguments[3]);
}

static bool open_engine(uint64_t timeout_ms)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    options.comm = &comm;
    options.threads = 1;
    options.timeout_ms = timeout_ms;
    options.on_event = stop_at_event;
    return sidestep_engine_open(&engine, &options, &err) == SIDESTEP_OK;
}

/* Write a line with one call, so that a kill does not truncate it. */
static void log_progress(const char *what, uint64_t step)
{
    char path[512];

    snprintf(path, sizeof(path), "%s.%d", log_path, comm.rank);
    FILE *file = fopen(path, "a");
    if (file != NULL) {
        fprintf(file, "%s %llu\n", what, (unsigned long long)step);
        fclose(file);
    }
}

/* Save one step in the background. */
static int save_step(struct sidestep_series *series, struct world *world, uint64_t step)
{
    struct sidestep_save *save = NULL;

    world_fill(world, step);
    if (sidestep_series_save_async(series, step, world->state, NULL, &save, &err) != SIDESTEP_OK)
        return failed("save");
    log_progress("STAGED", step);
    world_fill(world, step + 1000000); /* training goes on */
    if (sidestep_save_finish(&save, NULL, &err) != SIDESTEP_OK)
        return failed("finish");
    log_progress("COMMITTED", step);
    return 0;
}

/* Load and check the newest step. ENOTFOUND: there is none. */
static enum sidestep_status load_newest(struct sidestep_series *series, uint64_t *step)
{
    struct world world;

    *step = 0;
    world_make(&world, comm.rank, comm.size, WORLD_BY_COLUMNS, 1, true);
    enum sidestep_status status =
        sidestep_series_load(series, world.state, NULL, step, NULL, NULL, &err);
    if (status == SIDESTEP_OK && world_check(&world, *step) != 0) {
        snprintf(err.message, sizeof(err.message), "step %llu is not what was saved",
                 (unsigned long long)*step);
        status = SIDESTEP_ECORRUPT;
    }
    world_free(&world);
    return status;
}

static int save_steps(struct sidestep_series *series, uint64_t first, uint64_t last, bool endures)
{
    struct world world;
    int result = 0;

    world_make(&world, comm.rank, comm.size, WORLD_BY_ROWS, 1, false);
    for (uint64_t step = first; step <= last && result == 0; step++) {
        result = save_step(series, &world, step);
        if (result != 0 && endures) {
            log_progress("FAILED", step);
            result = 0;
        }
    }
    return result; /* a save that failed may still use the world */
}

static int train(const char *root, uint64_t steps, bool endures)
{
    struct sidestep_series *series = NULL;
    uint64_t before = 0;

    /* The first search for a library tries a hundred paths; do not count these calls as a save's.
     */
    (void)dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    (void)close(COUNT_FROM_HERE);
    if (sidestep_series_open(engine, root, NULL, &series, &err) != SIDESTEP_OK)
        return failed("open");
    if (endures) {
        enum sidestep_status status = load_newest(series, &before);
        if (status != SIDESTEP_OK && status != SIDESTEP_ENOTFOUND)
            return failed("load");
    }
    int result = save_steps(series, before + 1, before + steps, endures);
    if (result == 0 && sidestep_series_close(&series, &err) != SIDESTEP_OK)
        result = failed("close");
    (void)close(COUNT_TO_HERE);
    return result;
}

static int resume(const char *root)
{
    struct sidestep_series *series = NULL;
    uint64_t step;
    int result = 0;

    if (sidestep_series_open(engine, root, NULL, &series, &err) != SIDESTEP_OK)
        return failed("open");
    enum sidestep_status status = load_newest(series, &step);
    if (status != SIDESTEP_OK && status != SIDESTEP_ENOTFOUND)
        result = failed("load");
    else if (comm.rank == 0 && status == SIDESTEP_OK)
        printf("step %llu\n", (unsigned long long)step);
    else if (comm.rank == 0)
        puts("none");
    (void)sidestep_series_close(&series, NULL);
    return result;
}

static int save_once(const char *path)
{
    struct sidestep_save *save = NULL;
    struct world world;

    world_make(&world, comm.rank, comm.size, WORLD_BY_ROWS, 1, false);
    world_fill(&world, 1);
    if (sidestep_save_async(engine, path, world.state, NULL, &save, &err) != SIDESTEP_OK)
        return failed("save");
    if (sidestep_save_finish(&save, NULL, &err) != SIDESTEP_OK)
        return failed("finish");
    world_free(&world);
    return 0;
}

static int work(int argc, char **argv)
{
    const char *command = argc > 2 ? argv[1] : "";
    bool endures = strcmp(command, "endure") == 0;

    if ((endures || strcmp(command, "train") == 0) && argc >= 6) {
        parse_stop(argv + 5, argc - 5);
        return open_engine(strtoull(argv[4], NULL, 10))
                   ? train(argv[2], strtoull(argv[3], NULL, 10), endures)
                   : failed("engine");
    }
    if (strcmp(command, "once") == 0 && argc >= 5) {
        parse_stop(argv + 4, argc - 4);
        return open_engine(strtoull(argv[3], NULL, 10)) ? save_once(argv[2]) : failed("engine");
    }
    if (strcmp(command, "resume") == 0 && argc == 3)
        return open_engine(10000) ? resume(argv[2]) : failed("engine");
    fprintf(stderr, "mpi_saver: see the comment at its top\n");
    return 2;
}

int main(int argc, char **argv)
{
    int provided;

    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS ||
        sidestep_mpi_comm(MPI_COMM_WORLD, &comm) != MPI_SUCCESS)
        return 1;
    int result = work(argc, argv);
    (void)fflush(NULL);
    if (result != 0)
        _exit(result); /* the other ranks may be dead: do not finalize */
    (void)sidestep_engine_close(&engine, NULL);
    sidestep_mpi_comm_free(&comm);
    if (getenv("SAVER_SKIPS_FINALIZE") != NULL)
        _exit(0);
    return MPI_Finalize() != MPI_SUCCESS;
}
