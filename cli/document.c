/* SPDX-License-Identifier: BSD-3-Clause */
/* document.c -- prints a document as text for a terminal, or in roff. */
#include "document.h"

#include "table.h"

#include <sidestep/sidestep.h>

#include <ctype.h>
#include <string.h>

#define TEXT_COLUMNS 79
#define ITEM_INDENT 17 /* the text of a shorter term is on the same line */
#define NUMBER_TEXT_(x) #x
#define NUMBER_TEXT(x) NUMBER_TEXT_(x)

/* Roff interprets '.' and "'" at the start of a line, '\' anywhere, and prints '-' as a hyphen. */
static void roff_escape(FILE *out, const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", out);
    for (; *text != '\0'; text++) {
        if (*text == '\\')
            fputs("\\(rs", out);
        else if (*text == '-')
            fputs("\\-", out);
        else if (*text == '\'')
            fputs("\\(aq", out);
        else if (*text == '`')
            fputs("\\(ga", out);
        else if (*text == '^')
            fputs("\\(ha", out);
        else if (*text == '~')
            fputs("\\(ti", out);
        else if (*text == ',' && text[1] != ' ' && text[1] != '\0')
            fputs(",\\:", out); /* allow a line break in long JSON */
        else
            fputc(*text, out);
    }
}

static void roff_line(FILE *out, const char *before, const char *text, const char *after)
{
    fputs(before, out);
    roff_escape(out, text);
    fputs(after, out);
}

/* Fill lines with the words of ${text}, indented by ${indent} spaces.  The first line has ${column}
 * columns already. */
static void text_fill(FILE *out, const char *text, size_t indent, size_t column)
{
    bool begun = false;

    while (*text != '\0') {
        size_t length = strcspn(text, " ");

        if (begun && column + 1 + length > TEXT_COLUMNS) {
            fputc('\n', out);
            column = 0;
            begun = false;
        }
        if (begun)
            column += (size_t)fprintf(out, " ");
        else if (column < indent)
            column += (size_t)fprintf(out, "%*s", (int)(indent - column), "");
        begun = true;
        column += fwrite(text, 1, length, out);
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static const char *bold(const struct cli_document *document)
{
    return document->color ? CLI_STYLE_BOLD : NULL;
}

void cli_document_title(struct cli_document *document, const char *page, const char *summary)
{
    static const char version[] = NUMBER_TEXT(SIDESTEP_VERSION_MAJOR) "." NUMBER_TEXT(
        SIDESTEP_VERSION_MINOR) "." NUMBER_TEXT(SIDESTEP_VERSION_PATCH);

    if (document->roff) {
        fputs(".\\\" Made by tools/make-man from the tables in cli/commands_*.c.\n.TH ",
              document->out);
        for (const char *c = page; *c != '\0'; c++)
            fputc(toupper((unsigned char)*c), document->out);
        fprintf(document->out, " 1 \"\" \"sidestep %s\" \"sidestep\"\n.nh\n.ad l\n", version);
    }
    cli_document_section(document, "NAME");
    if (document->roff) {
        roff_line(document->out, "", page, " \\- ");
        roff_line(document->out, "", summary, "\n");
    } else {
        fprintf(document->out, "  %s - %s\n", page, summary);
    }
}

void cli_document_section(struct cli_document *document, const char *title)
{
    if (document->roff) {
        fprintf(document->out, ".SH %s\n", title);
    } else {
        if (document->begun)
            fputc('\n', document->out);
        cli_table_style(document->out, bold(document), title);
        fputc('\n', document->out);
    }
    document->begun = true;
    document->after_paragraph = false;
}

void cli_document_command(struct cli_document *document, const char *text)
{
    if (document->roff)
        roff_line(document->out, ".PP\n.nf\n\\fB", text, "\\fR\n.fi\n");
    else
        fprintf(document->out, "  %s\n", text);
}

void cli_document_paragraph(struct cli_document *document, const char *text)
{
    if (document->roff) {
        roff_line(document->out, ".PP\n", text, "\n");
    } else {
        if (document->after_paragraph)
            fputc('\n', document->out);
        text_fill(document->out, text, 2, 0);
    }
    document->after_paragraph = true;
}

void cli_document_item(struct cli_document *document, const char *term, const char *text)
{
    size_t column = 2 + strlen(term);

    if (document->roff) {
        roff_line(document->out, ".TP 14\n\\fB", term, "\\fR\n");
        roff_line(document->out, "", text, "\n");
        return;
    }
    fputs("  ", document->out);
    cli_table_style(document->out, bold(document), term);
    if (column + 2 > ITEM_INDENT) {
        fputc('\n', document->out);
        column = 0;
    }
    text_fill(document->out, text, ITEM_INDENT, column);
}
