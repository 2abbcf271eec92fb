/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * convert.c -- sidestep_convert(): writes a checkpoint or file in another format.
 *
 * The source is anything that checkpoint/reader.h can open: checkpoints, and the formats of
 * checkpoint/foreign.h. The destination is either a save (convert_dcp.c), or files that are laid
 * out completely before their first byte is written (convert_write.c, and one file per format).
 * Both call convert_read() for stretches of tensors, which calls tensor_reader.h.
 */
#include "convert/convert.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/format.h"
#include "model/model.h"
#include "object/object.h"

#define MIN_THREADS 4u /* reads and writes in flight, even if there are fewer cores */
#define MAX_THREADS 6u
#define FILE_THREADS 10u  /* limit for files, by the memory that sidestep_tools.h promises */
#define OBJECT_THREADS 3u /* limit for a bucket: each file that is written has parts of its own */
#define LIMIT_THREADS 64u
#define LIMIT_RANKS 64u
#define LISTED_OVERFLOWS 1000u

_Static_assert(sizeof(struct sidestep_convert_options) == 128, "a field was added: check it below");

static const char *const format_names[] = {
    [SIDESTEP_FORMAT_DCP] = "dcp",
    [SIDESTEP_FORMAT_SAFETENSORS] = "safetensors",
    [SIDESTEP_FORMAT_TORCH] = "torch",
    [SIDESTEP_FORMAT_NPZ] = "npz",
};

/* ---------------------------------------------------------------- options */

static enum sidestep_status check_options(const struct sidestep_convert_options *o,
                                          struct sidestep_error *err)
{
    const uint32_t flags = SIDESTEP_CONVERT_REPLACE | SIDESTEP_CONVERT_MODEL_ONLY |
                           SIDESTEP_CONVERT_DRY_RUN | SIDESTEP_CONVERT_PARTIAL;

    if ((o->flags & ~flags) != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "convert options: unknown flags 0x%x",
                    o->flags & ~flags);
    if ((unsigned)o->to > SIDESTEP_FORMAT_NPZ || (unsigned)o->objects > SIDESTEP_OBJECTS_SKIP)
        return FAIL(err, SIDESTEP_EINVAL, "convert options: unknown format %d or objects %d",
                    (int)o->to, (int)o->objects);
    if (o->ranks > LIMIT_RANKS || o->threads > LIMIT_THREADS)
        return FAIL(err, SIDESTEP_EINVAL, "convert options: at most %u ranks and %u threads",
                    LIMIT_RANKS, LIMIT_THREADS);
    if (o->dtype != SIDESTEP_DTYPE_NONE && !cast_is_supported(o->dtype))
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "conversion to %s",
                    sidestep_dtype_name(o->dtype) != NULL ? sidestep_dtype_name(o->dtype)
                                                          : "a dtype that does not exist");
    struct sidestep_save_options how;
    if (o->compress != NULL && !convert_parse_compression(o->compress, &how))
        return convert_fail_compression(o->compress, err);
    return SIDESTEP_OK;
}

static enum sidestep_format infer_format(const struct conversion *c)
{
    if (file_name_has_suffix(c->destination, ".safetensors"))
        return SIDESTEP_FORMAT_SAFETENSORS;
    if (file_name_has_suffix(c->destination, ".npz"))
        return SIDESTEP_FORMAT_NPZ;
    if (file_name_has_suffix(c->destination, ".pt") ||
        file_name_has_suffix(c->destination, ".pth") ||
        file_name_has_suffix(c->destination, ".bin"))
        return SIDESTEP_FORMAT_TORCH;
    /* What is left of a damaged checkpoint becomes a checkpoint again, with its objects. */
    bool is_rescue = (c->options.flags & SIDESTEP_CONVERT_PARTIAL) != 0;
    return c->reader->foreign == NULL && !is_rescue ? SIDESTEP_FORMAT_SAFETENSORS
                                                    : SIDESTEP_FORMAT_DCP;
}

static enum sidestep_status choose_format(struct conversion *c, struct sidestep_error *err)
{
    c->to = c->options.to != SIDESTEP_FORMAT_AUTO ? c->options.to : infer_format(c);
    if (c->to != SIDESTEP_FORMAT_DCP && (c->options.ranks > 1 || c->options.compress != NULL))
        return FAIL(err, SIDESTEP_EINVAL, "%s are for checkpoints (dcp), not for %s",
                    c->options.ranks > 1 ? "ranks" : "kinds of compression", format_names[c->to]);
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- the conversion */

static enum sidestep_status open_bytes(struct conversion *c, struct sidestep_error *err)
{
    OWNED bool *wanted = memory_new(c->reader->metadata.count, sizeof(*wanted));

