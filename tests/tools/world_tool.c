/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * world_tool.c -- saves, loads and dumps checkpoints, for tests that compare them with torch's.
 *
 *   world_tool save PATH RANKS LAYOUT SCALE SEED   save the state of support/world.h; LAYOUT: rows,
 *                                                  columns; the ranks are threads
 *   world_tool load PATH RANKS LAYOUT SCALE SEED   load it, and compare every element
 *   world_tool dump PATH OUTDIR                    write the bytes of every tensor to a file, and
 *                                                  OUTDIR/index.json: see dump()
 *   world_tool sample PATH WITHOUT                 save a state with every dtype except WITHOUT
 *                                                  (which may be ""), and every kind of value
 *   world_tool copy FROM TO RANKS                  load any checkpoint, and save it by ranks that
 *                                                  share each tensor's first dimension
 *   world_tool series ROOT STEP                    open the series, save STEP by one rank, close
 *   world_tool gc ROOT; prune ROOT                 as the command line; prune keeps the last one
 *   world_tool without POINT COMMAND ...           without the rule that this fault point breaks,
 *                                                  for negative controls
 *
 * The exit status is that of the command line for the same failure.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/owned.h"
#include "sidestep/sidestep_tools.h"
#include "support/comm_threads.h"
#include "support/value_json.h"
#include "support/world.h"

/* ---- save and load ---- */

struct job {
    bool load;
    const char *path;
    enum world_layout layout;
    int64_t scale;
    uint64_t seed;
};

static enum sidestep_status load(const struct job *job, struct sidestep_engine *engine,
                                 struct world *world, struct sidestep_error *err)
{
    TRY(sidestep_load(engine, job->path, world->state, NULL, NULL, err));
    int different = world_check(world, job->seed);
    if (different == 0)
        return SIDESTEP_OK;
    const char *name =
        (size_t)different <= world->count ? world->tensors[different - 1].name : "config";
    return FAIL(err, SIDESTEP_EMISMATCH, "rank %d: '%s' is not what was saved", world->rank, name);
}

static enum sidestep_status save(const struct job *job, struct sidestep_engine *engine,
                                 struct world *world, struct sidestep_error *err)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;

    options.has_step = true;
    options.step = job->seed;
    world_fill(world, job->seed);
    return sidestep_save(engine, job->path, world->state, &options, NULL, err);
}

static int run_rank(struct sidestep_comm *comm, void *context)
{
    const struct job *job = context;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    struct world world;

    options.comm = comm;
    options.threads = 1;
    enum sidestep_status status = sidestep_engine_open(&engine, &options, &err);
    if (status == SIDESTEP_OK) {
        world_make(&world, comm->rank, comm->size, job->layout, job->scale, job->load);
        status = (job->load ? load : save)(job, engine, &world, &err);
        world_free(&world);
        enum sidestep_status closed = sidestep_engine_close(&engine, &err);
        status = status != SIDESTEP_OK ? status : closed;
    }
    if (status != SIDESTEP_OK)
        fprintf(stderr, "%s\n", err.message);
    return status != SIDESTEP_OK;
}

static enum sidestep_status run_ranks(char **argv, bool is_load, struct sidestep_error *err)
{
    bool columns = strcmp(argv[2], "columns") == 0;
    struct job job = {.load = is_load,
                      .path = argv[0],
                      .layout = columns ? WORLD_BY_COLUMNS : WORLD_BY_ROWS,
                      .scale = strtoll(argv[3], NULL, 10),
                      .seed = strtoull(argv[4], NULL, 10)};

    if (!columns && strcmp(argv[2], "rows") != 0)
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is no layout", argv[2]);
    if (comm_threads_run(atoi(argv[1]), run_rank, &job) != 0)
        return FAIL(err, SIDESTEP_EIO, "%s '%s' failed", is_load ? "load" : "save", job.path);
    return SIDESTEP_OK;
}

static enum sidestep_status run_save(char **argv, struct sidestep_error *err)
{
    return run_ranks(argv, false, err);
}

static enum sidestep_status run_load(char **argv, struct sidestep_error *err)
{
    return run_ranks(argv, true, err);
}

/* ---- dump ---- */

