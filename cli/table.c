/* SPDX-License-Identifier: BSD-3-Clause */
/* table.c -- prints aligned columns. */
#include "table.h"

#include "escape.h"
#include "memory.h"
#include "format_units.h"

#include <assert.h>
#include <stdlib.h>

void cli_table_init(struct cli_table *table, const struct cli_column *columns, size_t count)
{
    assert(count >= 1 && count <= CLI_TABLE_MAX_COLUMNS);
    *table = (struct cli_table){.columns = columns, .column_count = count};
}

void cli_table_add_escaped(struct cli_table *table, const char *style, char *text)
{
    if (table->cell_count == table->cell_capacity) {
        table->cell_capacity = table->cell_capacity * 2 + 64;
        table->cells = cli_memory_resize(table->cells, table->cell_capacity, sizeof(*table->cells));
        table->styles =
            cli_memory_resize(table->styles, table->cell_capacity, sizeof(*table->styles));
    }
    table->styles[table->cell_count] = style;
    table->cells[table->cell_count++] = text;
}

void cli_table_add(struct cli_table *table, const char *style, const char *text)
{
    cli_table_add_escaped(table, style, cli_escape_text(text));
}

void cli_table_add_size(struct cli_table *table, unsigned long long bytes)
{
    char text[CLI_FORMAT_UNITS_BYTES];

    cli_format_units_size(text, bytes);
    cli_table_add(table, NULL, text);
}

void cli_table_add_count(struct cli_table *table, unsigned long long count)
{
    char text[CLI_FORMAT_UNITS_BYTES];

    snprintf(text, sizeof(text), "%llu", count);
    cli_table_add(table, NULL, text);
}

void cli_table_style(FILE *out, const char *style, const char *text)
{
    if (style == NULL)
        fputs(text, out);
    else
        fprintf(out, "\033[%sm%s\033[0m", style, text);
}

static void print_cell(FILE *out, const struct cli_table *table, size_t column, const char *text,
                       const char *style, size_t width)
{
    size_t own = cli_escape_width(text);
    size_t padding = width > own ? width - own : 0;
    bool last = column + 1 == table->column_count;

    if (table->columns[column].right)
        fprintf(out, "%*s", (int)padding, "");
    cli_table_style(out, style, text);
    if (!table->columns[column].right && !last)
        fprintf(out, "%*s", (int)padding, "");
    fputs(last ? "\n" : "  ", out);
}

void cli_table_print(struct cli_table *table, FILE *out, bool color)
{
    size_t columns = table->column_count, widths[CLI_TABLE_MAX_COLUMNS];

    assert(table->cell_count % columns == 0);
    for (size_t i = 0; i < columns; i++)
        widths[i] = cli_escape_width(table->columns[i].title);
    for (size_t i = 0; i < table->cell_count; i++) {
        size_t width = cli_escape_width(table->cells[i]);

        if (width > widths[i % columns])
            widths[i % columns] = width;
    }
    for (size_t i = 0; i < columns; i++)
        print_cell(out, table, i, table->columns[i].title, color ? CLI_STYLE_BOLD : NULL,
                   widths[i]);
    for (size_t i = 0; i < table->cell_count; i++) {
        print_cell(out, table, i % columns, table->cells[i], color ? table->styles[i] : NULL,
                   widths[i % columns]);
        free(table->cells[i]);
    }
    free(table->cells);
    free(table->styles);
    *table = (struct cli_table){.columns = table->columns, .column_count = columns};
}
