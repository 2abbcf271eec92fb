/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_sweep.c -- deletes what saves left on an object store: of one save that ended, and of all
 * that are dead; see object_form.h.
 *
 * A save is dead if its newest object, mostly the marker, is older than OBJECT_DEAD_SECONDS by the
 * store's own clock. First the prefix is listed, then .metadata is read. What it references stays.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/object_form.h"

/* A name below the prefix that belongs to a save. */
struct found {
    const char *key;
    char save_id[SAVE_ID_HEX];
    int64_t modified;
    uint64_t bytes;
    bool is_marker;
    bool is_outcome;
    bool is_export;      /* the marker of an export */
    bool is_export_file; /* a file of an export */
};

struct search {
    struct arena arena;
    const char *prefix;
    struct found *found;
    size_t count, capacity;
    int64_t now; /* the store's clock; 0: it does not tell */
    bool out_of_memory;
    enum sidestep_status listed;
    struct sidestep_error why;  /* why it could not be listed */
    struct object_swept *swept; /* NULL: nothing is reported */
};

static void release_search(struct search *search)
{
    arena_release(&search->arena);
    free(search->found);
}

/* The name begins with OBJECT_SAVES_DIR. */
static bool parse_record(const char *name, struct found *found)
{
    enum object_record record = object_record_find(name, found->save_id);

    found->is_export = record == OBJECT_RECORD_EXPORT;
    found->is_marker = found->is_export || record == OBJECT_RECORD_MARKER;
    found->is_outcome = record == OBJECT_RECORD_OUTCOME;
    return record != OBJECT_RECORD_NONE;
}

/* Does ${name} belong to a save? A shard without a save id is a copy from a file system. */
static bool parse(const char *name, struct found *found)
{
    if (strncmp(name, OBJECT_SAVES_DIR, strlen(OBJECT_SAVES_DIR)) == 0)
        return parse_record(name, found);
    found->is_export_file = object_export_parse(name, found->save_id);
    if (found->is_export_file)
        return true;
    struct file_name parsed = file_name_parse(name);
    memcpy(found->save_id, parsed.save_id, sizeof(found->save_id));
    return (parsed.kind == FILE_NAME_SHARD || parsed.kind == FILE_NAME_EXTRA ||
            parsed.kind == FILE_NAME_MANIFEST || parsed.kind == FILE_NAME_INDEX) &&
           parsed.save_id[0] != '\0';
}

/* Add an object that belongs to a save. */
static bool add_found(void *context, const struct object_info *info)
{
    struct search *search = context;
    struct found found = {.modified = info->modified, .bytes = info->bytes};

    search->now = info->now;
    if (!parse(info->key + strlen(search->prefix), &found))
        return true;
    if (search->count == search->capacity) {
        size_t capacity = search->capacity != 0 ? 2 * search->capacity : 64;
        struct found *more = memory_resize(search->found, capacity, sizeof(*more));
        if (more == NULL)
            return !(search->out_of_memory = true);
        search->found = more;
        search->capacity = capacity;
    }
    found.key = arena_strndup(&search->arena, info->key, strlen(info->key));
    if (found.key == NULL)
        return !(search->out_of_memory = true);
    search->found[search->count++] = found;
    return true;
}

static const struct found *find_export(const struct search *search, const char *save_id)
{
    for (size_t i = 0; i < search->count; i++)
        if (search->found[i].is_export &&
            (save_id == NULL || strcmp(search->found[i].save_id, save_id) == 0))
            return &search->found[i];
    return NULL;
}

/* Drop files of exports that have no marker with their id: they belong to whole directories. */
static void drop_whole_exports(struct search *search)
{
    size_t kept = 0;

    for (size_t i = 0; i < search->count; i++)
        if (!search->found[i].is_export_file ||
            find_export(search, search->found[i].save_id) != NULL)
            search->found[kept++] = search->found[i];
    search->count = kept;
}

