/* SPDX-License-Identifier: BSD-3-Clause */
/* compressed_load_test.c -- loads of compressed tensors, chunk by chunk: whole ones, and parts. */
#include <errno.h>

#include "base/fault.h"
#include "base/owned.h"
#include "checkpoint/reader.h"
#include "load/compressed_item.h"
#include "sidestep/sidestep_tools.h"
#include "store/store.h"
#include "support/one_scratch.h"
#include "support/prng.h"

#define ROWS 6001 /* 11.7 MiB: the last chunk is not full */
#define COLUMNS 1023
#define BYTES ((size_t)ROWS * COLUMNS * 2)

static char path[256];
static uint16_t *weight;
static uint64_t item_offset, item_bytes;
static unsigned long failing; /* number of the allocation that fails in the next load; 0: none */
static bool fired;            /* that allocation was reached */

static struct sidestep_engine *open_engine(uint32_t threads, enum sidestep_io io)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};

    options.threads = threads;
    options.io = io;
    ASSERT_OK(sidestep_engine_open(&engine, &options, &err), err);
    return engine;
}

static void close_engine(struct sidestep_engine *engine)
{
    struct sidestep_error err = {0};

    ASSERT_OK(sidestep_engine_close(&engine, &err), err);
}

/* A part of the tensor, from ${first} on, in ${data}, whose rows are ${pitch} elements apart. */
struct part {
    int64_t first[2], lengths[2];
    int64_t pitch;
};

static struct sidestep_state_dict *state_of(const struct part *part, void *data)
{
    struct sidestep_state_dict *state = NULL;
    struct sidestep_error err = {0};
    int64_t shape[2] = {ROWS, COLUMNS}, strides[2] = {part->pitch, 1};
    struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                     .name = "weight",
                                     .dtype = SIDESTEP_BFLOAT16,
                                     .ndim = 2,
                                     .shape = shape,
                                     .offsets = part->first,
                                     .lengths = part->lengths,
                                     .strides = strides,
                                     .data = data};

    ASSERT_OK(sidestep_state_dict_new(&state, &err), err);
    ASSERT_OK(sidestep_state_dict_add_tensor(state, &tensor, &err), err);
    return state;
}

static const struct part all = {.lengths = {ROWS, COLUMNS}, .pitch = COLUMNS};

static void note_where_it_lies(void)
{
    struct sidestep_checkpoint *checkpoint = NULL;
    struct sidestep_error err = {0};

    ASSERT_OK(sidestep_checkpoint_open(path, &checkpoint, &err), err);
    const struct sidestep_chunk *chunk = &sidestep_checkpoint_find(checkpoint, "weight")->chunks[0];
    assert_string_equal(chunk->transform, "sidestep.planes/1");
    item_offset = chunk->file_offset;
    item_bytes = chunk->file_bytes;
    sidestep_checkpoint_close(&checkpoint);
}

static int setup(void **state)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_error err = {0};
    struct prng prng = prng_new(5);

    (void)state;
    if (!scratch_make(&scratch, NULL))
        return -1;
    snprintf(path, sizeof(path), "%s/ckpt", scratch.path);
    weight = malloc(BYTES);
    for (size_t i = 0; i < BYTES / 2; i++) {
        uint64_t word = prng_next(&prng);
        weight[i] = (uint16_t)((word & 0x807f) | (118 + (word >> 32) % 5) << 7);
    }
    struct sidestep_engine *engine = open_engine(2, SIDESTEP_IO_AUTO);
    struct sidestep_state_dict *saved = state_of(&all, weight);
    options.compress = SIDESTEP_COMPRESS_PLANES;
    ASSERT_OK(sidestep_save(engine, path, saved, &options, NULL, &err), err);
    sidestep_state_dict_free(&saved);
    close_engine(engine);
    note_where_it_lies();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(weight);
    scratch_remove(&scratch);
    return 0;
}

