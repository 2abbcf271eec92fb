/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_whole.c -- finds out together which step is whole, where each node has a directory for
 * itself.
 *
 * Each rank that leads offers the manifests of what lies in its directory, of this run. Rank 0 puts
 * together what is of one save: it is whole if each rank of the world that saved it is in one of
 * the manifests. Other ranks, other numbers of ranks, and ranks that moved make no difference.
 * Whoever cannot look fails, and all with it: an error is not "nothing there".
 */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "selection/selection.h"
#include "series/series_view.h"

/* ---- what a directory offers ---- */

#define OFFER_LEFT 1u    /* a run that went back has left it behind */
#define OFFER_ADOPTED 2u /* a run has gone on from it, although it had been left behind */

/* Before the manifests of a directory. */
struct offer_head {
    uint64_t before;    /* the incarnation of the run that the directory had seen; 0: none */
    uint64_t had_whole; /* 1: it knows that a step was whole once */
    uint64_t count;
};

static enum sidestep_status put_offer(struct sidestep_series *series,
                                      const struct sidestep_list *list,
                                      const struct sidestep_listed *entry, struct buffer *out,
                                      struct sidestep_error *err)
{
    bool is_adopted = annotations_find(list_annotations(list), ANNOTATION_ADOPTED, entry->name,
                                       entry->save_id) != NULL;
    uint64_t flags = (entry->is_abandoned ? OFFER_LEFT : 0) | (is_adopted ? OFFER_ADOPTED : 0);
    OWNED_BUFFER text = {0};
    OWNED_DIR *dir = NULL;

    TRY(series_read_manifest(series, entry->name, entry->save_id, &dir, &text, err));
    buffer_put_u64le(out, flags);
    buffer_put_u64le(out, text.length);
    buffer_put(out, text.bytes, text.length);
    return SIDESTEP_OK;
}

/* Is it of this run, under the name that the series gives it? */
static bool is_ours(const struct sidestep_series *series, const struct sidestep_listed *entry)
{
    uint64_t step;

    return (entry->state == SIDESTEP_COMMITTED || entry->state == SIDESTEP_PART) &&
           entry->save_id != NULL && entry->run_id != NULL &&
           strcmp(entry->run_id, series->run_id) == 0 && !entry->is_link && !entry->is_renamed &&
           name_template_parse_name(&series->naming, entry->name, &step);
}

/* Fail if an entry may be one of ours that cannot be read now. */
static enum sidestep_status check_readable(const struct sidestep_series *series,
                                           const struct sidestep_listed *entry,
                                           struct sidestep_error *err)
{
    uint64_t step;

    if (entry->state != SIDESTEP_UNREADABLE ||
        !name_template_parse_name(&series->naming, entry->name, &step))
        return SIDESTEP_OK;
    return FAIL(err, entry->status,
                "'%s' cannot be read now, so nobody knows which steps are whole; make it readable, "
                "or move it away: %s",
                entry->path, entry->reason);
}

static enum sidestep_status make_offer(struct sidestep_series *series, struct buffer *out,
                                       struct sidestep_error *err)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};
    struct offer_head head = {.before = series->before_parts,
                              .had_whole = series_had_whole(series)};

    TRY(store_dir_sync(series->lease.root, err)); /* a name that is seen is durable */
    TRY(list_root(series->store, series->root, 0, &list, err));
    buffer_put(out, &head, sizeof(head));
    for (size_t i = 0; i < list.count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(&list, i);
        TRY(check_readable(series, entry, err));
        if (!is_ours(series, entry))
            continue;
        TRY(put_offer(series, &list, entry, out, err));
        head.count++;
    }
    TRY(buffer_check(out, err));
    memcpy(out->bytes, &head, sizeof(head));
    return SIDESTEP_OK;
}

/* ---- rank 0 puts them together ---- */

/* What is known of one save. */
struct assembly {
    struct manifest manifest; /* the first that was offered */
    uint8_t *has;             /* per rank of its world */
    uint32_t found;           /* of these ranks */
    uint32_t parts;           /* that were offered */
    bool is_left;             /* left behind */
    bool is_adopted;          /* after that */
    bool is_odd;              /* the manifests contradict each other */
};

struct chooser {
    struct sidestep_series *series;
    const struct name_list *damaged;
    struct arena arena;
    struct hash_table ids;
    struct assembly *saves;
    size_t count, capacity;
    uint64_t *before; /* per directory */
    size_t directories;
    bool had_whole;
};

static void chooser_release(struct chooser *c)
{
    hash_table_release(&c->ids);
    arena_release(&c->arena);
    free(c->saves);
    free(c->before);
}

