/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * saver_tool.c -- saves, loads and checks a small state on one rank, for test rigs that kill it and
 * make its storage fail.
 *
 *      saver_tool save PATH SEED       save the state of SEED to PATH
 *      saver_tool save-threads ...     the same without io_uring
 *      saver_tool save-devices ...     the same with tensors on devices of the stand-in driver
 *      saver_tool save-planes ...      the same, compressed
 *      saver_tool save-zstd ...        the same, with the other codec
 *      saver_tool save-files ...       the same with two small files
 *      saver_tool series ROOT STEP     open the series, save STEP, close
 *      saver_tool hold ROOT            open the series; close at the end of the input
 *      saver_tool check PATH SEED...   load PATH: "seed N" if it is bit for bit that of one of the
 *                                      SEEDs, "none" if there is no checkpoint, else status 1
 *      saver_tool check-files ...      the same, and the last SEED has its small files, the others
 * none saver_tool resume ROOT          load the newest of a series: "step N" or "none" saver_tool
 * gc PARENT            print what is kept saver_tool careless PATH SEED   for negative controls:
 * writes PATH file by file, .metadata first, and ignores errors saver_tool COMMAND ... , COMMAND
 * ... run the commands one after the other, each in a process of its own, until one fails; after
 * each a line "= STATUS" on both outputs
 *
 * The exit status is that of the command line for the same failure; the reason is on stderr. Two
 * calls of close() with invalid descriptors enclose the work, so that a rig that counts system
 * calls can skip those of the dynamic loader.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sidestep/sidestep_tools.h"
#include "support/world.h"

#define COUNT_FROM_HERE (-4242)
#define COUNT_TO_HERE (-4243)

static enum sidestep_io io = SIDESTEP_IO_AUTO;
static enum sidestep_compress compress = SIDESTEP_COMPRESS_NONE;
static bool with_files;
static struct sidestep_error err = {.rank = -1};

static void begin_count(void)
{
    /* The first search for a library tries a hundred paths; do not count these calls as a save's.
     */
    (void)dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    (void)close(COUNT_FROM_HERE);
}

static int report(enum sidestep_status status)
{
    if (status != SIDESTEP_OK)
        fprintf(stderr, "%s: %s\n", sidestep_status_text(status), err.message);
    return sidestep_status_exit(status);
}

static struct sidestep_engine *open_engine(void)
{
    struct sidestep_engine *engine = NULL;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    options.threads = 1;
    options.io = io;
    options.timeout_ms = 5000;
    enum sidestep_status status = sidestep_engine_open(&engine, &options, &err);
    if (status != SIDESTEP_OK)
        exit(report(status));
    return engine;
}

/* Report a failure of the close, unless something failed before. */
static enum sidestep_status close_engine(struct sidestep_engine **engine,
                                         enum sidestep_status status)
{
    enum sidestep_status closed =
        sidestep_engine_close(engine, status == SIDESTEP_OK ? &err : NULL);

    return status != SIDESTEP_OK ? status : closed;
}

/* ---- small files */

static const char *const file_names[] = {"trainer_state.json", "more/state.txt"};
#define FILE_COUNT (sizeof(file_names) / sizeof(file_names[0]))

static size_t file_text(uint64_t seed, size_t i, char text[64])
{
    return (size_t)snprintf(text, 64, "file %zu of seed %llu\n", i, (unsigned long long)seed);
}

static enum sidestep_status add_files(struct sidestep_state_dict *state, uint64_t seed)
{
    enum sidestep_status status = SIDESTEP_OK;
    char text[64];

    for (size_t i = 0; i < FILE_COUNT && status == SIDESTEP_OK; i++) {
        size_t length = file_text(seed, i, text);
        status = sidestep_state_dict_add_file(state, file_names[i], text, length, 0, &err);
    }
    return status;
}

/* Are the files of ${path} those of ${seed}, by the checkpoint and by their names; or none? */
static bool has_files(const char *path, uint64_t seed, bool any)
{
    struct sidestep_checkpoint *checkpoint = NULL;
    char text[64], found[64], name[512];
    bool good = sidestep_checkpoint_open(path, &checkpoint, &err) == SIDESTEP_OK &&
                sidestep_checkpoint_file_count(checkpoint) == (any ? FILE_COUNT : 0);

    for (size_t i = 0; i < FILE_COUNT && good; i++) {
        size_t length = file_text(seed, i, text), bytes = 0;
        void *data = NULL;
        snprintf(name, sizeof(name), "%s/%s", path, file_names[i]);
        FILE *stream = fopen(name, "re");
        if (stream != NULL) {
            good = any && fread(found, 1, sizeof(found), stream) == length &&
                   memcmp(found, text, length) == 0;
            (void)fclose(stream);
        }
        if (any && good)
            good = sidestep_checkpoint_read_file(checkpoint, file_names[i], &data, &bytes, &err) ==
                       SIDESTEP_OK &&
                   bytes == length && memcmp(data, text, length) == 0;
        sidestep_bytes_free(&data);
    }
    sidestep_checkpoint_close(&checkpoint);
    return good;
}

