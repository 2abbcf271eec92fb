/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_choose.c -- chooses where a run goes on, and records which newer checkpoints it leaves
 * behind.
 *
 * All functions run on rank 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit.h"
#include "catalog/catalog.h"
#include "selection/selection.h"
#include "series/series.h"
#include "verify/verify.h"

struct chooser {
    struct sidestep_series *series;
    char *rejected; /* SERIES_REJECTED_BYTES */
};

/* The checkpoints under the root whose names belong to the series, by step, and their
 * annotations. */
struct members {
    struct sidestep_list list;
    struct sidestep_listed *entries;
    size_t count;
    struct annotations annotations;
};

static void members_release(struct members *m)
{
    sidestep_list_release(&m->list);
    annotations_release(&m->annotations);
    free(m->entries);
}

static enum sidestep_status find_members(struct sidestep_series *series, struct members *m,
                                         struct sidestep_error *err)
{
    TRY(store_dir_sync(series->lease.root, err)); /* a name that is seen is durable */
    TRY(list_root(series->store, series->root, LIST_WITH_UNREADABLE | LIST_KEEPS_INDEX, &m->list,
                  err));
    TRY(annotations_read(series->lease.dir, &m->annotations, err));
    m->entries = memory_new(m->list.count + 1, sizeof(*m->entries));
    if (m->entries == NULL)
        return FAIL_NOMEM(err, m->list.count * sizeof(*m->entries));
    for (size_t i = 0; i < m->list.count; i++) {
        struct sidestep_listed entry = *sidestep_list_entry(&m->list, i);
        uint64_t step;
        bool is_member =
            list_is_candidate(&entry) || list_is_link(&entry) || entry.state == SIDESTEP_PART;
        if (is_member) { /* the step by its name, as the caller sees it */
            if (!name_template_parse_name(&series->naming, entry.name, &step))
                continue;
            entry.step = (int64_t)step;
        } else if (entry.state != SIDESTEP_BAD) { /* a .bad one shows that the series is not new */
            continue;
        }
        m->entries[m->count++] = entry;
    }
    list_sort(m->entries, m->count);
    return SIDESTEP_OK;
}

/* ---- choose ---- */

void series_note_rejected(struct sidestep_series *series, char rejected[SERIES_REJECTED_BYTES],
                          const char *path, const char *why)
{
    size_t used = strlen(rejected);
    json_t *fields =
        json_pack("{s:o, s:o}", "path", events_text(path), "message", events_text(why));

    snprintf(rejected + used, SERIES_REJECTED_BYTES - used, "%s%s", used != 0 ? "; " : "", why);
    events_emit(&series->engine->events, "rejected", fields);
}

static void note_rejected(struct chooser *c, const struct sidestep_listed *entry, const char *why)
{
    series_note_rejected(c->series, c->rejected, entry->path, why);
}

static unsigned long restarts_of(const struct members *m, const struct sidestep_listed *entry)
{
    const struct annotation *mark =
        annotations_find(&m->annotations, ANNOTATION_RESTARTS, entry->name, entry->save_id);

    return mark != NULL ? strtoul(mark->text, NULL, 10) : 0;
}

/* The checkpoints that a resume of this series may choose.  In its first incarnation, a series may
 * start from checkpoints of another run. */
static struct lineage_filter make_lineage_filter(const struct sidestep_series *series)
{
    bool any_run = (series->flags & SIDESTEP_SERIES_ANY_RUN) != 0;

    return (struct lineage_filter){
        .run_id = !any_run && series->incarnation > 1 ? series->run_id : NULL, .any_name = any_run};
}

