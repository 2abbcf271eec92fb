/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * codec.c -- measures how much smaller the codecs make real tensors, and how many bytes one core
 * encodes and decodes per second, without disk, hashes and other threads.
 *
 * --tensors names a file of tensors. Each tensor is one item, cut into parts as a save cuts it.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "sidestep/sidestep_tools.h"

#define PART_BYTES ((uint64_t)4 << 20)
#define MIN_ITEM_BYTES 4096u /* saves do not encode smaller items */

struct tensors {
    uint8_t *memory;
    uint64_t bytes;
    struct codec_item *items;
    size_t count;
};

/* Goals for a kind of tensors; 0: none. */
struct goals {
    const char *label, *codec;
    double saved;          /* percent */
    double encode, decode; /* bytes per second */
};
static const struct goals goals[] = {
    {"bfloat16 weights", "zstd", 22, 0, 0},
    {"bfloat16 weights", "planes", 31, 1e9, 2e9},
    {"float32 weights", "planes", 15, 0, 0},
};

static struct goals goals_of(const char *label, const char *codec)
{
    for (size_t i = 0; i < sizeof(goals) / sizeof(goals[0]); i++)
        if (strcmp(goals[i].label, label) == 0 && strcmp(goals[i].codec, codec) == 0)
            return goals[i];
    return (struct goals){0};
}

static void read_tensors(const char *path, struct tensors *t)
{
    struct sidestep_checkpoint *checkpoint = NULL;
    struct sidestep_error err = {0};
    uint64_t at = 0;

    bench_check(sidestep_checkpoint_open(path, &checkpoint, &err), &err);
    size_t count = sidestep_checkpoint_count(checkpoint);
    *t = (struct tensors){.items = calloc(count, sizeof(*t->items))};
    for (size_t i = 0; i < count; i++)
        t->bytes += sidestep_checkpoint_entry(checkpoint, i)->bytes;
    t->memory = bench_map(t->bytes, true);
    for (size_t i = 0; i < count; i++) {
        const struct sidestep_entry *entry = sidestep_checkpoint_entry(checkpoint, i);
        if (entry->is_object || entry->bytes < MIN_ITEM_BYTES)
            continue;
        bench_check(sidestep_checkpoint_read_tensor(checkpoint, entry->name, NULL, NULL,
                                                    t->memory + at, entry->bytes, &err),
                    &err);
        t->items[t->count++] = (struct codec_item){
            .bytes = entry->bytes, .data_bytes = entry->bytes, .dtype = entry->dtype};
        at += entry->bytes;
    }
    t->bytes = at;
    if (at == 0)
        bench_die("'%s' has no tensor to measure", path);
    sidestep_checkpoint_close(&checkpoint);
}

static void encode_item(const struct codec *codec, struct codec_encoder *encoder,
                        const struct codec_item *item, const uint8_t *bytes, struct buffer *out)
{
    struct buffer index = {0};
    struct sidestep_error err = {0};

    for (uint64_t at = 0; at < item->bytes; at += PART_BYTES) {
        struct codec_part part = {
            .bytes = bytes + at, .begin = at, .length = min_u64(PART_BYTES, item->bytes - at)};
        bench_check(codec->encode(encoder, item, &part, out, &index, &err), &err);
    }
    buffer_put(out, index.bytes, index.length);
    bench_check(buffer_check(out, &err), &err);
    buffer_release(&index);
}

/* Takes decoded bytes to ${to}. */
struct memory_sink {
    struct codec_sink sink;
    uint8_t *to;
    uint64_t at, bytes;
};

static enum sidestep_status put(struct codec_sink *sink, const uint8_t *bytes, size_t length,
                                struct sidestep_error *err)
{
    struct memory_sink *out = (struct memory_sink *)sink;

    (void)err;
    if (bytes != out->to + out->at)
        memcpy(out->to + out->at, bytes, length);
    out->at += length;
    return SIDESTEP_OK;
}

/* As a load does for a tensor that is contiguous in memory. */
static uint8_t *room(struct codec_sink *sink, size_t length)
{
    const struct memory_sink *out = (struct memory_sink *)sink;

    return length <= out->bytes - out->at ? out->to + out->at : NULL;
}

