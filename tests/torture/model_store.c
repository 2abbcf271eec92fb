/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model_store.c -- adds faults and missing steps to the operations of the simulated disk; see
 * model.h. The handles are those of the simulated disk; only the table of operations differs.
 */
#include "model.h"

#include <string.h>

#include "base/owned.h"
#include "support/store_sim_disk.h"

static bool is_mutant(enum mutant_kind kind)
{
    const struct mutant *m = model.mutant;
    bool is_elsewhere =
        model.actor->recovers && m != NULL && m->phase >= PHASE_SHARD && m->phase <= PHASE_LEARN;

    return m != NULL && !is_elsewhere && m->kind == kind &&
           (m->phase == PHASE_OTHER || m->phase == model.actor->phase) &&
           (m->rank < 0 || (uint32_t)m->rank == model.actor->rank);
}

static bool is_nth(unsigned count)
{
    return model.mutant->nth == 0 || model.mutant->nth == count;
}

static struct sim *sim_of(struct store *store)
{
    return sim_client_of(store)->sim;
}

static enum sidestep_status failed(struct sidestep_error *err, const char *op)
{
    return error_set(err, SIDESTEP_EIO, EIO, HERE, "%s: fault of the model", op);
}

/* The operation took place, and reports an error that sounds as if it had not. */
static enum sidestep_status failed_after(struct sidestep_error *err, const char *op)
{
    return sim_fail(err, world_fail_after(), op, "done, and a fault of the model");
}

/* Do ${call}. If a fault is planned for this operation, fail with or without its effect. */
#define WITH_FAULT(store, op, call)                                                                \
    enum fault_kind fault = world_take_fault(sim_of(store), (op));                                 \
    if (fault == FAULT_LOST && strstr((op), "_sync") != NULL)                                      \
        sim_fail_sync(sim_of(store), 1, true);                                                     \
    else if (fault == FAULT_BEFORE || fault == FAULT_LOST)                                         \
        return failed(err, (op));                                                                  \
    enum sidestep_status status = (call);                                                          \
    return fault == FAULT_AFTER && status == SIDESTEP_OK ? failed_after(err, (op)) : status

static enum sidestep_status dir_make(struct store_dir *at, const char *name,
                                     struct sidestep_error *err)
{
    WITH_FAULT(at->store, "dir_make", sim_ops.dir_make(at, name, err));
}

/* Does the mutant delete ${name} in ${at}, a trash, last instead of first? */
static bool is_deleted_last(struct store_dir *at, const char *name)
{
    return strcmp(name, FILE_NAME_METADATA) == 0 && is_mutant(MUTANT_METADATA_LAST) &&
           file_name_parse(sim_handle_of(at)->name).kind == FILE_NAME_TRASH;
}

static enum sidestep_status dir_remove(struct store_dir *at, const char *name,
                                       struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;

    if (is_mutant(MUTANT_METADATA_LAST) && file_name_parse(name).kind == FILE_NAME_TRASH &&
        sim_ops.dir_open(at->store, at, name, &dir, NULL) == SIDESTEP_OK)
        (void)sim_ops.unlink(dir, FILE_NAME_METADATA, NULL);
    WITH_FAULT(at->store, "dir_remove", sim_ops.dir_remove(at, name, err));
}

static enum sidestep_status dir_open(struct store *store, struct store_dir *at, const char *name,
                                     struct store_dir **out, struct sidestep_error *err)
{
    enum fault_kind fault = world_take_fault(sim_of(store), "dir_open");

    return fault != FAULT_NONE ? failed(err, "dir_open")
                               : sim_ops.dir_open(store, at, name, out, err);
}

static enum sidestep_status dir_list(struct store_dir *dir,
                                     bool (*each)(void *context, const char *name), void *context,
                                     struct sidestep_error *err)
{
    if (world_take_fault(sim_of(dir->store), "dir_list") != FAULT_NONE)
        return failed(err, "dir_list");
    return sim_ops.dir_list(dir, each, context, err);
}

static enum sidestep_status dir_sync(struct store_dir *dir, struct sidestep_error *err)
{
    bool is_parent = strcmp(sim_handle_of(dir)->name, MODEL_PARENT) == 0;
    unsigned count = is_parent ? ++model.actor->parent_syncs : ++model.actor->dir_syncs;

    if (is_mutant(is_parent ? MUTANT_PARENT_SYNC : MUTANT_DIR_SYNC) && is_nth(count))
        return SIDESTEP_OK;
    WITH_FAULT(dir->store, "dir_sync", sim_ops.dir_sync(dir, err));
}