static bool find_all(struct store_dir *dir, struct search *search)
{
    struct object_client *client = object_store_client(dir->store);

    search->prefix = object_store_prefix(dir);
    search->listed =
        client->ops->list(client, search->prefix, 0, NULL, 0, add_found, search, &search->why);
    drop_whole_exports(search);
    return search->listed == SIDESTEP_OK && !search->out_of_memory;
}

/* Read what may not be deleted: the files that .metadata names, and those that the index names, if
 * there are exports. Call it after the listing (O6). False: that is not known. */
static bool read_named(struct store_dir *dir, const struct search *search,
                       struct referenced_files *named)
{
    enum sidestep_status status = referenced_files_read(dir, FILE_NAME_METADATA, named);

    return (status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND) &&
           (find_export(search, NULL) == NULL ||
            object_export_read_index(dir, named) == SIDESTEP_OK);
}

static bool is_dry(const struct object_swept *swept)
{
    return swept != NULL && swept->dry_run;
}

static void report(struct object_swept *swept, const char *name, uint64_t bytes)
{
    if (swept != NULL)
        swept->removed(swept->context, name, bytes);
}

/* Objects that are deleted with one request. */
struct batch {
    struct object_client *client;
    const struct search *search;
    const char *keys[OBJECT_MAX_LISTED];
    uint64_t bytes[OBJECT_MAX_LISTED];
    size_t count;
};

static void flush(struct batch *batch)
{
    const struct search *search = batch->search;
    enum sidestep_status status = SIDESTEP_OK;

    if (batch->count != 0 && !is_dry(search->swept))
        status = batch->client->ops->delete_keys(batch->client, batch->keys, batch->count, NULL);
    for (size_t i = 0; i < batch->count && status == SIDESTEP_OK; i++)
        report(search->swept, batch->keys[i] + strlen(search->prefix), batch->bytes[i]);
    batch->count = 0;
}

static void add_to_batch(struct batch *batch, const struct found *found)
{
    assert(batch->count < OBJECT_MAX_LISTED);
    batch->keys[batch->count] = found->key;
    batch->bytes[batch->count++] = found->bytes;
    if (batch->count == OBJECT_MAX_LISTED)
        flush(batch);
}

/* ---- uploads */

struct upload_search {
    struct store_dir *dir;
    const char *save_id;         /* only uploads of this save; NULL: of all dead saves */
    const struct search *search; /* the objects of saves, if ${save_id} is NULL */
};

/* When was an object of this save put last? */
static int64_t newest_time(const struct search *search, const char *save_id)
{
    int64_t modified = 0;

    for (size_t i = 0; i < search->count; i++)
        if (strcmp(search->found[i].save_id, save_id) == 0 && search->found[i].modified > modified)
            modified = search->found[i].modified;
    return modified;
}

static bool abort_upload(void *context, const struct object_info *info, const char *upload_id)
{
    const struct upload_search *u = context;
    struct object_client *client = object_store_client(u->dir->store);
    struct found found;

    if (!parse(info->key + strlen(object_store_prefix(u->dir)), &found))
        return true;
    bool is_wanted = u->save_id != NULL && strcmp(found.save_id, u->save_id) == 0;
    if (u->save_id == NULL && info->now != 0) {
        int64_t seen = newest_time(u->search, found.save_id);
        is_wanted =
            info->now - (seen > info->modified ? seen : info->modified) > OBJECT_DEAD_SECONDS;
    }
    if (!is_wanted)
        return true;
    struct object_swept *swept = u->search != NULL ? u->search->swept : NULL;
    if (is_dry(swept) ||
        client->ops->upload_abort(client, info->key, upload_id, NULL) == SIDESTEP_OK)
        report(swept, info->key + strlen(object_store_prefix(u->dir)), 0);
    return true;
}

static void abort_uploads(struct upload_search search)
{
    struct object_client *client = object_store_client(search.dir->store);

    assert((search.save_id == NULL) != (search.search == NULL));
    (void)client->ops->upload_list(client, object_store_prefix(search.dir), abort_upload, &search,
                                   NULL);
}

/* ---- one save */

/* Which of the found objects stay. */
enum { KEEP_NOTHING = 0, KEEP_OUTCOME = 1, KEEP_MARKER = 2 };