static void decode_item(const struct codec *codec, const struct codec_item *item,
                        const uint8_t *stored, size_t length, uint8_t *to)
{
    struct memory_sink out = {.sink = {put, room}, .to = to, .bytes = item->bytes};
    struct codec_memory_input in;
    struct sidestep_error err = {0};

    codec_memory_input_init(&in, stored, length);
    bench_check(codec->decode(codec, &in.input, item->bytes, &out.sink, &err), &err);
}

struct codec_samples {
    struct bench_samples encode, decode;
    uint64_t stored;
};

/* Encode and decode all items once, and compare the result with the original. */
static void measure_once(const struct codec *codec, const struct tensors *t, struct buffer *out,
                         uint8_t *decoded, struct codec_samples *m)
{
    struct codec_encoder *encoder = NULL;
    struct sidestep_error err = {0};
    size_t *ends = calloc(t->count, sizeof(*ends));
    uint64_t at = 0;

    bench_check(codec->encoder_new(codec, &encoder, &err), &err);
    out->length = 0;
    double began = bench_now();
    for (size_t i = 0; i < t->count; at += t->items[i++].bytes) {
        encode_item(codec, encoder, &t->items[i], t->memory + at, out);
        ends[i] = out->length;
    }
    bench_add(&m->encode, bench_now() - began);
    m->stored = out->length;
    codec->encoder_free(encoder);
    began = bench_now();
    at = 0;
    for (size_t i = 0; i < t->count; at += t->items[i++].bytes) {
        size_t from = i != 0 ? ends[i - 1] : 0;
        decode_item(codec, &t->items[i], out->bytes + from, ends[i] - from, decoded + at);
    }
    bench_add(&m->decode, bench_now() - began);
    if (memcmp(decoded, t->memory, t->bytes) != 0)
        bench_die("codec '%s': the decoded bytes differ from the original", codec->descriptor);
    free(ends);
}

static void report(const struct tensors *t, const char *label, const char *name,
                   const struct codec_samples *m)
{
    struct goals goal = goals_of(label, name);
    struct bench_row saved = {.kind = BENCH_SHARE, .goal = goal.saved};
    struct bench_row encode = {.kind = BENCH_DURATION, .bytes = t->bytes, .ours = m->encode};
    struct bench_row decode = {.kind = BENCH_DURATION, .bytes = t->bytes, .ours = m->decode};
    char what[3][128];

    snprintf(what[0], sizeof(what[0]), "%s: saved by %s", label, name);
    snprintf(what[1], sizeof(what[1]), "%s: encoded by %s, one core", label, name);
    snprintf(what[2], sizeof(what[2]), "%s: decoded by %s, one core", label, name);
    saved.what = what[0], encode.what = what[1], decode.what = what[2];
    bench_add(&saved.ours, 100 * (1 - (double)m->stored / (double)t->bytes));
    encode.goal = goal.encode != 0 ? (double)t->bytes / goal.encode : 0;
    decode.goal = goal.decode != 0 ? (double)t->bytes / goal.decode : 0;
    bench_report(&saved);
    bench_report(&encode);
    bench_report(&decode);
}

void bench_codec(const struct bench *bench)
{
    const struct {
        const char *name;
        const struct codec *codec;
    } codecs[] = {
        {"zstd", &codec_zstd}, {"zstd:3", codec_zstd_level(3)}, {"planes", &codec_planes}};
    const char *path = bench->tensors != NULL ? strchr(bench->tensors, '=') : NULL;
    char label[64];
    struct tensors t;

    if (path == NULL)
        bench_die("codec: --tensors=LABEL=FILE must precede it");
    snprintf(label, sizeof(label), "%.*s", (int)(path - bench->tensors), bench->tensors);
    read_tensors(path + 1, &t);
    uint8_t *decoded = bench_map(t.bytes, true);
    for (size_t c = 0; c < sizeof(codecs) / sizeof(codecs[0]); c++) {
        struct codec_samples m = {0}, warm_up = {0};
        struct buffer out = {0};
        measure_once(codecs[c].codec, &t, &out, decoded, &warm_up);
        for (unsigned run = 0; run < bench->runs; run++)
            measure_once(codecs[c].codec, &t, &out, decoded, &m);
        report(&t, label, codecs[c].name, &m);
        buffer_release(&out);
    }
    bench_unmap(decoded, t.bytes);
    bench_unmap(t.memory, t.bytes);
    free(t.items);
}
