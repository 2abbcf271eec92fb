/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_map.c -- see memory_map.h. */
#include "snapshot/memory_map.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/memory.h"
#include "base/owned.h"

#define MAPS_BYTES ((size_t)64 << 10) /* longer than the longest line */

struct reading {
    void (*each)(void *context, uint64_t begin, uint64_t end, enum memory_kind kind);
    void *context;
    uint64_t stack; /* an address in the caller's */
};

const char *memory_kind_text(enum memory_kind kind)
{
    switch (kind) {
    case MEMORY_PRIVATE:
        return "its memory is private";
    case MEMORY_READ_ONLY:
        return "its memory is read-only";
    case MEMORY_SHARED:
        return "its memory is shared";
    case MEMORY_FILE:
        return "its memory is a file's";
    case MEMORY_STACK:
        return "its memory is a stack";
    }
    return "its memory is unknown";
}

/* After "begin-end ": "rw-p offset device inode   name". */
static enum memory_kind kind_of(const char *text, uint64_t begin, uint64_t end, uint64_t stack)
{
    char *next;

    if (strlen(text) < 5 || text[3] != 'p')
        return MEMORY_SHARED;
    if (text[0] != 'r' || text[1] != 'w')
        return MEMORY_READ_ONLY;
    (void)strtoull(text + 5, &next, 16); /* offset */
    next += strspn(next, " ");
    next += strcspn(next, " ");         /* device */
    if (strtoull(next, &next, 10) != 0) /* inode */
        return MEMORY_FILE;
    next += strspn(next, " ");
    if (strcmp(next, "[stack]") == 0 || (begin <= stack && stack < end))
        return MEMORY_STACK;
    return *next == '\0' || strcmp(next, "[heap]") == 0 || strncmp(next, "[anon:", 6) == 0
               ? MEMORY_PRIVATE
               : MEMORY_FILE;
}

static void take_line(const struct reading *r, const char *line)
{
    char *next;
    uint64_t begin = strtoull(line, &next, 16);

    if (*next != '-')
        return;
    uint64_t end = strtoull(next + 1, &next, 16);
    if (*next == ' ')
        r->each(r->context, begin, end, kind_of(next + 1, begin, end, r->stack));
}

/* Lines that are complete; returns how many bytes they had. */
static size_t take_lines(const struct reading *r, char *text, size_t length)
{
    size_t done = 0;

    for (char *end; (end = memchr(text + done, '\n', length - done)) != NULL;) {
        *end = '\0';
        take_line(r, text + done);
        done = (size_t)(end + 1 - text);
    }
    return done;
}

enum sidestep_status memory_map_read(void (*each)(void *context, uint64_t begin, uint64_t end,
                                                  enum memory_kind kind),
                                     void *context, struct sidestep_error *err)
{
    struct reading r = {.each = each, .context = context, .stack = (uint64_t)(uintptr_t)&r};
    OWNED char *text = memory_new(1, MAPS_BYTES);
    OWNED_FD fd = fault_hit("maps.open") ? -1 : open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    size_t length = 0;

    if (text == NULL)
        return FAIL_NOMEM(err, MAPS_BYTES);
    if (fd < 0)
        return FAIL_SYS(err, "open /proc/self/maps");
    for (;;) {
        ssize_t n = TEMP_FAILURE_RETRY(read(fd, text + length, MAPS_BYTES - length));
        if (n < 0)
            return FAIL_SYS(err, "read /proc/self/maps");
        if (n == 0)
            return SIDESTEP_OK;
        length += (size_t)n;
        size_t done = take_lines(&r, text, length);
        length -= done;
        memmove(text, text + done, length);
        if (length == MAPS_BYTES)
            return FAIL(err, SIDESTEP_EUNSUPPORTED, "/proc/self/maps: a line of %zu bytes", length);
    }
}
