/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * show_tree.c -- `sidestep show --tree`: prints names nested at their dots.
 *
 * Entries are sorted by name, so those with a common prefix are neighbours.  A branch is printed
 * before its first entry, with sums over the entries that follow.  Nothing recurses.  A name with
 * more than MAX_DEPTH dots keeps the rest in one piece.
 */
#include "show.h"

#include "escape.h"
#include "memory.h"
#include "format_units.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 24
#define INDENT 2

/* The length of the first ${depth} components of ${name} with the dot after them; 0 if there is no
 * further component. */
static size_t prefix_length(const char *name, size_t depth)
{
    size_t length = 0;

    for (size_t i = 0; i < depth; i++) {
        const char *dot = strchr(name + length, '.');

        if (dot == NULL)
            return 0;
        length = (size_t)(dot - name) + 1;
    }
    return length;
}

static void print_branch(struct cli_show *show, size_t first, size_t depth, size_t start,
                         size_t prefix)
{
    const char *name = show->entries[first]->name;
    uint64_t bytes = 0;
    size_t count = 0;
    char size[CLI_FORMAT_UNITS_BYTES];

    for (size_t i = first; i < show->entry_count; i++) {
        if (strncmp(show->entries[i]->name, name, prefix) != 0)
            break;
        count++;
        bytes += show->entries[i]->bytes;
    }
    cli_format_units_size(size, bytes);
    fprintf(show->cli->out, "%*s", (int)(depth * INDENT), "");
    cli_escape_write(show->cli->out, name + start, prefix - start - 1);
    fprintf(show->cli->out, "  (%zu, %s)\n", count, size);
}

/* "float32 [2, 3]  24 B" or "= 17"; the caller frees it. */
static char *describe(struct cli_show *show, size_t i)
{
    const struct sidestep_entry *entry = show->entries[i];
    char *text = NULL, *part;
    size_t length = 0;
    FILE *stream = cli_memory_stream(&text, &length);
    char size[CLI_FORMAT_UNITS_BYTES];

    cli_format_units_size(size, entry->bytes);
    if (entry->is_object) {
        part = cli_show_value_text(show, entry);
        fprintf(stream, "= %s", part);
    } else {
        part = cli_show_shape_text(entry->shape, entry->ndim);
        cli_escape_write(stream, entry->dtype_name, strlen(entry->dtype_name));
        fprintf(stream, " %s  %s", part, size);
        if (show->classes[i] != NULL) {
            fputs("  ", stream);
            cli_escape_write(stream, show->classes[i], strlen(show->classes[i]));
        }
    }
    free(part);
    cli_memory_stream_close(stream);
    return text;
}

static void print_leaf(struct cli_show *show, size_t i, size_t depth, size_t start)
{
    const struct sidestep_entry *entry = show->entries[i];
    /* Called before anything is printed, because it may print a note. */
    char *text = describe(show, i);

    fprintf(show->cli->out, "%*s", (int)(depth * INDENT), "");
    cli_escape_write(show->cli->out, entry->name + start, strlen(entry->name + start));
    fprintf(show->cli->out, "  %s\n", text);
    free(text);
    if (cli_has_option(show->cli, CLI_OPTION_CHUNKS))
        cli_show_chunks(show, entry, (depth + 1) * INDENT);
}

void cli_show_tree(struct cli_show *show)
{
    const char *above = "";

    fputc('\n', show->cli->out);
    for (size_t i = 0; i < show->entry_count; i++) {
        const char *name = show->entries[i]->name;
        size_t depth = 0, start = 0;

        for (; depth < MAX_DEPTH; depth++) {
            size_t prefix = prefix_length(name, depth + 1);

            if (prefix == 0)
                break;
            if (strncmp(above, name, prefix) != 0)
                print_branch(show, i, depth, start, prefix);
            start = prefix;
        }
        print_leaf(show, i, depth, start);
        above = name;
    }
}
