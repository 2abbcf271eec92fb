/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_gather.c -- loads from parts, where each node has a directory for itself.
 *
 * In each directory, the rank that leads makes a hidden directory, the view, that looks like the
 * whole checkpoint: links to the files of the part that is there, and the records of the whole,
 * which rank 0 makes of the footers of all parts. Then all ranks load from the view, as from any
 * checkpoint. What it lacks is brought there before, from a rank that has it (series_bring.c). In
 * the end the view goes. It has the marker of a save, so what a kill leaves is swept
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
    store_dir_close(view->bring.beside);
    free(view->holders);
    free(view);
}

enum sidestep_status series_end_view_all(struct sidestep_series *series, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    if (series->view != NULL && !series->view->is_far) /* on all ranks */
        status = comm_agree_all(&series->engine->comm, SIDESTEP_OK, err);
    series_end_view(series);
    return status;
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
    TRY(series_bring_small_files_all(view, &manifest, err));
    if (options.verify == SIDESTEP_VERIFY_BEFORE) /* each part was verified, on its node */
        options.verify = SIDESTEP_VERIFY_READ;
    view->bring = (struct load_bring){.all = series_bring_all, .context = view, .path = view->path};
    view->series->engine->bring = &view->bring;
    return load_path_all(view->series->engine, view->path, state, &options, 0, report, err);
}

/* ---- the mirror has it whole */

/* Each rank reads what its node has there. Another save of that name does no harm: the manifest of
 * the mirror says which file is the one. */
static void open_beside(struct series_view *view)
{
    char path[COMMIT_PATH_BYTES];
    struct store *store = NULL;

    series_format_path(view->series, (uint64_t)view->whole.step, path);
    if (engine_find_store(view->series->engine, path, &store, NULL) == SIDESTEP_OK)
        (void)store_dir_open(store, NULL, path, &view->bring.beside, NULL);
}

/* A struct load_bring's: what a node has there is damaged, or cannot be read. */
static void blame_beside(void *context, const struct sidestep_error *why)
{
    struct series_view *view = context;
    char path[COMMIT_PATH_BYTES], text[COMMIT_PATH_BYTES + sizeof(why->message)];
    char unused[SERIES_REJECTED_BYTES] = "";

    store_dir_close(TAKE(view->bring.beside));
    view->bring.blame = NULL;
    if (view->series->engine->comm.rank != 0)
        return;
    series_format_path(view->series, (uint64_t)view->whole.step, path);
    snprintf(text, sizeof(text), "'%s' on a node: %s; so all is read from the mirror", path,
             why->message);
    series_note_rejected(view->series, view->rejected != NULL ? view->rejected : unused, path,
                         text);
}

/* Load from the mirror, where all ranks read what their nodes lack. ${damaged}: saves with parts
 * that are known to be damaged. */
static enum sidestep_status
load_far_all(struct sidestep_series *series, const struct series_far *far,
             const struct name_list *damaged, struct sidestep_state_dict *state,
             const struct sidestep_load_options *options, char rejected[SERIES_REJECTED_BYTES],
             struct sidestep_load_report *report, struct sidestep_error *err)
{
    struct series_view *view = memory_new(1, sizeof(*view));
    enum sidestep_status status = view != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, sizeof(*view));

    series_end_view(series);
    series->view = view;
    TRY(comm_agree_all(&series->engine->comm, status, err));
    *view = (struct series_view){
        .series = series, .whole = far->whole, .is_far = true, .rejected = rejected};
    memcpy(view->path, far->path, sizeof(view->path));
    view->bring = (struct load_bring){.context = view, .path = view->path};
    if (!name_list_contains(damaged, far->whole.save_id)) {
        view->bring.blame = blame_beside;
        open_beside(view);
    }
    series->engine->bring = &view->bring;
    status = load_path_all(series->engine, view->path, state, options, 0, report, err);
    view->rejected = NULL;
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
    TRY(series_check(series, err));
    if (path == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "path is NULL");
    if (series->view != NULL && (uint64_t)series->view->whole.step == step)
        snprintf(path, COMMIT_PATH_BYTES, "%s", series->view->path);
    else
        series_format_path(series, step, path);
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
    if (series->view != NULL && series->view->is_far)
        snprintf(path, COMMIT_PATH_BYTES, "%s", series->view->path);
    else
        series_format_path(series, step, path);
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
            is_far ? load_far_all(series, &chosen.far, &chosen.damaged, state, options, rejected,
                                  report, &why)
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