/* Must a resume pass over ${entry}?  If so, ${why} is text that follows its name. */
static bool is_passed_over(const struct sidestep_series *series, const struct members *m,
                           const struct sidestep_listed *entry, char why[LINEAGE_REASON_BYTES])
{
    struct lineage_filter rule = make_lineage_filter(series);
    unsigned long restarts = restarts_of(m, entry);

    if (lineage_should_skip(&rule, &m->annotations, entry, why))
        return true;
    if (series->max_restarts == 0 || restarts < series->max_restarts)
        return false;
    snprintf(why, LINEAGE_REASON_BYTES, "was resumed by %lu runs that committed nothing", restarts);
    return true;
}

/* Set aside, as .bad, a checkpoint of sidestep that fails verification.  Others are only passed
 * over. */
static enum sidestep_status set_aside(void *context, const struct sidestep_listed *entry,
                                      const struct sidestep_error *why, struct sidestep_error *err)
{
    struct chooser *chooser = context;
    char text[COMMIT_PATH_BYTES + sizeof(why->message)];
    snprintf(text, sizeof(text), "'%s': %s", entry->path, why->message);
    note_rejected(chooser, entry, text);
    bool is_damage = why->status == SIDESTEP_ECORRUPT || why->status == SIDESTEP_EUNSAFE;
    if (entry->save_id == NULL || !is_damage)
        return SIDESTEP_OK;
    return root_set_aside(&chooser->series->lease, entry->name, entry->save_id, err);
}

/* Remove the members that are passed over.  Returns how many of them were committed. */
static size_t remove_passed_over(struct chooser *c, struct members *m)
{
    size_t kept = 0, passed = 0;

    for (size_t i = 0; i < m->count; i++) {
        char why[LINEAGE_REASON_BYTES], text[COMMIT_PATH_BYTES + LINEAGE_REASON_BYTES];
        if (list_is_candidate(&m->entries[i]) &&
            is_passed_over(c->series, m, &m->entries[i], why)) {
            snprintf(text, sizeof(text), "'%s' %s", m->entries[i].path, why);
            note_rejected(c, &m->entries[i], text);
            passed++;
        } else {
            m->entries[kept++] = m->entries[i];
        }
    }
    m->count = kept;
    return passed;
}

/* Links with the name of a newer step, which are no checkpoints of their own. */
static void note_links(struct chooser *c, const struct members *m, size_t chosen)
{
    char text[2 * COMMIT_PATH_BYTES];

    for (size_t i = m->count; i-- > chosen + 1;) {
        if (!list_is_link(&m->entries[i]))
            continue;
        snprintf(text, sizeof(text), "'%s': %s", m->entries[i].path, m->entries[i].reason);
        note_rejected(c, &m->entries[i], text);
    }
}

/* Make the chosen checkpoint durable: its commit may have been interrupted before the last sync.
 * The sync of the root covers its name.  One committed in place needs a sync of its own
 * directory. */
static enum sidestep_status sync_member(struct sidestep_series *series, const char *name,
                                        struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;
    struct store_stat stat;
    char path[COMMIT_PATH_BYTES];

    snprintf(path, sizeof(path), "%s/%s", series->root, name);
    TRY(store_stat(series->lease.root, name, &stat, err));
    bool is_link = stat.kind == STORE_LINK; /* only a path is followed */
    TRY(store_dir_open(series->store, is_link ? NULL : series->lease.root, is_link ? path : name,
                       &dir, err));
    return store_dir_sync(dir, err);
}