static enum sidestep_status write_file(const char *folder, const char *name, const void *bytes,
                                       size_t length, struct sidestep_error *err)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return FAIL_SYS(err, "open '%s'", path);
    bool written = fwrite(bytes, 1, length, file) == length;
    if (fclose(file) != 0 || !written)
        return FAIL_SYS(err, "write '%s'", path);
    return SIDESTEP_OK;
}

static void put_numbers(struct buffer *out, uint32_t ndim, const int64_t *numbers)
{
    for (uint32_t d = 0; d < ndim; d++)
        buffer_printf(out, "%s%" PRId64, d != 0 ? "," : "", numbers[d]);
}

static void put_chunks(struct buffer *out, const struct sidestep_entry *entry)
{
    for (size_t i = 0; i < entry->chunk_count; i++) {
        buffer_put_text(out, i != 0 ? ",[[" : "[[");
        put_numbers(out, entry->ndim, entry->chunks[i].offsets);
        buffer_put_text(out, "],[");
        put_numbers(out, entry->ndim, entry->chunks[i].lengths);
        buffer_put_text(out, "]]");
    }
}

static enum sidestep_status dump_tensor(struct sidestep_checkpoint *checkpoint,
                                        const struct sidestep_entry *entry, const char *folder,
                                        size_t number, struct buffer *out,
                                        struct sidestep_error *err)
{
    OWNED_BUFFER data = {0};
    char file[32];

    (void)buffer_extend(&data, entry->bytes + 1); /* so that an empty tensor has an address, too */
    TRY(buffer_check(&data, err));
    TRY(sidestep_checkpoint_read_tensor(checkpoint, entry->name, NULL, NULL, data.bytes,
                                        entry->bytes, err));
    snprintf(file, sizeof(file), "%zu.bin", number);
    TRY(write_file(folder, file, data.bytes, entry->bytes, err));
    buffer_printf(out, ",\"dtype\":\"%s\",\"file\":\"%s\",\"shape\":[", entry->dtype_name, file);
    put_numbers(out, entry->ndim, entry->shape);
    buffer_put_text(out, "],\"chunks\":[");
    put_chunks(out, entry);
    buffer_put_text(out, "]");
    return SIDESTEP_OK;
}

static enum sidestep_status dump_object(struct sidestep_checkpoint *checkpoint,
                                        const struct sidestep_entry *entry, struct buffer *out,
                                        struct sidestep_error *err)
{
    struct sidestep_value *value = NULL;

    TRY(sidestep_checkpoint_read_value(checkpoint, entry->name, &value, err));
    buffer_put_text(out, ",\"value\":");
    value_json_put(out, value);
    sidestep_value_free(&value);
    return SIDESTEP_OK;
}

/* index.json: {"format", "save_id", "entries": [{"name", "dtype", "file", "shape", "chunks":
 * [[offsets, lengths], ...]} or {"name", "value"}, ...]}; names and values as in value_json.h. */
static enum sidestep_status dump(struct sidestep_checkpoint *checkpoint, const char *folder,
                                 struct sidestep_error *err)
{
    OWNED_BUFFER out = {0};
    struct sidestep_checkpoint_info info = SIDESTEP_CHECKPOINT_INFO_INIT;

    (void)sidestep_checkpoint_info(checkpoint, &info);
    buffer_printf(&out, "{\"format\":\"%s\",\"save_id\":\"%s\",\"entries\":[", info.format,
                  info.save_id);
    for (size_t i = 0; i < sidestep_checkpoint_count(checkpoint); i++) {
        const struct sidestep_entry *entry = sidestep_checkpoint_entry(checkpoint, i);
        buffer_put_text(&out, i != 0 ? ",\n{\"name\":" : "\n{\"name\":");
        value_json_put_text(&out, entry->name);
        if (entry->is_object)
            TRY(dump_object(checkpoint, entry, &out, err));
        else
            TRY(dump_tensor(checkpoint, entry, folder, i, &out, err));
        buffer_put_u8(&out, '}');
    }
    buffer_put_text(&out, "]}\n");
    TRY(buffer_check(&out, err));
    return write_file(folder, "index.json", out.bytes, out.length, err);
}

