/* SPDX-License-Identifier: BSD-3-Clause */
/* mirror_look.c -- reads both levels, and finds out what of the near one is at the mirror; see
 * mirror.h. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit.h"
#include "mirror/mirror.h"
#include "root/root.h"
#include "verify/verify.h"

/* ---- one level */

static enum sidestep_status open_annotations(struct mirror_level *level, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    enum sidestep_status status = store_dir_open(level->store, level->dir, FILE_NAME_SERIES_DIR,
                                                 &level->annotations_dir, &why);

    return status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND ? SIDESTEP_OK
                                                                 : error_copy(err, &why);
}

static enum sidestep_status read_level(struct mirror_level *level, uint32_t flags,
                                       struct sidestep_error *err)
{
    TRY(open_annotations(level, err));
    TRY(list_root(level->store, level->root, flags, &level->list, err));
    return annotations_read(level->annotations_dir, &level->annotations, err);
}

void mirror_level_release(struct mirror_level *level)
{
    sidestep_list_release(&level->list);
    annotations_release(&level->annotations);
    store_dir_close(level->annotations_dir);
    store_dir_close(level->dir);
}

static enum sidestep_status open_mirror(struct mirror_level *far, bool makes,
                                        struct sidestep_error *err)
{
    struct commit path = {.store = far->store};
    enum sidestep_status status = store_dir_open(far->store, NULL, far->root, &far->dir, err);

    if (status != SIDESTEP_ENOTFOUND || !makes)
        return status;
    status = commit_open(&path, far->root, err);
    if (status == SIDESTEP_OK)
        status = store_dir_make(path.parent, path.name, err);
    if (status == SIDESTEP_OK)
        status = store_dir_sync(path.parent, err);
    commit_close(&path);
    if (status != SIDESTEP_OK && status != SIDESTEP_EEXISTS)
        return status;
    return store_dir_open(far->store, NULL, far->root, &far->dir, err);
}

enum sidestep_status mirror_level_read(struct mirror_level *far, bool makes,
                                       struct sidestep_error *err)
{
    TRY(WRAP(open_mirror(far, makes, err), err, "open '%s'", far->root));
    return WRAP(read_level(far, LIST_CHECKED, err), err, "look at '%s'", far->root);
}

/* Does its path still lead to the directory that was listed? */
static bool is_still_there(const struct mirror_level *level)
{
    struct store_stat listed, now;
    OWNED_DIR *dir = NULL;

    return store_dir_open(level->store, NULL, level->root, &dir, NULL) == SIDESTEP_OK &&
           store_dir_stat(dir, &now, NULL) == SIDESTEP_OK &&
           store_dir_stat(level->dir, &listed, NULL) == SIDESTEP_OK && now.inode == listed.inode &&
           now.device == listed.device;
}

bool mirror_is_damaged(const struct mirror_level *level, const struct sidestep_listed *entry,
                       enum sidestep_status status)
{
    if (!is_still_there(level)) /* what was listed there may be whole */
        return false;
    return status == SIDESTEP_ECORRUPT || (reader_status_is_damage(status) &&
                                           reader_status_is_damage(verify_path(
                                               level->store, entry->path, SIDESTEP_VERIFY_STRUCTURE,
                                               STORE_DROP_CACHE, NULL, NULL, NULL)));
}

enum sidestep_status mirror_check_places(struct store_dir *near, struct store_dir *far,
                                         struct sidestep_error *err)
{
    struct store_stat a, b;

    TRY(store_dir_stat(near, &a, err));
    TRY(store_dir_stat(far, &b, err));
    if (near->store->ops->layout == far->store->ops->layout && a.inode == b.inode &&
        a.device == b.device)
        return FAIL(err, SIDESTEP_EINVAL, "the mirror is the root itself: name another place");
    return SIDESTEP_OK;
}

/* ---- whose they are */