/* Load ${part}, check it, and return the status and how much was read. */
static enum sidestep_status load(struct sidestep_engine *engine, const struct part *part,
                                 uint64_t *bytes_read, struct sidestep_error *err)
{
    struct sidestep_load_report report = {.struct_size = sizeof(report)};
    uint16_t *loaded = calloc((size_t)(part->lengths[0] * part->pitch), 2);
    struct sidestep_state_dict *state = state_of(part, loaded);
    if (failing != 0)
        fault_arm("memory", failing, false, ENOMEM);
    enum sidestep_status status = sidestep_load(engine, path, state, NULL, &report, err);
    fired = fault_fired() != NULL;
    fault_arm("", 0, false, 0);

    for (int64_t r = 0; r < part->lengths[0] && status == SIDESTEP_OK; r++)
        assert_memory_equal(loaded + r * part->pitch,
                            weight + (part->first[0] + r) * COLUMNS + part->first[1],
                            (size_t)part->lengths[1] * 2);
    if (bytes_read != NULL)
        *bytes_read = report.bytes_read;
    sidestep_load_report_release(&report);
    sidestep_state_dict_free(&state);
    free(loaded);
    return status;
}

/* ---- the tests */

TEST(all_of_it_is_loaded_by_any_number_of_threads)
{
    static const enum sidestep_io ios[] = {SIDESTEP_IO_AUTO, SIDESTEP_IO_THREADS,
                                           SIDESTEP_IO_BUFFERED};
    struct sidestep_error err = {0};
    struct part strided = all;

    strided.pitch = COLUMNS + 9;
    for (uint32_t threads = 1; threads <= 4; threads++) {
        struct sidestep_engine *engine = open_engine(threads, ios[threads % 3]);
        ASSERT_OK(load(engine, &all, NULL, &err), err);
        ASSERT_OK(load(engine, &strided, NULL, &err), err);
        close_engine(engine);
    }
}

TEST(a_part_reads_the_chunks_that_it_needs)
{
    struct sidestep_engine *engine = open_engine(2, SIDESTEP_IO_AUTO);
    struct sidestep_error err = {0};
    struct prng prng = prng_new(6);
    uint64_t bytes;

    /* 100 rows are in at most two chunks, and those in three stored blocks. */
    struct part rows = {.first = {2500, 0}, .lengths = {100, COLUMNS}, .pitch = COLUMNS};
    ASSERT_OK(load(engine, &rows, &bytes, &err), err);
    assert_in_range(bytes, 1, 3 * HASH_BLOCK_BYTES);
    /* the last rows are in the last chunk, which is not full */
    rows.first[0] = ROWS - 100;
    ASSERT_OK(load(engine, &rows, &bytes, &err), err);
    assert_in_range(bytes, 1, 3 * HASH_BLOCK_BYTES);
    ASSERT_OK(load(engine, &all, &bytes, &err), err);
    assert_true(bytes >= item_bytes);
    for (unsigned i = 0; i < 20; i++) {
        struct part any = {
            .first = {prng_between(&prng, 0, ROWS - 1), prng_between(&prng, 0, COLUMNS - 1)}};
        any.lengths[0] = prng_between(&prng, 1, ROWS - any.first[0]);
        any.lengths[1] = prng_between(&prng, 1, COLUMNS - any.first[1]);
        any.pitch = any.lengths[1];
        ASSERT_OK(load(engine, &any, NULL, &err), err);
    }
    close_engine(engine);
}

static void flip(uint64_t offset)
{
    char name[300];

    snprintf(name, sizeof(name), "%s/__0_0.distcp", path);
    FILE *file = fopen(name, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 4, file), byte ^ 4);
    assert_int_equal(fclose(file), 0);
}

/* Damage in the header, in the chunks and in the index is found by a load that reads it, and by no
 * other. */
