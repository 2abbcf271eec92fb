/* SPDX-License-Identifier: BSD-3-Clause */
/* show.c -- `sidestep show`: selects entries by name and prints them in one of three ways. */
#include "show.h"

#include "escape.h"
#include "memory.h"
#include "output.h"
#include "table.h"
#include "format_units.h"
#include "value.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void json_numbers(struct cli_json *json, const char *key, const int64_t *numbers,
                         uint32_t count)
{
    cli_json_open(json, key, '[');
    for (uint32_t i = 0; i < count; i++)
        cli_json_int(json, NULL, numbers[i]);
    cli_json_close(json, ']');
}

static void json_place(struct cli_json *json, const struct sidestep_chunk *chunk)
{
    cli_json_text(json, "file", chunk->file);
    cli_json_uint(json, "file_offset", chunk->file_offset);
    cli_json_uint(json, "file_bytes", chunk->file_bytes);
    if (chunk->transform != NULL)
        cli_json_text(json, "transform", chunk->transform);
    else
        cli_json_null(json, "transform");
}

static void json_tensor(struct cli_json *json, const struct sidestep_entry *entry,
                        const char *class, const struct sidestep_tensor_stats *stats)
{
    cli_json_open(json, NULL, '{');
    cli_json_text(json, "name", entry->name);
    cli_json_text(json, "dtype", entry->dtype_name);
    cli_json_text(json, "class", class); /* null: a plain tensor */
    json_numbers(json, "shape", entry->shape, entry->ndim);
    cli_json_uint(json, "bytes", entry->bytes);
    cli_json_open(json, "chunks", '[');
    for (size_t i = 0; i < entry->chunk_count; i++) {
        cli_json_open(json, NULL, '{');
        json_numbers(json, "offsets", entry->chunks[i].offsets, entry->ndim);
        json_numbers(json, "lengths", entry->chunks[i].lengths, entry->ndim);
        json_place(json, &entry->chunks[i]);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
    if (stats != NULL && class == NULL)
        cli_show_json_stats(json, stats);
    cli_json_close(json, '}');
}

static void json_object(struct cli_json *json, struct cli_show *show,
                        const struct sidestep_entry *entry)
{
    struct sidestep_value *value = NULL;
    struct sidestep_error why = {0};

    cli_json_open(json, NULL, '{');
    cli_json_text(json, "name", entry->name);
    cli_json_uint(json, "bytes", entry->bytes);
    if (entry->chunk_count > 0)
        json_place(json, &entry->chunks[0]);
    if (entry->bytes <= CLI_SHOW_MAX_VALUE_BYTES &&
        cli_show_read_value(show, entry, &value, &why) == SIDESTEP_OK && cli_value_is_json(value))
        cli_value_json(json, "value", value);
    else
        cli_json_null(json, "value");
    if (why.status != SIDESTEP_OK)
        cli_json_text(json, "unreadable", why.message);
    cli_json_close(json, '}');
    sidestep_value_free(&value);
}

static void json_file(struct cli_json *json, const struct sidestep_file *file)
{
    cli_json_open(json, NULL, '{');
    cli_json_text(json, "name", file->name);
    cli_json_uint(json, "bytes", file->bytes);
    cli_json_uint(json, "rank", file->rank);
    cli_json_bool(json, "alias", file->is_alias);
    cli_json_text(json, "stored", file->is_alias ? NULL : file->stored);
    cli_json_text(json, "sha256", file->is_alias ? NULL : file->sha256);
    cli_json_close(json, '}');
}

static void print_json(struct cli_show *show)
{
    const struct sidestep_checkpoint_info *info = &show->info;
    struct cli_json json = cli_json_begin(show->cli->out);

    cli_json_text(&json, "path", info->path);
    cli_json_text(&json, "format", info->format);
    cli_json_text(&json, "save_id", info->save_id[0] != '\0' ? info->save_id : NULL);
    cli_json_known(&json, "step", info->step >= 0, info->step);
    cli_json_known(&json, "world_size", info->world_size > 0, info->world_size);
    cli_json_uint(&json, "bytes", info->bytes);
    cli_json_uint(&json, "shared_bytes", info->shared_bytes);
    cli_json_text(&json, "damage", info->damage);
    cli_json_text(&json, "unread", info->unread);
    cli_json_open(&json, "tensors", '[');
    for (size_t i = 0; i < show->entry_count; i++)
        if (!show->entries[i]->is_object)
            json_tensor(&json, show->entries[i], show->classes[i],
                        show->stats != NULL ? &show->stats[i] : NULL);
    cli_json_close(&json, ']');
    cli_json_open(&json, "objects", '[');
    for (size_t i = 0; i < show->entry_count; i++)
        if (show->entries[i]->is_object)
            json_object(&json, show, show->entries[i]);
    cli_json_close(&json, ']');
    cli_json_open(&json, "files", '[');
    for (size_t i = 0; i < show->file_count; i++)
        json_file(&json, show->files[i]);
    cli_json_close(&json, ']');
    cli_json_end(&json);
}

/* "damage      file '__1_0.distcp': it is missing; and 2 files more" */
static void print_problems(FILE *out, const char *title, const char *first, size_t count)
{
    if (first == NULL)
        return;
    fputs(title, out);
    cli_escape_write(out, first, strlen(first));
    if (count > 1)
        fprintf(out, "; and %zu file%s more", count - 1, count > 2 ? "s" : "");
    fputc('\n', out);
}

static void print_heading(const struct cli_show *show)
{
    const struct sidestep_checkpoint_info *info = &show->info;
    FILE *out = show->cli->out;
    char size[CLI_FORMAT_UNITS_BYTES], shared[CLI_FORMAT_UNITS_BYTES];

    cli_format_units_size(size, info->bytes);
    fputs("path        ", out);
    cli_escape_write(out, info->path, strlen(info->path));
    fputs("\nformat      ", out);
    cli_escape_write(out, info->format, strlen(info->format));
    if (info->save_id[0] != '\0') {
        fputs("\nsave id     ", out);
        cli_escape_write(out, info->save_id, strlen(info->save_id));
    }
    if (info->step >= 0)
        fprintf(out, "\nstep        %" PRId64, info->step);
    if (info->world_size > 0)
        fprintf(out, "\nranks       %" PRIu32, info->world_size);
    fprintf(out, "\nsize        %s", size);
    if (info->shared_bytes > 0) {
        cli_format_units_size(shared, info->shared_bytes);
        fprintf(out, ", of which %s are shared with an earlier checkpoint", shared);
    }
    fprintf(out, "\ntensors     %zu\nobjects     %zu\n", info->tensor_count, info->object_count);
    if (sidestep_checkpoint_file_count(show->checkpoint) > 0)
        fprintf(out, "small files %zu\n", sidestep_checkpoint_file_count(show->checkpoint));
    print_problems(out, "damage      ", info->damage, info->damaged_count);
    print_problems(out, "not read    ", info->unread, info->unread_count);
}

static size_t count_kind(const struct cli_show *show, bool objects)
{
    size_t count = 0;

    for (size_t i = 0; i < show->entry_count; i++)
        count += show->entries[i]->is_object == objects;
    return count;
}

static void add_tensor(struct cli_table *table, const struct sidestep_entry *entry)
{
    char *shape = cli_show_shape_text(entry->shape, entry->ndim);

    cli_table_add(table, NULL, entry->name);
    cli_table_add(table, NULL, entry->dtype_name);
    cli_table_add(table, NULL, shape);
    cli_table_add_size(table, entry->bytes);
    cli_table_add_count(table, entry->chunk_count);
    free(shape);
}

static bool has_classes(const struct cli_show *show)
{
    for (size_t i = 0; i < show->entry_count; i++)
        if (show->classes[i] != NULL)
            return true;
    return false;
}

/* The column of classes is there only if it says something. */
static void print_tensors(const struct cli_show *show)
{
    static const struct cli_column columns[] = {{"TENSOR", false}, {"DTYPE", false},
                                                {"SHAPE", false},  {"SIZE", true},
                                                {"CHUNKS", true},  {"CLASS", false}};
    bool with_classes = has_classes(show);
    struct cli_table table;

    cli_table_init(&table, columns, sizeof(columns) / sizeof(columns[0]) - !with_classes);
    for (size_t i = 0; i < show->entry_count; i++) {
        if (show->entries[i]->is_object)
            continue;
        add_tensor(&table, show->entries[i]);
        if (with_classes)
            cli_table_add(&table, NULL, show->classes[i] != NULL ? show->classes[i] : "-");
    }
    fputc('\n', show->cli->out);
    cli_table_print(&table, show->cli->out, show->cli->color);
}

static void print_objects(struct cli_show *show)
{
    static const struct cli_column columns[] = {
        {"OBJECT", false}, {"SIZE", true}, {"VALUE", false}};
    struct cli_table table;

    cli_table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    for (size_t i = 0; i < show->entry_count; i++) {
        if (!show->entries[i]->is_object)
            continue;
        cli_table_add(&table, NULL, show->entries[i]->name);
        cli_table_add_size(&table, show->entries[i]->bytes);
        cli_table_add_escaped(&table, NULL, cli_show_value_text(show, show->entries[i]));
    }
    fputc('\n', show->cli->out);
    cli_table_print(&table, show->cli->out, show->cli->color);
}

static void print_files(const struct cli_show *show)
{
    static const struct cli_column columns[] = {{"FILE", false}, {"SIZE", true}, {"RANK", true}};
    struct cli_table table;

    cli_table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    for (size_t i = 0; i < show->file_count; i++) {
        const struct sidestep_file *file = show->files[i];

        cli_table_add(&table, NULL, file->name);
        if (file->is_alias)
            cli_table_add(&table, NULL, "a link");
        else
            cli_table_add_size(&table, file->bytes);
        cli_table_add_count(&table, file->rank);
    }
    fputc('\n', show->cli->out);
    cli_table_print(&table, show->cli->out, show->cli->color);
}

static void print_tables(struct cli_show *show)
{
    FILE *out = show->cli->out;

    print_heading(show);
    if (cli_has_option(show->cli, CLI_OPTION_CHUNKS)) {
        for (size_t i = 0; i < show->entry_count; i++) {
            fputc('\n', out);
            cli_escape_write(out, show->entries[i]->name, strlen(show->entries[i]->name));
            fputc('\n', out);
            cli_show_chunks(show, show->entries[i], 2);
        }
        return;
    }
    if (count_kind(show, false) > 0 && show->stats != NULL)
        cli_show_stats(show);
    else if (count_kind(show, false) > 0)
        print_tensors(show);
    if (count_kind(show, true) > 0)
        print_objects(show);
    if (show->file_count > 0)
        print_files(show);
}

static bool is_selected(const char *glob, const char *name)
{
    return glob == NULL || strcmp(glob, name) == 0 || fnmatch(glob, name, 0) == 0;
}

static void select_entries(struct cli_show *show, const char *glob)
{
    size_t count = sidestep_checkpoint_count(show->checkpoint);

    show->entries = cli_memory_alloc(count * sizeof(*show->entries));
    for (size_t i = 0; i < count; i++) {
        const struct sidestep_entry *entry = sidestep_checkpoint_entry(show->checkpoint, i);

        if (is_selected(glob, entry->name))
            show->entries[show->entry_count++] = entry;
    }
    count = sidestep_checkpoint_file_count(show->checkpoint);
    show->files = cli_memory_alloc(count * sizeof(*show->files));
    for (size_t i = 0; i < count; i++) {
        const struct sidestep_file *file = sidestep_checkpoint_file(show->checkpoint, i);

        if (is_selected(glob, file->name))
            show->files[show->file_count++] = file;
    }
}

static enum sidestep_status show_selected(struct cli_show *show, const char *glob,
                                          struct sidestep_error *err)
{
    enum sidestep_status status = sidestep_checkpoint_info(show->checkpoint, &show->info);

    if (status != SIDESTEP_OK)
        return cli_error_set(err, status, "show: '%s': %s", show->cli->operands[0],
                             sidestep_status_text(status));
    select_entries(show, glob);
    if (show->entry_count + show->file_count == 0 && glob != NULL)
        return cli_error_set(err, SIDESTEP_ENOTFOUND, "show: no name in '%s' matches '%s'",
                             show->cli->operands[0], glob);
    cli_show_find_classes(show);
    if (cli_has_option(show->cli, CLI_OPTION_STATS)) {
        status = cli_show_read_stats(show, err);
        if (status != SIDESTEP_OK)
            return status;
    }
    if (cli_has_option(show->cli, CLI_OPTION_JSON)) {
        print_json(show);
    } else if (cli_has_option(show->cli, CLI_OPTION_TREE)) {
        print_heading(show);
        cli_show_tree(show);
    } else {
        print_tables(show);
    }
    return SIDESTEP_OK;
}

int cli_show_run(const struct cli *cli)
{
    struct cli_show show = {.cli = cli, .info = SIDESTEP_CHECKPOINT_INFO_INIT};
    const char *glob = cli->operand_count > 1 ? cli->operands[1] : NULL;
    struct sidestep_error err = {0};
    enum sidestep_status status;

    if (cli_has_option(cli, CLI_OPTION_STATS) &&
        (cli_has_option(cli, CLI_OPTION_TREE) || cli_has_option(cli, CLI_OPTION_CHUNKS)))
        return cli_output_usage(cli, "show: --stats excludes --tree and --chunks");
    status = sidestep_checkpoint_open(cli->operands[0], &show.checkpoint, &err);
    if (status == SIDESTEP_OK)
        status = show_selected(&show, glob, &err);
    enum sidestep_status found =
        show.info.damage != NULL || show.is_damaged ? SIDESTEP_ECORRUPT : show.info.unread_status;
    for (size_t i = 0; show.classes != NULL && i < show.entry_count; i++)
        free(show.classes[i]);
    free(show.classes);
    free(show.stats);
    free(show.entries);
    free(show.files);
    sidestep_checkpoint_close(&show.checkpoint);
    if (status != SIDESTEP_OK)
        return cli_output_error(cli, &err);
    return sidestep_status_exit(found);
}
