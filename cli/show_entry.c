/* SPDX-License-Identifier: BSD-3-Clause */
/* show_entry.c -- prints the parts of an entry that several outputs of `sidestep show` share. */
#include "show.h"

#include "escape.h"
#include "memory.h"
#include "output.h"
#include "value.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_COLUMNS 60

enum sidestep_status cli_show_read_value(struct cli_show *show, const struct sidestep_entry *entry,
                                         struct sidestep_value **value, struct sidestep_error *err)
{
    enum sidestep_status status =
        sidestep_checkpoint_read_value(show->checkpoint, entry->name, value, err);

    if (status == SIDESTEP_ECORRUPT)
        show->is_damaged = true;
    return status;
}

char *cli_show_value_text(struct cli_show *show, const struct sidestep_entry *entry)
{
    struct sidestep_value *value = NULL;
    struct sidestep_error err = {0};
    char *text;

    if (entry->bytes > CLI_SHOW_MAX_VALUE_BYTES)
        return cli_escape_text("(large)");
    if (cli_show_read_value(show, entry, &value, &err) != SIDESTEP_OK) {
        cli_output_note(show->cli, "%s", err.message);
        return cli_escape_text("(unreadable)");
    }
    text = cli_value_text(value, VALUE_COLUMNS);
    sidestep_value_free(&value);
    return text;
}

/* What a tensor is that only PyTorch can decode; NULL: a plain one, or it is damaged. */
static char *find_class(struct cli_show *show, const struct sidestep_entry *entry)
{
    struct sidestep_value *value = NULL;
    struct sidestep_error err = {0};
    enum sidestep_status status = cli_show_read_value(show, entry, &value, &err);
    const char *bytes = NULL;
    size_t length = 0;

    if (status == SIDESTEP_OK)
        bytes = sidestep_value_get_bytes(value, &length);
    else if (status != SIDESTEP_EINVAL)
        cli_output_note(show->cli, "%s", err.message);
    char *text = bytes != NULL ? cli_memory_copy(bytes, length) : NULL;
    sidestep_value_free(&value);
    return text;
}

/* Compressed, so that all of it is read. */
static bool is_large(const struct sidestep_entry *entry)
{
    return entry->chunk_count != 0 && entry->chunks[0].transform != NULL &&
           entry->chunks[0].file_bytes > CLI_SHOW_MAX_VALUE_BYTES;
}

void cli_show_find_classes(struct cli_show *show)
{
    bool is_stock = strcmp(show->info.format, "dcp") == 0;

    show->classes = cli_memory_alloc(show->entry_count * sizeof(*show->classes));
    for (size_t i = 0; i < show->entry_count; i++) {
        const struct sidestep_entry *entry = show->entries[i];
        bool may_be = !entry->is_object && (is_stock || entry->dtype == SIDESTEP_DTYPE_NONE);

        show->classes[i] = may_be && !is_large(entry) ? find_class(show, entry) : NULL;
    }
}

char *cli_show_shape_text(const int64_t *numbers, uint32_t ndim)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = cli_memory_stream(&text, &length);

    fputc('[', stream);
    for (uint32_t d = 0; d < ndim; d++)
        fprintf(stream, "%s%" PRId64, d > 0 ? ", " : "", numbers[d]);
    fputc(']', stream);
    cli_memory_stream_close(stream);
    return text;
}

void cli_show_chunks(const struct cli_show *show, const struct sidestep_entry *entry, size_t indent)
{
    FILE *out = show->cli->out;

    for (size_t i = 0; i < entry->chunk_count; i++) {
        const struct sidestep_chunk *chunk = &entry->chunks[i];

        fprintf(out, "%*s", (int)indent, "");
        if (!entry->is_object) {
            char *offsets = cli_show_shape_text(chunk->offsets, entry->ndim);
            char *lengths = cli_show_shape_text(chunk->lengths, entry->ndim);

            fprintf(out, "%s + %s  ", offsets, lengths);
            free(offsets);
            free(lengths);
        }
        cli_escape_write(out, chunk->file, strlen(chunk->file));
        fprintf(out, " at %" PRIu64 ", %" PRIu64 " bytes", chunk->file_offset, chunk->file_bytes);
        if (chunk->transform != NULL) {
            fputs(", ", out);
            cli_escape_write(out, chunk->transform, strlen(chunk->transform));
        }
        fputc('\n', out);
    }
}
