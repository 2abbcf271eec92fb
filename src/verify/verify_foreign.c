/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verify_foreign.c -- verifies files of other programs; see verify_foreign.h.
 *
 * First the files are collected, so that the total size is known for progress.  Then each is
 * checked according to the format that its first bytes show.  A subdirectory that has a .metadata
 * is a DCP checkpoint, and counts as one part.
 */
#include "verify/verify_foreign.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "catalog/catalog.h"
#include "format/format.h"

#define MAX_DEPTH 4u /* of nested directories */
#define MAX_PARTS ((size_t)1 << 16)
#define MAX_JSON_BYTES ((uint64_t)64 << 20)
#define READ_BYTES ((size_t)1 << 20)

/* A file, or a directory that is a DCP checkpoint. */
struct part {
    const char *name; /* relative to the path; "": the path itself */
    bool is_dcp;
    uint64_t bytes;
};

struct foreign_check {
    const struct verify_foreign_request *request;
    struct arena arena;
    struct part *parts;
    size_t count, capacity;
    uint64_t total_bytes;
    uint64_t done_bytes; /* of finished parts */
    uint64_t part_bytes; /* size of the current part */
    uint64_t seen_bytes; /* bytes of the current part that were read; each counts once */
};

static void foreign_check_release(struct foreign_check *c)
{
    arena_release(&c->arena);
    free(c->parts);
}

/* Report that ${folder} could not be opened or listed. */
static enum sidestep_status add_unopened(struct foreign_check *c, const char *folder,
                                         const struct sidestep_error *why,
                                         struct sidestep_error *err)
{
    enum sidestep_status status = (enum sidestep_status)why->status;

    return status == SIDESTEP_ENOMEM
               ? FAIL_NOMEM(err, strlen(folder))
               : verify_findings_add(c->request->findings, folder[0] != '\0' ? folder : NULL, NULL,
                                     verify_kind(status), why->message, err);
}

/* ---- collecting ---- */

static enum sidestep_status add_part(struct foreign_check *c, const char *name, bool is_dcp,
                                     uint64_t bytes, struct sidestep_error *err)
{
    if (c->count == MAX_PARTS)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "'%s' has more than %zu files", c->request->path,
                    MAX_PARTS);
    TRY_GROW(c->parts, c->capacity, c->count, err);
    c->parts[c->count++] = (struct part){.name = name, .is_dcp = is_dcp, .bytes = bytes};
    c->total_bytes += bytes;
    return SIDESTEP_OK;
}

/* ${folder}: "" or a name.  Returns NULL if memory is exhausted. */
static const char *join(struct foreign_check *c, const char *folder, const char *name)
{
    return arena_printf(&c->arena, "%s%s%s", folder, folder[0] != '\0' ? "/" : "", name);
}

static const char *make_path(struct foreign_check *c, const char *name)
{
    return arena_printf(&c->arena, "%s%s%s", c->request->path, name[0] != '\0' ? "/" : "", name);
}

static bool has_shards(const struct name_list *names)
{
    for (size_t i = 0; i < names->count; i++)
        if (file_name_parse(names->names[i]).kind == FILE_NAME_SHARD)
            return true;
    return false;
}

/* Megatron's dist_checkpointing makes common.pt first, and then shards and .metadata. */
static bool has_only_common(const struct name_list *names)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->names[i], "common.pt") != 0 &&
            strcmp(names->names[i], "metadata.json") != 0)
            return false;
    return name_list_contains(names, "common.pt");
}

static uint64_t count_bytes(struct store_dir *dir, const struct name_list *names)
{
    struct store_stat stat;
    uint64_t bytes = 0;

    for (size_t i = 0; i < names->count; i++)
        if (store_stat(dir, names->names[i], &stat, NULL) == SIDESTEP_OK && stat.kind == STORE_FILE)
            bytes += stat.size;
    return bytes;
}

static enum sidestep_status collect(struct foreign_check *c, const char *folder, unsigned depth,
                                    struct sidestep_error *err);

static enum sidestep_status collect_name(struct foreign_check *c, struct store_dir *dir,
                                         const char *folder, const char *name, unsigned depth,
                                         struct sidestep_error *err)
{
    struct store_stat stat;
    const char *joined = join(c, folder, name);