static enum sidestep_status read_run(struct mirror_look *m, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    enum sidestep_status status = SIDESTEP_ENOTFOUND;

    if (m->near.annotations_dir != NULL)
        status = lease_read(m->near.annotations_dir, m->run_id, &m->incarnation, &why);
    if (status == SIDESTEP_ENOTFOUND)
        return FAIL(err, SIDESTEP_ENOTFOUND,
                    "there is no series at '%s' yet ('%s/state' is missing)", m->near.root,
                    FILE_NAME_SERIES_DIR);
    return status == SIDESTEP_OK ? status : error_copy(err, &why);
}

bool mirror_is_of_run(const struct mirror_look *m, const struct sidestep_listed *entry)
{
    return entry->run_id != NULL && strcmp(entry->run_id, m->run_id) == 0;
}

/* Other programs' checkpoints and copies made by hand may lie beside ours. Another run may not: a
 * resume from the mirror could not tell which is meant. */
static enum sidestep_status check_owner(struct mirror_look *m, struct sidestep_error *err)
{
    struct lease_elsewhere owner, self = {.incarnation = m->incarnation};

    TRY(mirror_read_owner(&m->far, &owner, err));
    if (m->had_mirror && owner.run_id[0] == '\0')
        return FAIL(err, SIDESTEP_EIO,
                    "'%s' has lost the record of this run and its checkpoints: is its file system "
                    "mounted? (If that was done on purpose, remove '%s/%s/%s')",
                    m->far.root, m->near.root, FILE_NAME_SERIES_DIR, MIRROR_AT);
    if (owner.run_id[0] != '\0' && strcmp(owner.run_id, m->run_id) != 0)
        return FAIL(
            err, SIDESTEP_EMISMATCH,
            "'%s' is the mirror of another run (%s); this run is %s: give each run a mirror "
            "of its own; nothing was changed",
            m->far.root, owner.run_id, m->run_id);
    if (owner.incarnation > m->incarnation)
        return FAIL(err, SIDESTEP_EABORTED,
                    "'%s' is outdated: it is of incarnation %llu, and '%s' of a later one (%llu), "
                    "which went on elsewhere; nothing was changed",
                    m->near.root, (unsigned long long)m->incarnation, m->far.root,
                    (unsigned long long)owner.incarnation);
    memcpy(self.run_id, m->run_id, sizeof(self.run_id));
    return mirror_record_owner(&m->far, &self, err);
}

/* ---- what could be sent */

const struct sidestep_listed *mirror_find(const struct mirror_look *m, const char *name)
{
    for (size_t i = 0; i < m->far.list.count; i++)
        if (strcmp(sidestep_list_entry(&m->far.list, i)->name, name) == 0)
            return sidestep_list_entry(&m->far.list, i);
    return NULL;
}

static bool is_same_save(const struct sidestep_listed *a, const struct sidestep_listed *b)
{
    return a->save_id != NULL && b->save_id != NULL && strcmp(a->save_id, b->save_id) == 0;
}

bool mirror_is_there(const struct mirror_look *m, const struct sidestep_listed *entry,
                     const char *to)
{
    uint64_t identity = 0;
    OWNED_DIR *dir = NULL;

    return store_dir_open(m->far.store, NULL, to, &dir, NULL) == SIDESTEP_OK &&
           commit_read_identity(dir, &identity, NULL) == SIDESTEP_OK &&
           identity == commit_identity(entry->save_id);
}

bool mirror_replaces(const struct mirror_look *m, const char *name)
{
    const struct sidestep_listed *far = mirror_find(m, name);

    return far != NULL && (far->state == SIDESTEP_COMMITTED || far->state == SIDESTEP_DAMAGED);
}

/* Why the checkpoint at the mirror must not be replaced; NULL: there is none, or it may be. What is
 * no checkpoint is left to the copy, which goes on with a part of its own, and refuses all else. */
