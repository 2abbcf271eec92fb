/* SPDX-License-Identifier: BSD-3-Clause */
/* extra_file.c -- see extra_file.h. */
#include "format/extra_file.h"

#include <inttypes.h>
#include <locale.h>
#include <string.h>
#include <wctype.h>

#include "format/file_name.h"
#include "model/model.h"

/* The code point at ${*text}, which is valid UTF-8; moves ${*text} past it. */
static uint32_t take_code(const char **text)
{
    const unsigned char *at = (const unsigned char *)*text;
    size_t length = at[0] < 0x80 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    static const uint8_t masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = at[0] & masks[length];

    for (size_t i = 1; i < length; i++)
        code = code << 6 | (at[i] & 0x3fu);
    *text += length;
    return code;
}

/* Is it a combining character? A letter with one has a second spelling, as one character, and some
 * file systems take the two for one name. */
static bool is_combining(uint32_t code)
{
    static const uint32_t ranges[][2] = {{0x300, 0x36f},   {0x483, 0x487},   {0x1ab0, 0x1aff},
                                         {0x1dc0, 0x1dff}, {0x20d0, 0x20ff}, {0x3099, 0x309a},
                                         {0xfe20, 0xfe2f}};

    for (size_t i = 0; i < ARRAY_LENGTH(ranges); i++)
        if (code >= ranges[i][0] && code <= ranges[i][1])
            return true;
    return false;
}

/* Is it a name that files of sidestep or of torch begin with? Case does not matter. */
static bool is_reserved(const char *component)
{
    static const char *const beginnings[] = {".sidestep", ".metadata"};

    for (size_t i = 0; i < ARRAY_LENGTH(beginnings); i++)
        if (strncasecmp(component, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return strncmp(component, "__", 2) == 0 && component[2] >= '0' && component[2] <= '9';
}

static const char *find_problem(const char *name)
{
    size_t length = strnlen(name, EXTRA_FILE_MAX_NAME_BYTES + 1);
    unsigned depth = 1;

    if (length > EXTRA_FILE_MAX_NAME_BYTES)
        return "it has more than 1,024 bytes";
    if (!utf8_is_valid(name, length))
        return "it is not UTF-8";
    if (!file_name_is_beneath(name, length))
        return "it is not a relative path inside of the checkpoint";
    for (const char *at = name; *at != '\0';)
        if (is_combining(take_code(&at)))
            return "it has a combining character: write the letter and its accent as one character";
    for (const char *at = name; at != NULL; at = strchr(at, '/')) {
        at += *at == '/';
        if (is_reserved(at))
            return "names that begin like this belong to the checkpoint's own files";
        depth += strchr(at, '/') != NULL;
    }
    return depth > EXTRA_FILE_MAX_DEPTH ? "it lies more than 8 levels deep" : NULL;
}

enum sidestep_status extra_file_check_name(const char *name, enum sidestep_status status,
                                           struct sidestep_error *err)
{
    const char *problem = find_problem(name);

    if (problem == NULL)
        return SIDESTEP_OK;
    return FAIL(err, status, "a file of a checkpoint cannot be called '%s': %s",
                display_name(name).text, problem);
}

enum sidestep_status extra_file_check(const struct extra_file *file, enum sidestep_status status,
                                      struct sidestep_error *err)
{
    struct display_text name = display_name(file->name);

    TRY(extra_file_check_name(file->name, status, err));
    if (file->bytes > SIDESTEP_MAX_FILE_BYTES)
        return FAIL(err, status, "file '%s': %" PRIu64 " bytes (at most %llu)", name.text,
                    file->bytes, (unsigned long long)SIDESTEP_MAX_FILE_BYTES);
    if (file->rank >= SIDESTEP_MAX_RANKS)
        return FAIL(err, status, "file '%s': rank %u", name.text, file->rank);
    if (file->is_alias && (file->bytes != 0 || file->stored != NULL))
        return FAIL(err, status, "file '%s' is a link and has bytes", name.text);
    if (file->stored == NULL)
        return SIDESTEP_OK;
    struct file_name stored = file_name_parse(file->stored);
    if (stored.kind != FILE_NAME_EXTRA || stored.rank != file->rank)
        return FAIL(err, status, "file '%s' is stored as '%s'", name.text,
                    display_name(file->stored).text);
    return SIDESTEP_OK;
}

/* ---- sets of names */

void extra_file_names_release(struct extra_file_names *names)
{
    hash_table_release(&names->names);
    arena_release(&names->arena);
}

static bool is_ascii(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text >= 0x80)
            return false;
    return true;
}

/* Write ${name} without case to ${out}. A locale of Unicode is only needed for other letters than
 * those of ASCII; on a system without one, these keep their case. */
static void fold(const char *name, struct buffer *out)
{
    locale_t unicode =
        is_ascii(name) ? (locale_t)0 : newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);

    while (*name != '\0') {
        uint32_t code = take_code(&name);
        char bytes[4];
        if (code >= 'A' && code <= 'Z')
            code += 'a' - 'A';
        else if (code >= 0x80 && unicode != (locale_t)0)
            code = (uint32_t)towlower_l((wint_t)code, unicode);
        buffer_put(out, bytes, utf8_put(bytes, code));
    }
    if (unicode != (locale_t)0)
        freelocale(unicode);
    buffer_put_u8(out, '\0');
}

enum kind { IS_DIRECTORY, IS_FILE, KINDS };

/* Add the first ${length} bytes of ${folded}, for a file of rank ${rank}. ${*existing}: as of
 * hash_table_insert(). */
static enum sidestep_status add(struct extra_file_names *names, const char *folded, size_t length,
                                enum kind kind, uint32_t rank, size_t *existing,
                                struct sidestep_error *err)
{
    const char *copy = arena_strndup(&names->arena, folded, length);

    return copy != NULL
               ? hash_table_insert(&names->names, copy, (size_t)rank * KINDS + kind, existing, err)
               : FAIL_NOMEM(err, length + 1);
}

static enum sidestep_status report_collision(const struct extra_file *file, size_t existing,
                                             const char *what, enum sidestep_status status,
                                             struct sidestep_error *err)
{
    struct display_text name = display_name(file->name);

    if (existing / KINDS == file->rank)
        return FAIL(err, status, "file '%s': another file of this rank %s", name.text, what);
    return FAIL(err, status, "file '%s' of rank %u: a file of rank %zu %s", name.text, file->rank,
                existing / KINDS, what);
}

enum sidestep_status extra_file_names_add(struct extra_file_names *names,
                                          const struct extra_file *file,
                                          enum sidestep_status status, struct sidestep_error *err)
{
    OWNED_BUFFER folded = {0};
    size_t existing;

    fold(file->name, &folded);
    TRY(buffer_check(&folded, err));
    const char *text = (const char *)folded.bytes;
    for (const char *at = text; (at = strchr(at, '/')) != NULL; at++) {
        TRY(add(names, text, (size_t)(at - text), IS_DIRECTORY, file->rank, &existing, err));
        if (existing != SIZE_MAX && existing % KINDS == IS_FILE)
            return report_collision(file, existing, "has the name of its directory", status, err);
    }
    TRY(add(names, text, strlen(text), IS_FILE, file->rank, &existing, err));
    if (existing == SIZE_MAX)
        return SIDESTEP_OK;
    return report_collision(file, existing,
                            existing % KINDS == IS_FILE ? "has the same name, but for case"
                                                        : "lies in a directory of this name",
                            status, err);
}
