/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * saves_in_progress.c -- sidestep_list_saving(): lists running saves, as another process sees them.
 *
 * It takes no lock (commit/owner.h). It looks for holes in files, which struct store_ops cannot do,
 * so it makes system calls itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "commit/commit.h"
#include "catalog/list.h"
#include "object/object.h"

#define MAX_RANGES 4096u /* ranges of data in one file that are counted one by one */

enum writer_state { WRITING, SEALED, DONE, FAILED };
static const char *const writer_states[] = {"writing", "sealed", "done", "failed"};

/* What has been seen of a rank. */
struct rank_seen {
    uint32_t rank;
    enum writer_state state;
    uint64_t bytes;
    uint64_t written;
};

struct scan {
    struct arena arena;
    const char *root;
    struct store *store;
    struct sidestep_saving *entries;
    size_t count;
    size_t capacity;
    /* Of the current directory. */
    struct rank_seen *ranks;
    size_t rank_count;
    size_t rank_capacity;
    const char **unread; /* at most as many as names in the root */
    size_t unread_count;
    enum sidestep_status unread_status;
};

/* ---- files */

/* Count the bytes of a file that are not holes. */
static uint64_t count_data(int fd, uint64_t size)
{
    uint64_t data = 0;
    off_t at = 0;

    for (unsigned i = 0; i < MAX_RANGES; i++) {
        off_t begin = lseek(fd, at, SEEK_DATA);
        if (begin < 0)
            return errno == ENXIO ? data : size; /* all holes; or cannot find holes here */
        at = lseek(fd, begin, SEEK_HOLE);
        if (at < 0)
            return size;
        data += (uint64_t)(at - begin);
    }
    return data;
}

static void measure(int dir, const char *name, bool is_whole, struct rank_seen *rank)
{
    OWNED_FD fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat stat;

    /* Without permission to read the file, its size is still known. */
    int failed = fd >= 0 ? fstat(fd, &stat) : fstatat(dir, name, &stat, AT_SYMLINK_NOFOLLOW);
    if (failed != 0 || !S_ISREG(stat.st_mode))
        return; /* it was sealed or removed meanwhile */
    is_whole |= fd < 0;
    rank->bytes += (uint64_t)stat.st_size;
    rank->written += is_whole ? (uint64_t)stat.st_size : count_data(fd, (uint64_t)stat.st_size);
}

/* The current directory ${name}: through the store, and as a descriptor for system calls. */
struct probed_dir {
    const char *name;
    struct store_dir *dir;
    int fd;
    struct name_list names;
};

static void probed_dir_release(struct probed_dir *probed)
{
    name_list_release(&probed->names);
    store_dir_close(probed->dir);
    if (probed->fd >= 0)
        (void)close(probed->fd);
}

/* Set the target of a save. ${in_place}: the target is the directory itself, whatever the marker
 * says, because the directory may have been renamed or copied. */
static enum sidestep_status take_target(struct scan *l, const struct probed_dir *probed,
                                        bool in_place, const struct commit_marker *marker,
                                        struct sidestep_saving *entry, struct sidestep_error *err)
{
    const char *target = in_place ? probed->name : marker->target;

    entry->step = in_place ? step_name_parse(target) : marker->step;
    if (entry->step < 0)
        entry->step = in_place ? marker->step : step_name_parse(target);
    return arena_copy_text(&l->arena, target, &entry->name, err);
}

/* Read the pending marker of the save. If that fails, the fields stay unknown. */
static enum sidestep_status take_owner(struct scan *l, const struct probed_dir *probed,
                                       bool in_place, struct sidestep_saving *entry,
                                       struct sidestep_error *err)
{
    struct owner owner;
    enum sidestep_status status = owner_read(probed->dir, entry->save_id, &owner, err);

    if (status != SIDESTEP_OK)
        return status == SIDESTEP_ENOMEM ? status : SIDESTEP_OK;
    const struct commit_marker *marker = &owner.marker;
    entry->is_dead = owner.is_dead;
    TRY(take_target(l, probed, in_place, marker, entry, err));
    if (marker->owner[0] != '\0' &&
        (entry->owner = arena_printf(&l->arena, "process %s on %s", marker->owner, marker->host)) ==
            NULL)
        return FAIL_NOMEM(err, strlen(marker->owner));
    return SIDESTEP_OK;
}

