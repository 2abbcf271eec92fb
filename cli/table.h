/* SPDX-License-Identifier: BSD-3-Clause */
/* table.h -- prints aligned columns.  Cells are escaped when they are added. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define CLI_TABLE_MAX_COLUMNS 10

struct cli_column {
    const char *title;
    bool right; /* align numbers at their last digit */
};

struct cli_table {
    const struct cli_column *columns;
    size_t column_count;
    char **cells; /* row by row */
    const char **styles;
    size_t cell_count, cell_capacity;
};

/* Colours, as the numbers of ECMA-48's "select graphic rendition". */
#define CLI_STYLE_BOLD "1"
#define CLI_STYLE_DIM "2"
#define CLI_STYLE_RED "31"
#define CLI_STYLE_GREEN "32"
#define CLI_STYLE_YELLOW "33"

void cli_table_init(struct cli_table *table, const struct cli_column *columns, size_t count);
/** cli_table_add(table, style, text): add a cell, from left to right, top to bottom; a NULL
 * ${style} is plain. */
void cli_table_add(struct cli_table *table, const char *style, const char *text);
/** cli_table_add_escaped(table, style, text): add escaped text; takes ownership of it. */
void cli_table_add_escaped(struct cli_table *table, const char *style, char *text);
/** cli_table_add_size(table, bytes), cli_table_add_count(table, count): add a number. */
void cli_table_add_size(struct cli_table *table, unsigned long long bytes);
void cli_table_add_count(struct cli_table *table, unsigned long long count);
/** cli_table_print(table, out, color): print titles and rows, and release the table. */
void cli_table_print(struct cli_table *table, FILE *out, bool color);

/** cli_table_style(out, style, text): print ${text} unescaped, in a style; NULL is plain. */
void cli_table_style(FILE *out, const char *style, const char *text);

#endif