/* Choose from one listing.  ${*gone}: the choice was deleted in the meantime. */
static enum sidestep_status choose_once(struct chooser *chooser, enum sidestep_verify_mode mode,
                                        uint64_t *step, bool *gone, struct sidestep_error *err)
{
    OWNED_BY(members_release) struct members m = {0};
    struct sidestep_series *series = chooser->series;
    size_t chosen = 0;

    *gone = false;
    TRY(find_members(series, &m, err));
    size_t passed = remove_passed_over(chooser, &m);
    struct sidestep_list list = {.count = m.count, .entries = m.entries};
    struct choose_options how = {.store = series->store,
                                 .mode = mode,
                                 .workers = series->engine->stagers,
                                 .reject = set_aside,
                                 .context = chooser};
    enum sidestep_status status = choose_newest_valid(&how, &list, &chosen, gone, err);
    if (*gone)
        return status;
    if (status == SIDESTEP_ENOTFOUND && passed != 0) /* ENOTFOUND would mean that a run may begin */
        return FAIL(err, SIDESTEP_EMISMATCH, "there is no checkpoint to resume from: %s",
                    chooser->rejected);
    /* Otherwise a run that was given a checkpoint instead of its root would begin anew. */
    if (status == SIDESTEP_ENOTFOUND &&
        referenced_files_has_metadata(series->store, NULL, series->root))
        return FAIL(
            err, SIDESTEP_EINVAL,
            "'%s' is a checkpoint itself, not a root: name the directory that it is in, or, to "
            "begin a new run, a new directory",
            series->root);
    TRY(status);
    *step = (uint64_t)m.entries[chosen].step;
    note_links(chooser, &m, chosen);
    status = sync_member(series, m.entries[chosen].name, err);
    *gone = status == SIDESTEP_ENOTFOUND;
    return status;
}

enum sidestep_status series_choose(struct sidestep_series *series, enum sidestep_verify_mode mode,
                                   uint64_t *step, char rejected[SERIES_REJECTED_BYTES],
                                   struct sidestep_error *err)
{
    struct chooser chooser = {.series = series, .rejected = rejected};
    struct sidestep_error why = {.rank = -1};
    enum sidestep_status status;
    bool gone;

    do
        status = choose_once(&chooser, mode, step, &gone, &why);
    while (gone); /* each time, the root has fewer checkpoints */
    return status == SIDESTEP_OK ? status : error_copy(err, &why);
}

enum sidestep_status series_find_step(struct sidestep_series *series, uint64_t step,
                                      struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];
    struct store_stat stat;

    name_template_format_name(&series->naming, step, name);
    TRY(store_dir_sync(series->lease.root, err));
    TRY(store_stat(series->lease.root, name, &stat, err));
    return sync_member(series, name, err);
}

enum sidestep_status series_estimate_space(struct sidestep_series *series,
                                           struct sidestep_error *err)
{
    OWNED_BY(members_release) struct members m = {0};
    char why[LINEAGE_REASON_BYTES];

    if (!series_should_check_space(series))
        return SIDESTEP_OK;
    TRY(find_members(series, &m, err));
    for (size_t i = m.count; i-- > 0;) {
        const struct sidestep_listed *entry = &m.entries[i];
        if (entry->state != SIDESTEP_COMMITTED || is_passed_over(series, &m, entry, why))
            continue;
        series_record_bytes(series, entry->bytes);
        break;
    }
    return SIDESTEP_OK;
}

/* ---- record a resume ---- */

/* The run goes on from ${entry}, whoever saved it, and although it was left behind: the caller
 * named it. */
static enum sidestep_status adopt(struct sidestep_series *series,
                                  const struct sidestep_listed *entry, bool was_left,
                                  struct sidestep_error *err)
{
    struct store_dir *dir = series->lease.dir;
    char text[32];

    TRY(annotations_remove(dir, ANNOTATION_ABANDONED, NULL, entry->name, err));
    if (!was_left && !entry->is_renamed &&
        (entry->run_id == NULL || strcmp(entry->run_id, series->run_id) == 0))
        return SIDESTEP_OK;
    snprintf(text, sizeof(text), "step %llu\n", (unsigned long long)entry->step);
    return annotations_set(dir, ANNOTATION_ADOPTED, NULL, entry->name, entry->save_id, text, err);
}

static enum sidestep_status record_start(struct sidestep_series *series, const struct members *m,
                                         const struct sidestep_listed *entry,
                                         struct sidestep_error *err)
{
    struct store_dir *dir = series->lease.dir;
    char text[32];

