/* SPDX-License-Identifier: BSD-3-Clause */
/* annotations.c -- see annotations.h.  A mark is the line "save <id>" and then its text. */
#include "catalog/annotations.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/owned.h"
#include "base/random.h"
#include "commit/commit.h"
#include "commit/name_list.h"

static const char *const kind_names[] = {
    [MARKS_PIN] = "pin",           [MARKS_TAG] = "tag",
    [MARKS_METRICS] = "metrics",   [MARKS_ABANDONED] = "abandoned",
    [MARKS_RESTARTS] = "restarts", [MARKS_ADOPTED] = "adopted",
};

bool marks_is_word(const char *word)
{
    size_t length = word != NULL ? strlen(word) : 0;

    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)word[i]) && word[i] != '_' && word[i] != '-')
            return false;
    return length != 0 && length <= MARKS_MAX_WORD;
}

/* ---- reading ---- */

/* "tag.best.step-42" as kind, tag and name.  False: it is no mark. */
static bool parse_name(struct arena *arena, const char *file, struct mark *mark)
{
    const char *rest = strchr(file, '.');

    for (size_t kind = 0; rest != NULL && kind < ARRAY_LENGTH(kind_names); kind++) {
        size_t length = strlen(kind_names[kind]);
        if ((size_t)(rest - file) != length || memcmp(file, kind_names[kind], length) != 0)
            continue;
        *mark = (struct mark){.kind = (enum marks_kind)kind};
        rest++;
        if (kind == MARKS_TAG) {
            size_t tag = strcspn(rest, ".");
            mark->tag = arena_strndup(arena, rest, tag);
            rest += tag + (rest[tag] == '.');
        }
        mark->name = arena_strndup(arena, rest, strlen(rest));
        return *rest != '\0';
    }
    return false;
}

static void parse_text(struct arena *arena, const struct buffer *bytes, struct mark *mark)
{
    char *text = arena_strndup(arena, (const char *)bytes->bytes, bytes->length);
    char *end = text != NULL ? strchr(text, '\n') : NULL;

    if (end == NULL || strncmp(text, "save ", 5) != 0 || end - text > 5 + SAVE_ID_HEX)
        return;
    *end = '\0';
    mark->save_id = text + 5;
    mark->text = end + 1;
}

static int compare_marks(const void *a, const void *b)
{
    const struct mark *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    if (order == 0)
        order = (int)x->kind - (int)y->kind;
    if (order == 0 && x->tag != NULL && y->tag != NULL)
        order = strcmp(x->tag, y->tag);
    return order;
}

static enum sidestep_status read_one(struct store_dir *dir, const char *file, struct marks *marks,
                                     struct sidestep_error *err)
{
    struct mark *mark = &marks->marks[marks->count];
    OWNED_BUFFER bytes = {0};

    if (!parse_name(&marks->arena, file, mark))
        return SIDESTEP_OK;
    if (mark->name == NULL || (mark->kind == MARKS_TAG && mark->tag == NULL))
        return FAIL_NOMEM(err, strlen(file));
    enum sidestep_status status = commit_read_file(dir, file, 0, MARKS_MAX_TEXT, &bytes, NULL);
    if (status == SIDESTEP_ENOTFOUND) /* taken away meanwhile */
        return SIDESTEP_OK;
    if (status == SIDESTEP_ENOMEM)
        return FAIL_NOMEM(err, MARKS_MAX_TEXT);
    if (status == SIDESTEP_OK)
        parse_text(&marks->arena, &bytes, mark);
    marks->count++;
    return SIDESTEP_OK;
}

static enum sidestep_status read_all(struct store_dir *dir, struct marks *marks,
                                     struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};

    TRY(name_list_read(dir, &names, err));
    marks->marks = arena_new(&marks->arena, names.count + 1, sizeof(*marks->marks));
    if (marks->marks == NULL)
        return FAIL_NOMEM(err, names.count * sizeof(*marks->marks));
    for (size_t i = 0; i < names.count; i++)
        TRY(read_one(dir, names.names[i], marks, err));
    if (marks->count != 0)
        qsort(marks->marks, marks->count, sizeof(*marks->marks), compare_marks);
    return SIDESTEP_OK;
}

enum sidestep_status marks_read(struct store_dir *dir, struct marks *marks,
                                struct sidestep_error *err)
{
    *marks = (struct marks){0};
    if (dir == NULL)
        return SIDESTEP_OK;
    enum sidestep_status status = read_all(dir, marks, err);
    if (status != SIDESTEP_OK)
        marks_release(marks);
    return status;
}

void marks_release(struct marks *marks)
{
    arena_release(&marks->arena);
    *marks = (struct marks){0};
}

