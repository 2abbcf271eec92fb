/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_map.c -- parses /proc/self/maps and smaps; see memory_map.h. */
#include "snapshot/memory_map.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

#define MAPS_BYTES ((size_t)64 << 10) /* longer than the longest line */

/* The state of reading a file of /proc; the callback that is called is set. */
struct map_reader {
    void (*parse)(struct map_reader *r, const char *line);
    void (*each)(void *context, uint64_t begin, uint64_t end, enum memory_map_kind kind);
    void (*each_access)(void *context, uint64_t begin, uint64_t end, bool writable);
    void (*each_file)(void *context, uint64_t begin, uint64_t end);
    void (*each_huge)(void *context, const struct memory_map_huge *mapping);
    void *context;
    uint64_t stack;              /* an address in the caller's stack */
    struct memory_map_huge huge; /* the mapping whose lines are being read */
};

const char *memory_map_kind_text(enum memory_map_kind kind)
{
    switch (kind) {
    case MEMORY_MAP_PRIVATE:
        return "its memory is private";
    case MEMORY_MAP_READ_ONLY:
        return "its memory is read-only";
    case MEMORY_MAP_SHARED:
        return "its memory is shared";
    case MEMORY_MAP_FILE:
        return "its memory is a file's";
    case MEMORY_MAP_STACK:
        return "its memory is a stack";
    }
    return "its memory is unknown";
}

/* ${text} follows "begin-end ": "rw-p offset device inode   name".  Returns the name. */
static const char *parse_inode(const char *text, unsigned long long *inode)
{
    char *next;

    (void)strtoull(text + 5, &next, 16); /* offset */
    next += strspn(next, " ");
    next += strcspn(next, " "); /* device */
    *inode = strtoull(next, &next, 10);
    return next + strspn(next, " ");
}

static enum memory_map_kind kind_of(const char *text, uint64_t begin, uint64_t end, uint64_t stack)
{
    unsigned long long inode;

    if (strlen(text) < 5 || text[3] != 'p')
        return MEMORY_MAP_SHARED;
    if (text[0] != 'r' || text[1] != 'w')
        return MEMORY_MAP_READ_ONLY;
    const char *name = parse_inode(text, &inode);
    if (inode != 0)
        return MEMORY_MAP_FILE;
    if (strcmp(name, "[stack]") == 0 || (begin <= stack && stack < end))
        return MEMORY_MAP_STACK;
    return *name == '\0' || strcmp(name, "[heap]") == 0 || strncmp(name, "[anon:", 6) == 0
               ? MEMORY_MAP_PRIVATE
               : MEMORY_MAP_FILE;
}

/* Parse "begin-end text".  Returns the text; NULL: it is another kind of line, and ${begin} and
 * ${end} are unchanged. */
static const char *parse_range(const char *line, uint64_t *begin, uint64_t *end)
{
    char *next;
    uint64_t first = strtoull(line, &next, 16), last;

    if (next == line || *next != '-')
        return NULL;
    last = strtoull(next + 1, &next, 16);
    if (*next != ' ')
        return NULL;
    *begin = first;
    *end = last;
    return next + 1;
}

static void parse_mapping(struct map_reader *r, const char *line)
{
    uint64_t begin, end;
    const char *text = parse_range(line, &begin, &end);

    if (text != NULL)
        r->each(r->context, begin, end, kind_of(text, begin, end, r->stack));
}

static void parse_access(struct map_reader *r, const char *line)
{
    uint64_t begin, end;
    const char *text = parse_range(line, &begin, &end);

    if (text != NULL && text[0] != '\0')
        r->each_access(r->context, begin, end, text[1] == 'w');
}

/* Shared anonymous memory is listed as /dev/zero.  The kernel does not read the memory of most
 * devices for another, and nobody can cut it. */
static bool is_device(const char *name)
{
    static const char devices[] = "/dev/";
    struct stat stat;

    return strncmp(name, devices, sizeof(devices) - 1) == 0 &&
           (strcmp(name, "/dev/zero (deleted)") == 0 ||
            (lstat(name, &stat) == 0 && S_ISCHR(stat.st_mode)));
}

