/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy_to_files.c -- writes a copy on a file system: in a hidden directory beside the destination,
 * which one rename publishes (export.h). Its name depends on source and destination, so that the
 * next copy finds what an interrupted one left.
 */
#include <string.h>

#include "base/base.h"
#include "copy/copy.h"

static bool is_of_checkpoint(const char *name)
{
    return strcmp(name, FILE_NAME_METADATA) == 0 || file_name_parse(name).kind != FILE_NAME_NONE;
}

/* The id of this copy. It depends on the destination, because one directory may get several. */
static enum sidestep_status make_id(const struct checkpoint_copy *c, uint8_t id[SAVE_ID_BYTES],
                                    struct sidestep_error *err)
{
    size_t end = strlen(c->destination);
    uint8_t sha256[HASH_SHA256_BYTES];
    OWNED_BUFFER text = {0};

    while (end > 1 && c->destination[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && c->destination[begin - 1] != '/')
        begin--;
    buffer_put(&text, c->id, SAVE_ID_BYTES);
    buffer_put(&text, c->destination + begin, end - begin);
    TRY(buffer_check(&text, err));
    hash_sha256(text.bytes, text.length, sha256);
    memcpy(id, sha256, SAVE_ID_BYTES);
    return SIDESTEP_OK;
}

/* Is ${name} a data file of the copy, or the marker of it? */
static bool belongs(const struct checkpoint_copy *c, const char *name)
{
    return hash_table_find(&c->reader->file_names, name) != SIZE_MAX || copy_is_extra(c, name) ||
           file_name_parse(name).kind == FILE_NAME_PENDING;
}

/* Remove what an interrupted copy left besides data files. Files of others stay, also here. */
static enum sidestep_status remove_others(struct checkpoint_copy *c, struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};

    TRY(name_list_read(c->dir, &names, err));
    for (size_t i = 0; i < names.count; i++)
        if (sweep_is_own_name(names.names[i]) && !belongs(c, names.names[i]))
            TRY(store_unlink(c->dir, names.names[i], err));
    return SIDESTEP_OK;
}

static enum sidestep_status begin(struct checkpoint_copy *c, struct sidestep_error *err)
{
    bool replace = (c->options.flags & SIDESTEP_COPY_REPLACE) != 0;
    uint8_t id[SAVE_ID_BYTES];

    TRY(make_id(c, id, err));
    TRY(export_resume(&c->export, c->to, c->clock, c->destination, id, replace, c->replaces,
                      is_of_checkpoint, err));
    c->dir = c->export.commit.dir;
    return remove_others(c, err);
}

static enum sidestep_status write_records(struct checkpoint_copy *c, struct sidestep_error *err)
{
    const char *save_id = c->reader->manifest.save_id;

    TRY(small_file_write_record(c->dir, FILE_NAME_INDEX, save_id, &c->index, err));
    TRY(small_file_write_record(c->dir, FILE_NAME_MANIFEST, save_id, &c->manifest, err));
    return small_file_write(c->dir, FILE_NAME_METADATA, c->metadata.bytes, c->metadata.length, err);
}

static enum sidestep_status publish(struct checkpoint_copy *c, struct sidestep_error *err)
{
    TRY(write_records(c, err));
    extra_files_link(c->dir, &c->reader->manifest);
    return export_publish(&c->export, err);
}

static void end(struct checkpoint_copy *c, bool stays)
{
    c->export.stays = stays;
    if (c->export.commit.store != NULL) /* else it never began */
        export_end(&c->export);
}

const struct copy_target copy_to_files = {
    .is_private = true, .begin = begin, .publish = publish, .end = end};