static enum sidestep_status run_dump(char **argv, struct sidestep_error *err)
{
    struct sidestep_checkpoint *checkpoint = NULL;

    TRY(sidestep_checkpoint_open(argv[0], &checkpoint, err));
    enum sidestep_status status = dump(checkpoint, argv[1], err);
    sidestep_checkpoint_close(&checkpoint);
    return status;
}

/* ---- sample ---- */

#define SAMPLE_BYTES 1024 /* of the memory of one tensor; enough for each of the shapes */
#define SAMPLE_TENSORS 256

static const struct {
    const char *name;
    uint32_t ndim;
    int64_t shape[4];
    int64_t strides[4];
} sample_shapes[] = {
    {"scalar", 0, {0}, {0}},
    {"empty", 2, {3, 0}, {1, 1}},
    {"vector", 1, {5}, {1}},
    {"four", 4, {2, 3, 1, 4}, {12, 4, 4, 1}},
    {"transposed", 2, {3, 4}, {1, 3}},
    {"gaps", 3, {2, 3, 2}, {20, 6, 2}},
    {"channels_last", 4, {2, 3, 2, 2}, {12, 1, 6, 3}},
};

/* Byte ${i} of the elements in row-major order is 37 i + (the sum of the name's bytes); for a bool,
 * the last bit of that. */
static void fill(const struct sidestep_tensor *tensor, unsigned char *data)
{
    size_t item = sidestep_dtype_size(tensor->dtype);
    unsigned char value = 0;
    int64_t at[4] = {0};
    int64_t volume = 1;

    for (const char *c = tensor->name; *c != '\0'; c++)
        value = (unsigned char)(value + (unsigned char)*c);
    for (uint32_t d = 0; d < tensor->ndim; d++)
        volume *= tensor->shape[d];
    for (int64_t n = 0; n < volume; n++) {
        int64_t place = 0;
        for (uint32_t d = 0; d < tensor->ndim; d++)
            place += at[d] * tensor->strides[d];
        for (size_t i = 0; i < item; i++, value = (unsigned char)(value + 37))
            data[(size_t)place * item + i] = tensor->dtype == SIDESTEP_BOOL ? value & 1 : value;
        for (uint32_t d = tensor->ndim; d-- > 0;) {
            if (++at[d] < tensor->shape[d])
                break;
            at[d] = 0;
        }
    }
}

static enum sidestep_status add_dtype(struct sidestep_state_dict *state, enum sidestep_dtype dtype,
                                      unsigned char *memory, struct sidestep_error *err)
{
    for (size_t i = 0; i < sizeof(sample_shapes) / sizeof(sample_shapes[0]); i++) {
        char name[128];
        const char *dtype_name = sidestep_dtype_name(dtype);
        const struct sidestep_path_item path[] = {
            {.key = "sample"}, {.key = dtype_name}, {.key = sample_shapes[i].name}};

        snprintf(name, sizeof(name), "sample.%s.%s", dtype_name, sample_shapes[i].name);
        struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                         .name = name,
                                         .dtype = dtype,
                                         .ndim = sample_shapes[i].ndim,
                                         .shape = sample_shapes[i].shape,
                                         .strides = sample_shapes[i].strides,
                                         .data = memory + i * SAMPLE_BYTES,
                                         .flags = i % 2 == 0 ? SIDESTEP_TENSOR_REQUIRES_GRAD : 0,
                                         .path_length = 3,
                                         .path = path};
        fill(&tensor, tensor.data);
        TRY(sidestep_state_dict_add_tensor(state, &tensor, err));
    }
    return SIDESTEP_OK;
}

/* Add tensors in lists, at the end of a deep path, and with a name that JSON and shells must
 * quote. */
