/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_gather.c -- loads from parts, where each node has a directory for itself.
 *
 * In each directory, the rank that leads makes a hidden directory, the view, that looks like the
 * whole checkpoint: links to the files of the part that is there, and the records of the whole,
 * which rank 0 makes of the footers of all parts. Then all ranks load from the view, as from any
 * checkpoint. Files that a rank needs, and that its view lacks, are brought there before, in
 * pieces, from a rank that has them. The loader checks each byte against the hashes of the
 * manifest. In the end the view goes. It has the marker of a save, so what a kill leaves is swept
 * as that of a dead save.
 */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "load/load.h"
#include "series/series.h"
#include "series/series_view.h"
#include "verify/verify.h"

#define PIECE_BYTES ((size_t)4 << 20)
#define MAX_TRIES 64u /* damaged steps that are passed over */

void series_end_view(struct sidestep_series *series)
{
    struct sidestep_error done = {.status = SIDESTEP_EABORTED};
    struct series_view *view = TAKE(series->view);

    if (view == NULL)
        return;
    if (series->engine->bring == &view->bring)
        series->engine->bring = NULL;
    if (view->commit.store != NULL && view->commit.dir != NULL) {
        commit_abort(&view->commit, &done);
        commit_remove_outcome(&view->commit);
    }
    commit_close(&view->commit);
    free(view->holders);
    free(view);
}

/* ---- the views */

/* The id of the view: all ranks know it, and no save has it. */
static void make_view_id(const struct series_view *view, uint8_t id[SAVE_ID_BYTES])
{
    hash_id(view->whole.save_id, SAVE_ID_HEX, view->series->incarnation, id);
}

static void set_view_path(struct series_view *view)
{
    char hex[SAVE_ID_HEX], name[FILE_NAME_BYTES];
    uint8_t id[SAVE_ID_BYTES];

    make_view_id(view, id);
    hash_to_hex(id, sizeof(id), hex);
    file_name_format(FILE_NAME_SAVING, hex, 0, 0, name);
    snprintf(view->path, sizeof(view->path), "%s/%s", view->series->root, name);
}

/* Link the files that this root has. */
static enum sidestep_status link_files(struct series_view *view, const char *name,
                                       struct sidestep_error *err)
{
    OWNED_REFERENCED_FILES named = {0};
    OWNED_NAMES struct name_list names = {0};
    OWNED_DIR *dir = NULL;

    if (!series_has_save(view->series, name, view->whole.save_id))
        return SIDESTEP_OK;
    TRY(store_dir_open(view->series->store, view->series->lease.root, name, &dir, err));
    TRY(name_list_read(dir, &names, err));
    for (size_t i = 0; i < names.count; i++)
        if (file_name_parse(names.names[i]).kind == FILE_NAME_SHARD)
            TRY(WRAP(store_link(dir, names.names[i], view->commit.dir, names.names[i], err), err,
                     "link '%s' of '%s'", names.names[i], name));
    return SIDESTEP_OK;
}

static enum sidestep_status make_view(struct series_view *view, const struct buffer *metadata,
                                      const struct buffer *manifest, struct sidestep_error *err)
{
    struct sidestep_series *series = view->series;
    char path[COMMIT_PATH_BYTES], name[FILE_NAME_BYTES], file[FILE_NAME_BYTES];
    uint8_t id[SAVE_ID_BYTES];

    view->commit =
        (struct commit){.store = series->store,
                        .clock = series->engine->clock,
                        .world_size = 1,
                        .request = {.step = view->whole.step, .incarnation = series->incarnation}};
    memcpy(view->commit.request.run_id, series->run_id, sizeof(series->run_id));
    make_view_id(view, id);
    name_template_format_name(&series->naming, (uint64_t)view->whole.step, name);
    snprintf(path, sizeof(path), "%s/%s", series->root, name);
    TRY(commit_open(&view->commit, path, err));
    TRY(commit_begin_export(&view->commit, id, err));
    file_name_format(FILE_NAME_MANIFEST, view->whole.save_id, 0, 0, file);
    TRY(small_file_write(view->commit.dir, file, manifest->bytes, manifest->length, err));
    TRY(small_file_write(view->commit.dir, FILE_NAME_METADATA, metadata->bytes, metadata->length,
                         err));
    return link_files(view, name, err);
}