/* Delete what was found of ${save_id}, unless ${named} (NULL: nothing) names it. The marker goes
 * last: until then others see that the save has not ended. */
static void delete_found(struct store_dir *dir, const struct search *search, const char *save_id,
                         const struct referenced_files *named, unsigned keep)
{
    struct batch batch = {.client = object_store_client(dir->store), .search = search};
    const struct found *marker = NULL;

    assert(save_id[0] != '\0');
    for (size_t i = 0; i < search->count; i++) {
        const struct found *found = &search->found[i];
        const char *name = found->key + strlen(search->prefix);
        if (strcmp(found->save_id, save_id) != 0 ||
            (found->is_outcome && (keep & KEEP_OUTCOME) != 0))
            continue;
        if (found->is_marker)
            marker = found;
        else if (named == NULL || hash_table_find(&named->files, name) == SIZE_MAX ||
                 fault_hit("object.named")) /* a negative control */
            add_to_batch(&batch, found);
    }
    flush(&batch);
    if (marker != NULL && (keep & KEEP_MARKER) == 0)
        add_to_batch(&batch, marker);
    flush(&batch);
}

/* Is ${save_id} the save of the .metadata that ${named} was read from? */
static bool is_named(const struct referenced_files *named, const char *save_id)
{
    return named->save_id != NULL && strcmp(named->save_id, save_id) == 0;
}

/* Delete the votes and the marker of a checkpoint that exists, and nothing else of it. */
static void delete_votes(struct store_dir *dir, struct search *search, const char *save_id,
                         unsigned keep)
{
    size_t kept = 0;

    for (size_t i = 0; i < search->count; i++)
        if (strncmp(search->found[i].key + strlen(search->prefix), OBJECT_SAVES_DIR,
                    strlen(OBJECT_SAVES_DIR)) == 0)
            search->found[kept++] = search->found[i];
    search->count = kept;
    delete_found(dir, search, save_id, NULL, keep);
}

static void sweep_save(struct store_dir *dir, const char *save_id, unsigned keep)
{
    OWNED_BY(release_search) struct search search = {0};
    OWNED_REFERENCED_FILES named = {0};

    assert(save_id[0] != '\0'); /* otherwise it would sweep files of others */
    if (!find_all(dir, &search))
        return;
    if (!read_named(dir, &search, &named))
        return;
    if (is_named(&named, save_id)) {
        delete_votes(dir, &search, save_id, KEEP_OUTCOME);
        return;
    }
    abort_uploads((struct upload_search){.dir = dir, .save_id = save_id});
    delete_found(dir, &search, save_id, &named, keep);
}

void object_sweep_save(struct store_dir *dir, const char *save_id)
{
    sweep_save(dir, save_id, KEEP_OUTCOME);
}

void object_sweep_votes(struct store_dir *dir, const char *save_id)
{
    OWNED_BY(release_search) struct search search = {0};

    if (find_all(dir, &search))
        delete_votes(dir, &search, save_id, KEEP_OUTCOME);
}

void object_sweep_but_marker(struct store_dir *dir, const char *save_id)
{
    sweep_save(dir, save_id, KEEP_OUTCOME | KEEP_MARKER);
}

/* Does ${found} belong to the checkpoint that was replaced? A shard without items is named nowhere,
 * so its save id counts, too. */
static bool is_replaced(const struct search *search, const struct found *found,
                        const struct referenced_files *old)
{
    const char *name = found->key + strlen(search->prefix);

    assert(old->save_id != NULL);
    return hash_table_find(&old->files, name) != SIZE_MAX ||
           (strcmp(found->save_id, old->save_id) == 0 &&
            strncmp(name, OBJECT_SAVES_DIR, strlen(OBJECT_SAVES_DIR)) != 0);
}