static enum sidestep_status add_paths(struct sidestep_state_dict *state, unsigned char *memory,
                                      struct sidestep_error *err)
{
    static const int64_t shape[] = {2, 3}, strides[] = {3, 1};
    static const struct {
        const char *name;
        uint32_t length;
        struct sidestep_path_item path[5];
    } places[] = {
        {"optim.state.0.exp_avg",
         4,
         {{.key = "optim"}, {.key = "state"}, {.index = 0}, {.key = "exp_avg"}}},
        {"optim.state.1.exp_avg",
         4,
         {{.key = "optim"}, {.key = "state"}, {.index = 1}, {.key = "exp_avg"}}},
        {"keyed.-7.0.w",
         4,
         {{.key = "keyed"},
          {.index = -7, .flags = SIDESTEP_PATH_INT_KEY},
          {.index = 0, .flags = SIDESTEP_PATH_INT_KEY},
          {.key = "w"}}},
        {"dotted.key.here", 2, {{.key = "dotted.key"}, {.key = "here"}}},
        {"top level", 0, {{.index = 0}}},
        {"quote\" \\ tab\t \xc3\xa9 \xf0\x9f\x98\x80", 0, {{.index = 0}}},
    };

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                         .name = places[i].name,
                                         .dtype = SIDESTEP_FLOAT32,
                                         .ndim = 2,
                                         .shape = shape,
                                         .strides = strides,
                                         .data = memory + i * SAMPLE_BYTES,
                                         .path_length = places[i].length,
                                         .path = places[i].path};
        fill(&tensor, tensor.data);
        TRY(sidestep_state_dict_add_tensor(state, &tensor, err));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status add_value(struct sidestep_state_dict *state, const char *key,
                                      struct sidestep_value *value, struct sidestep_error *err)
{
    char name[64];
    const struct sidestep_path_item path[] = {{.key = "objects"}, {.key = key}};

    snprintf(name, sizeof(name), "objects.%s", key);
    if (value == NULL)
        return FAIL_NOMEM(err, sizeof(value));
    enum sidestep_status status = sidestep_state_dict_add_value(state, name, path, 2, value, err);
    if (status != SIDESTEP_OK)
        sidestep_value_free(&value);
    return status;
}

static enum sidestep_status make_nested(struct sidestep_value **nested, struct sidestep_error *err)
{
    struct sidestep_value *dict = sidestep_value_dict();
    struct sidestep_value *list = sidestep_value_list();
    struct sidestep_value *tuple = sidestep_value_tuple();

    *nested = dict;
    TRY(sidestep_value_set(dict, sidestep_value_str("list"), list, err));
    TRY(sidestep_value_append(list, tuple, err));
    TRY(sidestep_value_append(tuple, sidestep_value_bytes("\x00\x80\xff", 3), err));
    TRY(sidestep_value_append(tuple, sidestep_value_none(), err));
    TRY(sidestep_value_append(tuple, sidestep_value_tuple(), err));
    TRY(sidestep_value_append(list, sidestep_value_bool(false), err));
    TRY(sidestep_value_append(list, sidestep_value_dict(), err));
    TRY(sidestep_value_set(dict, sidestep_value_int(7), sidestep_value_float(0.1), err));
    return sidestep_value_set(dict, sidestep_value_bytes("k", 1), sidestep_value_str("v"), err);
}

static enum sidestep_status add_values(struct sidestep_state_dict *state,
                                       struct sidestep_error *err)
{
    struct sidestep_value *nested = NULL;

    TRY(add_value(state, "none", sidestep_value_none(), err));
    TRY(add_value(state, "true", sidestep_value_bool(true), err));
    TRY(add_value(state, "false", sidestep_value_bool(false), err));
    TRY(add_value(state, "zero", sidestep_value_int(0), err));
    TRY(add_value(state, "least", sidestep_value_int(INT64_MIN), err));
    TRY(add_value(state, "most", sidestep_value_int(INT64_MAX), err));
    TRY(add_value(state, "float", sidestep_value_float(-0.0), err));
    TRY(add_value(state, "infinity", sidestep_value_float(__builtin_inf()), err));
    TRY(add_value(state, "str", sidestep_value_str("gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80"), err));
    TRY(add_value(state, "bytes", sidestep_value_bytes("a\0\xff\n", 4), err));
    TRY(add_value(state, "list", sidestep_value_list(), err));
    TRY(add_value(state, "tuple", sidestep_value_tuple(), err));
    TRY(add_value(state, "dict", sidestep_value_dict(), err));
    enum sidestep_status status = make_nested(&nested, err);
    return status != SIDESTEP_OK ? status : add_value(state, "nested", nested, err);
}

