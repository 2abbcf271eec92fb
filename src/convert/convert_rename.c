/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * convert_rename.c -- renames tensors and objects: by sed's "s" command with extended regular
 * expressions, and by a table.
 */
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit.h"
#include "convert/convert.h"
#include "format/format.h"
#include "model/model.h"

#define MAX_EXPRESSION 4096u /* bytes */
#define MAX_EXPRESSIONS 256u
#define MAX_MAPPING_BYTES ((uint64_t)256 << 20)
#define GROUPS 10

struct expression {
    regex_t regex;
    bool compiled;
    bool all; /* replace all matches, not only the first */
    const char *replacement;
};

struct convert_renames {
    struct arena arena;
    struct expression *expressions;
    size_t count;
    struct hash_table mapping; /* old name to ... */
    const char **mapped;       /* ... new name */
    size_t mapped_count, mapped_capacity;
};

void convert_renames_free(struct convert_renames **out)
{
    struct convert_renames *r = *out;

    if (r == NULL)
        return;
    *out = NULL;
    for (size_t i = 0; i < r->count; i++)
        if (r->expressions[i].compiled)
            regfree(&r->expressions[i].regex);
    free(r->expressions);
    free(r->mapped);
    hash_table_release(&r->mapping);
    arena_release(&r->arena);
    free(r);
}

/* Read up to the next ${delimiter} without a backslash before it; "\DELIMITER" is that character.
 * NULL: there is none. */
static char *take_field(struct arena *arena, const char **at, char delimiter)
{
    char *field = arena_strndup(arena, *at, strlen(*at)), *to = field;

    for (const char *from = *at; field != NULL && *from != '\0'; from++) {
        if (*from == delimiter) {
            *to = '\0';
            *at = from + 1;
            return field;
        }
        if (*from == '\\' && from[1] != '\0' && from[1] != delimiter)
            *to++ = *from++;
        else if (*from == '\\' && from[1] == delimiter)
            from++;
        *to++ = *from;
    }
    return NULL;
}

static enum sidestep_status compile(struct convert_renames *r, const char *text,
                                    struct expression *out, struct sidestep_error *err)
{
    const char *at = text + 2;
    char why[256];

    if (text[0] != 's' || text[1] == '\0' || text[1] == '\\' || strlen(text) > MAX_EXPRESSION)
        return FAIL(err, SIDESTEP_EINVAL, "rename '%.200s': write s/PATTERN/REPLACEMENT/", text);
    char *pattern = take_field(&r->arena, &at, text[1]);
    char *replacement = pattern != NULL ? take_field(&r->arena, &at, text[1]) : NULL;
    if (replacement == NULL || (at[0] != '\0' && strcmp(at, "g") != 0))
        return FAIL(err, SIDESTEP_EINVAL, "rename '%.200s': write s%cPATTERN%cREPLACEMENT%c", text,
                    text[1], text[1], text[1]);
    int failed = regcomp(&out->regex, pattern, REG_EXTENDED);
    if (failed != 0) {
        regerror(failed, &out->regex, why, sizeof(why));
        return FAIL(err, failed == REG_ESPACE ? SIDESTEP_ENOMEM : SIDESTEP_EINVAL,
                    "rename '%.200s': %s", text, why);
    }
    out->compiled = true;
    out->all = at[0] == 'g';
    out->replacement = replacement;
    return SIDESTEP_OK;
}

static enum sidestep_status add_mapped(struct convert_renames *r, const char *from, const char *to,
                                       struct sidestep_error *err)
{
    size_t existing;

    TRY_GROW(r->mapped, r->mapped_capacity, r->mapped_count, err);
    TRY(hash_table_insert(&r->mapping, from, r->mapped_count, &existing, err));
    if (existing != SIZE_MAX)
        return FAIL(err, SIDESTEP_EINVAL, "'%s' occurs twice", display_name(from).text);
    r->mapped[r->mapped_count++] = to;
    return SIDESTEP_OK;
}

static enum sidestep_status parse_mapping(struct convert_renames *r, char *text,
                                          struct sidestep_error *err)
{
    struct json_reader json = json_reader_init(text);

    json_reader_enter(&json, '{');
    for (bool first = true; json_reader_next(&json, '}', &first);) {
        const char *from = json_reader_key(&json);
        const char *to = json_reader_string(&json);

        if (json.problem == NULL)
            TRY(add_mapped(r, from, to, err));
    }
    json_reader_end(&json);
    if (json.problem != NULL)
        return FAIL(err, SIDESTEP_EINVAL, "byte %zu: %s", json.position, json.problem);
    return SIDESTEP_OK;
}

static enum sidestep_status read_mapping(struct convert_renames *r, const char *path,
                                         struct sidestep_error *err)
{
    OWNED_STORE *store = NULL;
    OWNED_DIR *dir = NULL;
    OWNED_BUFFER bytes = {0};
    const char *name;

