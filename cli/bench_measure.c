/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench_measure.c -- the measurements of `sidestep bench`.
 *
 * Disks and memories of virtual machines change from minute to minute, so measurements that are
 * compared take turns.  All memory is touched before, files are new, and reads do not come from the
 * page cache.
 */
#include "bench.h"
#include "verify_path.h"
#include "memory.h"
#include "output.h"
#include "baseline_io.h"
#include "progress.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define TENSORS 64u
#define SETTLE_US 200000u
#define COPY_BYTES ((uint64_t)256 << 20)

struct measurement {
    struct cli_bench *bench;
    struct cli_progress progress;
    uint64_t done_bytes, total_bytes;
    char *folder, *file, *checkpoint;
    unsigned char *memory, *spare;
    struct sidestep_engine *engine;
    struct sidestep_state_dict *state;
    struct sidestep_error *err;
};

/* Fill with bytes that no storage can compress or deduplicate. */
static void fill(unsigned char *memory, uint64_t bytes)
{
    uint64_t *words = (uint64_t *)(void *)memory, x = 88172645463325252u;

    for (uint64_t i = 0; i < bytes / sizeof(*words); i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        words[i] = x;
    }
}

static enum sidestep_status add_tensors(struct measurement *m)
{
    uint64_t each = m->bench->bytes / TENSORS;
    int64_t shape[] = {(int64_t)(each / sizeof(float))};
    char name[32];