TEST(damage_is_found_where_it_is_read)
{
    const uint64_t places[] = {9,
                               10,
                               24,
                               1000,
                               item_bytes / 2,
                               item_bytes - 4 * (BYTES / HASH_BLOCK_BYTES) - 40,
                               item_bytes - 40,
                               item_bytes - 1};
    struct sidestep_engine *engine = open_engine(2, SIDESTEP_IO_AUTO);
    struct sidestep_error err = {0};

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        flip(item_offset + places[i]);
        assert_int_equal(load(engine, &all, NULL, &err), SIDESTEP_ECORRUPT);
        assert_non_null(strstr(err.message, "'weight' in file '__0_0.distcp'"));
        flip(item_offset + places[i]);
    }
    struct part rows = {.lengths = {100, COLUMNS}, .pitch = COLUMNS};
    flip(item_offset + item_bytes / 2);
    ASSERT_OK(load(engine, &rows, NULL, &err), err);
    rows.first[0] = ROWS / 2;
    assert_int_equal(load(engine, &rows, NULL, &err), SIDESTEP_ECORRUPT);
    flip(item_offset + item_bytes / 2);
    ASSERT_OK(load(engine, &all, NULL, &err), err);
    close_engine(engine);
}

TEST(every_failed_allocation_ends_the_load)
{
    struct sidestep_engine *engine = open_engine(2, SIDESTEP_IO_THREADS);
    struct sidestep_error err = {0};
    unsigned failed = 0;

    for (fired = true; fired;) {
        failing++;
        enum sidestep_status status = load(engine, &all, NULL, &err);
        assert_true(status == SIDESTEP_OK || (status == SIDESTEP_ENOMEM && fired));
        failed += status != SIDESTEP_OK;
    }
    assert_true(failed > 10);
    failing = 0;
    ASSERT_OK(load(engine, &all, NULL, &err), err);
    close_engine(engine);
}

/* ---- below the public functions */

static enum sidestep_status put(void *context, uint64_t begin, const uint8_t *bytes,
                                uint64_t length, struct sidestep_error *err)
{
    (void)err;
    memcpy((uint8_t *)context + begin, bytes, length);
    return SIDESTEP_OK;
}

/* Decode in stretches, the last one first. */
static enum sidestep_status decode_all(struct compressed_item *coded,
                                       struct compressed_item_decoders *benches,
                                       const struct reader_sink *place, struct sidestep_error *err)
{
    uint64_t firsts[64], begin, end;
    size_t count = 0;

    for (uint64_t first = 0; first < coded->count; count++) {
        firsts[count] = first;
        first = compressed_item_next_range(coded, first, coded->count, &begin, &end);
    }
    assert_true(count > 1);
    while (count-- > 0) {
        uint64_t last =
            compressed_item_next_range(coded, firsts[count], coded->count, &begin, &end);
        OWNED uint8_t *bytes = malloc(end - begin);
        TRY(source_read(&coded->item->file->source, bytes, end - begin, begin, err));
        TRY(compressed_item_decode(coded, benches, firsts[count], last, bytes, place, err));
    }
    return SIDESTEP_OK;
}

/* If a codec returns wrong bytes, the hash of the original ones shows it. */
TEST(decoded_bytes_are_compared_with_their_hash)
{
    struct reader *reader = NULL;
    struct reader_item item;
    struct compressed_item coded;
    struct compressed_item_decoders benches;
    struct sidestep_error err = {0};
    OWNED uint8_t *loaded = malloc(BYTES);
    struct reader_sink place = {.put = put, .context = loaded};

    ASSERT_OK(reader_open(store_posix(), path, 0, &reader, &err), err);
    struct reader_file *file = NULL;
    for (size_t i = 0; i < reader->file_count; i++)
        if (strcmp(reader->files[i].name, "__0_0.distcp") == 0)
            file = &reader->files[i];
    assert_non_null(file);
    struct footer_item footer = *reader_find_footer_item(file, item_offset);
    compressed_item_decoders_init(&benches);
    for (unsigned wrong = 0; wrong < 2; wrong++) {
        footer.raw_hash.low ^= wrong;
        item = reader_item_from_footer(file, &footer);
        ASSERT_OK(compressed_item_open(&item, true, &coded, &err), err);
        assert_non_null(coded.chunks);
        enum sidestep_status status = decode_all(&coded, &benches, &place, &err);
        assert_memory_equal(loaded, weight, BYTES);
        assert_int_equal(status, wrong ? SIDESTEP_ECORRUPT : SIDESTEP_OK);
        compressed_item_close(&coded);
    }
    assert_non_null(strstr(err.message, "do not match their hash"));
    compressed_item_decoders_release(&benches);
    reader_close(&reader);
}

ALL_TESTS(setup, teardown);