static void parse_file(struct map_reader *r, const char *line)
{
    unsigned long long inode;
    uint64_t begin, end;
    const char *text = parse_range(line, &begin, &end);

    if (text == NULL || strlen(text) < 5)
        return;
    const char *name = parse_inode(text, &inode);
    if (inode != 0 && !is_device(name))
        r->each_file(r->context, begin, end);
}

/* What the ioctl PROCMAP_QUERY takes and gives; the headers of many systems are older. */
struct procmap_query {
    uint64_t size, query_flags, query_addr;
    uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
    uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
    uint64_t vma_name_addr, build_id_addr;
};
#define QUERY_MAPPING _IOWR('f', 17, struct procmap_query)
#define QUERY_THIS_OR_NEXT 0x10u
#define QUERY_OF_FILE 0x20u

/* The first mapping of a file that ends behind ${address}, also of a device.  Returns 0, or an
 * errno: ENOENT if there is none. */
static int query_file(const struct memory_map_files *files, uint64_t address,
                      struct procmap_query *query, char *name, uint32_t size)
{
    *query = (struct procmap_query){.size = sizeof(*query),
                                    .query_flags = QUERY_THIS_OR_NEXT | QUERY_OF_FILE,
                                    .query_addr = address,
                                    .vma_name_size = size,
                                    .vma_name_addr = (uint64_t)(uintptr_t)name};
    if (fault_hit("maps.query"))
        return errno;
    return ioctl(files->fd, QUERY_MAPPING, query) == 0 ? 0 : errno;
}

bool memory_map_files_open(struct memory_map_files *files)
{
    struct procmap_query query;

    *files = (struct memory_map_files){.fd = -1};
    if (!fault_hit("maps.open"))
        files->fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    int failed = files->fd < 0 ? errno : query_file(files, 0, &query, NULL, 0);
    if (failed == 0 || failed == ENOENT)
        return true;
    memory_map_files_close(files);
    return false;
}

void memory_map_files_close(struct memory_map_files *files)
{
    if (files->fd >= 0)
        (void)close(files->fd);
    files->fd = -1;
}

/* The end of a range with ${at} and without a file; ${at} itself: none is known. */
static uint64_t safe_until(const struct memory_map_files *files, uint64_t at)
{
    for (size_t i = 0; i < files->safe_count; i++)
        if (files->safe[i].begin <= at && at < files->safe[i].end)
            return files->safe[i].end;
    return at;
}

static void add_safe(struct memory_map_files *files, uint64_t begin, uint64_t end)
{
    for (size_t i = 0; i < files->safe_count; i++) {
        struct memory_map_range *range = &files->safe[i];
        if (begin > range->end || range->begin > end)
            continue;
        range->begin = min_u64(range->begin, begin);
        range->end = max_u64(range->end, end);
        return;
    }
    if (files->safe_count < ARRAY_LENGTH(files->safe))
        files->safe[files->safe_count++] = (struct memory_map_range){begin, end};
    else
        files->safe[files->replaced++ % ARRAY_LENGTH(files->safe)] =
            (struct memory_map_range){begin, end};
}

/* Ask the kernel about ${at}, and remember what is safe.  False: it is of a file, or there is no
 * answer. */
static bool ask_about(struct memory_map_files *files, uint64_t at)
{
    char name[PATH_MAX] = "";
    struct procmap_query query;
    int failed = query_file(files, at, &query, name, sizeof(name));

    if (failed != 0 && failed != ENOENT)
        return false;
    uint64_t begin = failed == 0 ? query.vma_start : UINT64_MAX;
    if (at < begin)
        add_safe(files, at, begin);
    else if (is_device(name))
        add_safe(files, begin, query.vma_end);
    else
        return false;
    return true;
}