    if (joined == NULL)
        return FAIL_NOMEM(err, strlen(name));
    enum sidestep_status status = store_stat(dir, name, &stat, err);
    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK; /* it was deleted in the meantime */
    TRY(status);
    if (stat.kind == STORE_DIRECTORY && depth == 0)
        return verify_findings_add_unchecked(c->request->findings, joined,
                                             "a directory that is nested too deeply", err);
    if (stat.kind == STORE_DIRECTORY)
        return collect(c, joined, depth - 1, err);
    return add_part(c, joined, false, stat.kind == STORE_FILE ? stat.size : 0, err);
}

/* For weights of Hugging Face: check that every file in their index exists. */
static enum sidestep_status check_weights(struct foreign_check *c, struct store_dir *dir,
                                          const struct name_list *names, const char *folder,
                                          struct sidestep_error *err)
{
    struct foreign_layouts_probe look = {.root = dir,
                                         .name = "",
                                         .path = make_path(c, folder),
                                         .dir = dir,
                                         .names = names,
                                         .step = -1,
                                         .arena = &c->arena};

    if (look.path == NULL)
        return FAIL_NOMEM(err, strlen(folder));
    TRY(foreign_layouts_check_weights(&look, err));
    return look.reason != NULL
               ? verify_findings_add(c->request->findings, folder[0] ? folder : NULL, NULL,
                                     "incomplete", look.reason, err)
               : SIDESTEP_OK;
}

/* Report shards of PyTorch, or what was written before them, without .metadata, which is written
 * last. */
static enum sidestep_status add_without_metadata(struct foreign_check *c, const char *folder,
                                                 struct sidestep_error *err)
{
    const char *why = "it is missing: the save did not finish, or the file was lost";
    const char *file = join(c, folder, FILE_NAME_METADATA);

    if (file == NULL)
        return FAIL_NOMEM(err, strlen(folder));
    return verify_findings_add(c->request->findings, file, NULL, "incomplete", why, err);
}

/* Collect everything in ${folder}, or the folder as one part if it is a DCP checkpoint. */
static enum sidestep_status collect(struct foreign_check *c, const char *folder, unsigned depth,
                                    struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_DIR *dir = NULL;
    struct sidestep_error why = {0};
    const char *path = make_path(c, folder);

    if (path == NULL)
        return FAIL_NOMEM(err, strlen(folder));
    enum sidestep_status status = store_dir_open(c->request->store, NULL, path, &dir, &why);
    if (status == SIDESTEP_OK)
        status = name_list_read(dir, &names, &why);
    if (status != SIDESTEP_OK)
        return add_unopened(c, folder, &why, err);
    if (name_list_contains(&names, FILE_NAME_METADATA) ||
        name_list_contains(&names, "__0.metadata"))
        return add_part(c, folder, true, count_bytes(dir, &names), err);
    if (has_shards(&names) || has_only_common(&names))
        TRY(add_without_metadata(c, folder, err));
    status = check_weights(c, dir, &names, folder, &why);
    if (status == SIDESTEP_ENOMEM)
        return FAIL_NOMEM(err, strlen(folder)); /* other failures are reported for each file */
    for (size_t i = 0; i < names.count; i++)
        TRY(collect_name(c, dir, folder, names.names[i], depth, err));
    return SIDESTEP_OK;
}

/* ---- files ---- */

/* A file that reports the progress of reading, and stops on request. */
struct watched {
    struct foreign_check *foreign_check;
    struct store_file *file;
};

static void show_progress(struct foreign_check *c, uint64_t of_part)
{
    const struct verify_options *o = c->request->options;

    if (o != NULL && o->on_progress != NULL)
        o->on_progress(o->context, c->done_bytes + min_u64(of_part, c->part_bytes), c->total_bytes);
}

static enum sidestep_status read_watched(const struct source *source, void *to, size_t bytes,
                                         uint64_t offset, struct sidestep_error *err)
{
    const struct watched *w = source->context;
    struct foreign_check *c = w->foreign_check;
    const struct verify_options *o = c->request->options;

    if (o != NULL && o->cancel != NULL && *o->cancel)
        return FAIL(err, SIDESTEP_ECANCELLED, "verify '%s'", c->request->path);
    TRY(store_file_read_at(w->file, to, bytes, offset, err));
    if (offset <= c->seen_bytes && offset + bytes > c->seen_bytes) {
        c->seen_bytes = offset + bytes;
        show_progress(c, c->seen_bytes);
    }
    return SIDESTEP_OK;
}

/* Read to the end, because some bytes may be unreadable. */
static enum sidestep_status read_all(const struct source *source, struct sidestep_error *err)
{
    OWNED void *piece = memory_new(1, READ_BYTES);

