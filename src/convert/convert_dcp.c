/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * convert_dcp.c -- conversion to a checkpoint: a save whose tensors are read from the source while
 * they are saved, through a small pool.
 *
 * Ranks save one after the other (save/slot.h), each with all threads.  So memory does not
 * grow with the number of ranks.
 */
#include <semaphore.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "comm/comm.h"
#include "convert/convert.h"
#include "save/save.h"
#include "model/model.h"

#define HIGH_LEVEL 10u /* of zstd: from this level on it takes more memory */

static enum sidestep_status read_stretch(struct conversion *c, size_t tensor, const struct box *box,
                                         uint64_t begin, uint64_t bytes, uint8_t *to,
                                         struct sidestep_error *err)
{
    bool is_last = false;

    TRY(convert_read(c, tensor, box, begin, bytes, to, err));
    TRY(convert_add_progress(c, bytes, &is_last, err));
    /* Every error of the source must be known before the save commits. */
    return is_last ? tensor_reader_finish(c->bytes, err) : SIDESTEP_OK;
}

/* After a rank has failed, ranks that have not had their turn fail at once with its error. */
static enum sidestep_status read_tensor(void *context, size_t tensor, const struct box *box,
                                        uint64_t begin, uint64_t bytes, uint8_t *to,
                                        struct sidestep_error *err)
{
    struct conversion *c = context;
    struct sidestep_error why = {0};
    enum sidestep_status status = SIDESTEP_OK;

    if (!atomic_load(&c->failed))
        status = read_stretch(c, tensor, box, begin, bytes, to, &why);
    lock_acquire(&c->shared.lock);
    if (status != SIDESTEP_OK && !atomic_exchange(&c->failed, true))
        c->shared.err = why;
    if (atomic_load(&c->failed)) {
        status = (enum sidestep_status)c->shared.err.status;
        error_copy(err, &c->shared.err);
    }
    lock_release(&c->shared.lock);
    return status;
}

static enum sidestep_status add_object(struct conversion *c, const struct convert_object *o,
                                       struct sidestep_state_dict *state,
                                       struct sidestep_error *err)
{
    struct sidestep_error why = {0};
    OWNED void *bytes = NULL;
    size_t length = 0;
    enum sidestep_status status = convert_object_bytes(c, o, &bytes, &length, &why);

    if (status == SIDESTEP_OK)
        return sidestep_state_dict_add_bytes(state, o->name, o->path, o->path_length, bytes, length,
                                             err);
    /* Only in torch.save_rank() files, where an object has no bytes of its own to keep. */
    if (status == SIDESTEP_EUNSUPPORTED && c->options.objects == SIDESTEP_OBJECTS_SKIP)
        return convert_skip_object(c, o, err);
    error_copy(err, &why);
    return status;
}

static enum sidestep_status add_objects(struct conversion *c, struct sidestep_state_dict *state,
                                        struct sidestep_error *err)
{
    for (size_t i = 0; i < c->object_count; i++)
        TRY(add_object(c, &c->objects[i], state, err));
    c->object_count -= c->left_out_count;
    return SIDESTEP_OK;
}

/* A small file that is damaged is lost if the rest is rescued. */
static enum sidestep_status add_file(struct conversion *c, const struct extra_file *file,
                                     struct sidestep_state_dict *state, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    OWNED void *bytes = NULL;

    if (file->is_alias)
        return sidestep_state_dict_add_file(state, file->name, NULL, 0, SIDESTEP_FILE_ALIAS, err);
    enum sidestep_status status = reader_read_extra(c->reader, file, &bytes, &why);
    if (status == SIDESTEP_OK)
        return sidestep_state_dict_add_file(state, file->name, bytes, file->bytes, 0, err);
    if ((c->options.flags & SIDESTEP_CONVERT_PARTIAL) != 0 && status != SIDESTEP_ENOMEM)
        return convert_add_lost(c, arena_printf(&c->arena, "file '%s'", file->name), why.message,
                                err);
    error_copy(err, &why);
    error_wrap(err, "file '%s'", file->name);
    return status;
}

static enum sidestep_status add_files(struct conversion *c, struct sidestep_state_dict *state,
                                      struct sidestep_error *err)
{
    const struct manifest *manifest = &c->reader->manifest;

    if ((c->options.flags & SIDESTEP_CONVERT_MODEL_ONLY) != 0)
        return SIDESTEP_OK;
    for (size_t i = 0; i < manifest->extra_count; i++)
        TRY(add_file(c, &manifest->extras[i], state, err));
    return SIDESTEP_OK;
}

static enum sidestep_status fill_state(struct conversion *c, const struct state_source *reader,
                                       struct sidestep_state_dict *state,
                                       struct sidestep_error *err)
{
    /* Every rank has all tensors; the save divides them among the ranks. */
    uint32_t replicated = c->options.ranks > 1 ? SIDESTEP_TENSOR_REPLICATED : 0;

    for (size_t i = 0; i < c->tensor_count; i++) {
        const struct convert_tensor *t = &c->tensors[i];
        uint32_t grad = t->from->requires_grad ? SIDESTEP_TENSOR_REQUIRES_GRAD : 0;
        struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                         .name = t->name,
                                         .dtype = t->dtype,
                                         .ndim = t->from->ndim,
                                         .shape = t->from->shape,
                                         .flags = grad | replicated,
                                         .path = t->path,
                                         .path_length = t->path_length};
        TRY(state_dict_add_tensor(state, &tensor, reader, i, err));
    }
    TRY(add_objects(c, state, err));
    return add_files(c, state, err);
}

