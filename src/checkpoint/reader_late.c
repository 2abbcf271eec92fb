/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_late.c -- opens a file of a checkpoint when a caller reads from it; see reader.h. */

#include "base/base.h"
#include "checkpoint/reader_internal.h"

static enum sidestep_status check_size(struct reader *r, struct reader_file *file,
                                       struct sidestep_error *err)
{
    struct store_stat stat;
    enum sidestep_status status = store_stat_to_read(r->dir, file->name, &stat, err);

    if (status == SIDESTEP_ENOTFOUND)
        return FAIL(err, SIDESTEP_ECORRUPT, "it is missing");
    TRY(status);
    if (stat.kind != STORE_FILE)
        return FAIL(err, SIDESTEP_EIO, "it is not a regular file");
    if (!r->has_manifest) {
        TRY(reader_file_check_end(file, stat.size, err));
        file->bytes = stat.size;
    }
    if (stat.size != file->bytes)
        return FAIL(err, SIDESTEP_ECORRUPT, "it has %llu bytes instead of %llu",
                    (unsigned long long)stat.size, (unsigned long long)file->bytes);
    return SIDESTEP_OK;
}

enum sidestep_status reader_check_sizes(struct reader *r, size_t begin, size_t end,
                                        struct sidestep_error *err)
{
    if (begin != end) /* an object store lists a thousand sizes with one request */
        TRY(store_dir_remember(r->dir, err));
    for (size_t i = begin; i < end; i++)
        TRY(WRAP(check_size(r, &r->files[i], err), err, "file '%s'", r->files[i].name));
    return SIDESTEP_OK;
}

bool reader_has_index(const struct reader *r)
{
    return r->manifest.index.bytes != 0 && r->manifest.file_count > READER_MAX_FOOTERS;
}

bool reader_is_late(const struct reader *r)
{
    if ((r->flags & READER_LATE) == 0 ||
        (r->flags & (READER_TOLERANT | READER_PARSE_METADATA)) != 0)
        return false;
    return !r->has_manifest || (r->is_listed && reader_has_index(r));
}

enum sidestep_status reader_open_share(struct reader *r, const struct reader_share *share,
                                       struct sidestep_error *err)
{
    size_t begin = 0, end = r->file_count;

    if (r->opens_late) {
        begin = (size_t)(share->number * (uint64_t)r->file_count / share->count);
        end = (size_t)((share->number + 1) * (uint64_t)r->file_count / share->count);
        if (end - begin > READER_MAX_FOOTERS)
            return reader_check_sizes(r, begin, end, err);
    }
    for (size_t i = begin; i < end; i++)
        TRY(reader_file_check(r, i, r->flags, err));
    return SIDESTEP_OK;
}

enum sidestep_status reader_admit(struct reader *r, const struct metadata_entry *entry,
                                  const struct metadata_storage *storage, const struct box *box,
                                  struct sidestep_error *err)
{
    if (!r->opens_late)
        return SIDESTEP_OK;
    size_t i = storage->file != NULL ? hash_table_find(&r->file_names, storage->file) : SIZE_MAX;
    if (i == SIZE_MAX)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s' is in the file '%s', which is not listed",
                    display_name(entry->name).text, storage->file != NULL ? storage->file : "");
    if (r->files[i].dir == NULL)
        TRY(reader_file_check(r, i, r->flags, err));
    return r->has_manifest ? reader_check_chunk(r, entry, storage, box, err) : SIDESTEP_OK;
}