/* ---- files that are brought */

/* Mark the files that this rank reads from, and that its view lacks. */
static enum sidestep_status find_wanted(const struct reader *r, const struct load_plan *plan,
                                        uint8_t *wanted, struct sidestep_error *err)
{
    for (size_t i = 0; i < plan->count; i++) {
        const char *name = plan->chunks[i].storage->file;
        size_t file = name != NULL ? hash_table_find(&r->file_names, name) : SIZE_MAX;
        struct store_stat stat;
        if (file >= r->manifest.file_count || wanted[file] != 0)
            continue;
        enum sidestep_status status = store_stat(r->dir, name, &stat, err);
        if (status != SIDESTEP_OK && status != SIDESTEP_ENOTFOUND)
            return status;
        wanted[file] = status == SIDESTEP_ENOTFOUND;
    }
    return SIDESTEP_OK;
}

/* Rank 0: give each rank that leads what the ranks of its group want. */
static void join_wanted(const struct series_view *view, struct comm_parts *parts)
{
    const uint32_t *leads = view->series->groups.leads;

    for (int32_t rank = 0; rank < view->series->engine->comm.size; rank++)
        for (size_t i = 0; i < view->file_count; i++)
            parts->bytes[parts->offsets[leads[rank]] + i] |= parts->bytes[parts->offsets[rank] + i];
}

/* Set ${wanted} to what the group of this rank wants, and ${sent} to what any does. */
static enum sidestep_status agree_wanted_all(const struct series_view *view, uint8_t *wanted,
                                             uint64_t *sent, struct sidestep_error *err)
{
    OWNED_BY(comm_parts_release) struct comm_parts parts = {0};
    struct comm *comm = &view->series->engine->comm;
    OWNED void *mine = NULL;
    size_t bytes = 0;

    TRY(comm_gather_all(comm, wanted, view->file_count, &parts, err));
    if (comm->rank == 0)
        join_wanted(view, &parts);
    TRY(comm_scatter_all(comm, &parts, &mine, &bytes, err));
    if (bytes == view->file_count && bytes != 0)
        memcpy(wanted, mine, bytes);
    for (size_t i = 0; i < view->file_count; i++)
        sent[i] = wanted[i];
    return comm_reduce_max_all(comm, sent, view->file_count, err);
}

/* Open file ${name}: to read it, or to receive it; or neither. */
static enum sidestep_status open_file(const struct series_view *view, const struct reader *r,
                                      const char *name, bool sends, bool receives,
                                      struct store_file **file, struct sidestep_error *err)
{
    if (sends)
        return store_file_open_to_read(r->dir, name, 0, file, err);
    return receives ? store_file_create(view->commit.dir, name, 0, file, err) : SIDESTEP_OK;
}

static enum sidestep_status send_pieces_all(struct comm *comm, struct store_file *file, bool sends,
                                            uint32_t holder, uint64_t length, void *piece,
                                            struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    for (uint64_t at = 0; at < length; at += PIECE_BYTES) {
        size_t bytes = (size_t)min_u64(PIECE_BYTES, length - at);
        if (sends && status == SIDESTEP_OK)
            status = store_file_read_at(file, piece, bytes, at, err);
        TRY(comm_broadcast_all(comm, piece, bytes, (int32_t)holder, err));
        if (file != NULL && !sends && status == SIDESTEP_OK)
            status = store_file_write_at(file, piece, bytes, at, err);
    }
    return comm_agree_all(comm, status, err); /* what was sent instead is not used then */
}