const struct mark *marks_of(const struct marks *marks, const char *name, size_t *count)
{
    size_t low = 0, high = marks->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(marks->marks[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    size_t end = low;
    while (end < marks->count && strcmp(marks->marks[end].name, name) == 0)
        end++;
    *count = end - low;
    return *count != 0 ? &marks->marks[low] : NULL;
}

bool marks_applies(const struct mark *mark, const char *save_id)
{
    if (mark->save_id == NULL)
        return mark->kind == MARKS_PIN;
    return strcmp(mark->save_id, save_id != NULL ? save_id : "-") == 0;
}

const struct mark *marks_find(const struct marks *marks, enum marks_kind kind, const char *name,
                              const char *save_id)
{
    size_t count;
    const struct mark *mark = marks_of(marks, name, &count);

    for (size_t i = 0; i < count; i++)
        if (mark[i].kind == kind && marks_applies(&mark[i], save_id))
            return &mark[i];
    return NULL;
}

int64_t marks_step_of(const struct mark *mark)
{
    long long step;

    return mark->save_id != NULL && sscanf(mark->text, "step %lld\n", &step) == 1 ? step : -1;
}

uint64_t marks_incarnation_of(const struct mark *mark)
{
    unsigned long long incarnation = 0;

    if (mark->save_id == NULL || strcmp(mark->save_id, "-") != 0 ||
        sscanf(mark->text, "incarnation %llu\n", &incarnation) != 1)
        return 0;
    return incarnation;
}

/* ---- writing ---- */

static enum sidestep_status format_name(enum marks_kind kind, const char *tag, const char *name,
                                        char out[NAMES_MAX], struct sidestep_error *err)
{
    int length = kind == MARKS_TAG
                     ? snprintf(out, NAMES_MAX, "%s.%s.%s", kind_names[kind], tag, name)
                     : snprintf(out, NAMES_MAX, "%s.%s", kind_names[kind], name);

    if (length < 0 || length >= NAMES_MAX)
        return FAIL(err, SIDESTEP_EINVAL, "the name '%s' is too long for a mark", name);
    return SIDESTEP_OK;
}

enum sidestep_status marks_set(struct store_dir *dir, enum marks_kind kind, const char *tag,
                               const char *name, const char *save_id, const char *text,
                               struct sidestep_error *err)
{
    OWNED_BUFFER bytes = {0};
    uint8_t id[SAVE_ID_BYTES];
    char file[NAMES_MAX], tmp[NAMES_MAX], hex[SAVE_ID_HEX];

    TRY(format_name(kind, tag, name, file, err));
    TRY(random_bytes(id, sizeof(id), err)); /* several processes may mark at once */
    hash_to_hex(id, sizeof(id), hex);
    snprintf(tmp, sizeof(tmp), "new.%s", hex);
    buffer_printf(&bytes, "save %s\n%s", save_id != NULL ? save_id : "-", text != NULL ? text : "");
    TRY(buffer_check(&bytes, err));
    if (bytes.length > MARKS_MAX_TEXT)
        return FAIL(err, SIDESTEP_EINVAL, "more than %u bytes about '%s'", MARKS_MAX_TEXT, name);
    enum sidestep_status status = commit_write_file(dir, tmp, bytes.bytes, bytes.length, err);
    if (status == SIDESTEP_OK)
        status = store_rename(dir, tmp, dir, file, STORE_REPLACE, err);
    if (status != SIDESTEP_OK) {
        (void)store_unlink(dir, tmp, NULL);
        return status;
    }
    return store_dir_sync(dir, err);
}

enum sidestep_status marks_unset(struct store_dir *dir, enum marks_kind kind, const char *tag,
                                 const char *name, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    char file[NAMES_MAX];

    TRY(format_name(kind, tag, name, file, err));
    enum sidestep_status status = store_unlink(dir, file, &why);
    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    if (status == SIDESTEP_OK)
        return store_dir_sync(dir, err);
    error_copy(err, &why);
    return status;
}

bool marks_may_have(struct store_dir *dir, enum marks_kind kind, const char *name)
{
    char file[NAMES_MAX];
    struct store_stat stat;

    return format_name(kind, NULL, name, file, NULL) != SIDESTEP_OK ||
           store_stat(dir, file, &stat, NULL) != SIDESTEP_ENOTFOUND;
}

void marks_forget(struct store_dir *dir, const struct marks *marks, const char *name)
{
    size_t count;
    const struct mark *mark = marks_of(marks, name, &count);

    for (size_t i = 0; i < count; i++)
        (void)marks_unset(dir, mark[i].kind, mark[i].tag, name, NULL);
}