void object_sweep_committed(struct store_dir *dir, const struct referenced_files *old,
                            const char *save_id)
{
    OWNED_BY(release_search) struct search search = {0};
    struct batch batch = {.client = object_store_client(dir->store), .search = &search};

    if (!find_all(dir, &search))
        return;
    for (size_t i = 0; old->save_id != NULL && i < search.count; i++)
        if (strcmp(search.found[i].save_id, save_id) != 0 &&
            is_replaced(&search, &search.found[i], old))
            add_to_batch(&batch, &search.found[i]);
    flush(&batch);
    delete_votes(dir, &search, save_id, KEEP_OUTCOME);
}

/* ---- dead saves */

static bool is_first_of_its_save(const struct search *search, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(search->found[k].save_id, search->found[i].save_id) == 0)
            return false;
    return true;
}

static bool is_dead(const struct search *search, const char *save_id)
{
    assert(search->now != 0); /* without a clock no save counts as dead */
    return search->now - newest_time(search, save_id) > OBJECT_DEAD_SECONDS ||
           fault_hit("object.dead"); /* a negative control: tests must notice it */
}

/* Are there objects of dead saves, other than those of the checkpoint of ${save_id}? */
static bool has_leftovers(const struct search *search, const char *save_id)
{
    for (size_t i = 0; i < search->count; i++) {
        const struct found *found = &search->found[i];
        const char *name = found->key + strlen(search->prefix);
        bool is_of_checkpoint = save_id != NULL && strcmp(found->save_id, save_id) == 0 &&
                                strncmp(name, OBJECT_SAVES_DIR, strlen(OBJECT_SAVES_DIR)) != 0;
        if (!is_of_checkpoint && is_dead(search, found->save_id))
            return true;
    }
    return false;
}

static void report_head(void *context, const char *name)
{
    report(context, name, 0);
}

/* Abort uploads of exports that have no id in their key, if all exports are dead. */
static void abort_heads(struct store_dir *dir, const struct search *search)
{
    for (size_t i = 0; i < search->count; i++)
        if (search->found[i].is_export && !is_dead(search, search->found[i].save_id))
            return;
    if (find_export(search, NULL) != NULL)
        object_export_abort_heads(dir, is_dry(search->swept), report_head, search->swept);
}

static void sweep_found(struct store_dir *dir, const char *save_id_now, struct search *search)
{
    OWNED_REFERENCED_FILES named = {0};
    struct object_swept *swept = search->swept;
    char save_id[SAVE_ID_HEX];
    bool is_committed = false;

    abort_uploads((struct upload_search){.dir = dir, .search = search});
    if (search->now == 0 || (swept == NULL && !has_leftovers(search, save_id_now)))
        return;
    abort_heads(dir, search);
    if (!read_named(dir, search, &named)) /* a save that was dead then cannot be committed */
        return;
    for (size_t i = 0; i < search->count; i++) {
        const char *id = search->found[i].save_id;
        bool may_go = is_dead(search, id);
        if (swept != NULL && !may_go && !is_named(&named, id))
            swept->is_young = true;
        if (!is_first_of_its_save(search, i) || !may_go)
            continue;
        if (!is_named(&named, id) || fault_hit("object.named"))
            delete_found(dir, search, id, &named, KEEP_NOTHING);
        else
            is_committed = true;
    }
    if (is_committed) {
        snprintf(save_id, sizeof(save_id), "%s", named.save_id);
        delete_votes(dir, search, save_id, KEEP_NOTHING);
    }
}

enum sidestep_status object_sweep_before(struct store_dir *dir, const char *save_id,
                                         struct sidestep_error *err)
{
    OWNED_BY(release_search) struct search search = {0};

    if (find_all(dir, &search))
        sweep_found(dir, save_id, &search);
    return search.listed == SIDESTEP_ETIMEDOUT ? error_copy(err, &search.why) : SIDESTEP_OK;
}

void object_sweep_dead(struct store_dir *dir, const char *save_id)
{
    (void)object_sweep_before(dir, save_id, NULL);
}

void object_sweep_dead_reported(struct store_dir *dir, struct object_swept *swept)
{
    OWNED_BY(release_search) struct search search = {.swept = swept};

    if (find_all(dir, &search))
        sweep_found(dir, NULL, &search);
}