static enum sidestep_status send_file_all(const struct series_view *view, const struct reader *r,
                                          size_t i, bool is_wanted, void *piece,
                                          struct sidestep_error *err)
{
    struct comm *comm = &view->series->engine->comm;
    const struct manifest_file *row = &r->manifest.files[i];
    bool sends = view->holders[i] == (uint32_t)comm->rank;
    bool receives = is_wanted && series_leads(view->series);
    OWNED_FILE *file = NULL;
    enum sidestep_status status = view->holders[i] < (uint32_t)comm->size
                                      ? open_file(view, r, row->name, sends, receives, &file, err)
                                      : FAIL(err, SIDESTEP_EPEER, "nobody has it");

    status = comm_agree_all(comm, status, err);
    if (status == SIDESTEP_OK)
        status = send_pieces_all(comm, file, sends, view->holders[i], row->bytes, piece, err);
    return WRAP(status, err, "bring '%s' from rank %u", row->name, view->holders[i]);
}

/* struct load_bring */
static enum sidestep_status bring_all(void *context, const struct reader *r,
                                      const struct load_plan *plan, struct sidestep_error *err)
{
    const struct series_view *view = context;
    struct comm *comm = &view->series->engine->comm;
    OWNED uint8_t *wanted = memory_new(view->file_count, 1);
    OWNED uint64_t *sent = memory_new(view->file_count, sizeof(*sent));
    OWNED void *piece = memory_resize(NULL, 1, PIECE_BYTES); /* untouched, if nothing is brought */
    enum sidestep_status status = SIDESTEP_OK;

    if (wanted == NULL || sent == NULL || piece == NULL)
        status = FAIL_NOMEM(err, PIECE_BYTES);
    else if (r->manifest.file_count != view->file_count)
        status = FAIL(err, SIDESTEP_EPEER, "the manifest has another number of files");
    else
        status = find_wanted(r, plan, wanted, err);
    TRY(comm_agree_all(comm, status, err));
    TRY(agree_wanted_all(view, wanted, sent, err));
    for (size_t i = 0; i < view->file_count; i++)
        if (sent[i] != 0)
            TRY(send_file_all(view, r, i, wanted[i] != 0, piece, err));
    return SIDESTEP_OK;
}

/* ---- loading */

/* Make the view of the save on each node, and load from it. */
static enum sidestep_status load_view_all(struct series_view *view,
                                          struct sidestep_state_dict *state,
                                          const struct sidestep_load_options *theirs,
                                          struct sidestep_load_report *report,
                                          struct sidestep_error *err)
{
    struct sidestep_load_options options = *theirs;
    OWNED_BUFFER metadata = {0}, manifest = {0};
    enum sidestep_status status = SIDESTEP_OK;

    TRY(series_get_records_all(view, options.verify, &metadata, &manifest, err));
    set_view_path(view);
    if (series_leads(view->series))
        status = make_view(view, &metadata, &manifest, err);
    TRY(comm_agree_all(&view->series->engine->comm, status, err));
    if (options.verify == SIDESTEP_VERIFY_BEFORE) /* each part was verified, on its node */
        options.verify = SIDESTEP_VERIFY_READ;
    view->bring = (struct load_bring){bring_all, view, view->path};
    view->series->engine->bring = &view->bring;
    return load_path_all(view->series->engine, view->path, state, &options, 0, report, err);
}

/* ---- the mirror has it whole */

/* Load from the mirror, where all ranks read. */
static enum sidestep_status
load_far_all(struct sidestep_series *series, const struct series_far *far,
             struct sidestep_state_dict *state, const struct sidestep_load_options *options,
             struct sidestep_load_report *report, struct sidestep_error *err)
{
    struct series_view *view = memory_new(1, sizeof(*view));
    enum sidestep_status status = view != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, sizeof(*view));

    series_end_view(series);
    series->view = view;
    TRY(comm_agree_all(&series->engine->comm, status, err));
    *view = (struct series_view){.series = series, .whole = far->whole, .is_far = true};
    memcpy(view->path, far->path, sizeof(view->path));
    status = load_path_all(series->engine, view->path, state, options, 0, report, err);
    if (status != SIDESTEP_OK)
        series_end_view(series);
    return status;
}

/* ---- one try */