    for (unsigned i = 0; i < TENSORS; i++) {
        struct sidestep_tensor tensor = SIDESTEP_TENSOR_INIT;

        snprintf(name, sizeof(name), "tensor.%u", i);
        tensor.name = name;
        tensor.dtype = SIDESTEP_FLOAT32;
        tensor.ndim = 1;
        tensor.shape = shape;
        tensor.data = m->memory + i * each;
        enum sidestep_status status = sidestep_state_dict_add_tensor(m->state, &tensor, m->err);
        if (status != SIDESTEP_OK)
            return status;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status prepare(struct measurement *m)
{
    struct cli_bench *bench = m->bench;
    uint64_t spare = bench->bytes < COPY_BYTES ? bench->bytes : COPY_BYTES;
    enum sidestep_status status;
    struct statvfs fs;

    if (statvfs(bench->directory, &fs) == 0 &&
        (double)fs.f_bavail * (double)fs.f_frsize < 3.0 * (double)bench->bytes)
        return cli_error_set(m->err, SIDESTEP_ENOSPC,
                             "bench: '%s' has too little free space: 3 times --size is needed",
                             bench->directory);
    m->memory = cli_baseline_io_map(bench->bytes, m->err);
    m->spare = m->memory != NULL ? cli_baseline_io_map(spare, m->err) : NULL;
    if (m->spare == NULL)
        return SIDESTEP_ENOMEM;
    fill(m->memory, bench->bytes);
    status = sidestep_engine_open(&m->engine, NULL, m->err);
    if (status == SIDESTEP_OK)
        status = sidestep_state_dict_new(&m->state, m->err);
    if (status == SIDESTEP_OK)
        status = add_tensors(m);
    if (status == SIDESTEP_OK)
        status = sidestep_engine_prepare(m->engine, m->state, m->err);
    return status;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

/* Remove the files and wait until the disk is idle, so that it discards freed blocks now, not
 * during the next measurement. */
static void remove_files(const struct measurement *m, const char *path)
{
    struct sidestep_error err;

    if (m->bench->in_bucket) { /* remove_folder() reports a failure */
        (void)!sidestep_delete(path, &err);
        return;
    }
    int fd = open(m->bench->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (fd < 0)
        return;
    (void)syncfs(fd);
    (void)close(fd);
    (void)usleep(SETTLE_US);
}

/* After each step: show the progress, and check for an interrupt. */
static enum sidestep_status step_done(struct measurement *m, enum sidestep_status status)
{
    m->done_bytes += m->bench->bytes;
    cli_progress_update(&m->progress, m->done_bytes, m->total_bytes);
    if (status == SIDESTEP_OK && cli_interrupt_received())
        return cli_error_set(m->err, SIDESTEP_ECANCELLED, "bench: interrupted");
    return status;
}

static double measure_copy(struct measurement *m)
{
    uint64_t piece = m->bench->bytes < COPY_BYTES ? m->bench->bytes : COPY_BYTES;
    double began = cli_baseline_io_now();

    for (uint64_t at = 0; at < m->bench->bytes; at += piece) {
        uint64_t left = m->bench->bytes - at;

        memcpy(m->spare, m->memory + at, left < piece ? left : piece);
    }
    return cli_baseline_io_now() - began;
}

static enum sidestep_status measure_plain(struct measurement *m, uint64_t run)
{
    struct cli_bench *bench = m->bench;
    enum sidestep_status status;

    status = cli_baseline_io_write(m->file, m->memory, bench->bytes, &bench->direct,
                                   &bench->seconds[CLI_BENCH_WRITE][run], m->err);
    status = step_done(m, status);
    if (status == SIDESTEP_OK)
        status = step_done(m, cli_baseline_io_read(m->file, m->memory, bench->bytes,
                                                   &bench->seconds[CLI_BENCH_READ][run], m->err));
    remove_files(m, m->file);
    return status;
}

static enum sidestep_status measure_save(struct measurement *m, uint64_t run)
{
    struct sidestep_save *save = NULL;
    enum sidestep_status status;
    double began = cli_baseline_io_now(), returned;

    status = sidestep_save_async(m->engine, m->checkpoint, m->state, NULL, &save, m->err);
    returned = cli_baseline_io_now();
    if (status == SIDESTEP_OK)
        status = sidestep_save_finish(&save, NULL, m->err);
    m->bench->seconds[CLI_BENCH_STALL][run] = returned - began;
    m->bench->seconds[CLI_BENCH_SAVE][run] = cli_baseline_io_now() - returned;
    return step_done(m, status);
}

static enum sidestep_status measure_load(struct measurement *m, uint64_t run)
{
    enum sidestep_status status;
    double began;

    if (!m->bench->in_bucket)
        cli_baseline_io_drop_cache(m->checkpoint);
    began = cli_baseline_io_now();
    status = sidestep_load(m->engine, m->checkpoint, m->state, NULL, NULL, m->err);
    m->bench->seconds[CLI_BENCH_LOAD][run] = cli_baseline_io_now() - began;
    return step_done(m, status);
}

static enum sidestep_status measure_all(struct measurement *m)
{
    enum sidestep_status status = measure_save(m, 0); /* not counted: the first save plans */

    remove_files(m, m->checkpoint);
    for (uint64_t run = 0; run < m->bench->runs && status == SIDESTEP_OK; run++) {
        m->bench->seconds[CLI_BENCH_COPY][run] = measure_copy(m);
        if (!m->bench->in_bucket)
            status = measure_plain(m, run);
        if (status == SIDESTEP_OK)
            status = measure_save(m, run);
        if (status == SIDESTEP_OK)
            status = measure_load(m, run);
        remove_files(m, m->checkpoint);
    }
    return status;
}

static char *join(const char *folder, const char *name)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = cli_memory_stream(&text, &length);

    fprintf(stream, "%s/%s", folder, name);
    cli_memory_stream_close(stream);
    return text;
}

/* Make a new folder: a directory, or in a bucket a prefix with a random name. */
static enum sidestep_status make_folder(struct measurement *m)
{
    const struct cli_bench *bench = m->bench;
    size_t length = strlen(m->folder);
    uint64_t number;

    if (bench->in_bucket) {
        if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
            return cli_error_set(m->err, SIDESTEP_EIO, "bench: no random numbers");
        snprintf(m->folder + length - 6, 7, "%06llx", (unsigned long long)number & 0xffffffu);
        return SIDESTEP_OK;
    }
    if (mkdtemp(m->folder) != NULL)
        return SIDESTEP_OK;
    return cli_error_set(m->err,
                         errno == ENOENT                     ? SIDESTEP_ENOTFOUND
                         : errno == EACCES || errno == EROFS ? SIDESTEP_EPERM
                                                             : SIDESTEP_EIO,
                         "bench: make a directory in '%s': %s", bench->directory, strerror(errno));
}

/* Remove the folder; in a bucket, the checkpoint that a failure left. */
static void remove_folder(const struct measurement *m)
{
    struct sidestep_error err;

    if (!m->bench->in_bucket)
        (void)nftw(m->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    else if (sidestep_delete(m->checkpoint, &err) != SIDESTEP_OK &&
             err.status != SIDESTEP_ENOTFOUND)
        cli_output_note(m->bench->cli, "'%s' may be left there: %s", m->checkpoint, err.message);
}

enum sidestep_status cli_bench_measure(struct cli_bench *bench, struct sidestep_error *err)
{
    uint64_t steps = bench->in_bucket ? 2 : 4; /* of a run */
    struct measurement m = {.bench = bench,
                            .total_bytes = (1 + steps * bench->runs) * bench->bytes,
                            .folder = join(bench->directory, ".sidestep-bench.XXXXXX"),
                            .err = err};
    enum sidestep_status status = make_folder(&m);

    if (status != SIDESTEP_OK) {
        free(m.folder);
        return status;
    }
    m.file = join(m.folder, "plain");
    m.checkpoint = join(m.folder, "checkpoint");
    cli_interrupt_watch();
    cli_progress_begin(&m.progress, bench->cli, "bench");
    status = prepare(&m);
    if (status == SIDESTEP_OK)
        status = measure_all(&m);
    cli_progress_end(&m.progress);
    sidestep_state_dict_free(&m.state);
    (void)sidestep_engine_close(&m.engine, NULL);
    remove_folder(&m);
    free(m.folder);
    free(m.file);
    free(m.checkpoint);
    return status;
}
