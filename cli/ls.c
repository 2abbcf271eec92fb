/* SPDX-License-Identifier: BSD-3-Clause */
/* ls.c -- `sidestep ls`: lists the checkpoints in a directory. */
#include "cli.h"
#include "json.h"
#include "levels.h"
#include "no_checkpoint.h"
#include "output.h"
#include "table.h"
#include "format_units.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define NAME_BYTES 600 /* two names, and the text around the second */

static bool is_wanted(const struct cli *cli, const struct sidestep_listed *entry)
{
    return cli_has_option(cli, CLI_OPTION_ALL) ||
           (entry->state != SIDESTEP_FOREIGN && !cli_is_lost_and_found(entry));
}

static void json_annotations(struct cli_json *json, const struct sidestep_listed *entry)
{
    cli_json_bool(json, "pinned", entry->is_pinned);
    cli_json_bool(json, "abandoned", entry->is_abandoned);
    cli_json_bool(json, "renamed", entry->is_renamed);
    cli_json_text(json, "kept", entry->kept);
    cli_json_text(json, "kept_because", entry->kept_because);
    cli_json_texts(json, "tags", entry->tags, entry->tag_count);
    cli_json_open(json, "metrics", '{');
    for (uint32_t i = 0; i < entry->metric_count; i++)
        cli_json_real(json, entry->metrics[i].name, entry->metrics[i].value);
    cli_json_close(json, '}');
}

static void json_entry(struct cli_json *json, const struct cli_level_row *row)
{
    const struct sidestep_listed *entry = row->entry;
    char when[CLI_FORMAT_UNITS_BYTES];
    bool has_time = entry->saved_at >= 0 && cli_format_units_time(when, entry->saved_at);

    cli_json_open(json, NULL, '{');
    cli_json_text(json, "name", entry->name);
    cli_json_text(json, "path", entry->path);
    cli_json_known(json, "step", entry->step >= 0, entry->step);
    cli_json_text(json, "state", entry->state_name);
    if (entry->state != SIDESTEP_UNREADABLE) {
        cli_json_uint(json, "bytes", entry->bytes);
        cli_json_uint(json, "files", entry->files);
        cli_json_uint(json, "shared_files", entry->shared_files);
        cli_json_uint(json, "small_files", entry->small_files);
        cli_json_uint(json, "small_bytes", entry->small_bytes);
    } else {
        cli_json_null(json, "bytes");
        cli_json_null(json, "files");
        cli_json_null(json, "shared_files");
        cli_json_null(json, "small_files");
        cli_json_null(json, "small_bytes");
    }
    cli_json_known(json, "ranks", entry->ranks > 0, entry->ranks);
    cli_json_text(json, "saved_at", has_time ? when : NULL);
    json_annotations(json, entry);
    cli_json_text(json, "layout", entry->layout);
    cli_json_text(json, "reason", entry->reason);
    cli_json_text(json, "target", entry->target);
    cli_json_text(json, "part_ranks", entry->part_ranks);
    if (row->level != NULL)
        cli_json_text(json, "level", row->level);
    cli_json_close(json, '}');
}

static void print_json(const struct cli *cli, const struct cli_levels *levels)
{
    struct cli_json json = cli_json_begin(cli->out);

    cli_json_open(&json, "checkpoints", '[');
    for (size_t i = 0; i < levels->count; i++)
        if (is_wanted(cli, levels->rows[i].entry))
            json_entry(&json, &levels->rows[i]);
    cli_json_close(&json, ']');
    if (levels->mirror != NULL) {
        cli_json_text(&json, "mirror", levels->mirror);
        cli_json_bool(&json, "outdated", levels->is_outdated);
    }
    cli_json_end(&json);
}

static const char *style_of(enum sidestep_presence state)
{
    switch (state) {
    case SIDESTEP_COMMITTED:
    case SIDESTEP_COMPLETE:
        return CLI_STYLE_GREEN;
    case SIDESTEP_SAVING:
    case SIDESTEP_PART:
        return CLI_STYLE_YELLOW;
    case SIDESTEP_BAD:
    case SIDESTEP_UNREADABLE:
    case SIDESTEP_INCOMPLETE:
    case SIDESTEP_DAMAGED:
        return CLI_STYLE_RED;
    case SIDESTEP_DEAD:
    case SIDESTEP_TRASH:
    case SIDESTEP_FOREIGN:
        return CLI_STYLE_DIM;
    }
    return NULL;
}