/* After a failed load: is a part damaged? Each node reads its own again. */
static enum sidestep_status is_damaged_all(struct sidestep_series *series,
                                           const struct series_whole *whole, uint64_t *damaged,
                                           struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES], path[COMMIT_PATH_BYTES];

    name_template_format_name(&series->naming, (uint64_t)whole->step, name);
    snprintf(path, sizeof(path), "%s/%s", series->root, name);
    bool reads = series_leads(series) && series_has_save(series, name, whole->save_id);
    return series_read_again_all(series, series->store, reads ? path : NULL, damaged, err);
}

static enum sidestep_status
load_once_all(struct sidestep_series *series, const struct series_whole *whole,
              struct sidestep_state_dict *state, const struct sidestep_load_options *options,
              struct sidestep_load_report *report, struct sidestep_error *err)
{
    struct series_view *view = memory_new(1, sizeof(*view));
    enum sidestep_status status = view != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, sizeof(*view));

    series_end_view(series);
    series->view = view;
    TRY(comm_agree_all(&series->engine->comm, status, err));
    *view = (struct series_view){.series = series, .whole = *whole};
    status = load_view_all(view, state, options, report, err);
    if (status != SIDESTEP_OK)
        series_end_view(series);
    return status;
}

/* ${goes_back}: somebody named the step, so there may be newer ones at the mirror, too. ${is_near}:
 * it is whole at the near level. */
static enum sidestep_status record_all(struct sidestep_series *series,
                                       const struct series_whole *whole, bool goes_back,
                                       bool is_near, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    if (is_near) /* also if it had been left behind */
        series_note_whole(series, whole->save_id);
    if (series->engine->comm.rank == 0 && goes_back)
        status = series_mirror_go_back(series, (uint64_t)whole->step, whole->save_id, err);
    if (series_leads(series) && status == SIDESTEP_OK)
        status = series_record_parts(series, whole, err);
    return comm_agree_all(&series->engine->comm, status, err);
}

enum sidestep_status sidestep_series_path(const struct sidestep_series *series, uint64_t step,
                                          char path[4096], struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];

    TRY(series_check(series, err));
    if (path == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "path is NULL");
    name_template_format_name(&series->naming, step, name);
    if (series->view != NULL && (uint64_t)series->view->whole.step == step)
        snprintf(path, COMMIT_PATH_BYTES, "%s", series->view->path);
    else
        snprintf(path, COMMIT_PATH_BYTES, "%s/%s", series->root, name);
    return SIDESTEP_OK;
}

/* What a resume tries next: a step that is whole at the near level, or a later one of the mirror.
 */
struct source_of_all {
    struct series_whole near;
    struct series_far far;                    /* ${whole.step} is -1: the near one */
    struct name_list damaged, damaged_far;    /* saves that are passed over */
    char rejected_far[SERIES_REJECTED_BYTES]; /* rank 0: why those of the mirror are */
};

static void source_release(struct source_of_all *chosen)
{
    name_list_release(&chosen->damaged);
    name_list_release(&chosen->damaged_far);
}

static bool has_none(enum sidestep_status status)
{
    return status == SIDESTEP_ENOTFOUND || status == SIDESTEP_EMISMATCH;
}

static void add_text(char rejected[SERIES_REJECTED_BYTES], const char *others)
{
    size_t used = strlen(rejected);

    if (others[0] != '\0')
        snprintf(rejected + used, SERIES_REJECTED_BYTES - used, "%s%s", used != 0 ? "; " : "",
                 others);
}

