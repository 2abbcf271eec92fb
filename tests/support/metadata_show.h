/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * metadata_show.h -- prints metadata as text, for tests that compare it:
 *
 *      id=checkpoint_id save=save_id
 *      name (path, 0, int 0) float32 grad [2,3]: [0:2,0:3] file@offset+length,transform; ...
 *      name (path) object file@offset+length
 */
#ifndef SUPPORT_METADATA_SHOW_H
#define SUPPORT_METADATA_SHOW_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "model/metadata.h"
#include "model/display.h"

static inline void metadata_show_storage(struct buffer *out, const struct metadata_storage *storage)
{
    buffer_printf(out, " %s@%" PRIu64 "+%" PRIu64, storage->file, storage->offset, storage->length);
    if (storage->transform != NULL)
        buffer_printf(out, ",%s", storage->transform);
}

static inline void metadata_show_entry(struct buffer *out, const struct metadata_entry *entry)
{
    buffer_printf(out, "%s (", entry->name);
    for (uint32_t i = 0; i < entry->path_length; i++) {
        buffer_put_text(out, i != 0 ? ", " : "");
        if (entry->path[i].key != NULL)
            buffer_put_text(out, entry->path[i].key);
        else
            buffer_printf(out, "%s%" PRId64, entry->path[i].flags != 0 ? "int " : "",
                          entry->path[i].index);
    }
    buffer_put_text(out, entry->is_object ? ") object" : ") ");
    if (entry->is_object) {
        metadata_show_storage(out, &entry->storage);
    } else {
        buffer_printf(out, "%s%s %s:", entry->dtype_name, entry->requires_grad ? " grad" : "",
                      display_shape(entry->ndim, entry->shape).text);
        for (size_t i = 0; i < entry->chunk_count; i++) {
            buffer_printf(out, "%s %s", i != 0 ? ";" : "", display_box(&entry->chunks[i].box).text);
            metadata_show_storage(out, &entry->chunks[i].storage);
        }
    }
    buffer_put_u8(out, '\n');
}

/* Ends with a NUL; free it with buffer_release(). */
static inline struct buffer metadata_show(const struct metadata *metadata)
{
    struct buffer out = {0};

    buffer_printf(&out, "id=%s save=%s\n",
                  metadata->checkpoint_id != NULL ? metadata->checkpoint_id : "None",
                  metadata->save_id != NULL ? metadata->save_id : "None");
    for (size_t i = 0; i < metadata->count; i++)
        metadata_show_entry(&out, &metadata->entries[i]);
    buffer_put_u8(&out, 0);
    if (out.failed)
        abort();
    return out;
}

/* The metadata of a file; aborts if it cannot be read. */
static inline struct buffer metadata_show_file(const char *path)
{
    struct buffer out = {0};
    FILE *file = fopen(path, "rb");
    int c;

    if (file == NULL)
        abort();
    while ((c = getc(file)) != EOF)
        buffer_put_u8(&out, (uint8_t)c);
    if (ferror(file) || out.failed)
        abort();
    fclose(file);
    return out;
}

#endif