    TRY(object_path_open(path, &store, err));
    TRY(store_parent_open(store, path, &r->arena, &dir, &name, err));
    TRY(small_file_read(dir, name, 0, MAX_MAPPING_BYTES, &bytes, err));
    char *text = arena_strndup(&r->arena, (const char *)bytes.bytes, bytes.length);
    return text != NULL ? parse_mapping(r, text, err) : FAIL_NOMEM(err, bytes.length);
}

static enum sidestep_status compile_all(const struct conversion *c, struct convert_renames *r,
                                        struct sidestep_error *err)
{
    const struct sidestep_convert_options *o = &c->options;

    if (o->rename_count > MAX_EXPRESSIONS)
        return FAIL(err, SIDESTEP_EINVAL, "%zu renames are more than %u", o->rename_count,
                    MAX_EXPRESSIONS);
    r->expressions = memory_new(o->rename_count, sizeof(*r->expressions));
    if (r->expressions == NULL)
        return FAIL_NOMEM(err, o->rename_count * sizeof(*r->expressions));
    for (r->count = 0; r->count < o->rename_count;) {
        struct expression *expression = &r->expressions[r->count++];
        TRY(compile(r, o->rename[r->count - 1], expression, err));
    }
    if (o->mapping == NULL)
        return SIDESTEP_OK;
    enum sidestep_status status = read_mapping(r, o->mapping, err);
    if (status != SIDESTEP_OK)
        error_wrap(err, "mapping '%s'", o->mapping);
    return status;
}

enum sidestep_status convert_renames_new(const struct conversion *c, struct convert_renames **out,
                                         struct sidestep_error *err)
{
    *out = NULL;
    if (c->options.rename_count == 0 && c->options.mapping == NULL)
        return SIDESTEP_OK;
    struct convert_renames *r = memory_new(1, sizeof(*r));
    if (r == NULL)
        return FAIL_NOMEM(err, sizeof(*r));
    enum sidestep_status status = compile_all(c, r, err);
    if (status == SIDESTEP_OK)
        *out = r;
    else
        convert_renames_free(&r);
    return status;
}

static void put_replacement(struct buffer *out, const char *replacement, const char *text,
                            const regmatch_t groups[GROUPS])
{
    for (const char *at = replacement; *at != '\0'; at++) {
        int group = *at == '&' ? 0 : -1;

        if (*at == '\\' && at[1] != '\0') {
            at++;
            if (*at >= '0' && *at <= '9')
                group = *at - '0';
        }
        if (group < 0)
            buffer_put_u8(out, (uint8_t)*at);
        else if (groups[group].rm_so >= 0)
            buffer_put(out, text + groups[group].rm_so,
                       (size_t)(groups[group].rm_eo - groups[group].rm_so));
    }
}

static void replace(const struct expression *e, const char *text, struct buffer *out)
{
    regmatch_t groups[GROUPS];
    int flags = 0;

    while (regexec(&e->regex, text, GROUPS, groups, flags) == 0) {
        buffer_put(out, text, (size_t)groups[0].rm_so);
        put_replacement(out, e->replacement, text, groups);
        bool empty = groups[0].rm_so == groups[0].rm_eo;
        text += groups[0].rm_eo;
        if (empty && *text != '\0')
            buffer_put_u8(out, (uint8_t)*text++);
        else if (empty)
            break;
        if (!e->all || *text == '\0' || out->length > SIDESTEP_MAX_NAME)
            break;
        flags = REG_NOTBOL;
    }
    buffer_put_text(out, text);
}

enum sidestep_status convert_renames_apply(const struct convert_renames *r, struct arena *arena,
                                           const char *name, const char **out,
                                           struct sidestep_error *err)
{
    const char *now = name;

    for (size_t i = 0; r != NULL && i < r->count; i++) {
        OWNED_BUFFER text = {0};

        replace(&r->expressions[i], now, &text);
        TRY(buffer_check(&text, err));
        if (text.length == 0 || text.length > SIDESTEP_MAX_NAME ||
            !utf8_is_valid((const char *)text.bytes, text.length))
            return FAIL(err, SIDESTEP_EINVAL, "rename makes an invalid name of '%s'",
                        display_name(name).text);
        now = arena_strndup(arena, (const char *)text.bytes, text.length);
        if (now == NULL)
            return FAIL_NOMEM(err, text.length);
    }
    size_t i = r != NULL ? hash_table_find(&r->mapping, now) : SIZE_MAX;
    if (i != SIZE_MAX && (r->mapped[i][0] == '\0' || strlen(r->mapped[i]) > SIDESTEP_MAX_NAME))
        return FAIL(err, SIDESTEP_EINVAL, "the mapping makes an invalid name of '%s'",
                    display_name(name).text);
    if (i != SIZE_MAX)
        now = arena_strndup(arena, r->mapped[i], strlen(r->mapped[i]));
    *out = now;
    return now != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(name));
}
