/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pickle_build.h -- builds pickles from a notation close to Python's, so that a test shows its
 * input:
 *
 *      None True False 12 'text' [1, 2] (1,) {'key': 1}
 *      <torch Size>                    a symbol
 *      <torch Size>((2, 3))            a call
 *      <module Class>{'field': 1}      an object with state; the state may also be a tuple or list
 *      <module Class>.                 an object without state
 *      $Name                           <torch.distributed.checkpoint.metadata Name>
 *
 * Protocol 2, no memo. Aborts on anything else.
 */
#ifndef SUPPORT_PICKLE_BUILD_H
#define SUPPORT_PICKLE_BUILD_H

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"

static inline const char *pickle_build_expression(struct buffer *out, const char *at);

static inline const char *pickle_build_space(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

/* Parse expressions until ${end}, with ',' or ':' between them. ${*count}: how many. */
static inline const char *pickle_build_items(struct buffer *out, const char *at, char end,
                                             size_t *count)
{
    *count = 0;
    for (at = pickle_build_space(at); *at != end; at = pickle_build_space(at)) {
        at = pickle_build_space(pickle_build_expression(out, at));
        at += *at == ',' || *at == ':';
        ++*count;
    }
    return at + 1;
}

static inline const char *pickle_build_symbol(struct buffer *out, const char *at)
{
    const char *end, *space;

    buffer_put_u8(out, 'c');
    if (*at == '$') {
        for (end = ++at; isalnum((unsigned char)*end) || *end == '_'; end++)
            ;
        buffer_printf(out, "torch.distributed.checkpoint.metadata\n%.*s\n", (int)(end - at), at);
    } else {
        end = strchr(at, '>');
        space = memchr(at, ' ', (size_t)(end - at));
        buffer_printf(out, "%.*s\n%.*s\n", (int)(space - at - 1), at + 1, (int)(end - space - 1),
                      space + 1);
        end++;
    }
    if (*end == '(') {
        end = pickle_build_expression(out, end);
        buffer_put_u8(out, 'R');
    } else if (*end == '{' || *end == '[' || *end == '.') {
        buffer_put(out, ")\x81", 2);
        if (*end == '.')
            return end + 1;
        /* A tuple as state is written [[...]]: (...) would be a call. */
        bool is_tuple = strncmp(end, "[[", 2) == 0;
        if (is_tuple) {
            size_t count;
            buffer_put_u8(out, '(');
            end = pickle_build_items(out, end + 2, ']', &count) + 1;
            buffer_put_u8(out, 't');
        } else {
            end = pickle_build_expression(out, end);
        }
        buffer_put_u8(out, 'b');
    }
    return end;
}

/* Parse an integer of any length. */
static inline const char *pickle_build_number(struct buffer *out, const char *at)
{
    size_t length = strspn(at, "-0123456789");

    if (length == 0)
        abort();
    buffer_printf(out, "L%.*sL\n", (int)length, at);
    return at + length;
}

static inline const char *pickle_build_expression(struct buffer *out, const char *at)
{
    size_t count;

    at = pickle_build_space(at);
    if (strncmp(at, "None", 4) == 0 || strncmp(at, "True", 4) == 0) {
        buffer_put_u8(out, *at == 'N' ? 'N' : 0x88);
        return at + 4;
    }
    if (strncmp(at, "False", 5) == 0) {
        buffer_put_u8(out, 0x89);
        return at + 5;
    }
    switch (*at) {
    case '\'': {
        size_t length = strcspn(at + 1, "'");
        buffer_put_u8(out, 'X');
        buffer_put_u32le(out, (uint32_t)length);
        buffer_put(out, at + 1, length);
        return at + length + 2;
    }
    case '[':
        buffer_put(out, "](", 2);
        at = pickle_build_items(out, at + 1, ']', &count);
        buffer_put_u8(out, 'e');
        return at;
    case '(':
        buffer_put_u8(out, '(');
        at = pickle_build_items(out, at + 1, ')', &count);
        buffer_put_u8(out, 't');
        return at;
    case '{':
        buffer_put(out, "}(", 2);
        at = pickle_build_items(out, at + 1, '}', &count);
        buffer_put_u8(out, 'u');
        return at;
    case '<':
    case '$':
        return pickle_build_symbol(out, at);
    default:
        return pickle_build_number(out, at);
    }
}

/* Build the pickle of ${notation}; free it with buffer_release(). */
static inline struct buffer pickle_build(const char *notation)
{
    struct buffer out = {0};

    buffer_put(&out, "\x80\x02", 2);
    if (*pickle_build_space(pickle_build_expression(&out, notation)) != '\0')
        abort();
    buffer_put_u8(&out, '.');
    if (out.failed)
        abort();
    return out;
}

#endif