static enum sidestep_status add_manifest(struct chooser *c, const struct manifest *manifest,
                                         uint64_t flags, struct sidestep_error *err)
{
    size_t at;

    TRY_GROW(c->saves, c->capacity, c->count, err);
    const char *id = arena_strndup(&c->arena, manifest->save_id, SAVE_ID_HEX - 1);
    if (id == NULL)
        return FAIL_NOMEM(err, SAVE_ID_HEX);
    TRY(hash_table_insert(&c->ids, id, c->count, &at, err));
    if (at == SIZE_MAX) {
        at = c->count++;
        c->saves[at] = (struct assembly){.manifest = *manifest};
        c->saves[at].has = arena_new(&c->arena, manifest->world_size, 1);
        if (c->saves[at].has == NULL)
            return FAIL_NOMEM(err, manifest->world_size);
    }
    struct assembly *save = &c->saves[at];
    const struct manifest *first = &save->manifest;
    save->parts++;
    save->is_left |= (flags & OFFER_LEFT) != 0;
    save->is_adopted |= (flags & OFFER_ADOPTED) != 0;
    save->is_odd |= first->world_size != manifest->world_size || first->step != manifest->step ||
                    first->incarnation != manifest->incarnation ||
                    strcmp(first->run_id, manifest->run_id) != 0;
    for (uint32_t rank = 0; !save->is_odd && rank < manifest->world_size; rank++) {
        bool is_new = manifest_has_rank(manifest, rank) && !save->has[rank];
        save->has[rank] |= is_new;
        save->found += is_new;
    }
    return SIDESTEP_OK;
}

/* Take the offer of one directory. */
static enum sidestep_status add_offer(struct chooser *c, const uint8_t *bytes, size_t length,
                                      struct sidestep_error *err)
{
    struct cursor cursor = cursor_from_memory(bytes, length);
    c->before[c->directories++] = cursor_u64le(&cursor);
    c->had_whole |= cursor_u64le(&cursor) != 0;
    uint64_t count = cursor_u64le(&cursor);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t flags = cursor_u64le(&cursor), text_length = cursor_u64le(&cursor);
        const uint8_t *text = cursor_take(&cursor, text_length);
        struct manifest manifest;
        if (text == NULL)
            return FAIL(err, SIDESTEP_EPEER, "what a rank offers is cut short");
        TRY(manifest_decode(text, text_length, &c->arena, &manifest, err));
        if (strcmp(manifest.run_id, c->series->run_id) == 0 && manifest.step >= 0)
            TRY(add_manifest(c, &manifest, flags, err));
    }
    return SIDESTEP_OK;
}

static bool has_no_part(const void *context, uint32_t rank)
{
    return !((const struct assembly *)context)->has[rank];
}

/* A later incarnation that saved at the same or a lower step has left it behind, also if it had not
 * come to a whole step. */
static bool is_left_behind(const struct chooser *c, const struct assembly *save)
{
    if (save->is_left || save->is_adopted)
        return save->is_left;
    for (size_t i = 0; i < c->count; i++)
        if (c->saves[i].manifest.incarnation > save->manifest.incarnation &&
            c->saves[i].manifest.step <= save->manifest.step)
            return true;
    return false;
}

/* Were all directories of this save looked into? Then the ranks that are missing never sealed their
 * parts, and nothing was lost. */
static bool was_never_whole(const struct chooser *c, const struct assembly *save)
{
    uint32_t seen = 0;

    for (size_t i = 0; i < c->directories; i++)
        seen += c->before[i] >= save->manifest.incarnation;
    return save->manifest.part.rank_count != 0 && seen >= save->manifest.part.parts;
}

/* Why the save cannot be taken; "": it can. One that was left behind can, if its step is ${asked}
 * for. */
static void judge(const struct chooser *c, const struct assembly *save, int64_t asked,
                  char why[256])
{
    uint32_t size = save->manifest.world_size;

    why[0] = '\0';
    if (save->is_odd)
        snprintf(why, 256, "its parts contradict each other");
    else if (asked < 0 && is_left_behind(c, save))
        snprintf(why, 256, "was left behind by a resume from an older checkpoint");
    else if (save->found != size)
        snprintf(why, 256, "is not whole: ranks %s of the %u that saved it are in no directory%s",
                 rank_list_format(has_no_part, save, size).text, size,
                 was_never_whole(c, save)
                     ? "; no directory is missing, so its save did not end, or "
                       "somebody removed them"
                     : "");
    else if (name_list_contains(c->damaged, save->manifest.save_id))
        snprintf(why, 256, "is damaged");
}

/* By step; of equal steps, by incarnation; what was saved twice, in any order. */
static int compare(const struct assembly *a, const struct assembly *b)
{
    const struct manifest *x = &a->manifest, *y = &b->manifest;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->incarnation != y->incarnation)
        return x->incarnation < y->incarnation ? -1 : 1;
    return strcmp(x->save_id, y->save_id);
}

/* The latest save before ${before}; NULL: of all. */
static const struct assembly *find_next(const struct chooser *c, const struct assembly *before)
{
    const struct assembly *best = NULL;

    for (size_t i = 0; i < c->count; i++)
        if ((before == NULL || compare(&c->saves[i], before) < 0) &&
            (best == NULL || compare(&c->saves[i], best) > 0))
            best = &c->saves[i];
    return best;
}

static void note_rejected(const struct chooser *c, const struct assembly *save, const char *why,
                          struct series_whole *whole)
{
    char text[512], path[COMMIT_PATH_BYTES], name[FILE_NAME_BYTES];