/* Arguments of save_rank(), the same for all ranks. */
struct rank_saves {
    struct conversion *c;
    const struct sidestep_state_dict *state;
    sem_t turn;
};

/* Parse "zstd:LEVEL". */
static bool zstd_level(const char *name, struct sidestep_save_options *how)
{
    static const char prefix[] = "zstd:";
    uint32_t level = 0;

    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
        return false;
    for (const char *c = name + sizeof(prefix) - 1; *c != '\0'; c++) {
        if (*c < '0' || *c > '9' || level > CODEC_ZSTD_LEVELS)
            return false;
        level = level * 10 + (uint32_t)(*c - '0');
    }
    how->compress = SIDESTEP_COMPRESS_ZSTD;
    how->compress_level = level;
    return level >= 1 && level <= CODEC_ZSTD_LEVELS;
}

/* "auto" means PLANES: AUTO would never compress here, because the first save of an engine does not
 * know the speed of its disk, and no training waits. */
static const struct {
    const char *name;
    enum sidestep_compress compress;
} compressions[] = {{"none", SIDESTEP_COMPRESS_NONE},
                    {"zstd", SIDESTEP_COMPRESS_ZSTD},
                    {"planes", SIDESTEP_COMPRESS_PLANES},
                    {"auto", SIDESTEP_COMPRESS_PLANES}};

enum sidestep_status convert_fail_compression(const char *name, struct sidestep_error *err)
{
    OWNED_BUFFER names = {0};

    for (size_t i = 0; i < ARRAY_LENGTH(compressions); i++)
        buffer_printf(&names, "%s, ", compressions[i].name);
    TRY(buffer_check(&names, err));
    return FAIL(err, SIDESTEP_EUNSUPPORTED,
                "unknown compression '%.100s'; known are %.*sand zstd:1 to zstd:%u", name,
                (int)names.length, (const char *)names.bytes, CODEC_ZSTD_LEVELS);
}

bool convert_parse_compression(const char *name, struct sidestep_save_options *how)
{
    for (size_t i = 0; i < ARRAY_LENGTH(compressions); i++)
        if (strcmp(compressions[i].name, name) == 0) {
            how->compress = compressions[i].compress;
            return true;
        }
    return zstd_level(name, how);
}

/* The pool, and the number of threads, that fit into the memory that sidestep_tools.h promises.
 * Each thread needs its read buffers, an encoded window, and its encoder. */
static struct memory_limits {
    uint64_t pool_bytes;
    unsigned threads;
} get_limits(const char *compress)
{
    struct sidestep_save_options how = SIDESTEP_SAVE_OPTIONS_INIT;

    if (compress != NULL)
        (void)convert_parse_compression(compress, &how); /* convert.c has checked it */
    if (how.compress == SIDESTEP_COMPRESS_NONE)
        return (struct memory_limits){.pool_bytes = (uint64_t)64 << 20, .threads = 16};
    if (how.compress_level == 0)
        return (struct memory_limits){.pool_bytes = (uint64_t)64 << 20, .threads = 8};
    return (struct memory_limits){.pool_bytes = (uint64_t)32 << 20,
                                  .threads = how.compress_level < HIGH_LEVEL ? 4 : 3};
}

unsigned convert_dcp_max_threads(const struct conversion *c)
{
    return get_limits(c->options.compress).threads;
}

/* Runs on each rank. */
static enum sidestep_status save_rank(const struct sidestep_comm *comm, void *context,
                                      struct sidestep_error *err)
{
    struct rank_saves *s = context;
    const struct conversion *c = s->c;
    struct sidestep_engine *engine = NULL;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_save_options how = SIDESTEP_SAVE_OPTIONS_INIT;

    options.comm = comm;
    options.threads = c->threads;
    options.pool_bytes = get_limits(c->options.compress).pool_bytes;
    how.flags = (c->options.flags & SIDESTEP_CONVERT_REPLACE) != 0 ? 0 : SIDESTEP_SAVE_NO_REPLACE;
    if (c->options.compress != NULL)
        (void)convert_parse_compression(c->options.compress, &how); /* convert.c has checked it */
    how.has_step = c->reader->has_manifest && c->reader->manifest.step >= 0;
    how.step = how.has_step ? (uint64_t)c->reader->manifest.step : 0;
    TRY(sidestep_engine_open(&engine, &options, err));
    engine->saver->memory_turn = &s->turn;
    enum sidestep_status status = sidestep_save(engine, c->destination, s->state, &how, NULL, err);
    /* The outcome of the save is known: a collective that fails now must not change it. */
    (void)sidestep_engine_close(&engine, NULL);
    return status;
}

static enum sidestep_status save_ranks(struct conversion *c,
                                       const struct sidestep_state_dict *state,
                                       struct sidestep_error *err)
{
    struct rank_saves rank_saves = {.c = c, .state = state};

    sem_init(&rank_saves.turn, 0, 1);
    enum sidestep_status status =
        c->options.ranks <= 1
            ? save_rank(NULL, &rank_saves, err)
            : local_ranks_run((int32_t)c->options.ranks, save_rank, &rank_saves, err);
    sem_destroy(&rank_saves.turn);
    return status;
}

enum sidestep_status convert_to_dcp(struct conversion *c, struct sidestep_error *err)
{
    const struct state_source reader = {.read = read_tensor, .context = c};
    struct sidestep_state_dict *state = NULL;

    TRY(sidestep_state_dict_new(&state, err));
    enum sidestep_status status = fill_state(c, &reader, state, err);
    if (status == SIDESTEP_OK && (c->options.flags & SIDESTEP_CONVERT_DRY_RUN) == 0)
        status = save_ranks(c, state, err);
    sidestep_state_dict_free(&state);
    return status;
}
