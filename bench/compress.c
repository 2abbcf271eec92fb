/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * compress.c -- measures how much smaller compression makes a training state, and what that costs.
 * A limit of the write rate stands for a disk of known speed.
 *
 * The tensors resemble a training state: weights in bf16 or float32 with a normal distribution,
 * whose scale differs from row to row; Adam's first moments likewise, and the second ones squared.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS 1024u

enum content { WEIGHTS_BF16, WEIGHTS_FLOAT32, FIRST_MOMENT, SECOND_MOMENT, CONTENTS };

static const struct {
    const char *name;
    enum sidestep_dtype dtype;
    double stored; /* goal: planes store at most this fraction of the bytes; 0: none */
} contents[CONTENTS] = {
    [WEIGHTS_BF16] = {"bf16 weights", SIDESTEP_BFLOAT16, 0.69},
    [WEIGHTS_FLOAT32] = {"float32 weights", SIDESTEP_FLOAT32, 0.85},
    [FIRST_MOMENT] = {"float32 first moments", SIDESTEP_FLOAT32, 0},
    [SECOND_MOMENT] = {"float32 second moments", SIDESTEP_FLOAT32, 0},
};

struct compress_bench {
    struct sidestep_state_dict *state;
    uint8_t *memory;
    uint64_t bytes;
    char checkpoint[4096];
};

static uint64_t next_word(uint64_t *seed)
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in (0, 1). */
static double uniform(uint64_t *seed)
{
    return ((double)(next_word(seed) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(uint64_t *seed)
{
    return sqrt(-2 * log(uniform(seed))) * cos(6.283185307179586 * uniform(seed));
}

static void fill(struct compress_bench *p, enum content content)
{
    uint64_t seed = 11 + content, count = p->bytes / sidestep_dtype_size(contents[content].dtype);
    double scale = 1;

    for (uint64_t i = 0; i < count; i++) {
        if (i % COLUMNS == 0)
            scale = (content >= FIRST_MOMENT ? 1e-4 : 0.02) * exp(0.7 * normal(&seed));
        float value = (float)(scale * normal(&seed));
        if (content == SECOND_MOMENT)
            value *= value;
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        uint16_t half = (uint16_t)(bits >> 16);
        if (contents[content].dtype == SIDESTEP_FLOAT32)
            memcpy(p->memory + 4 * i, &bits, 4);
        else
            memcpy(p->memory + 2 * i, &half, 2);
    }
}

static void make(const struct bench *bench, struct compress_bench *p, uint64_t bytes,
                 enum content content)
{
    struct sidestep_error err = {0};
    uint64_t row = COLUMNS * sidestep_dtype_size(contents[content].dtype);
    int64_t rows = (int64_t)(bytes / row / 8);

    *p = (struct compress_bench){.bytes = (uint64_t)rows * 8 * row};
    snprintf(p->checkpoint, sizeof(p->checkpoint), "%s/compressed", bench->dir);
    p->memory = bench_map(p->bytes, true);
    fill(p, content);
    bench_check(sidestep_state_dict_new(&p->state, &err), &err);
    for (int i = 0; i < 8; i++) {
        char name[16];
        int64_t shape[2] = {rows, COLUMNS};
        snprintf(name, sizeof(name), "layer.%d", i);
        struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                         .name = name,
                                         .dtype = contents[content].dtype,
                                         .ndim = 2,
                                         .shape = shape,
                                         .data = p->memory + (uint64_t)i * (uint64_t)rows * row};
        bench_check(sidestep_state_dict_add_tensor(p->state, &tensor, &err), &err);
    }
}

static void release(struct compress_bench *p)
{
    sidestep_state_dict_free(&p->state);
    bench_unmap(p->memory, p->bytes);
}

static double save(struct compress_bench *p, struct sidestep_engine *engine,
                   enum sidestep_compress compress, struct sidestep_save_info *info)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_error err = {0};

    options.compress = compress;
    *info = (struct sidestep_save_info)SIDESTEP_SAVE_INFO_INIT;
    double began = bench_now();
    bench_check(sidestep_save(engine, p->checkpoint, p->state, &options, info, &err), &err);
    double seconds = bench_now() - began;
    bench_remove(p->checkpoint);
    return seconds;
}

static struct sidestep_engine *open_engine(uint64_t bytes_per_second)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};

    options.write_bytes_per_second = bytes_per_second;
    bench_check(sidestep_engine_open(&engine, &options, &err), &err);
    return engine;
}

/* Measure the stored bytes, and the bytes that a thread encodes per second. */
static void measure_gain(const struct bench *bench, struct compress_bench *p, enum content content,
                         enum sidestep_compress compress)
{
    const char *name = compress == SIDESTEP_COMPRESS_ZSTD ? "zstd" : "planes";
    struct sidestep_engine *engine = open_engine(0);
    struct sidestep_save_info info;
    struct bench_row size = {.kind = BENCH_MEMORY}, speed = {.kind = BENCH_DURATION};
    char what[2][128];