static const char *find_obstacle(const struct mirror_look *m, const struct sidestep_listed *entry,
                                 const struct sidestep_listed *far)
{
    if (!mirror_replaces(m, entry->name) || is_same_save(entry, far))
        return NULL;
    if (far->state != SIDESTEP_COMMITTED || far->save_id == NULL || far->is_link)
        return "the mirror has something else of this name, which stays";
    if (far->is_pinned)
        return "the mirror has another save of this name, which is pinned there";
    if (far->run_id == NULL || far->is_renamed || far->incarnation > entry->incarnation)
        return "the mirror has another checkpoint of this name, which stays";
    return NULL; /* the run has gone back, and saved this step again */
}

/* Why a part stays here; NULL: its save may be sent. */
static const char *find_part_objection(const struct mirror_look *m,
                                       const struct sidestep_listed *entry)
{
    if (m->parts == NULL)
        return "it is one part of a checkpoint, which the run itself sends while it goes on";
    return m->parts->objection(m->parts->context, entry);
}

static const char *find_objection(const struct mirror_look *m, const struct sidestep_listed *entry,
                                  const struct sidestep_listed *far)
{
    if (entry->state != SIDESTEP_COMMITTED && entry->state != SIDESTEP_PART)
        return entry->reason != NULL ? entry->reason : entry->state_name;
    if (entry->save_id == NULL || !mirror_is_of_run(m, entry))
        return "this run did not save it";
    if (entry->is_renamed)
        return "it was saved under another name, and copied or renamed";
    if (entry->is_link)
        return "it is a symbolic link";
    const char *part = entry->state == SIDESTEP_PART ? find_part_objection(m, entry) : NULL;
    return part != NULL ? part : find_obstacle(m, entry, far);
}

static bool is_listed(const struct sidestep_listed *entry)
{
    return entry->step >= 0 &&
           (entry->state == SIDESTEP_COMMITTED || entry->state == SIDESTEP_PART ||
            entry->state == SIDESTEP_DAMAGED || entry->state == SIDESTEP_UNREADABLE);
}

static enum sidestep_status status_of(const struct mirror_look *m,
                                      const struct sidestep_listed *entry)
{
    if (entry->state == SIDESTEP_PART)
        return m->parts != NULL ? SIDESTEP_OK : SIDESTEP_EMISMATCH;
    return entry->state == SIDESTEP_COMMITTED ? SIDESTEP_OK : entry->status;
}

static struct mirror_item make_item(const struct mirror_look *m,
                                    const struct sidestep_listed *entry)
{
    const struct sidestep_listed *far = mirror_find(m, entry->name);
    uint64_t every = m->retention.keep_every;
    bool is_there = far != NULL && far->state == SIDESTEP_COMMITTED && is_same_save(entry, far);

    return (struct mirror_item){.step = entry->step,
                                .is_there = is_there,
                                .is_asked = entry->is_pinned ||
                                            (every != 0 && (uint64_t)entry->step % every == 0),
                                .is_left_behind = entry->is_abandoned,
                                .objection = is_there ? NULL : find_objection(m, entry, far),
                                .status = status_of(m, entry)};
}

static enum sidestep_status make_items(struct mirror_look *m, struct sidestep_error *err)
{
    m->entries = memory_new(m->near.list.count + 1, sizeof(*m->entries));
    m->items = memory_new(m->near.list.count + 1, sizeof(*m->items));
    if (m->entries == NULL || m->items == NULL)
        return FAIL_NOMEM(err, m->near.list.count * sizeof(*m->entries));
    for (size_t i = 0; i < m->near.list.count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(&m->near.list, i);
        if (is_listed(entry))
            m->entries[m->count++] = *entry;
    }
    list_sort(m->entries, m->count);
    for (size_t i = 0; i < m->count; i++)
        m->items[i] = make_item(m, &m->entries[i]);
    return SIDESTEP_OK;
}

const struct sidestep_listed *mirror_find_near(const struct mirror_look *m,
                                               const struct sidestep_listed *far)
{
    for (size_t i = 0; i < m->count; i++)
        if (strcmp(m->entries[i].name, far->name) == 0 && is_same_save(&m->entries[i], far))
            return &m->entries[i];
    return NULL;
}