    snprintf(series->resumed_name, sizeof(series->resumed_name), "%s", entry->name);
    TRY(adopt(series, entry, entry->is_abandoned, err));
    if (series->max_restarts == 0)
        return SIDESTEP_OK;
    snprintf(text, sizeof(text), "%lu\n", restarts_of(m, entry) + 1);
    return annotations_set(dir, ANNOTATION_RESTARTS, NULL, entry->name, entry->save_id, text, err);
}

/* Record that ${entry} is left behind: it is newer than the step where the run goes on. */
static enum sidestep_status record_abandoned(struct sidestep_series *series,
                                             const struct sidestep_listed *entry,
                                             struct sidestep_error *err)
{
    char text[48] = "";

    if (entry->save_id == NULL) /* it cannot be read: mark any save of an earlier incarnation */
        snprintf(text, sizeof(text), "incarnation %llu\n", (unsigned long long)series->incarnation);
    TRY(annotations_set(series->lease.dir, ANNOTATION_ABANDONED, NULL, entry->name, entry->save_id,
                        text, err));
    events_emit(&series->engine->events, "abandoned",
                json_pack("{s:o}", "path", events_text(entry->path)));
    return SIDESTEP_OK;
}

/*
 * Check that every checkpoint that has to be annotated can be read.
 *
 * The save id of an unreadable checkpoint is not known.  So the annotation of a newer one names the
 * incarnation that leaves it behind.  But if this incarnation has saved something itself, the
 * checkpoint may be its own, and the annotation would also apply to what it saves under that name
 * later.
 */
static enum sidestep_status check_readable(struct sidestep_series *series, const struct members *m,
                                           uint64_t step, struct sidestep_error *err)
{
    for (size_t i = 0; i < m->count; i++) {
        const struct sidestep_listed *entry = &m->entries[i];
        if (!list_is_unreadable(entry) || (uint64_t)entry->step < step)
            continue;
        if ((uint64_t)entry->step == step)
            return FAIL(err, entry->status,
                        "'%s' was loaded, but cannot be read again to record that the run goes on "
                        "from it; nothing was recorded, try again",
                        entry->path);
        if (series->save_count != 0) /* the newest save is of this incarnation */
            return FAIL(err, entry->status,
                        "'%s' is newer and cannot be read now, so it cannot be recorded as left "
                        "behind; nothing was recorded: make it readable, move it away, or open the "
                        "series anew, and try again",
                        entry->path);
    }
    return SIDESTEP_OK;
}

enum sidestep_status series_record_parts(struct sidestep_series *series,
                                         const struct series_whole *whole,
                                         struct sidestep_error *err)
{
    OWNED_BY(members_release) struct members m = {0};
    uint64_t step = (uint64_t)whole->step;

    TRY(find_members(series, &m, err));
    name_template_format_name(&series->naming, step, series->resumed_name);
    for (size_t i = 0; i < m.count; i++) {
        const struct sidestep_listed *entry = &m.entries[i];
        bool is_ours = entry->run_id != NULL && strcmp(entry->run_id, series->run_id) == 0;
        if (!is_ours || entry->save_id == NULL || (uint64_t)entry->step < step)
            continue;
        if (strcmp(entry->save_id, whole->save_id) == 0)
            TRY(adopt(series, entry, entry->is_abandoned || whole->was_left, err));
        else if (!entry->is_abandoned)
            TRY(record_abandoned(series, entry, err));
    }
    return SIDESTEP_OK;
}

static bool has_step(const struct members *m, uint64_t step)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->entries[i].state == SIDESTEP_COMMITTED && (uint64_t)m->entries[i].step == step)
            return true;
    return false;
}

enum sidestep_status series_record_resume(struct sidestep_series *series, uint64_t step,
                                          struct sidestep_error *err)
{
    OWNED_BY(members_release) struct members m = {0};
    struct lineage_filter rule = make_lineage_filter(series);
    char why[LINEAGE_REASON_BYTES];