    if (wanted == NULL)
        return FAIL_NOMEM(err, c->reader->metadata.count);
    for (size_t i = 0; i < c->tensor_count; i++)
        wanted[c->tensors[i].entry] = true;
    /* Several threads may read objects, and only one may open files. */
    for (size_t i = 0; i < c->object_count; i++)
        TRY(reader_admit(c->reader, &c->objects[i].from->storage, err));
    return tensor_reader_open(c->reader, wanted, c->threads + 2, &c->bytes, err);
}

/* Is it the name of a file that a conversion to a directory makes? */
static bool is_known(const char *name)
{
    char id[SAVE_ID_HEX];

    return file_name_has_suffix(name, ".safetensors") ||
           strcmp(name, SAFETENSORS_INDEX_NAME) == 0 || object_export_parse(name, id);
}

static enum sidestep_status write_files(struct conversion *c, struct sidestep_error *err)
{
    bool is_file = c->to != SIDESTEP_FORMAT_SAFETENSORS ||
                   file_name_has_suffix(c->destination, ".safetensors");
    bool replace = (c->options.flags & SIDESTEP_CONVERT_REPLACE) != 0;
    OWNED_STORE *store = NULL;
    struct export export;

    TRY(object_path_open(c->destination, &store, err));
    enum sidestep_status status = export_begin(&export, store, clock_system(), c->destination,
                                               is_file, replace, is_known, err);
    if (status == SIDESTEP_OK)
        status = c->to == SIDESTEP_FORMAT_SAFETENSORS ? convert_to_safetensors(c, &export, err)
                                                      : convert_to_zip(c, &export, err);
    if (status == SIDESTEP_OK)
        status = export_publish(&export, err);
    export_end(&export);
    return status;
}

static enum sidestep_status convert_to_files(struct conversion *c, struct sidestep_error *err)
{
    TRY(convert_filter_objects(c, c->to == SIDESTEP_FORMAT_TORCH, err));
    if ((c->options.flags & SIDESTEP_CONVERT_DRY_RUN) != 0)
        return SIDESTEP_OK;
    return write_files(c, err);
}

static enum sidestep_status convert_with(struct conversion *c, struct sidestep_error *err)
{
    bool partial = (c->options.flags & SIDESTEP_CONVERT_PARTIAL) != 0;
    uint32_t flags =
        STORE_DIRECT | READER_FOREIGN | (partial ? READER_TOLERANT | READER_SALVAGE : 0);

    TRY(sidestep_check_path(c->destination, err)); /* before anything is read */
    TRY(object_path_open(c->source, &c->store, err));
    enum sidestep_status status = reader_open(c->store, c->source, flags, &c->reader, err);
    if (status != SIDESTEP_OK) {
        error_wrap(err, "open '%s'", c->source);
        return status;
    }
    TRY(choose_format(c, err));
    if (partial)
        TRY(convert_find_damaged(c, err));
    TRY(convert_select(c, err));
    unsigned most = c->to == SIDESTEP_FORMAT_DCP        ? convert_dcp_max_threads(c)
                    : object_url_is_one(c->destination) ? OBJECT_THREADS
                                                        : FILE_THREADS;
    c->threads = (unsigned)min_u64(c->threads, most);
    TRY(open_bytes(c, err));
    return c->to == SIDESTEP_FORMAT_DCP ? convert_to_dcp(c, err) : convert_to_files(c, err);
}

/* ---------------------------------------------------------------- the report */

static enum sidestep_status list_overflows(struct conversion *c, struct arena *arena,
                                           struct sidestep_convert_report *report,
                                           struct sidestep_error *err)
{
    const char **list = arena_new(arena, c->tensor_count, sizeof(*list));

    if (list == NULL)
        return FAIL_NOMEM(err, c->tensor_count * sizeof(*list));
    for (size_t i = 0; i < c->tensor_count && report->overflow_count < LISTED_OVERFLOWS; i++) {
        uint64_t count = atomic_load(&c->tensors[i].overflows);
        if (count == 0)
            continue;
        list[report->overflow_count] =
            arena_printf(arena, "%s: %llu", c->tensors[i].name, (unsigned long long)count);
        if (list[report->overflow_count] == NULL)
            return FAIL_NOMEM(err, strlen(c->tensors[i].name));
        report->overflow_count++;
    }
    report->overflows = list;
    return SIDESTEP_OK;
}

static enum sidestep_status list_narrowed(struct conversion *c, struct arena *arena,
                                          struct sidestep_convert_report *report,
                                          struct sidestep_error *err)
{
    const char **list = arena_new(arena, c->tensor_count, sizeof(*list));