/* ---- commands */

static enum sidestep_status save_state(const char *path, uint64_t seed, bool counted)
{
    struct sidestep_engine *engine = open_engine();
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
    struct world world;

    options.compress = compress;
    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, false);
    world_fill(&world, seed);
    if (with_files && add_files(world.state, seed) != SIDESTEP_OK)
        exit(report(SIDESTEP_EINVAL));
    if (counted)
        begin_count();
    enum sidestep_status status = sidestep_save(engine, path, world.state, &options, &info, &err);
    status = close_engine(&engine, status);
    if (counted)
        (void)close(COUNT_TO_HERE);
    world_free(&world);
    if (status == SIDESTEP_OK && compress != SIDESTEP_COMPRESS_NONE &&
        info.stored_bytes >= info.raw_bytes) {
        fprintf(stderr, "nothing was compressed\n");
        exit(1);
    }
    return status;
}

static enum sidestep_status save_step(const char *root, uint64_t step)
{
    struct sidestep_engine *engine = open_engine();
    struct sidestep_series *series = NULL;
    struct world world;

    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, false);
    world_fill(&world, step);
    begin_count();
    enum sidestep_status status = sidestep_series_open(engine, root, NULL, &series, &err);
    if (status == SIDESTEP_OK)
        status = sidestep_series_save(series, step, world.state, NULL, NULL, &err);
    enum sidestep_status closed =
        sidestep_series_close(&series, status == SIDESTEP_OK ? &err : NULL);
    status = close_engine(&engine, status != SIDESTEP_OK ? status : closed);
    (void)close(COUNT_TO_HERE);
    world_free(&world);
    return status;
}

static enum sidestep_status hold_series(const char *root)
{
    struct sidestep_engine *engine = open_engine();
    struct sidestep_series *series = NULL;
    enum sidestep_status status = sidestep_series_open(engine, root, NULL, &series, &err);

    if (status == SIDESTEP_OK) {
        puts("open");
        fflush(stdout);
        while (getchar() != EOF)
            ;
        status = sidestep_series_close(&series, &err);
    }
    return close_engine(&engine, status);
}

static int check_path(const char *path, char *const *seeds)
{
    struct sidestep_engine *engine = open_engine();
    struct world world;
    int result = 1;

    world_make(&world, 0, 1, WORLD_BY_COLUMNS, 1, true);
    begin_count();
    enum sidestep_status status = sidestep_load(engine, path, world.state, NULL, NULL, &err);
    (void)close(COUNT_TO_HERE);
    if (status == SIDESTEP_ENOTFOUND || status == SIDESTEP_EUNCOMMITTED) {
        puts("none");
        result = 0;
    } else if (status != SIDESTEP_OK) {
        result = report(status);
    } else {
        for (; *seeds != NULL && result != 0; seeds++) {
            uint64_t seed = strtoull(*seeds, NULL, 10);
            result = world_check(&world, seed) != 0 ||
                     (with_files && !has_files(path, seed, seeds[1] == NULL));
            if (result == 0)
                printf("seed %s\n", *seeds);
        }
        if (result != 0)
            fprintf(stderr, "'%s' was loaded, but has none of the given states\n", path);
    }
    world_free(&world);
    (void)sidestep_engine_close(&engine, NULL);
    return result;
}

static int resume(const char *root)
{
    struct sidestep_engine *engine = open_engine();
    struct sidestep_series *series = NULL;
    struct world world;
    uint64_t step = 0;
    int result = 0;
    char rejected[2048] = "";

    world_make(&world, 0, 1, WORLD_BY_COLUMNS, 1, true);
    enum sidestep_status status = sidestep_series_open(engine, root, NULL, &series, &err);
    if (status == SIDESTEP_OK)
        status = sidestep_series_load(series, world.state, NULL, &step, NULL, rejected, &err);
    if (status == SIDESTEP_ENOTFOUND) {
        puts("none");
    } else if (status != SIDESTEP_OK) {
        result = report(status);
    } else if (world_check(&world, step) != 0) {
        fprintf(stderr, "step %llu was loaded, but is not what was saved\n",
                (unsigned long long)step);
        result = 1;
    } else {
        printf("step %llu\n", (unsigned long long)step);
        fputs(rejected, stderr);
    }
    (void)sidestep_series_close(&series, NULL);
    world_free(&world);
    (void)sidestep_engine_close(&engine, NULL);
    return result;
}

