/* SPDX-License-Identifier: BSD-3-Clause */
/* html.h -- writes parts of an HTML page.  Text from outside shows as text, whatever it holds. */
#ifndef CLI_HTML_H
#define CLI_HTML_H

#include <stdio.h>

/** cli_html_text(out, text): for an element or an attribute in double quotes.  NULL is a dash. */
void cli_html_text(FILE *out, const char *text);

/** cli_html_begin(out, title): up to the begin of the body, with the style of the page. */
void cli_html_begin(FILE *out, const char *title);
void cli_html_end(FILE *out);

/** cli_html_heads(out, heads): begin a table with these columns; NULL ends ${heads}.  Close it with
 * cli_html_end_table(). */
void cli_html_heads(FILE *out, const char *const *heads);
void cli_html_end_table(FILE *out);
/** cli_html_cell(out, style, text): one cell; ${style} is a class of the page, or NULL. */
void cli_html_cell(FILE *out, const char *style, const char *text);

#endif