    if (list == NULL)
        return FAIL_NOMEM(err, c->tensor_count * sizeof(*list));
    for (size_t i = 0; i < c->tensor_count; i++) {
        const struct convert_tensor *t = &c->tensors[i];
        if (t->from->dtype == t->dtype || !cast_narrows(t->from->dtype, t->dtype))
            continue;
        const char *from = sidestep_dtype_name(t->from->dtype);
        const char *text =
            arena_printf(arena, "%s: %s to %s", t->name, from, sidestep_dtype_name(t->dtype));
        if (text == NULL)
            return FAIL_NOMEM(err, strlen(t->name));
        list[report->narrowed_count++] = text;
    }
    report->narrowed = list;
    return SIDESTEP_OK;
}

static enum sidestep_status copy_list(struct arena *arena, const char **from, size_t count,
                                      const char *const **out, struct sidestep_error *err)
{
    const char **list = arena_new(arena, count, sizeof(*list));

    if (list == NULL)
        return FAIL_NOMEM(err, count * sizeof(*list));
    for (size_t i = 0; i < count; i++)
        if ((list[i] = arena_strndup(arena, from[i], strlen(from[i]))) == NULL)
            return FAIL_NOMEM(err, strlen(from[i]));
    *out = list;
    return SIDESTEP_OK;
}

static const char *source_format(const struct reader *r)
{
    return r->foreign != NULL ? r->foreign->format : r->has_manifest ? "sidestep" : "dcp";
}

/* If memory is short, the report stays empty: the conversion has succeeded. */
static void fill_report(struct conversion *c, struct sidestep_convert_report *report)
{
    struct arena *arena = memory_new(1, sizeof(*arena));

    if (arena == NULL)
        return;
    *report = (struct sidestep_convert_report){.from = source_format(c->reader),
                                               .to = format_names[c->to],
                                               .tensor_count = c->tensor_count,
                                               .object_count = c->object_count,
                                               .tensor_bytes = c->total_bytes,
                                               .bytes_read = tensor_reader_bytes_read(c->bytes),
                                               .file_count = c->file_count,
                                               .left_out_count = c->left_out_count,
                                               .lost_count = c->lost_count,
                                               .lost_status = c->lost_count != 0 ? c->lost_status
                                                                                 : SIDESTEP_OK,
                                               .owner = arena};
    enum sidestep_status status = list_overflows(c, arena, report, NULL);
    if (status == SIDESTEP_OK)
        status = list_narrowed(c, arena, report, NULL);
    if (status == SIDESTEP_OK)
        status = copy_list(arena, c->files, c->file_count, &report->files, NULL);
    if (status == SIDESTEP_OK)
        status = copy_list(arena, c->left_out, c->left_out_count, &report->left_out, NULL);
    if (status == SIDESTEP_OK)
        status = copy_list(arena, c->lost, c->lost_count, &report->lost, NULL);
    if (status != SIDESTEP_OK)
        sidestep_convert_report_release(report);
}

void sidestep_convert_report_release(struct sidestep_convert_report *report)
{
    if (report == NULL)
        return;
    if (report->owner != NULL)
        arena_release(report->owner);
    free(report->owner);
    *report = (struct sidestep_convert_report){0};
}

static void release(struct conversion *c)
{
    for (size_t i = 0; i < c->object_count; i++)
        sidestep_value_free(&c->objects[i].value);
    tensor_reader_free(&c->bytes);
    reader_close(&c->reader);
    object_path_close(&c->store);
    hash_table_release(&c->damaged);
    arena_release(&c->arena);
    free(c->files);
    lock_destroy(&c->shared.lock);
}

enum sidestep_status sidestep_convert(const char *source, const char *destination,
                                      const struct sidestep_convert_options *theirs,
                                      struct sidestep_convert_report *report,
                                      struct sidestep_error *err)
{
    struct conversion c = {.source = source, .destination = destination};

    if (report != NULL)
        *report = (struct sidestep_convert_report){0};
    if (source == NULL || destination == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "source or destination is NULL");
    TRY(options_copy(&c.options, sizeof(c.options), theirs, "convert options", err));
    TRY(check_options(&c.options, err));
    c.threads = thread_choose_count(c.options.threads, MIN_THREADS, MAX_THREADS);
    lock_init(&c.shared.lock, LOCK_CONVERT);
    enum sidestep_status status = convert_with(&c, err);
    if (status == SIDESTEP_OK && report != NULL)
        fill_report(&c, report);
    release(&c);
    if (status != SIDESTEP_OK)
        error_wrap(err, "convert '%s' to '%s'", source, destination);
    return status;
}