    if (piece == NULL)
        return FAIL_NOMEM(err, READ_BYTES);
    for (uint64_t at = 0; at < source->length; at += READ_BYTES)
        TRY(source_read(source, piece, (size_t)min_u64(READ_BYTES, source->length - at), at, err));
    return SIDESTEP_OK;
}

static enum sidestep_status check_json(const struct source *source, const char **what,
                                       struct sidestep_error *err)
{
    OWNED char *text = NULL;

    *what = "JSON";
    if (source->length > MAX_JSON_BYTES)
        return read_all(source, err);
    text = memory_new(source->length, 1);
    if (text == NULL)
        return FAIL_NOMEM(err, source->length);
    TRY(source_read(source, text, source->length, 0, err));
    json_t *json = json_loadb(text, source->length, JSON_DECODE_ANY, NULL);
    if (json == NULL)
        return FAIL(err, SIDESTEP_ECORRUPT, "it is not JSON, so it is truncated or damaged");
    json_decref(json);
    return SIDESTEP_OK;
}

static enum sidestep_status check_safetensors(const struct source *source, const char **what,
                                              struct sidestep_error *err)
{
    OWNED_ARENA arena = {0};
    struct safetensors header;
    enum sidestep_status status = safetensors_read_header(source, &arena, &header, err);

    *what =
        status == SIDESTEP_EUNSUPPORTED ? "safetensors of a dtype that torch lacks" : "safetensors";
    if (status != SIDESTEP_OK && status != SIDESTEP_EUNSUPPORTED)
        return status;
    return read_all(source, err);
}

/* A file of torch.save() has a CRC32 for each record; ${*what} stays NULL.  Other zip files may be
 * compressed, and are not checked. */
static enum sidestep_status check_zip(const struct source *source, const char *name,
                                      const char **what, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_EUNSUPPORTED;

    if (file_probe_may_hold_tensors(name))
        status = archive_check_file(source, err);
    if (status != SIDESTEP_EUNSUPPORTED)
        return status;
    *what = "a zip file";
    return read_all(source, err);
}

/* Check a file of unknown format.  A file of tensors that begins with zeros was lost in a power
 * failure. */
static enum sidestep_status check_unknown(const struct source *source, const char *name,
                                          const char **what, struct sidestep_error *err)
{
    uint8_t begin[64] = {0}, zeros[sizeof(begin)] = {0};
    size_t length = (size_t)min_u64(source->length, sizeof(begin));

    *what = "of an unknown format";
    if (file_name_has_suffix(name, ".safetensors"))
        return FAIL(err, SIDESTEP_ECORRUPT, "it does not begin like a safetensors file");
    TRY(source_read(source, begin, length, 0, err));
    if (file_probe_may_hold_tensors(name) && memcmp(begin, zeros, length) == 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "it begins with zeros, as if it was never written");
    return read_all(source, err);
}

/* ${*what}: what the file is, if it was read but has no checksums; NULL: it has checksums. */
static enum sidestep_status check_source(const struct source *source, const char *name,
                                         enum file_probe_format format, const char **what,
                                         struct sidestep_error *err)
{
    *what = NULL;
    switch (format) {
    case FILE_PROBE_EMPTY:
        *what = "empty";
        return file_probe_may_hold_tensors(name) ? FAIL(err, SIDESTEP_ECORRUPT, "it is empty")
                                                 : SIDESTEP_OK;
    case FILE_PROBE_SAFETENSORS:
        return check_safetensors(source, what, err);
    case FILE_PROBE_ZIP:
        return check_zip(source, name, what, err);
    case FILE_PROBE_PICKLE:
        *what = "a pickle";
        return read_all(source, err);
    case FILE_PROBE_OTHER:
        TRY(pointer_file_check(source, err));
        break;
    }
    return file_name_has_suffix(name, ".json") ? check_json(source, what, err)
                                               : check_unknown(source, name, what, err);
}

/* Follows links in a user's own directory to files: model caches consist of such links. */
static enum sidestep_status open_file(struct foreign_check *c, const char *name,
                                      struct store_file **file, struct sidestep_error *err)
{
    const char *path = make_path(c, name);
    OWNED_DIR *dir = NULL;

    if (path == NULL)
        return FAIL_NOMEM(err, strlen(name));
    TRY(store_parent_open(c->request->store, path, &c->arena, &dir, &name, err));
    return store_file_open(dir, name, c->request->flags & STORE_DROP_CACHE, file, err);
}

