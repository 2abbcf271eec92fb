/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * saving.c -- sidestep_list_saving(): saves that are under way, as a stranger sees them.
 *
 * What a stranger must not do is to take part: even to try a lock for a moment could make a save
 * fail that is about to take it.  So locks are asked about, not taken, and holes are looked for,
 * which the store of saves has no words for.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/owned.h"
#include "commit/commit.h"
#include "commit/name_list.h"
#include "engine/list.h"

#define MAX_STRETCHES 4096u /* of data in one file, that are counted one by one */
#define MARK_BYTES 4096u

enum writer_state { WRITING, SEALED, DONE, FAILED };
static const char *const writer_states[] = {"writing", "sealed", "done", "failed"};

/* What is known of a rank so far. */
struct rank_seen {
    uint32_t rank;
    enum writer_state state;
    uint64_t bytes;
    uint64_t written;
};

struct looking {
    struct arena arena;
    const char *root;
    struct sidestep_saving *entries;
    size_t count;
    size_t room;
    /* Of the directory at hand. */
    struct rank_seen *ranks;
    size_t rank_count;
    size_t rank_room;
};

/* ---- files */

/* Bytes of a file that are no holes. */
static uint64_t count_data(int fd, uint64_t size)
{
    uint64_t data = 0;
    off_t at = 0;

    for (unsigned i = 0; i < MAX_STRETCHES; i++) {
        off_t begin = lseek(fd, at, SEEK_DATA);
        if (begin < 0)
            return errno == ENXIO ? data : size; /* the rest is a hole; or there is no telling */
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

    if (fd < 0 || fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode))
        return; /* sealed, or gone, in between */
    rank->bytes += (uint64_t)stat.st_size;
    rank->written += is_whole ? (uint64_t)stat.st_size : count_data(fd, (uint64_t)stat.st_size);
}

/* The step that a mark tells; for those that tell none, by the name. */
static int64_t step_of_mark(const char *text, const char *target)
{
    const char *line = strstr(text, "\nstep ");
    long long step = -1;

    if (line == NULL || sscanf(line, "\nstep %lld\n", &step) != 1 || step < 0)
        return list_step_of(target);
    return step;
}

/* "target step-12\nowner 4711\nhost node-3\n...\nstep 12\n" */
static enum sidestep_status read_mark(struct looking *l, int dir, const char *name,
                                      struct sidestep_saving *entry, struct sidestep_error *err)
{
    OWNED_FD fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char text[MARK_BYTES + 1], target[NAMES_MAX] = "", owner[64] = "", host[64] = "";
    ssize_t length = fd >= 0 ? read(fd, text, MARK_BYTES) : -1;

    if (length < 0)
        return SIDESTEP_OK;
    text[length] = '\0';
    (void)sscanf(text, "target %255[^\n]\nowner %63[^\n]\nhost %63[^\n]\n", target, owner, host);
    /* An exclusive lock needs a descriptor for writing; to ask about one does not. */
    if (fcntl(fd, F_OFD_GETLK, &lock) == 0)
        entry->is_dead = lock.l_type == F_UNLCK;
    if (target[0] != '\0') {
        entry->name = arena_strndup(&l->arena, target, strlen(target));
        entry->step = step_of_mark(text, target);
    }
    if (owner[0] != '\0')
        entry->owner = arena_printf(&l->arena, "process %s on %s", owner, host);
    if ((target[0] != '\0' && entry->name == NULL) || (owner[0] != '\0' && entry->owner == NULL))
        return FAIL_NOMEM(err, strlen(text));
    return SIDESTEP_OK;
}

/* ---- one save */

static enum sidestep_status find_rank(struct looking *l, uint32_t rank, struct rank_seen **out,
                                      struct sidestep_error *err)
{
    for (size_t i = l->rank_count; i-- > 0;)
        if (l->ranks[i].rank == rank) {
            *out = &l->ranks[i];
            return SIDESTEP_OK;
        }
    if (l->rank_count == l->rank_room) {
        size_t room = l->rank_room != 0 ? l->rank_room * 2 : 64;
        struct rank_seen *ranks = memory_resize(l->ranks, room, sizeof(*ranks));
        if (ranks == NULL)
            return FAIL_NOMEM(err, room * sizeof(*ranks));
        l->ranks = ranks;
        l->rank_room = room;
    }
    *out = &l->ranks[l->rank_count++];
    **out = (struct rank_seen){.rank = rank, .state = WRITING};
    return SIDESTEP_OK;
}

/* A name in the directory of save ${id}, or, ${in_place}, in a checkpoint's own. */
static enum sidestep_status note_name(struct looking *l, int dir, const char *name, const char *id,
                                      bool in_place, struct sidestep_error *err)
{
    struct names_parsed parsed = names_parse(name);
    bool is_file = parsed.kind == NAMES_SHARD || parsed.kind == NAMES_PART;
    bool is_vote = parsed.kind == NAMES_YES || parsed.kind == NAMES_FAILED;
    struct rank_seen *rank = NULL;

    if (!is_file && !is_vote)
        return SIDESTEP_OK;
    /* In place, the files of other saves lie beside: those of the checkpoint that is there. */
    if (strcmp(parsed.save_id, is_file && !in_place ? "" : id) != 0)
        return SIDESTEP_OK;
    TRY(find_rank(l, parsed.rank, &rank, err));
    if (is_file)
        measure(dir, name, parsed.kind == NAMES_SHARD, rank);
    enum writer_state state = parsed.kind == NAMES_PART    ? WRITING
                              : parsed.kind == NAMES_SHARD ? SEALED
                              : parsed.kind == NAMES_YES   ? DONE
                                                           : FAILED;
    if (state > rank->state)
        rank->state = state;
    return SIDESTEP_OK;
}