/* ---- one save */

static enum sidestep_status find_rank(struct scan *l, uint32_t rank, struct rank_seen **out,
                                      struct sidestep_error *err)
{
    for (size_t i = l->rank_count; i-- > 0;)
        if (l->ranks[i].rank == rank) {
            *out = &l->ranks[i];
            return SIDESTEP_OK;
        }
    TRY_GROW(l->ranks, l->rank_capacity, l->rank_count, err);
    *out = &l->ranks[l->rank_count++];
    **out = (struct rank_seen){.rank = rank, .state = WRITING};
    return SIDESTEP_OK;
}

/* Record a name in the directory of save ${id}, or, with ${in_place}, in a checkpoint's own
 * directory. */
static enum sidestep_status note_name(struct scan *l, int dir, const char *name, const char *id,
                                      bool in_place, struct sidestep_error *err)
{
    struct file_name parsed = file_name_parse(name);
    bool is_file = parsed.kind == FILE_NAME_SHARD || parsed.kind == FILE_NAME_PART;
    bool is_vote = parsed.kind == FILE_NAME_VOTE || parsed.kind == FILE_NAME_FAILED;
    struct rank_seen *rank = NULL;

    if (!is_file && !is_vote)
        return SIDESTEP_OK;
    /* In place, the directory also contains files of other saves: those of the current
     * checkpoint. */
    if (strcmp(parsed.save_id, is_file && !in_place ? "" : id) != 0)
        return SIDESTEP_OK;
    TRY(find_rank(l, parsed.rank, &rank, err));
    if (is_file)
        measure(dir, name, parsed.kind == FILE_NAME_SHARD, rank);
    enum writer_state state = parsed.kind == FILE_NAME_PART    ? WRITING
                              : parsed.kind == FILE_NAME_SHARD ? SEALED
                              : parsed.kind == FILE_NAME_VOTE  ? DONE
                                                               : FAILED;
    if (state > rank->state)
        rank->state = state;
    return SIDESTEP_OK;
}

/* Record a rank of save ${id} on an object store, by ${name} below ".sidestep/<id>/". */
static enum sidestep_status note_vote(struct scan *l, const char *name, struct sidestep_error *err)
{
    static const char *const kinds[] = {
        [WRITING] = "alive.", [DONE] = "yes.", [FAILED] = "failed."};
    struct rank_seen *seen = NULL;

    for (size_t state = 0; state < ARRAY_LENGTH(kinds); state++) {
        size_t length = kinds[state] != NULL ? strlen(kinds[state]) : 0;
        if (length == 0 || strncmp(name, kinds[state], length) != 0)
            continue;
        int64_t rank = file_name_parse_number(name + length, strchr(name, '\0'));
        if (rank < 0 || rank > UINT32_MAX)
            continue;
        TRY(find_rank(l, (uint32_t)rank, &seen, err));
        if ((enum writer_state)state > seen->state)
            seen->state = (enum writer_state)state;
    }
    return SIDESTEP_OK;
}

/* Record the ranks of save ${id} on an object store. Objects appear when they are complete, so what
 * is written of a shard is not seen before. */
static enum sidestep_status note_objects(struct scan *l, const struct probed_dir *probed,
                                         const char *id, struct sidestep_error *err)
{
    OWNED_NAMES struct name_list votes = {0};
    OWNED_DIR *dir = NULL;
    char path[FILE_NAME_BYTES];

    for (size_t i = 0; i < probed->names.count; i++) {
        struct file_name parsed = file_name_parse(probed->names.names[i]);
        struct rank_seen *rank = NULL;
        struct store_stat stat;
        if (parsed.kind != FILE_NAME_SHARD || strcmp(parsed.save_id, id) != 0 ||
            store_stat(probed->dir, probed->names.names[i], &stat, NULL) != SIDESTEP_OK)
            continue;
        TRY(find_rank(l, parsed.rank, &rank, err));
        rank->state = SEALED;
        rank->bytes += stat.size;
        rank->written += stat.size;
    }
    snprintf(path, sizeof(path), FILE_NAME_SERIES_DIR "/%s", id);
    TRY(store_dir_open(l->store, probed->dir, path, &dir, err));
    TRY(name_list_read(dir, &votes, err));
    for (size_t i = 0; i < votes.count; i++)
        TRY(note_vote(l, votes.names[i], err));
    return SIDESTEP_OK;
}