    TRY(find_members(series, &m, err));
    bool is_there = has_step(&m, step);
    TRY(check_readable(series, &m, step, err));
    for (size_t i = 0; i < m.count; i++) {
        const struct sidestep_listed *entry = &m.entries[i];
        if (!list_is_candidate(entry) || (uint64_t)entry->step < step)
            continue;
        if ((uint64_t)entry->step == step && entry->state == SIDESTEP_DAMAGED)
            continue; /* damaged since it was loaded; is_there is false then */
        if ((uint64_t)entry->step == step) {
            series_record_bytes(series, entry->bytes);
            TRY(record_start(series, &m, entry, err));
        } else if (lineage_should_skip(&rule, &m.annotations, entry, why)) {
            continue;
        } else if (is_there) {
            TRY(record_abandoned(series, entry, err));
        } else {
            return FAIL(err, SIDESTEP_ENOTFOUND,
                        "it was loaded, but has been deleted since, so '%s', which is newer, is "
                        "not left behind; nothing was recorded",
                        entry->path);
        }
    }
    return SIDESTEP_OK;
}

bool series_can_replace(struct sidestep_series *series, const char *name)
{
    OWNED_BY(members_release) struct members m = {0};
    struct store_stat stat;

    if (store_stat(series->lease.root, name, &stat, NULL) != SIDESTEP_OK ||
        stat.kind == STORE_LINK || /* the save would write through it */
        find_members(series, &m, NULL) != SIDESTEP_OK)
        return false;
    for (size_t i = 0; i < m.count; i++)
        if (strcmp(m.entries[i].name, name) == 0)
            return (m.entries[i].is_abandoned || series_is_torn(series, &m.entries[i])) &&
                   !annotations_may_exist(series->lease.dir, ANNOTATION_PIN, name);
    return false;
}

enum sidestep_status series_check_free(struct sidestep_series *series, const char *name,
                                       struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;
    struct store_stat stat;
    uint64_t identity = 0;

    if (store_stat(series->lease.root, name, &stat, NULL) == SIDESTEP_OK && stat.kind == STORE_LINK)
        return FAIL(err, SIDESTEP_EEXISTS,
                    "it is a symbolic link, and a series writes through none; remove the link, or "
                    "save another step; nothing was changed");
    if (series_has_parts(series) && strcmp(series->resumed_name, name) == 0)
        return FAIL(err, SIDESTEP_EEXISTS,
                    "this run has resumed from it, perhaps at the mirror, and has done no step "
                    "since, so there is nothing to save");
    if (store_dir_open(series->store, series->lease.root, name, &dir, NULL) != SIDESTEP_OK ||
        commit_read_identity(dir, &identity, NULL) != SIDESTEP_OK || identity == 0)
        return SIDESTEP_OK; /* the save reports what else is there */
    if (strcmp(series->resumed_name, name) == 0)
        return FAIL(err, SIDESTEP_EEXISTS,
                    "this run has resumed from it, and has done no step since, so there is nothing "
                    "to save");
    if (!series->has_resumed && series->save_count == 0)
        return FAIL(err, SIDESTEP_EEXISTS,
                    "there is a checkpoint already, and this run has not resumed since it opened "
                    "the series: it has to resume before its first save "
                    "(sidestep_series_load()), and a run that begins anew needs a root of its own; "
                    "nothing was changed");
    return FAIL(err, SIDESTEP_EEXISTS,
                "there is a checkpoint already; a save replaces only what was left behind by "
                "going back to an older step (sidestep_series_load_step()), so save another step, "
                "or delete it first; nothing was changed");
}

void series_reset_restarts(struct sidestep_series *series)
{
    if (series->resumed_name[0] != '\0' && series->max_restarts != 0)
        (void)annotations_remove(series->lease.dir, ANNOTATION_RESTARTS, NULL, series->resumed_name,
                                 NULL);
    series->resumed_name[0] = '\0';
}