static enum sidestep_status check_open(struct foreign_check *c, const char *name,
                                       struct store_file *file, const char **what,
                                       struct sidestep_error *err)
{
    struct watched watched = {.foreign_check = c, .file = file};
    enum file_probe_format format;
    struct store_stat stat;

    TRY(store_file_stat(file, &stat, err));
    TRY(file_probe_format(file, stat.size, &format, err));
    struct source source = {.length = stat.size, .read_at = read_watched, .context = &watched};
    TRY(check_source(&source, name, format, what, err));
    c->request->findings->checked_bytes += stat.size;
    return SIDESTEP_OK;
}

/* Adds a finding; fails only for errors of the check itself. */
static enum sidestep_status check_file(struct foreign_check *c, const char *name,
                                       struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;
    struct sidestep_error why = {0};
    const char *what = NULL, *shown = name[0] != '\0' ? name : NULL;
    enum sidestep_status status = open_file(c, name, &file, &why);

    if (status == SIDESTEP_EUNSAFE)
        return verify_findings_add_unchecked(c->request->findings, shown, "not a regular file",
                                             err);
    if (status == SIDESTEP_OK)
        status = check_open(c, shown != NULL ? shown : c->request->path, file, &what, &why);
    if (status == SIDESTEP_ENOMEM || status == SIDESTEP_ECANCELLED)
        return error_copy(err, &why);
    if (status != SIDESTEP_OK)
        return verify_findings_add(c->request->findings, shown, NULL, verify_kind(status),
                                   why.message, err);
    return what != NULL ? verify_findings_add_unchecked(c->request->findings, shown, what, err)
                        : SIDESTEP_OK;
}

/* ---- DCP checkpoints in directories ---- */

static void show_dcp(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)total_bytes;
    show_progress(context, done_bytes);
}

static enum sidestep_status check_dcp(struct foreign_check *c, const char *name,
                                      struct sidestep_error *err)
{
    OWNED_BY(reader_close) struct reader *reader = NULL;
    struct verify_findings *findings = c->request->findings;
    struct sidestep_error why = {0};
    const char *path = make_path(c, name);
    struct verify_options options = {.on_progress = show_dcp, .context = c};

    if (path == NULL || (findings->folder = arena_printf(&c->arena, "%s/", name)) == NULL)
        return FAIL_NOMEM(err, strlen(name));
    if (c->request->options != NULL)
        options.cancel = c->request->options->cancel;
    enum sidestep_status status =
        reader_open(c->request->store, path, c->request->flags, &reader, &why);
    if (status == SIDESTEP_OK)
        status = verify_reader(reader, c->request->workers, &options, findings, err);
    else if (status != SIDESTEP_ENOMEM)
        status = verify_findings_add(findings, NULL, NULL, verify_kind(status), why.message, err);
    else
        status = FAIL_NOMEM(err, strlen(path));
    findings->folder = NULL;
    return status;
}

static enum sidestep_status check_parts(struct foreign_check *c, struct sidestep_error *err)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct part *part = &c->parts[i];
        c->part_bytes = part->bytes;
        c->seen_bytes = 0;
        TRY(part->is_dcp ? check_dcp(c, part->name, err) : check_file(c, part->name, err));
        c->done_bytes += part->bytes;
    }
    c->part_bytes = 0;
    if (c->count != 0)
        show_progress(c, 0);
    return SIDESTEP_OK;
}

/* ---- the path ---- */

/* Is the path a root: does a listing call an entry of it a checkpoint? */
static enum sidestep_status has_checkpoints(const struct verify_foreign_request *request, bool *has,
                                            struct sidestep_error *err)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};

    TRY(list_root(request->store, request->path, 0, &list, err));
    for (size_t i = 0; i < list.count; i++)
        *has |= sidestep_list_entry(&list, i)->state != SIDESTEP_FOREIGN;
    return SIDESTEP_OK;
}

/* Check names and files for the layout of another program's checkpoint, which may be incomplete. */
static enum sidestep_status check_layout(struct foreign_check *c, struct store_dir *dir,
                                         const struct name_list *names, bool *is_foreign,
                                         struct sidestep_error *err)
{
    OWNED_DIR *parent = NULL;
    struct foreign_layouts_probe look = {
        .path = c->request->path, .dir = dir, .names = names, .arena = &c->arena};

