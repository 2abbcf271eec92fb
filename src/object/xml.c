/* SPDX-License-Identifier: BSD-3-Clause */
/* xml.c -- reads XML with Expat. */
#include "object/xml.h"

#include <expat.h>
#include <limits.h>

#define XML_MAX_PATH_BYTES (XML_MAX_DEPTH * (XML_MAX_NAME_BYTES + 1u))

struct parse {
    XML_Parser parser;
    struct xml_reader *reader;
    const char *problem; /* why the document is refused; NULL: it is not */
    unsigned depth;
    unsigned elements;
    size_t path_length;
    char path[XML_MAX_PATH_BYTES];
    size_t text_length;
    char text[XML_MAX_TEXT_BYTES];
};

static void stop(struct parse *parse, const char *problem)
{
    if (parse->problem == NULL)
        parse->problem = problem;
    (void)XML_StopParser(parse->parser, XML_FALSE);
}

static void XMLCALL on_start(void *context, const XML_Char *name, const XML_Char **attributes)
{
    struct parse *parse = context;
    size_t length = strlen(name);

    (void)attributes;
    if (++parse->elements > XML_MAX_ELEMENTS) {
        stop(parse, "it has too many elements");
        return;
    }
    if (++parse->depth > XML_MAX_DEPTH || length > XML_MAX_NAME_BYTES) {
        stop(parse, "its elements are too deep, or their names too long");
        return;
    }
    if (parse->path_length != 0)
        parse->path[parse->path_length++] = '/';
    memcpy(parse->path + parse->path_length, name, length);
    parse->path_length += length;
    parse->path[parse->path_length] = '\0';
    parse->text_length = 0;
}

static void XMLCALL on_end(void *context, const XML_Char *name)
{
    struct parse *parse = context;
    size_t length = strlen(name);

    if (parse->problem != NULL)
        return;
    parse->text[parse->text_length] = '\0';
    if (!parse->reader->element(parse->reader, parse->path, parse->text)) {
        stop(parse, parse->reader->problem);
        return;
    }
    parse->depth--;
    parse->path_length -= length;
    if (parse->path_length != 0)
        parse->path_length--; /* the slash */
    parse->path[parse->path_length] = '\0';
    parse->text_length = 0;
}

static void XMLCALL on_text(void *context, const XML_Char *text, int length)
{
    struct parse *parse = context;

    if (parse->problem != NULL)
        return;
    if ((size_t)length >= sizeof(parse->text) - parse->text_length) {
        stop(parse, "a text in it is too long");
        return;
    }
    memcpy(parse->text + parse->text_length, text, (size_t)length);
    parse->text_length += (size_t)length;
}

static void XMLCALL on_doctype(void *context, const XML_Char *name, const XML_Char *system,
                               const XML_Char *public, int has_subset)
{
    (void)name;
    (void)system;
    (void)public;
    (void)has_subset;
    stop(context, "it has a document type declaration");
}

static enum sidestep_status parse_all(struct parse *parse, const void *bytes, size_t length,
                                      struct sidestep_error *err)
{
    if (length > INT_MAX)
        return FAIL(err, SIDESTEP_ECORRUPT, "the answer is too long to be read as XML");
    XML_SetUserData(parse->parser, parse);
    XML_SetElementHandler(parse->parser, on_start, on_end);
    XML_SetCharacterDataHandler(parse->parser, on_text);
    XML_SetStartDoctypeDeclHandler(parse->parser, on_doctype);
    if (XML_Parse(parse->parser, bytes, (int)length, XML_TRUE) == XML_STATUS_OK)
        return SIDESTEP_OK;
    if (parse->problem != NULL)
        return FAIL(err, SIDESTEP_ECORRUPT, "the answer's XML is refused: %s", parse->problem);
    if (XML_GetErrorCode(parse->parser) == XML_ERROR_NO_MEMORY)
        return FAIL_NOMEM(err, length);
    return FAIL(err, SIDESTEP_ECORRUPT, "the answer is not well-formed XML: %s",
                XML_ErrorString(XML_GetErrorCode(parse->parser)));
}

enum sidestep_status xml_read(const void *bytes, size_t length, struct xml_reader *reader,
                              struct sidestep_error *err)
{
    OWNED struct parse *parse = memory_new(1, sizeof(*parse));
    const char *text = bytes;

    /* A store may send white space while it works, to keep the connection alive. */
    while (length > 0 && (*text == ' ' || *text == '\n' || *text == '\r' || *text == '\t')) {
        text++;
        length--;
    }
    if (parse == NULL)
        return FAIL_NOMEM(err, sizeof(*parse));
    parse->reader = reader;
    parse->parser = fault_hit("xml") ? NULL : XML_ParserCreate(NULL);
    if (parse->parser == NULL)
        return FAIL_NOMEM(err, sizeof(*parse));
    enum sidestep_status status = parse_all(parse, text, length, err);
    XML_ParserFree(parse->parser);
    return status;
}
