/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * document.h -- prints a document: as help on a terminal, or as a man page in roff.  The content is
 * written once, so the two cannot differ.
 */
#ifndef CLI_DOCUMENT_H
#define CLI_DOCUMENT_H

#include <stdbool.h>
#include <stdio.h>

struct cli_document {
    FILE *out;
    bool roff;
    bool color;
    bool begun;           /* a section precedes: text needs an empty line */
    bool after_paragraph; /* a paragraph precedes */
};

/** cli_document_title(document, page, summary): "sidestep-ls", "list ...", section 1. */
void cli_document_title(struct cli_document *document, const char *page, const char *summary);
void cli_document_section(struct cli_document *document, const char *title);
/** cli_document_command(document, text): a command line. */
void cli_document_command(struct cli_document *document, const char *text);
void cli_document_paragraph(struct cli_document *document, const char *text);
/** cli_document_item(document, term, text): an entry of a list. */
void cli_document_item(struct cli_document *document, const char *term, const char *text);

#endif