    snprintf(what[0], sizeof(what[0]), "stored of %s by %s", contents[content].name, name);
    snprintf(what[1], sizeof(what[1]), "encoding %s by %s, one core", contents[content].name, name);
    size.what = what[0];
    speed.what = what[1];
    for (unsigned run = 0; run < bench->runs; run++) {
        save(p, engine, compress, &info);
        bench_add(&size.ours, (double)info.stored_bytes);
        bench_add(&speed.ours, (double)info.encode_ns / 1e9);
    }
    size.goal = compress == SIDESTEP_COMPRESS_PLANES
                    ? contents[content].stored * (double)info.raw_bytes
                    : 0;
    speed.bytes = info.raw_bytes;
    if (content == WEIGHTS_BF16 && compress == SIDESTEP_COMPRESS_PLANES)
        speed.goal = (double)info.raw_bytes / 1e9;
    bench_report(&size);
    bench_report(&speed);
    bench_check(sidestep_engine_close(&engine, NULL), NULL);
}

/* With a disk of ${gigabytes} GB/s: the save may take at most 9 percent longer. */
static void measure_limited(const struct bench *bench, struct compress_bench *p,
                            enum content content, double gigabytes)
{
    static const struct {
        const char *name;
        enum sidestep_compress compress;
    } ways[] = {{"zstd", SIDESTEP_COMPRESS_ZSTD},
                {"planes", SIDESTEP_COMPRESS_PLANES},
                {"auto", SIDESTEP_COMPRESS_AUTO}};

    for (size_t way = 0; way < sizeof(ways) / sizeof(ways[0]); way++) {
        struct sidestep_engine *engine = open_engine((uint64_t)(gigabytes * 1e9));
        struct sidestep_save_info info;
        struct bench_row row = {.kind = BENCH_SPEED, .bytes = p->bytes, .goal = 1 / 1.09};
        char what[128], reference[128];
        snprintf(what, sizeof(what), "save %s by %s, disk of %.1f GB/s", contents[content].name,
                 ways[way].name, gigabytes);
        snprintf(reference, sizeof(reference), "as they are, disk of %.1f GB/s", gigabytes);
        row.what = what;
        row.reference = reference;
        /* The first saves allocate memory, and AUTO learns from them how fast the disk is. */
        save(p, engine, SIDESTEP_COMPRESS_NONE, &info);
        save(p, engine, ways[way].compress, &info);
        for (unsigned run = 0; run < bench->runs; run++) {
            bench_add(&row.theirs, save(p, engine, SIDESTEP_COMPRESS_NONE, &info));
            bench_add(&row.ours, save(p, engine, ways[way].compress, &info));
        }
        bench_report(&row);
        bench_check(sidestep_engine_close(&engine, NULL), NULL);
    }
}

static double load(struct compress_bench *p, struct sidestep_engine *engine)
{
    struct sidestep_error err = {0};
    double began = bench_now();

    bench_check(sidestep_load(engine, p->checkpoint, p->state, NULL, NULL, &err), &err);
    return bench_now() - began;
}

/* Measure a load by one thread from the page cache: how many bytes a core decodes per second. */
static void measure_load(const struct bench *bench, struct compress_bench *p, enum content content,
                         enum sidestep_compress compress)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_save_options saving = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    struct bench_row row = {.kind = BENCH_DURATION, .bytes = p->bytes};
    char what[128];

    snprintf(what, sizeof(what), "load %s by %s, one thread, warm", contents[content].name,
             compress == SIDESTEP_COMPRESS_ZSTD ? "zstd" : "planes");
    row.what = what;
    options.threads = 1;
    options.io = SIDESTEP_IO_BUFFERED;
    saving.compress = compress;
    bench_check(sidestep_engine_open(&engine, &options, &err), &err);
    bench_check(sidestep_save(engine, p->checkpoint, p->state, &saving, NULL, &err), &err);
    bench_make_warm(p->checkpoint);
    for (unsigned run = 0; run < bench->runs; run++)
        bench_add(&row.ours, load(p, engine));
    bench_report(&row);
    bench_remove(p->checkpoint);
    bench_check(sidestep_engine_close(&engine, NULL), NULL);
}

void bench_compress(const struct bench *bench, uint64_t bytes)
{
    for (unsigned content = 0; content < CONTENTS; content++) {
        struct compress_bench p;
        make(bench, &p, bytes, (enum content)content);
        measure_gain(bench, &p, (enum content)content, SIDESTEP_COMPRESS_ZSTD);
        measure_gain(bench, &p, (enum content)content, SIDESTEP_COMPRESS_PLANES);
        if (content == WEIGHTS_BF16) {
            measure_load(bench, &p, WEIGHTS_BF16, SIDESTEP_COMPRESS_ZSTD);
            measure_load(bench, &p, WEIGHTS_BF16, SIDESTEP_COMPRESS_PLANES);
            measure_limited(bench, &p, WEIGHTS_BF16, 0.5);
            measure_limited(bench, &p, WEIGHTS_BF16, 1.0);
        }
        release(&p);
    }
}
