/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xml.h -- reads the XML of a store's answers, element by element.
 *
 * The answer is not trusted: the depth, the number of elements and the length of a text are
 * limited, and a document type declaration (and with it every entity) is refused.
 */
#ifndef OBJECT_XML_H
#define OBJECT_XML_H

#include "base/base.h"

#define XML_MAX_DEPTH 8u
#define XML_MAX_NAME_BYTES 64u
#define XML_MAX_TEXT_BYTES 8192u /* an escaped key has up to 3,072 */
#define XML_MAX_ELEMENTS 65536u  /* 1,000 keys have about 14,000 */

struct xml_reader {
    /* Called at the end of each element, inner ones first.  ${path}:
     * "ListBucketResult/Contents/Key";
     * ${text}: its own characters, decoded, "" if it has elements inside.  False: stop, and fail
     * with ${problem}. */
    bool (*element)(struct xml_reader *reader, const char *path, char *text);
    const char *problem; /* set by ${element} if it returns false */
};

/* Read a whole document.  ECORRUPT: it is not well-formed, or exceeds a limit. */
enum sidestep_status xml_read(const void *bytes, size_t length, struct xml_reader *reader,
                              struct sidestep_error *err);

#endif