static enum sidestep_status sample_state(struct sidestep_state_dict *state, const char *without,
                                         unsigned char *memory, struct sidestep_error *err)
{
    enum sidestep_dtype left_out = sidestep_dtype_from_name(without);

    for (int d = SIDESTEP_DTYPE_NONE + 1; d < SIDESTEP_DTYPE_END; d++) {
        if (d == (int)left_out)
            continue;
        TRY(add_dtype(state, (enum sidestep_dtype)d, memory, err));
        memory += sizeof(sample_shapes) / sizeof(sample_shapes[0]) * SAMPLE_BYTES;
    }
    TRY(add_paths(state, memory, err));
    return add_values(state, err);
}

static enum sidestep_status run_sample(char **argv, struct sidestep_error *err)
{
    struct sidestep_engine *engine = NULL;
    struct sidestep_state_dict *state = NULL;
    unsigned char *memory = calloc(SAMPLE_TENSORS, SAMPLE_BYTES);

    if (memory == NULL)
        return FAIL_NOMEM(err, (size_t)SAMPLE_TENSORS * SAMPLE_BYTES);
    enum sidestep_status status = sidestep_engine_open(&engine, NULL, err);
    if (status == SIDESTEP_OK)
        status = sidestep_state_dict_new(&state, err);
    if (status == SIDESTEP_OK)
        status = sample_state(state, argv[1], memory, err);
    if (status == SIDESTEP_OK)
        status = sidestep_save(engine, argv[0], state, NULL, NULL, err);
    sidestep_state_dict_free(&state);
    if (engine != NULL) {
        struct sidestep_error ignored;
        (void)sidestep_engine_close(&engine, &ignored);
    }
    free(memory);
    return status;
}

/* ---- copy ---- */

struct copy {
    const char *from;
    const char *to;
    struct sidestep_checkpoint *checkpoint; /* only its entries are used, by all ranks at once */
    unsigned char *memory[SAMPLE_TENSORS * 8];
    size_t count;
    struct sidestep_state_dict *state;
};

static enum sidestep_status add_share(struct copy *copy, const struct sidestep_entry *entry,
                                      const struct sidestep_comm *comm, struct sidestep_error *err)
{
    int64_t offsets[SIDESTEP_MAX_NDIM] = {0}, lengths[SIDESTEP_MAX_NDIM];
    struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                     .name = entry->name,
                                     .dtype = entry->dtype,
                                     .ndim = entry->ndim,
                                     .shape = entry->shape,
                                     .offsets = offsets,
                                     .lengths = lengths};

    memcpy(lengths, entry->shape, entry->ndim * sizeof(lengths[0]));
    if (entry->ndim > 0) {
        offsets[0] = entry->shape[0] * comm->rank / comm->size;
        lengths[0] = entry->shape[0] * (comm->rank + 1) / comm->size - offsets[0];
    }
    if (copy->count == sizeof(copy->memory) / sizeof(copy->memory[0]))
        return FAIL(err, SIDESTEP_EINVAL, "too many tensors");
    tensor.data = copy->memory[copy->count] = malloc(entry->bytes + 1);
    if (tensor.data == NULL)
        return FAIL_NOMEM(err, entry->bytes + 1);
    copy->count++;
    return sidestep_state_dict_add_tensor(copy->state, &tensor, err);
}