static enum sidestep_status choose_all(struct sidestep_series *series, int64_t asked,
                                       struct source_of_all *chosen,
                                       char rejected[SERIES_REJECTED_BYTES],
                                       struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};

    chosen->near = (struct series_whole){.step = asked};
    enum sidestep_status status =
        series_choose_whole_all(series, &chosen->damaged, &chosen->near, &why);
    memcpy(rejected, chosen->near.rejected, SERIES_REJECTED_BYTES);
    add_text(rejected, chosen->rejected_far);
    if (status != SIDESTEP_OK && !has_none(status))
        return error_copy(err, &why);
    if (status != SIDESTEP_OK)
        chosen->near.step = -1;
    if (status == SIDESTEP_OK && asked >= 0) {
        chosen->far.whole.step = -1;
        return SIDESTEP_OK;
    }
    TRY(series_find_far_all(series, &chosen->near, asked, &chosen->damaged_far, &chosen->far, err));
    chosen->far.whole.rejected[SERIES_REJECTED_BYTES - 1] = '\0'; /* another rank sent it */
    add_text(rejected, chosen->far.whole.rejected);
    return status == SIDESTEP_OK || chosen->far.whole.step >= 0
               ? SIDESTEP_OK
               : series_report_none(status,
                                    chosen->damaged_far.count != 0 || chosen->far.has_damaged,
                                    rejected, &why, err);
}

/* After a failed load: note the save if it is damaged. ${*again}: try the next one. */
static enum sidestep_status note_damaged_all(struct sidestep_series *series,
                                             struct source_of_all *chosen,
                                             const struct sidestep_error *why, bool *again,
                                             struct sidestep_error *err)
{
    bool is_far = chosen->far.whole.step >= 0, reads = series->engine->comm.rank == 0;
    char text[COMMIT_PATH_BYTES + sizeof(why->message)];
    const struct series_whole *whole = is_far ? &chosen->far.whole : &chosen->near;
    uint64_t is_damaged = 0;

    if (is_far)
        TRY(series_read_again_all(series, reads ? series->mirror->store : NULL,
                                  reads ? chosen->far.path : NULL, &is_damaged, err));
    else
        TRY(is_damaged_all(series, whole, &is_damaged, err));
    *again = is_damaged != 0;
    snprintf(text, sizeof(text), "'%s': %s", chosen->far.path, why->message);
    if (*again && is_far && reads)
        series_note_rejected(series, chosen->rejected_far, chosen->far.path, text);
    return comm_agree_all(
        &series->engine->comm,
        name_list_add(is_far ? &chosen->damaged_far : &chosen->damaged, whole->save_id, err), err);
}

void series_name_loaded(const struct sidestep_series *series, uint64_t step,
                        char path[COMMIT_PATH_BYTES])
{
    char name[FILE_NAME_BYTES];

    name_template_format_name(&series->naming, step, name);
    if (series->view != NULL && series->view->is_far)
        snprintf(path, COMMIT_PATH_BYTES, "%s", series->view->path);
    else
        snprintf(path, COMMIT_PATH_BYTES, "%s/%s", series->root, name);
}

enum sidestep_status series_load_parts_all(struct sidestep_series *series, int64_t asked,
                                           bool goes_on, struct sidestep_state_dict *state,
                                           const struct sidestep_load_options *options,
                                           uint64_t *step, char rejected[SERIES_REJECTED_BYTES],
                                           struct sidestep_load_report *report,
                                           struct sidestep_error *err)
{
    OWNED_BY(source_release) struct source_of_all chosen = {0};
    struct sidestep_error why = {.rank = -1};

    for (unsigned tries = 0; tries < MAX_TRIES; tries++) {
        bool again = false;
        TRY(choose_all(series, asked, &chosen, rejected, err));
        bool is_far = chosen.far.whole.step >= 0;
        enum sidestep_status status =
            is_far ? load_far_all(series, &chosen.far, state, options, report, &why)
                   : load_once_all(series, &chosen.near, state, options, report, &why);
        if (status == SIDESTEP_OK) {
            const struct series_whole *whole = is_far ? &chosen.far.whole : &chosen.near;
            *step = (uint64_t)whole->step;
            return goes_on ? record_all(series, whole, asked >= 0, !is_far, err) : SIDESTEP_OK;
        }
        TRY(note_damaged_all(series, &chosen, &why, &again, err));
        if (!again || (asked >= 0 && (is_far || !series->has_mirror)))
            return error_copy(err, &why);
    }
    return error_copy(err, &why);
}
