/* SPDX-License-Identifier: BSD-3-Clause */
/* show_stats.c -- `sidestep show --stats`: reads tensors and prints statistics of their elements.
 */
#include "show.h"

#include "verify_path.h"
#include "memory.h"
#include "output.h"
#include "progress.h"
#include "table.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 32

/* Is the entry a tensor whose elements can be read?  If not, it has no statistics. */
static bool has_stats(const struct cli_show *show, size_t i)
{
    return !show->entries[i]->is_object && show->classes[i] == NULL;
}

enum sidestep_status cli_show_read_stats(struct cli_show *show, struct sidestep_error *err)
{
    struct sidestep_verify_options options = SIDESTEP_VERIFY_OPTIONS_INIT;
    struct sidestep_tensor_stats *tensors;
    struct cli_progress progress;
    enum sidestep_status status;
    size_t count = 0;

    show->stats = cli_memory_alloc(show->entry_count * sizeof(*show->stats));
    memset(show->stats, 0, show->entry_count * sizeof(*show->stats));
    tensors = cli_memory_alloc(show->entry_count * sizeof(*tensors));
    for (size_t i = 0; i < show->entry_count; i++)
        if (has_stats(show, i))
            tensors[count++] = (struct sidestep_tensor_stats){.name = show->entries[i]->name};
    options.on_progress = cli_progress_update;
    options.context = &progress;
    options.cancel = cli_interrupt_flag();
    cli_interrupt_watch();
    cli_progress_begin(&progress, show->cli, show->cli->operands[0]);
    status = sidestep_checkpoint_stats(show->checkpoint, tensors, count, &options, err);
    cli_progress_end(&progress);
    for (size_t i = 0, k = 0; i < show->entry_count; i++)
        if (has_stats(show, i))
            show->stats[i] = tensors[k++];
    free(tensors);
    return status;
}

static void add_number(struct cli_table *table, bool known, double number)
{
    char text[NUMBER_BYTES];

    snprintf(text, sizeof(text), "%.6g", number);
    cli_table_add(table, NULL, known ? text : "-");
}

void cli_show_stats(const struct cli_show *show)
{
    static const struct cli_column columns[] = {
        {"TENSOR", false}, {"DTYPE", false}, {"SHAPE", false}, {"MIN", true},
        {"MAX", true},     {"MEAN", true},   {"NAN", true},    {"INF", true}};
    struct cli_table table;

    cli_table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    for (size_t i = 0; i < show->entry_count; i++) {
        const struct sidestep_entry *entry = show->entries[i];
        const struct sidestep_tensor_stats *stats = &show->stats[i];
        char *shape;

        if (show->classes[i] != NULL)
            cli_output_note(show->cli, "'%s' has no statistics: only PyTorch can decode it (%s)",
                            entry->name, show->classes[i]);
        if (!has_stats(show, i))
            continue;
        shape = cli_show_shape_text(entry->shape, entry->ndim);
        cli_table_add(&table, NULL, entry->name);
        cli_table_add(&table, NULL, entry->dtype_name);
        cli_table_add(&table, NULL, shape);
        add_number(&table, stats->has_range, stats->min);
        add_number(&table, stats->has_range, stats->max);
        add_number(&table, stats->has_mean, stats->mean);
        cli_table_add_count(&table, stats->nan_count);
        cli_table_add_count(&table, stats->inf_count);
        free(shape);
    }
    fputc('\n', show->cli->out);
    cli_table_print(&table, show->cli->out, show->cli->color);
}

static void json_number(struct cli_json *json, const char *key, bool known, double number)
{
    if (known)
        cli_json_real(json, key, number);
    else
        cli_json_null(json, key);
}

void cli_show_json_stats(struct cli_json *json, const struct sidestep_tensor_stats *stats)
{
    cli_json_open(json, "stats", '{');
    cli_json_uint(json, "elements", stats->element_count);
    json_number(json, "min", stats->has_range, stats->min);
    json_number(json, "max", stats->has_range, stats->max);
    json_number(json, "mean", stats->has_mean, stats->mean);
    cli_json_uint(json, "nan", stats->nan_count);
    cli_json_uint(json, "inf", stats->inf_count);
    cli_json_close(json, '}');
}