static enum sidestep_status copy_state(struct copy *copy, const struct sidestep_comm *comm,
                                       struct sidestep_error *err)
{
    TRY(sidestep_state_dict_new(&copy->state, err));
    for (size_t i = 0; i < sidestep_checkpoint_count(copy->checkpoint); i++) {
        const struct sidestep_entry *entry = sidestep_checkpoint_entry(copy->checkpoint, i);
        if (entry->is_object)
            TRY(sidestep_state_dict_add_value(copy->state, entry->name, NULL, 0, NULL, err));
        else
            TRY(add_share(copy, entry, comm, err));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status copy_all(struct copy *copy, struct sidestep_engine *engine,
                                     const struct sidestep_comm *comm, struct sidestep_error *err)
{
    TRY(copy_state(copy, comm, err)); /* fails on all ranks or on none, except for lack of memory */
    TRY(sidestep_load(engine, copy->from, copy->state, NULL, NULL, err));
    return sidestep_save(engine, copy->to, copy->state, NULL, NULL, err);
}

static int copy_rank(struct sidestep_comm *comm, void *context)
{
    struct copy copy = *(const struct copy *)context;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0}, ignored;

    options.comm = comm;
    options.threads = 1;
    enum sidestep_status status = sidestep_engine_open(&engine, &options, &err);
    if (status == SIDESTEP_OK) {
        status = copy_all(&copy, engine, comm, &err);
        (void)sidestep_engine_close(&engine, &ignored);
    }
    if (status != SIDESTEP_OK)
        fprintf(stderr, "%s\n", err.message);
    sidestep_state_dict_free(&copy.state);
    for (size_t i = 0; i < copy.count; i++)
        free(copy.memory[i]);
    return status != SIDESTEP_OK;
}

static enum sidestep_status run_copy(char **argv, struct sidestep_error *err)
{
    struct copy copy = {.from = argv[0], .to = argv[1]};

    TRY(sidestep_checkpoint_open(argv[0], &copy.checkpoint, err));
    int failed = comm_threads_run(atoi(argv[2]), copy_rank, &copy);
    sidestep_checkpoint_close(&copy.checkpoint);
    return failed == 0 ? SIDESTEP_OK : FAIL(err, SIDESTEP_EIO, "copy of '%s' failed", argv[0]);
}

/* ---- a series ---- */

static enum sidestep_status run_series(char **argv, struct sidestep_error *err)
{
    struct sidestep_engine *engine = NULL;
    struct sidestep_series *series = NULL;
    struct sidestep_error ignored;
    uint64_t step = strtoull(argv[1], NULL, 10);
    struct world world;

    TRY(sidestep_engine_open(&engine, NULL, err));
    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, false);
    world_fill(&world, step);
    enum sidestep_status status = sidestep_series_open(engine, argv[0], NULL, &series, err);
    if (status == SIDESTEP_OK)
        status = sidestep_series_save(series, step, world.state, NULL, NULL, err);
    (void)sidestep_series_close(&series, &ignored);
    (void)sidestep_engine_close(&engine, &ignored);
    world_free(&world);
    return status;
}

/* ---- gc and prune ---- */

static enum sidestep_status tell(enum sidestep_status status, struct sidestep_gc_report *report)
{
    for (size_t i = 0; i < report->removed_count; i++)
        printf("removed %s\n", report->removed[i]);
    sidestep_gc_report_release(report);
    return status;
}

static enum sidestep_status run_gc(char **argv, struct sidestep_error *err)
{
    struct sidestep_gc_report report = {0};

    return tell(sidestep_gc(argv[0], 0, &report, err), &report);
}

static enum sidestep_status run_prune(char **argv, struct sidestep_error *err)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 1};
    struct sidestep_gc_report report = {0};

    return tell(sidestep_prune(argv[0], &keep, 0, &report, err), &report);
}

/* ---- main ---- */

static const struct {
    const char *name;
    int args;
    enum sidestep_status (*run)(char **argv, struct sidestep_error *err);
} commands[] = {{"save", 5, run_save},     {"load", 5, run_load},    {"dump", 2, run_dump},
                {"sample", 2, run_sample}, {"copy", 3, run_copy},    {"gc", 1, run_gc},
                {"prune", 1, run_prune},   {"series", 2, run_series}};

int main(int argc, char **argv)
{
    struct sidestep_error err = {0};

    if (argc > 2 && strcmp(argv[1], "without") == 0) {
        fault_arm(argv[2], 1, true, EIO);
        argv += 2;
        argc -= 2;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (argc > 1 && strcmp(argv[1], commands[i].name) == 0 && argc - 2 == commands[i].args) {
            enum sidestep_status status = commands[i].run(argv + 2, &err);
            if (status != SIDESTEP_OK)
                fprintf(stderr, "%s\n", err.message);
            return sidestep_status_exit(status);
        }
    fprintf(stderr, "usage: see tests/tools/world_tool.c\n");
    return 2;
}