static int compare_ranks(const void *a, const void *b)
{
    const struct rank_seen *x = a, *y = b;

    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static enum sidestep_status take_ranks(struct scan *l, struct sidestep_saving *entry,
                                       struct sidestep_error *err)
{
    struct sidestep_writer *writers = arena_new(&l->arena, l->rank_count, sizeof(*writers));

    if (writers == NULL)
        return FAIL_NOMEM(err, l->rank_count * sizeof(*writers));
    if (l->rank_count != 0)
        qsort(l->ranks, l->rank_count, sizeof(*l->ranks), compare_ranks);
    for (size_t i = 0; i < l->rank_count; i++) {
        const struct rank_seen *rank = &l->ranks[i];
        writers[i] = (struct sidestep_writer){.rank = rank->rank,
                                              .state_name = writer_states[rank->state],
                                              .bytes = rank->bytes,
                                              .written_bytes = rank->written};
        entry->done_count += rank->state == DONE;
        entry->failed_count += rank->state == FAILED;
        entry->bytes += rank->bytes;
        entry->written_bytes += rank->written;
    }
    entry->writers = writers;
    entry->rank_count = (uint32_t)l->rank_count;
    return SIDESTEP_OK;
}

static enum sidestep_status new_entry(struct scan *l, struct sidestep_saving **out,
                                      struct sidestep_error *err)
{
    TRY_GROW(l->entries, l->capacity, l->count, err);
    *out = &l->entries[l->count++];
    **out = (struct sidestep_saving){.step = -1};
    return SIDESTEP_OK;
}

/* Fill an entry for save ${id} in ${probed}. */
static enum sidestep_status add_save(struct scan *l, const struct probed_dir *probed,
                                     const char *id, bool in_place, struct sidestep_error *err)
{
    struct sidestep_saving *entry = NULL;

    TRY(new_entry(l, &entry, err));
    entry->path = arena_printf(&l->arena, "%s/%s", l->root, probed->name);
    entry->save_id = arena_strndup(&l->arena, id, strlen(id));
    if (entry->path == NULL || entry->save_id == NULL)
        return FAIL_NOMEM(err, strlen(probed->name));
    l->rank_count = 0;
    TRY(take_owner(l, probed, in_place, entry, err));
    if (object_store_client(l->store) != NULL)
        TRY(note_objects(l, probed, id, err));
    for (size_t i = 0; probed->fd >= 0 && i < probed->names.count; i++)
        TRY(note_name(l, probed->fd, probed->names.names[i], id, in_place, err));
    return take_ranks(l, entry, err);
}

/* ---- the root */

static enum sidestep_status open_dir(struct store_dir *root, const char *path,
                                     struct probed_dir *probed, struct sidestep_error *err)
{
    TRY(store_dir_open(root->store, root, probed->name, &probed->dir, err));
    TRY(name_list_read(probed->dir, &probed->names, err));
    if (object_store_client(root->store) != NULL)
        return SIDESTEP_OK;
    probed->fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return probed->fd >= 0 ? SIDESTEP_OK : FAIL_SYS(err, "open directory '%s'", probed->name);
}

/* Record a directory that could not be read. ${why} is the reason. */
static enum sidestep_status note_unread(struct scan *l, const char *path, const char *name,
                                        const struct sidestep_error *why,
                                        struct sidestep_error *err)
{
    if (why->status == SIDESTEP_ENOMEM) {
        error_copy(err, why);
        return SIDESTEP_ENOMEM;
    }
    if (why->status == SIDESTEP_ENOTFOUND || strcmp(name, "lost+found") == 0)
        return SIDESTEP_OK; /* the save has ended; or the file system made the directory */
    if (l->unread_count == 0)
        l->unread_status = (enum sidestep_status)why->status;
    l->unread[l->unread_count] = arena_printf(&l->arena, "%s: %s", path, why->message);
    return l->unread[l->unread_count++] != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(path));
}