/* Is it, or may it be, a checkpoint of this run? Whose it is may not be known if it cannot be read
 * now, or is damaged. */
static bool may_be_of_run(const struct mirror_look *m, const struct sidestep_listed *far)
{
    if (far->is_renamed || (far->run_id != NULL && !mirror_is_of_run(m, far)))
        return false;
    return far->state == SIDESTEP_COMMITTED
               ? far->run_id != NULL
               : far->state == SIDESTEP_UNREADABLE || far->state == SIDESTEP_DAMAGED;
}

/* What the near level says of one holds. */
static bool is_left_behind(const struct mirror_look *m, const struct sidestep_listed *far)
{
    const struct sidestep_listed *near = mirror_find_near(m, far);

    return near != NULL ? near->is_abandoned : far->is_abandoned;
}

/* Lineage knows what the near level says of adoption. It may be lost, or have no copy. */
static void keep_adopted(const struct mirror_look *m, struct sidestep_listed *both, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (mirror_is_far(m, &both[i]) && annotations_find(&m->far.annotations, ANNOTATION_ADOPTED,
                                                           both[i].name, both[i].save_id) != NULL)
            both[i].is_abandoned = is_left_behind(m, mirror_find(m, both[i].name));
}

size_t mirror_gather(const struct mirror_look *m, struct sidestep_listed *both)
{
    size_t count = 0;

    for (size_t i = 0; i < m->count; i++)
        if (m->entries[i].state == SIDESTEP_COMMITTED || m->entries[i].state == SIDESTEP_PART)
            both[count++] = m->entries[i];
    for (size_t i = 0; i < m->far.list.count; i++) {
        const struct sidestep_listed *far = sidestep_list_entry(&m->far.list, i);
        if (!may_be_of_run(m, far))
            continue;
        both[count] = *far;
        both[count++].is_abandoned = is_left_behind(m, far);
    }
    list_sort(both, count);
    lineage_mark_abandoned(both, count, &m->near.annotations);
    keep_adopted(m, both, count);
    return count;
}

bool mirror_is_far(const struct mirror_look *m, const struct sidestep_listed *entry)
{
    const struct sidestep_listed *far = mirror_find(m, entry->name);

    return far != NULL && far->path == entry->path;
}

/* The newest step at the mirror that the run has not left behind, as both levels together show. */
static enum sidestep_status find_newest_there(struct mirror_look *m, struct sidestep_error *err)
{
    size_t most = m->count + m->far.list.count;
    OWNED struct sidestep_listed *both = memory_new(most + 1, sizeof(*both));

    if (both == NULL)
        return FAIL_NOMEM(err, most * sizeof(*both));
    size_t count = mirror_gather(m, both);
    m->newest_there = -1;
    for (size_t i = 0; i < count; i++)
        if (mirror_is_far(m, &both[i]) && both[i].state == SIDESTEP_COMMITTED &&
            !both[i].is_abandoned)
            m->newest_there = both[i].step;
    return SIDESTEP_OK;
}

enum sidestep_status mirror_read(struct mirror_look *m, struct sidestep_error *err)
{
    TRY(named_dir_open(m->near.store, m->near.root, &m->near.dir, err));
    TRY(read_level(&m->near, 0, err));
    TRY(read_run(m, err));
    m->had_mirror = m->is_claimed || mirror_is_remembered(m->near.annotations_dir, m->far.root);
    TRY(mirror_level_read(&m->far, !m->had_mirror, err));
    TRY(mirror_check_places(m->near.dir, m->far.dir, err));
    TRY(check_owner(m, err));
    TRY(make_items(m, err));
    return find_newest_there(m, err);
}

void mirror_release(struct mirror_look *m)
{
    mirror_level_release(&m->near);
    mirror_level_release(&m->far);
    free(TAKE(m->entries));
    free(TAKE(m->items));
    m->count = 0;
}
