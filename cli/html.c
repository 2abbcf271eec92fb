/* SPDX-License-Identifier: BSD-3-Clause */
/* html.c -- writes parts of an HTML page; see html.h. */
#include "html.h"

#include "escape.h"

#include <string.h>

/* Colours follow the reader's system.  Tables that are too wide scroll, the page does not. */
static const char style[] =
    ":root{color-scheme:light dark;--back:#fff;--text:#1b1f24;--dim:#667;--line:#d8dce2;"
    "--good:#1a7f45;--bad:#c62b2b;--warn:#a86400;--bar:#3b76d4;--tile:#f4f6f9}"
    "@media(prefers-color-scheme:dark){:root{--back:#14171b;--text:#e4e7eb;--dim:#98a0ab;"
    "--line:#333a43;--good:#4cc27d;--bad:#ff7a70;--warn:#e5ab4f;--bar:#6fa3f5;--tile:#1e2329}}"
    "*{box-sizing:border-box}body{margin:0 "
    "auto;padding:16px;max-width:72rem;background:var(--back);"
    "color:var(--text);font:15px/1.5 system-ui,sans-serif}"
    "h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin-top:2rem}"
    ".dim{color:var(--dim)}.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:8px}"
    ".tile{background:var(--tile);border-radius:6px;padding:8px 12px}.tile b{display:block;"
    "font-size:1.25rem}.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;"
    "font-variant-numeric:tabular-nums}th,td{text-align:left;padding:4px 10px 4px 0;"
    "border-bottom:1px solid var(--line);vertical-align:top;white-space:nowrap}"
    "td.text{white-space:normal;overflow-wrap:anywhere;min-width:14rem}"
    "td.number,th.number{text-align:right}svg{width:100%;height:auto;display:block}"
    "svg text{fill:var(--dim);font-size:11px}svg .axis{stroke:var(--line)}";

static void write_entity(FILE *out, const char *text, size_t length)
{
    switch (*text) {
    case '&':
        fputs("&amp;", out);
        break;
    case '<':
        fputs("&lt;", out);
        break;
    case '>':
        fputs("&gt;", out);
        break;
    case '"':
        fputs("&quot;", out);
        break;
    default:
        fwrite(text, 1, length, out);
    }
}

void cli_html_text(FILE *out, const char *text)
{
    size_t left = text != NULL ? strlen(text) : 0;

    if (left == 0)
        fputs("&ndash;", out);
    while (left != 0) {
        uint32_t character;
        size_t length = cli_escape_decode_utf8(text, left, &character);

        if (length == 0 || !cli_escape_is_printable(character))
            fputs("&#xFFFD;", out);
        else
            write_entity(out, text, length);
        text += length != 0 ? length : 1;
        left -= length != 0 ? length : 1;
    }
}

void cli_html_begin(FILE *out, const char *title)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'\"><title>",
          out);
    cli_html_text(out, title);
    fprintf(out, "</title><style>%s</style></head><body>\n", style);
}

void cli_html_end(FILE *out)
{
    fputs("</body></html>\n", out);
}

void cli_html_heads(FILE *out, const char *const *heads)
{
    fputs("<div class=\"wide\"><table><tr>", out);
    for (; *heads != NULL; heads++)
        fprintf(out, "<th>%s</th>", *heads);
    fputs("</tr>\n", out);
}

void cli_html_end_table(FILE *out)
{
    fputs("</table></div>\n", out);
}

void cli_html_cell(FILE *out, const char *class, const char *text)
{
    if (class != NULL)
        fprintf(out, "<td class=\"%s\">", class);
    else
        fputs("<td>", out);
    cli_html_text(out, text);
    fputs("</td>", out);
}