static bool has_annotations(const struct sidestep_listed *entry)
{
    return entry->is_pinned || entry->is_abandoned || entry->is_renamed || entry->tag_count != 0 ||
           entry->metric_count != 0 || entry->shared_files != 0;
}

/* "pinned best loss=2.5"; what does not fit is left out, and only --json prints it. */
static void add_annotations(struct cli_table *table, const struct sidestep_listed *entry)
{
    char text[160];
    size_t used = 0;

    text[0] = '\0';
    if (entry->is_pinned)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "pinned ");
    if (entry->is_abandoned)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "abandoned ");
    if (entry->is_renamed)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "renamed ");
    if (entry->shared_files != 0)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "shares %u of %llu files ",
                                 entry->shared_files, (unsigned long long)entry->files);
    for (uint32_t i = 0; i < entry->tag_count && used < sizeof(text); i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s ", entry->tags[i]);
    for (uint32_t i = 0; i < entry->metric_count && used < sizeof(text); i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s=%g ", entry->metrics[i].name,
                                 entry->metrics[i].value);
    if (used != 0 && used < sizeof(text))
        text[used - 1] = '\0';
    cli_table_add(table, NULL, used != 0 ? text : "-");
}

/* Which columns there are beside those that there always are. */
struct ls_columns {
    bool exact;       /* times, not ages */
    bool kept;        /* a run deletes old checkpoints */
    bool annotations; /* there are some */
};

static struct ls_columns choose_columns(const struct cli *cli, const struct cli_levels *levels)
{
    struct ls_columns with = {.exact = cli_has_option(cli, CLI_OPTION_VERBOSE)};

    for (size_t i = 0; i < levels->count; i++) {
        const struct sidestep_listed *entry = levels->rows[i].entry;
        if (!is_wanted(cli, entry))
            continue;
        with.annotations |= has_annotations(entry);
        /* A retention that deletes keeps one as the newest. */
        with.kept |= entry->kept != NULL &&
                     (strcmp(entry->kept, "newest") == 0 || strcmp(entry->kept, "only") == 0);
    }
    return with;
}

/* A save under way has a hidden name; the name of its checkpoint follows. */
static void add_name(struct cli_table *table, const struct sidestep_listed *entry)
{
    char text[NAME_BYTES];

    if (entry->target == NULL || strcmp(entry->target, entry->name) == 0) {
        cli_table_add(table, NULL, entry->name);
        return;
    }
    snprintf(text, sizeof(text), "%s (%s)", entry->name, entry->target);
    cli_table_add(table, NULL, text);
}

/* "part (ranks 0-7 of 64)" */
static void add_state(struct cli_table *table, const struct sidestep_listed *entry)
{
    char text[NAME_BYTES];

    snprintf(text, sizeof(text), "%s (ranks %s of %u)", entry->state_name,
             entry->part_ranks != NULL ? entry->part_ranks : "", entry->ranks);
    cli_table_add(table, style_of(entry->state),
                  entry->part_ranks != NULL ? text : entry->state_name);
}

static void add_row(struct cli_table *table, const struct cli_level_row *row, int64_t now,
                    const struct ls_columns *with)
{
    const struct sidestep_listed *entry = row->entry;
    char text[CLI_FORMAT_UNITS_BYTES] = "-";

    if (entry->step >= 0)
        snprintf(text, sizeof(text), "%" PRId64, entry->step);
    cli_table_add(table, NULL, text);
    add_state(table, entry);
    if (entry->state != SIDESTEP_UNREADABLE) {
        cli_table_add_size(table, entry->bytes);
        cli_table_add_count(table, entry->files);
    } else {
        cli_table_add(table, NULL, "-");
        cli_table_add(table, NULL, "-");
    }
    if (entry->ranks > 0)
        cli_table_add_count(table, entry->ranks);
    else
        cli_table_add(table, NULL, "-");
    if (entry->saved_at < 0)
        snprintf(text, sizeof(text), "-");
    else if (with->exact)
        cli_format_units_time(text, entry->saved_at);
    else
        cli_format_units_age(text, now - entry->saved_at);
    cli_table_add(table, NULL, text);
    if (row->level != NULL)
        cli_table_add(table, NULL, row->level);
    if (with->kept)
        cli_table_add(table, NULL, entry->kept != NULL ? entry->kept : "-");
    if (with->annotations)
        add_annotations(table, entry);
    add_name(table, entry);
}