/* Does the mutant skip the check that a marker's name still leads to the file that was locked? */
static bool skips_marker_check(void)
{
    uint64_t locked_inode = model.actor->locked_inode;

    model.actor->locked_inode = 0;
    return locked_inode != 0 && is_mutant(MUTANT_ANY_FILE) &&
           is_nth(model.actor->made_marker ? 1 : 2);
}

static enum sidestep_status name_stat(struct store_dir *at, const char *name,
                                      struct store_stat *out, struct sidestep_error *err)
{
    uint64_t locked_inode = model.actor->locked_inode;

    if (skips_marker_check()) {
        *out = (struct store_stat){.kind = STORE_FILE, .device = 1, .inode = locked_inode};
        return SIDESTEP_OK;
    }
    if (is_mutant(MUTANT_HIDE_MARKER) && file_name_parse(name).kind == FILE_NAME_PENDING)
        return sim_fail(err, ENOENT, "stat", name);
    if (is_mutant(MUTANT_HIDE_OLD) && file_name_parse(name).kind == FILE_NAME_METADATA_TMP)
        return sim_fail(err, ENOENT, "stat", name);
    if (world_take_fault(sim_of(at->store), "stat") != FAULT_NONE)
        return failed(err, "stat");
    TRY(sim_ops.stat(at, name, out, err));
    struct file_name parsed = file_name_parse(name);
    if (is_mutant(MUTANT_ANY_SIZE) && parsed.kind == FILE_NAME_EXTRA && parsed.rank == 1)
        out->size++; /* as if the byte that the model takes away were there */
    return SIDESTEP_OK;
}

static enum sidestep_status name_rename(struct store_dir *from_dir, const char *from,
                                        struct store_dir *to_dir, const char *to,
                                        enum store_rename_mode mode, struct sidestep_error *err)
{
    if (is_mutant(MUTANT_PLAIN_RENAME) && mode == STORE_NOREPLACE)
        mode = STORE_REPLACE;
    if (is_mutant(MUTANT_NO_NAMES) && file_name_parse(from).kind == FILE_NAME_EXTRA)
        return SIDESTEP_OK;
    WITH_FAULT(from_dir->store, "rename", sim_ops.rename(from_dir, from, to_dir, to, mode, err));
}

static enum sidestep_status name_unlink(struct store_dir *at, const char *name,
                                        struct sidestep_error *err)
{
    if (is_deleted_last(at, name) || (is_mutant(MUTANT_KEEP_NAMES) && files_is_name(name)) ||
        (is_mutant(MUTANT_KEEP_EXTRA) && file_name_parse(name).kind == FILE_NAME_EXTRA))
        return SIDESTEP_OK;
    WITH_FAULT(at->store, "unlink", sim_ops.unlink(at, name, err));
}

static enum sidestep_status name_link(struct store_dir *from_dir, const char *from,
                                      struct store_dir *to_dir, const char *to,
                                      struct sidestep_error *err)
{
    if (is_mutant(MUTANT_NO_LINKS) && files_is_name(to))
        return SIDESTEP_OK;
    WITH_FAULT(to_dir->store, "link", sim_ops.link(from_dir, from, to_dir, to, err));
}

static enum sidestep_status file_create(struct store_dir *at, const char *name, uint32_t flags,
                                        struct store_file **out, struct sidestep_error *err)
{
    enum fault_kind fault = world_take_fault(sim_of(at->store), "file_create");

    if (file_name_parse(name).kind == FILE_NAME_PENDING)
        model.actor->made_marker = true;
    if (fault == FAULT_BEFORE || fault == FAULT_LOST)
        return failed(err, "file_create");
    enum sidestep_status status = sim_ops.file_create(at, name, flags, out, err);
    if (fault != FAULT_AFTER || status != SIDESTEP_OK)
        return status;
    sim_ops.file_discard(TAKE(*out));
    return failed_after(err, "file_create");
}

static enum sidestep_status file_open(struct store_dir *at, const char *name, uint32_t flags,
                                      struct store_file **out, struct sidestep_error *err)
{
    OWNED_DIR *decoys = NULL;