    TRY(store_parent_open(c->request->store, look.path, &c->arena, &parent, &look.name, err));
    look.root = parent;
    look.step = step_name_parse(look.name);
    enum sidestep_status status = foreign_layouts_probe(&look, err);
    *is_foreign = look.layout != NULL;
    if (status != SIDESTEP_OK || look.reason == NULL)
        return status == SIDESTEP_ENOMEM ? status : SIDESTEP_OK; /* each file has its own finding */
    if (has_shards(names))
        return SIDESTEP_OK; /* collect() reports what is missing */
    return verify_findings_add(c->request->findings, NULL, NULL, "incomplete", look.reason, err);
}

static enum sidestep_status classify_dir(struct foreign_check *c, struct store_dir *dir,
                                         bool *is_foreign, struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};
    bool is_root = false;

    TRY(name_list_read(dir, &names, err));
    if (names.count == 0 &&
        c->request->store->ops->layout == STORE_OF_KEYS) /* reader_open() has reported it */
        return SIDESTEP_OK;
    TRY(check_layout(c, dir, &names, is_foreign, err));
    if (*is_foreign || (!has_shards(&names) && foreign_layouts_find_tensors(&names) == NULL))
        return SIDESTEP_OK;
    TRY(has_checkpoints(c->request, &is_root, err));
    *is_foreign = !is_root;
    return SIDESTEP_OK;
}

static enum sidestep_status add_single_file(struct foreign_check *c, bool *is_foreign,
                                            struct sidestep_error *err)
{
    enum file_probe_format format;
    OWNED_FILE *file = NULL;
    struct store_stat stat;

    TRY(open_file(c, "", &file, err));
    TRY(store_file_stat(file, &stat, err));
    TRY(file_probe_format(file, stat.size, &format, err));
    *is_foreign = format == FILE_PROBE_SAFETENSORS || file_probe_may_hold_tensors(c->request->path);
    if (!*is_foreign)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "'%s' is neither a checkpoint nor a file of tensors", c->request->path);
    return add_part(c, "", false, stat.size, err);
}

enum sidestep_status verify_foreign_check(const struct verify_foreign_request *request,
                                          bool *is_foreign, struct sidestep_error *err)
{
    OWNED_BY(foreign_check_release) struct foreign_check c = {.request = request};
    OWNED_DIR *dir = NULL;
    struct sidestep_error why = {0};

    *is_foreign = false;
    if (store_parent_has_object(request->store, request->path, &c.arena)) {
        TRY(add_single_file(&c, is_foreign, err));
    } else if (store_dir_open(request->store, NULL, request->path, &dir, &why) == SIDESTEP_OK) {
        TRY(classify_dir(&c, dir, is_foreign, err));
        if (*is_foreign)
            TRY(collect(&c, "", MAX_DEPTH, err));
    } else if (why.sys_errno == ENOTDIR) {
        TRY(add_single_file(&c, is_foreign, err));
    }
    return *is_foreign ? check_parts(&c, err) : SIDESTEP_OK;
}

/* Add the names of the checkpoint's own files and folders in its directory: for "a/b", the name
 * "a". */
static enum sidestep_status add_own_names(struct hash_table *own, struct arena *arena,
                                          const struct reader *reader, struct sidestep_error *err)
{
    for (size_t i = 0; i < reader->file_count; i++) {
        const char *file = reader->files[i].name;
        const char *name = arena_strndup(arena, file, strcspn(file, "/"));
        size_t existing;

        if (name == NULL)
            return FAIL_NOMEM(err, strlen(file));
        TRY(hash_table_insert(own, name, i, &existing, err));
    }
    return SIDESTEP_OK;
}

enum sidestep_status verify_foreign_beside(const struct verify_foreign_request *request,
                                           const struct reader *reader, struct sidestep_error *err)
{
    OWNED_BY(foreign_check_release) struct foreign_check c = {.request = request};
    OWNED_NAMES struct name_list names = {0};
    OWNED_HASH_TABLE own = {0};

    TRY(add_own_names(&own, &c.arena, reader, err));
    TRY(name_list_read(reader->dir, &names, err));
    for (size_t i = 0; i < names.count; i++) {
        const char *name = names.names[i];
        bool is_own = hash_table_find(&own, name) != SIZE_MAX ||
                      file_name_has_suffix(name, FILE_NAME_METADATA) ||
                      file_name_parse(name).kind != FILE_NAME_NONE;
        if (!is_own)
            TRY(collect_name(&c, reader->dir, "", name, MAX_DEPTH, err));
    }
    return check_parts(&c, err);
}