static enum sidestep_status scan_dir(struct scan *l, struct store_dir *root, const char *name,
                                     struct sidestep_error *err)
{
    OWNED_BY(probed_dir_release) struct probed_dir probed = {.name = name, .fd = -1};
    OWNED_NAMES struct name_list saves = {0};
    struct file_name own = file_name_parse(name);
    struct sidestep_error why = {0};
    struct store_stat stat;

    if (strcmp(name, FILE_NAME_SERIES_DIR) == 0 ||
        (own.kind != FILE_NAME_SAVING && own.kind != FILE_NAME_NONE) ||
        store_stat(root, name, &stat, NULL) != SIDESTEP_OK || stat.kind != STORE_DIRECTORY)
        return SIDESTEP_OK;
    const char *path = arena_printf(&l->arena, "%s/%s", l->root, name);
    if (path == NULL)
        return FAIL_NOMEM(err, strlen(name));
    if (open_dir(root, path, &probed, &why) != SIDESTEP_OK)
        return note_unread(l, path, name, &why, err);
    if (own.kind == FILE_NAME_SAVING)
        return add_save(l, &probed, own.save_id, false, err);
    TRY(owner_find_saves(probed.dir, &probed.names, &saves, err));
    for (size_t i = 0; i < saves.count; i++)
        TRY(add_save(l, &probed, saves.names[i], true, err));
    return SIDESTEP_OK;
}

/* Set the expected size of each save: that of the newest committed checkpoint. */
static enum sidestep_status set_expected(struct scan *l, struct sidestep_error *err)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};

    if (l->count == 0)
        return SIDESTEP_OK;
    TRY(list_root(l->store, l->root, 0, &list, err));
    for (size_t i = list.count; i-- > 0;) {
        if (list.entries[i].state != SIDESTEP_COMMITTED || list_is_skipped(&list.entries[i]))
            continue;
        for (size_t k = 0; k < l->count; k++) {
            l->entries[k].expected_bytes = list.entries[i].bytes;
            l->entries[k].expected_ranks = list.entries[i].ranks;
        }
        break;
    }
    return SIDESTEP_OK;
}

static int compare_saves(const void *a, const void *b)
{
    const struct sidestep_saving *x = a, *y = b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return strcmp(x->path, y->path);
}

static enum sidestep_status scan_root(struct scan *l, struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_DIR *root = NULL;

    TRY(store_dir_open(l->store, NULL, l->root, &root, err));
    if (object_store_client(l->store) != NULL)
        TRY(object_store_remember(root, err));
    TRY(name_list_read(root, &names, err));
    l->unread = arena_new(&l->arena, names.count, sizeof(*l->unread));
    if (l->unread == NULL)
        return FAIL_NOMEM(err, names.count * sizeof(*l->unread));
    for (size_t i = 0; i < names.count; i++)
        TRY(scan_dir(l, root, names.names[i], err));
    TRY(set_expected(l, err));
    if (l->count != 0)
        qsort(l->entries, l->count, sizeof(*l->entries), compare_saves);
    return SIDESTEP_OK;
}

static void free_scan(struct scan *l)
{
    arena_release(&l->arena);
    free(l->entries);
    free(l->ranks);
    free(l);
}

void sidestep_saving_list_release(struct sidestep_saving_list *list)
{
    if (list->owner != NULL)
        free_scan(list->owner);
    *list = (struct sidestep_saving_list){0};
}

enum sidestep_status sidestep_list_saving(const char *root, struct sidestep_saving_list *list,
                                          struct sidestep_error *err)
{
    if (root == NULL || list == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "root or list is NULL");
    *list = (struct sidestep_saving_list){0};
    struct scan *l = memory_new(1, sizeof(*l));
    if (l == NULL)
        return FAIL_NOMEM(err, sizeof(*l));
    l->root = root;
    enum sidestep_status status = object_path_open(root, &l->store, err);
    if (status == SIDESTEP_OK)
        status = scan_root(l, err);
    object_path_close(&l->store);
    if (status != SIDESTEP_OK) {
        free_scan(l);
        error_wrap(err, "look for saves under '%s'", root);
        return status;
    }
    *list = (struct sidestep_saving_list){.count = l->count,
                                          .entries = l->entries,
                                          .owner = l,
                                          .unread_count = l->unread_count,
                                          .unread = l->unread,
                                          .unread_status = l->unread_status};
    return SIDESTEP_OK;
}