    if (file_name_parse(name).kind == FILE_NAME_PENDING)
        model.actor->made_marker = false;
    if (world_take_fault(sim_of(at->store), "file_open") != FAULT_NONE)
        return failed(err, "file_open");
    /* With this mutant, rank 0 reads the decoy instead of the shard. */
    if (is_mutant(MUTANT_UNCHECKED_SHARDS) && file_name_parse(name).kind == FILE_NAME_SHARD &&
        sim_ops.dir_open(at->store, NULL, "/decoys", &decoys, NULL) == SIDESTEP_OK &&
        sim_ops.file_open(decoys, name, flags, out, NULL) == SIDESTEP_OK)
        return SIDESTEP_OK;
    return sim_ops.file_open(at, name, flags, out, err);
}

static enum sidestep_status file_write_at(struct store_file *file, const void *from, size_t bytes,
                                          uint64_t offset, struct sidestep_error *err)
{
    WITH_FAULT(file->store, "file_write_at", sim_ops.file_write_at(file, from, bytes, offset, err));
}

static enum sidestep_status file_allocate(struct store_file *file, uint64_t bytes,
                                          struct sidestep_error *err)
{
    WITH_FAULT(file->store, "file_allocate", sim_ops.file_allocate(file, bytes, err));
}

static enum sidestep_status file_truncate(struct store_file *file, uint64_t bytes,
                                          struct sidestep_error *err)
{
    WITH_FAULT(file->store, "file_truncate", sim_ops.file_truncate(file, bytes, err));
}

static enum sidestep_status file_read_at(struct store_file *file, void *to, size_t bytes,
                                         uint64_t offset, struct sidestep_error *err)
{
    if (world_take_fault(sim_of(file->store), "file_read_at") != FAULT_NONE)
        return failed(err, "file_read_at");
    return sim_ops.file_read_at(file, to, bytes, offset, err);
}

static enum sidestep_status file_sync(struct store_file *file, struct sidestep_error *err)
{
    enum file_name_kind kind = file_name_parse(sim_handle_of(file)->name).kind;

    if (is_mutant(MUTANT_FILE_SYNC) && kind == model.mutant->names)
        return SIDESTEP_OK;
    WITH_FAULT(file->store, "file_sync",
               sim_ops.file_sync(file, err) == SIDESTEP_OK ||
                       (is_mutant(MUTANT_RETRY_SYNC) && sim_ops.file_sync(file, err) == SIDESTEP_OK)
                   ? SIDESTEP_OK
                   : SIDESTEP_EIO);
}

static enum sidestep_status file_lock(struct store_file *file, bool exclusive,
                                      struct sidestep_error *err)
{
    if (is_mutant(MUTANT_NO_LOCK))
        return SIDESTEP_OK;
    TRY(sim_ops.file_lock(file, exclusive, err));
    if (file_name_parse(sim_handle_of(file)->name).kind == FILE_NAME_PENDING)
        model.actor->locked_inode = sim_handle_of(file)->inode + 1;
    return SIDESTEP_OK;
}

static enum sidestep_status file_close(struct store_file *file, struct sidestep_error *err)
{
    bool fails = world_take_fault(sim_of(file->store), "file_close") != FAULT_NONE;
    enum sidestep_status status = sim_ops.file_close(file, err);

    return fails && status == SIDESTEP_OK ? failed(err, "file_close") : status;
}

static struct store_ops model_ops;

void model_store_attach(struct sim *sim)
{
    model_ops = sim_ops;
    model_ops.name = "model";
    model_ops.dir_make = dir_make;
    model_ops.dir_remove = dir_remove;
    model_ops.dir_open = dir_open;
    model_ops.dir_list = dir_list;
    model_ops.dir_sync = dir_sync;
    model_ops.stat = name_stat;
    model_ops.rename = name_rename;
    model_ops.unlink = name_unlink;
    model_ops.link = name_link;
    model_ops.file_create = file_create;
    model_ops.file_open = file_open;
    model_ops.file_write_at = file_write_at;
    model_ops.file_allocate = file_allocate;
    model_ops.file_truncate = file_truncate;
    model_ops.file_read_at = file_read_at;
    model_ops.file_sync = file_sync;
    model_ops.file_lock = file_lock;
    model_ops.file_close = file_close;
    for (int i = 0; i < SIM_MAX_CLIENTS; i++)
        sim_store(sim, i)->ops = &model_ops;
}

bool model_store_is_change(const char *op)
{
    static const char *const changes[] = {
        "dir_make", "dir_remove",  "dir_sync",      "rename",        "unlink",
        "link",     "file_create", "file_write_at", "file_truncate", "file_sync",
        "put",      "delete",      "upload_begin",  "upload_part",   "upload_complete",
    };

    for (size_t i = 0; i < ARRAY_LENGTH(changes); i++)
        if (strcmp(op, changes[i]) == 0)
            return true;
    return false;
}