bool memory_map_has_file(struct memory_map_files *files, uint64_t begin, uint64_t end)
{
    for (uint64_t at = begin; (at = safe_until(files, at)) < end;)
        if (!ask_about(files, at))
            return true;
    return false;
}

/* A mapping has a line with its range, and then lines "Name: value".  The last one has flags of two
 * letters. */
static void parse_detail(struct map_reader *r, const char *line)
{
    static const char pages[] = "AnonHugePages:", flags[] = "VmFlags:";
    struct memory_map_huge *huge = &r->huge;
    const char *text = parse_range(line, &huge->begin, &huge->end);

    if (text != NULL) {
        huge->huge_bytes = 0;
        huge->may = kind_of(text, huge->begin, huge->end, r->stack) == MEMORY_MAP_PRIVATE;
    } else if (strncmp(line, pages, strlen(pages)) == 0)
        huge->huge_bytes = strtoull(line + strlen(pages), NULL, 10) * 1024;
    else if (strncmp(line, flags, strlen(flags)) == 0) {
        huge->asks = strstr(line, " hg") != NULL;
        huge->may = huge->may && strstr(line, " nh") == NULL;
        r->each_huge(r->context, huge);
    }
}

/* Parse the complete lines.  Returns how many bytes they have. */
static size_t parse_lines(struct map_reader *r, char *text, size_t length)
{
    size_t done = 0;

    for (char *end; (end = memchr(text + done, '\n', length - done)) != NULL;) {
        *end = '\0';
        r->parse(r, text + done);
        done = (size_t)(end + 1 - text);
    }
    return done;
}

static enum sidestep_status read_lines(struct map_reader *r, const char *path,
                                       struct sidestep_error *err)
{
    OWNED char *text = memory_new(1, MAPS_BYTES);
    OWNED_FD fd = fault_hit("maps.open") ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;

    if (text == NULL)
        return FAIL_NOMEM(err, MAPS_BYTES);
    if (fd < 0)
        return FAIL_SYS(err, "open %s", path);
    for (;;) {
        ssize_t n = TEMP_FAILURE_RETRY(read(fd, text + length, MAPS_BYTES - length));
        if (n < 0)
            return FAIL_SYS(err, "read %s", path);
        if (n == 0)
            return SIDESTEP_OK;
        length += (size_t)n;
        size_t done = parse_lines(r, text, length);
        length -= done;
        memmove(text, text + done, length);
        if (length == MAPS_BYTES)
            return FAIL(err, SIDESTEP_EUNSUPPORTED, "%s has a line of more than %zu bytes", path,
                        length);
    }
}

enum sidestep_status memory_map_read(void (*each)(void *context, uint64_t begin, uint64_t end,
                                                  enum memory_map_kind kind),
                                     void *context, struct sidestep_error *err)
{
    struct map_reader r = {
        .parse = parse_mapping, .each = each, .context = context, .stack = (uint64_t)(uintptr_t)&r};

    return read_lines(&r, "/proc/self/maps", err);
}

enum sidestep_status memory_map_read_access(void (*each)(void *context, uint64_t begin,
                                                         uint64_t end, bool writable),
                                            void *context, struct sidestep_error *err)
{
    struct map_reader r = {.parse = parse_access, .each_access = each, .context = context};

    return read_lines(&r, "/proc/self/maps", err);
}

enum sidestep_status memory_map_read_files(void (*each)(void *context, uint64_t begin,
                                                        uint64_t end),
                                           void *context, struct sidestep_error *err)
{
    struct map_reader r = {.parse = parse_file, .each_file = each, .context = context};

    return read_lines(&r, "/proc/self/maps", err);
}

enum sidestep_status memory_map_read_huge(void (*each)(void *context,
                                                       const struct memory_map_huge *mapping),
                                          void *context, struct sidestep_error *err)
{
    struct map_reader r = {.parse = parse_detail,
                           .each_huge = each,
                           .context = context,
                           .stack = (uint64_t)(uintptr_t)&r};

    return read_lines(&r, "/proc/self/smaps", err);
}