    name_template_format_name(&c->series->naming, (uint64_t)save->manifest.step, name);
    snprintf(path, sizeof(path), "%s/%s", c->series->root, name);
    snprintf(text, sizeof(text), "step %lld (save %s) %s", (long long)save->manifest.step,
             save->manifest.save_id, why);
    series_note_rejected(c->series, whole->rejected, path, text);
}

static enum sidestep_status report_none(const struct chooser *c, const struct series_whole *whole,
                                        size_t lost, struct sidestep_error *err)
{
    if (whole->step >= 0)
        return FAIL(err, SIDESTEP_ENOTFOUND, "step %lld is not there, or not whole: %s",
                    (long long)whole->step,
                    whole->rejected[0] != '\0' ? whole->rejected : "no directory has a part of it");
    if (lost == 0 && !c->had_whole)
        return FAIL(err, SIDESTEP_ENOTFOUND, "there is no whole checkpoint yet in %zu directories",
                    c->directories);
    return FAIL(
        err, SIDESTEP_EMISMATCH,
        "there is no whole checkpoint to resume from in %zu directories: %s; to begin anew, "
        "use other directories",
        c->directories, whole->rejected[0] != '\0' ? whole->rejected : "their parts were removed");
}

/* Choose, and set ${whole}. */
static enum sidestep_status choose(const struct chooser *c, struct series_whole *whole,
                                   struct sidestep_error *err)
{
    size_t lost = 0;

    for (const struct assembly *save = find_next(c, NULL); save != NULL;
         save = find_next(c, save)) {
        char why[256];
        if (whole->step >= 0 && save->manifest.step != whole->step)
            continue;
        judge(c, save, whole->step, why);
        if (why[0] == '\0') {
            whole->step = save->manifest.step;
            whole->incarnation = save->manifest.incarnation;
            whole->was_left = is_left_behind(c, save);
            whole->is_adopted = save->is_adopted;
            memcpy(whole->save_id, save->manifest.save_id, sizeof(whole->save_id));
            return SIDESTEP_OK;
        }
        lost +=
            save->is_odd || save->found == save->manifest.world_size || !was_never_whole(c, save);
        note_rejected(c, save, why, whole);
    }
    return report_none(c, whole, lost, err);
}

static enum sidestep_status take_offers(struct chooser *c, const struct comm_parts *offers,
                                        struct sidestep_error *err)
{
    uint32_t size = (uint32_t)c->series->engine->comm.size;

    c->before = memory_new(size, sizeof(*c->before));
    if (c->before == NULL)
        return FAIL_NOMEM(err, size * sizeof(*c->before));
    for (uint32_t rank = 0; rank < size; rank++)
        if (offers->sizes[rank] != 0)
            TRY(add_offer(c, offers->bytes + offers->offsets[rank], offers->sizes[rank], err));
    return SIDESTEP_OK;
}

/* The ids of all whole saves that were not left behind, for retention. */
static void list_whole(const struct chooser *c, struct buffer *ids)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct assembly *save = &c->saves[i];
        if (!save->is_odd && save->found == save->manifest.world_size && !is_left_behind(c, save))
            buffer_put(ids, save->manifest.save_id, SAVE_ID_HEX);
    }
}

/* Tell all ranks which saves are whole. */
static enum sidestep_status share_whole_all(struct sidestep_series *series, struct buffer *ids,
                                            struct sidestep_error *err)
{
    TRY(comm_broadcast_buffer_all(&series->engine->comm, ids, err));
    for (size_t at = 0; at + SAVE_ID_HEX <= ids->length; at += SAVE_ID_HEX) {
        ids->bytes[at + SAVE_ID_HEX - 1] = '\0'; /* another rank sent it */
        series_note_whole(series, (const char *)ids->bytes + at);
    }
    return SIDESTEP_OK;
}

enum sidestep_status series_choose_whole_all(struct sidestep_series *series,
                                             const struct name_list *damaged,
                                             struct series_whole *whole, struct sidestep_error *err)
{
    OWNED_BY(comm_parts_release) struct comm_parts offers = {0};
    OWNED_BY(chooser_release) struct chooser c = {.series = series, .damaged = damaged};
    struct comm *comm = &series->engine->comm;
    enum sidestep_status status = SIDESTEP_OK;
    OWNED_BUFFER mine = {0}, ids = {0};

    if (series_leads(series))
        status = make_offer(series, &mine, err);
    TRY(comm_agree_all(comm, status, err));
    TRY(comm_gather_all(comm, mine.bytes, mine.length, &offers, err));
    if (comm->rank == 0)
        status = take_offers(&c, &offers, err);
    if (comm->rank == 0 && status == SIDESTEP_OK)
        list_whole(&c, &ids);
    TRY(share_whole_all(series, &ids, err)); /* also if none can be taken */
    if (comm->rank == 0 && status == SIDESTEP_OK)
        status = choose(&c, whole, err);
    TRY(comm_agree_all(comm, status, err));
    TRY(comm_broadcast_all(comm, whole, sizeof(*whole), 0, err));
    whole->save_id[sizeof(whole->save_id) - 1] = '\0';
    whole->rejected[sizeof(whole->rejected) - 1] = '\0';
    return SIDESTEP_OK;
}