static int compare_ranks(const void *a, const void *b)
{
    const struct rank_seen *x = a, *y = b;

    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static enum sidestep_status take_ranks(struct looking *l, struct sidestep_saving *entry,
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

static struct sidestep_saving *new_entry(struct looking *l, struct sidestep_error *err)
{
    if (l->count == l->room) {
        size_t room = l->room != 0 ? l->room * 2 : 16;
        struct sidestep_saving *entries = memory_resize(l->entries, room, sizeof(*entries));
        if (entries == NULL) {
            (void)FAIL_NOMEM(err, room * sizeof(*entries));
            return NULL;
        }
        l->entries = entries;
        l->room = room;
    }
    struct sidestep_saving *entry = &l->entries[l->count++];
    *entry = (struct sidestep_saving){.step = -1};
    return entry;
}

/* The save ${id} in the directory ${name}, with these ${names}. */
static enum sidestep_status look_at_save(struct looking *l, int dir, const char *name,
                                         const struct name_list *names, const char *id,
                                         bool in_place, struct sidestep_error *err)
{
    struct sidestep_saving *entry = new_entry(l, err);
    char mark[NAMES_MAX];

    if (entry == NULL)
        return SIDESTEP_ENOMEM;
    entry->path = arena_printf(&l->arena, "%s/%s", l->root, name);
    entry->save_id = arena_strndup(&l->arena, id, strlen(id));
    if (entry->path == NULL || entry->save_id == NULL)
        return FAIL_NOMEM(err, strlen(name));
    l->rank_count = 0;
    names_format(NAMES_PENDING, id, 0, 0, mark);
    TRY(read_mark(l, dir, mark, entry, err));
    for (size_t i = 0; i < names->count; i++)
        TRY(note_name(l, dir, names->names[i], id, in_place, err));
    return take_ranks(l, entry, err);
}

/* ---- the root */

static enum sidestep_status look_into(struct looking *l, struct store_dir *root, const char *name,
                                      struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_DIR *dir = NULL;
    OWNED char *path = NULL;
    struct names_parsed own = names_parse(name);
    struct store_stat stat;

    if (strcmp(name, NAMES_SERIES_DIR) == 0 ||
        (own.kind != NAMES_SAVING && own.kind != NAMES_NONE) ||
        store_stat(root, name, &stat, NULL) != SIDESTEP_OK || stat.kind != STORE_DIRECTORY)
        return SIDESTEP_OK;
    size_t length = strlen(l->root) + strlen(name) + 2;
    path = memory_new(length, 1);
    if (path == NULL)
        return FAIL_NOMEM(err, length);
    snprintf(path, length, "%s/%s", l->root, name);
    OWNED_FD fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || store_dir_open(root->store, root, name, &dir, NULL) != SIDESTEP_OK)
        return SIDESTEP_OK; /* it has come to an end */
    enum sidestep_status status = name_list_read(dir, &names, err);
    if (status != SIDESTEP_OK)
        return status == SIDESTEP_ENOMEM ? status : SIDESTEP_OK;
    if (own.kind == NAMES_SAVING)
        return look_at_save(l, fd, name, &names, own.save_id, false, err);
    for (size_t i = 0; i < names.count; i++) {
        struct names_parsed parsed = names_parse(names.names[i]);
        if (parsed.kind == NAMES_PENDING)
            TRY(look_at_save(l, fd, name, &names, parsed.save_id, true, err));
    }
    return SIDESTEP_OK;
}

/* What a save may come to: as much as the newest one that is there. */
static enum sidestep_status expect(struct looking *l, struct sidestep_error *err)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};

    if (l->count == 0)
        return SIDESTEP_OK;
    TRY(list_root(store_posix(), l->root, &list, err));
    for (size_t i = list.count; i-- > 0;) {
        if (list.entries[i].state != SIDESTEP_COMMITTED || list.entries[i].reason != NULL)
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

static enum sidestep_status look(struct looking *l, struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_DIR *root = NULL;

    TRY(store_dir_open(store_posix(), NULL, l->root, &root, err));
    TRY(name_list_read(root, &names, err));
    for (size_t i = 0; i < names.count; i++)
        TRY(look_into(l, root, names.names[i], err));
    TRY(expect(l, err));
    if (l->count != 0)
        qsort(l->entries, l->count, sizeof(*l->entries), compare_saves);
    return SIDESTEP_OK;
}

static void free_looking(struct looking *l)
{
    arena_release(&l->arena);
    free(l->entries);
    free(l->ranks);
    free(l);
}

void sidestep_saving_list_release(struct sidestep_saving_list *list)
{
    if (list->owner != NULL)
        free_looking(list->owner);
    *list = (struct sidestep_saving_list){0};
}

enum sidestep_status sidestep_list_saving(const char *root, struct sidestep_saving_list *list,
                                          struct sidestep_error *err)
{
    if (root == NULL || list == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "root or list is NULL");
    *list = (struct sidestep_saving_list){0};
    struct looking *l = memory_new(1, sizeof(*l));
    if (l == NULL)
        return FAIL_NOMEM(err, sizeof(*l));
    l->root = root;
    enum sidestep_status status = look(l, err);
    if (status != SIDESTEP_OK) {
        free_looking(l);
        error_wrap(err, "look for saves under '%s'", root);
        return status;
    }
    *list = (struct sidestep_saving_list){.count = l->count, .entries = l->entries, .owner = l};
    return SIDESTEP_OK;
}