static void print_table(const struct cli *cli, const struct cli_levels *levels)
{
    const struct ls_columns with = choose_columns(cli, levels);
    struct cli_column columns[CLI_TABLE_MAX_COLUMNS] = {
        {"STEP", true},  {"STATE", false}, {"SIZE", true},
        {"FILES", true}, {"RANKS", true},  {with.exact ? "SAVED" : "AGE", !with.exact},
    };
    size_t column_count = 6, rows = 0, hidden = 0;
    int64_t now = (int64_t)time(NULL);
    struct cli_table table;

    if (levels->mirror != NULL)
        columns[column_count++].title = "LEVEL";
    if (with.kept)
        columns[column_count++].title = "KEPT";
    if (with.annotations)
        columns[column_count++].title = "ANNOTATIONS";
    columns[column_count++].title = "NAME";
    cli_table_init(&table, columns, column_count);
    for (size_t i = 0; i < levels->count; i++) {
        if (is_wanted(cli, levels->rows[i].entry)) {
            add_row(&table, &levels->rows[i], now, &with);
            rows++;
        } else {
            hidden++;
        }
    }
    if (rows > 0)
        cli_table_print(&table, cli->out, cli->color);
    else
        cli_no_checkpoint_note(cli, levels->root,
                               hidden > 0 ? "; other directories are listed with --all" : "");
}

/* Note why entries are not whole, or cannot be read. */
static void note_reasons(const struct cli *cli, const struct cli_levels *levels)
{
    for (size_t i = 0; i < levels->count; i++) {
        const struct sidestep_listed *entry = levels->rows[i].entry;

        if (entry->state == SIDESTEP_INCOMPLETE)
            cli_output_note(cli, "'%s' is incomplete (%s): %s", entry->name, entry->layout,
                            entry->reason);
        else if (entry->state == SIDESTEP_DAMAGED || entry->state == SIDESTEP_BAD)
            cli_output_note(cli, "'%s' is damaged: %s", entry->name, entry->reason);
        else if (entry->state == SIDESTEP_UNREADABLE && !cli_is_lost_and_found(entry))
            cli_output_note(cli, "'%s' cannot be read: %s", entry->name, entry->reason);
        else if (entry->state == SIDESTEP_FOREIGN && entry->step >= 0)
            cli_output_note(cli, "'%s' is not a checkpoint: %s", entry->name, entry->reason);
    }
}

/* Note how far the mirror is behind. */
static void note_lag(const struct cli *cli, const struct cli_levels *levels)
{
    int64_t near = -1, far = -1;

    for (size_t i = 0; i < levels->count; i++) {
        const struct cli_level_row *row = &levels->rows[i];
        if (row->entry->state != SIDESTEP_COMMITTED || row->entry->is_abandoned)
            continue;
        near = row->entry->step > near ? row->entry->step : near;
        if (strcmp(row->level, "near") != 0 && row->entry->step > far)
            far = row->entry->step;
    }
    if (near > far && far >= 0)
        cli_output_note(cli, "the mirror lags: its newest step is %" PRId64 ", not %" PRId64, far,
                        near);
    else if (near > far)
        cli_output_note(cli, "the mirror has no checkpoint yet");
}

/* Fail if a directory cannot be read, because it may be the checkpoint that the caller needs. */
static int report_unreadable(const struct cli *cli, const struct cli_levels *levels)
{
    struct sidestep_error err = {0};
    const struct sidestep_listed *first = NULL;
    size_t count = 0;

    for (size_t i = 0; i < levels->count; i++) {
        const struct sidestep_listed *entry = levels->rows[i].entry;
        if (entry->state != SIDESTEP_UNREADABLE || cli_is_lost_and_found(entry))
            continue;
        first = first != NULL ? first : entry;
        count++;
    }
    if (count == 0)
        return 0;
    cli_error_set(&err, first->status, "ls: in '%s', %zu director%s cannot be read: '%s'%s",
                  levels->root, count, count == 1 ? "y" : "ies", first->name,
                  count == 1 ? "" : " and others");
    return cli_output_error(cli, &err);
}

int cli_ls_run(const struct cli *cli)
{
    const char *root = cli->operand_count > 0 ? cli->operands[0] : ".";
    struct sidestep_error err = {0};
    struct cli_levels levels;
    int status;

    if (cli_levels_read(cli, root, &levels, &err) == SIDESTEP_OK) {
        if (cli_has_option(cli, CLI_OPTION_JSON))
            print_json(cli, &levels);
        else
            print_table(cli, &levels);
        note_reasons(cli, &levels);
        if (levels.mirror != NULL)
            note_lag(cli, &levels);
        status = report_unreadable(cli, &levels);
    } else {
        status = cli_output_error(cli, &err);
    }
    cli_levels_release(&levels);
    return status;
}