static int collect_garbage(const char *parent)
{
    struct sidestep_gc_report kept;
    enum sidestep_status status = sidestep_gc(parent, 0, &kept, &err);

    if (status != SIDESTEP_OK)
        return report(status);
    for (size_t i = 0; i < kept.kept_count; i++)
        printf("kept %s\n", kept.kept[i]);
    sidestep_gc_report_release(&kept);
    return 0;
}

static void copy_carelessly(const char *from, const char *to, const char *name)
{
    static char bytes[1 << 16];
    char path[512];
    ssize_t length;

    snprintf(path, sizeof(path), "%s/%s", from, name);
    int in = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof(path), "%s/%s", to, name);
    int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    while ((length = read(in, bytes, sizeof(bytes))) > 0)
        if (write(out, bytes, (size_t)length) != length)
            fprintf(stderr, "a write failed, which is ignored\n");
    /* Nothing is closed: it needs more descriptors than the save before it, which must not fail. */
}

/* Wait, so that two careless savers overlap even if each is fast. */
static void sleep_a_little(void)
{
    struct timespec now, pause = {0};

    clock_gettime(CLOCK_MONOTONIC, &now);
    pause.tv_nsec = (long)((unsigned long)(now.tv_nsec ^ (long)getpid() * 7919) % 20000000);
    (void)nanosleep(&pause, NULL);
}

static int save_carelessly(const char *path, uint64_t seed)
{
    char aside[512];
    struct dirent *entry;

    /* The name contains the process id: a save refuses to replace a checkpoint that another process
     * has just made, and this save must not be refused. */
    snprintf(aside, sizeof(aside), "%s.aside.%ld", path, (long)getpid());
    enum sidestep_status status = save_state(aside, seed, false);
    if (status != SIDESTEP_OK)
        return report(status);
    begin_count();
    (void)mkdir(path, 0777);
    copy_carelessly(aside, path, ".metadata");
    sleep_a_little();
    DIR *directory = opendir(aside);
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        if (entry->d_type == DT_REG && strcmp(entry->d_name, ".metadata") != 0)
            copy_carelessly(aside, path, entry->d_name);
    if (directory != NULL)
        closedir(directory);
    (void)close(COUNT_TO_HERE);
    return 0;
}

static int run_command(int argc, char **argv)
{
    const char *command = argc > 2 ? argv[1] : "";
    uint64_t number = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;

    if (strcmp(command, "save-threads") == 0 && argc == 4) {
        io = SIDESTEP_IO_THREADS;
        return report(save_state(argv[2], number, true));
    }
    if (strcmp(command, "save-devices") == 0 && argc == 4) {
        (void)setenv("SIDESTEP_TEST_CUDA", STANDIN, 1);
        return report(save_state(argv[2], number, true));
    }
    with_files = strcmp(command, "save-files") == 0 || strcmp(command, "check-files") == 0;
    if (strcmp(command, "save-planes") == 0)
        compress = SIDESTEP_COMPRESS_PLANES;
    if (strcmp(command, "save-zstd") == 0)
        compress = SIDESTEP_COMPRESS_ZSTD;
    if ((strcmp(command, "save") == 0 || strcmp(command, "save-files") == 0 ||
         compress != SIDESTEP_COMPRESS_NONE) &&
        argc == 4)
        return report(save_state(argv[2], number, true));
    if (strcmp(command, "series") == 0 && argc == 4)
        return report(save_step(argv[2], number));
    if (strcmp(command, "hold") == 0 && argc == 3)
        return report(hold_series(argv[2]));
    if ((strcmp(command, "check") == 0 || strcmp(command, "check-files") == 0) && argc >= 4)
        return check_path(argv[2], argv + 3);
    if (strcmp(command, "resume") == 0 && argc == 3)
        return resume(argv[2]);
    if (strcmp(command, "gc") == 0 && argc == 3)
        return collect_garbage(argv[2]);
    if (strcmp(command, "careless") == 0 && argc == 4)
        return save_carelessly(argv[2], number);
    fprintf(stderr, "saver_tool: see the comment at its top\n");
    return 2;
}

/* Run the command in a child, which costs less than a new process. */
static int run_apart(int argc, char **argv)
{
    int status = 0;

    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        exit(run_command(argc, argv));
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 125;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int main(int argc, char **argv)
{
    int status = 0;

    for (int begin = 1, end = 1; begin <= argc && status == 0; begin = end + 1) {
        for (end = begin; end < argc && strcmp(argv[end], ",") != 0; end++)
            ;
        if (begin == 1 && end == argc)
            return run_command(argc, argv);
        if (end < argc)
            argv[end] = NULL;
        status = run_apart(end - begin + 1, argv + begin - 1);
        printf("= %d\n", status);
        fprintf(stderr, "= %d\n", status);
    }
    return status;
}
