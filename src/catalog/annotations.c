/* SPDX-License-Identifier: BSD-3-Clause */
/* annotations.c -- reads and writes annotation files; see annotations.h. A file consists of the
 * line "save <id>" and the text of the annotation. */
#include "catalog/annotations.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit.h"
#include "format/format.h"

static const char *const kind_names[] = {
    [ANNOTATION_PIN] = "pin",           [ANNOTATION_TAG] = "tag",
    [ANNOTATION_METRICS] = "metrics",   [ANNOTATION_ABANDONED] = "abandoned",
    [ANNOTATION_RESTARTS] = "restarts", [ANNOTATION_ADOPTED] = "adopted",
};

bool annotations_is_valid_word(const char *word)
{
    size_t length = word != NULL ? strlen(word) : 0;

    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)word[i]) && word[i] != '_' && word[i] != '-')
            return false;
    return length != 0 && length <= ANNOTATIONS_MAX_WORD;
}

/* ---- reading ---- */

/* Parse a file name, such as "tag.best.step-42", into kind, tag and name. False: it is not an
 * annotation. */
static bool parse_name(struct arena *arena, const char *file, struct annotation *annotation)
{
    const char *rest = strchr(file, '.');

    for (size_t kind = 0; rest != NULL && kind < ARRAY_LENGTH(kind_names); kind++) {
        size_t length = strlen(kind_names[kind]);
        if ((size_t)(rest - file) != length || memcmp(file, kind_names[kind], length) != 0)
            continue;
        *annotation = (struct annotation){.kind = (enum annotation_kind)kind};
        rest++;
        if (kind == ANNOTATION_TAG) {
            size_t tag = strcspn(rest, ".");
            annotation->tag = arena_strndup(arena, rest, tag);
            rest += tag + (rest[tag] == '.');
        }
        annotation->name = arena_strndup(arena, rest, strlen(rest));
        return *rest != '\0';
    }
    return false;
}

static void parse_text(struct arena *arena, const struct buffer *bytes,
                       struct annotation *annotation)
{
    char *text = arena_strndup(arena, (const char *)bytes->bytes, bytes->length);
    char *end = text != NULL ? strchr(text, '\n') : NULL;

    if (end == NULL || strncmp(text, "save ", 5) != 0 || end - text > 5 + SAVE_ID_HEX)
        return;
    *end = '\0';
    annotation->save_id = text + 5;
    annotation->text = end + 1;
}

static int compare_annotations(const void *a, const void *b)
{
    const struct annotation *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    if (order == 0)
        order = (int)x->kind - (int)y->kind;
    if (order == 0 && x->tag != NULL && y->tag != NULL)
        order = strcmp(x->tag, y->tag);
    return order;
}

bool annotations_is_file(const char *file)
{
    OWNED_ARENA arena = {0};
    struct annotation annotation = {0};

    return parse_name(&arena, file, &annotation);
}

static enum sidestep_status read_one(struct store_dir *dir, const char *file,
                                     struct annotations *annotations, struct sidestep_error *err)
{
    struct annotation *annotation = &annotations->items[annotations->count];
    OWNED_BUFFER bytes = {0};

    if (!parse_name(&annotations->arena, file, annotation))
        return SIDESTEP_OK;
    if (annotation->name == NULL || (annotation->kind == ANNOTATION_TAG && annotation->tag == NULL))
        return FAIL_NOMEM(err, strlen(file));
    enum sidestep_status status = small_file_read(dir, file, 0, ANNOTATIONS_MAX_TEXT, &bytes, NULL);
    if (status == SIDESTEP_ENOTFOUND) /* removed meanwhile */
        return SIDESTEP_OK;
    if (status == SIDESTEP_ENOMEM)
        return FAIL_NOMEM(err, ANNOTATIONS_MAX_TEXT);
    if (status == SIDESTEP_OK)
        parse_text(&annotations->arena, &bytes, annotation);
    annotations->count++;
    return SIDESTEP_OK;
}

static enum sidestep_status read_all(struct store_dir *dir, struct annotations *annotations,
                                     struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};

    TRY(name_list_read(dir, &names, err));
    annotations->items =
        arena_new(&annotations->arena, names.count + 1, sizeof(*annotations->items));
    if (annotations->items == NULL)
        return FAIL_NOMEM(err, names.count * sizeof(*annotations->items));
    for (size_t i = 0; i < names.count; i++)
        TRY(read_one(dir, names.names[i], annotations, err));
    if (annotations->count != 0)
        qsort(annotations->items, annotations->count, sizeof(*annotations->items),
              compare_annotations);
    return SIDESTEP_OK;
}

enum sidestep_status annotations_read(struct store_dir *dir, struct annotations *annotations,
                                      struct sidestep_error *err)
{
    *annotations = (struct annotations){0};
    if (dir == NULL)
        return SIDESTEP_OK;
    enum sidestep_status status = read_all(dir, annotations, err);
    if (status != SIDESTEP_OK)
        annotations_release(annotations);
    return status;
}

void annotations_release(struct annotations *annotations)
{
    arena_release(&annotations->arena);
    *annotations = (struct annotations){0};
}

const struct annotation *annotations_of_checkpoint(const struct annotations *annotations,
                                                   const char *name, size_t *count)
{
    size_t low = 0, high = annotations->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(annotations->items[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    size_t end = low;
    while (end < annotations->count && strcmp(annotations->items[end].name, name) == 0)
        end++;
    *count = end - low;
    return *count != 0 ? &annotations->items[low] : NULL;
}

bool annotations_applies_to(const struct annotation *annotation, const char *save_id)
{
    if (annotation->save_id == NULL)
        return annotation->kind == ANNOTATION_PIN;
    return strcmp(annotation->save_id, save_id != NULL ? save_id : "-") == 0;
}

const struct annotation *annotations_find(const struct annotations *annotations,
                                          enum annotation_kind kind, const char *name,
                                          const char *save_id)
{
    size_t count;
    const struct annotation *annotation = annotations_of_checkpoint(annotations, name, &count);

    for (size_t i = 0; i < count; i++)
        if (annotation[i].kind == kind && annotations_applies_to(&annotation[i], save_id))
            return &annotation[i];
    return NULL;
}

int64_t annotations_adopted_step(const struct annotation *annotation)
{
    long long step;

    return annotation->save_id != NULL && sscanf(annotation->text, "step %lld\n", &step) == 1 ? step
                                                                                              : -1;
}

uint64_t annotations_abandoned_by(const struct annotation *annotation)
{
    unsigned long long incarnation = 0;

    if (annotation->save_id == NULL || strcmp(annotation->save_id, "-") != 0 ||
        sscanf(annotation->text, "incarnation %llu\n", &incarnation) != 1)
        return 0;
    return incarnation;
}

/* ---- writing ---- */

static enum sidestep_status format_name(enum annotation_kind kind, const char *tag,
                                        const char *name, char out[FILE_NAME_BYTES],
                                        struct sidestep_error *err)
{
    assert(kind != ANNOTATION_TAG || tag != NULL);
    int length = kind == ANNOTATION_TAG
                     ? snprintf(out, FILE_NAME_BYTES, "%s.%s.%s", kind_names[kind], tag, name)
                     : snprintf(out, FILE_NAME_BYTES, "%s.%s", kind_names[kind], name);

    if (length < 0 || length >= FILE_NAME_BYTES)
        return FAIL(err, SIDESTEP_EINVAL, "the name '%s' is too long for an annotation", name);
    return SIDESTEP_OK;
}

enum sidestep_status annotations_set(struct store_dir *dir, enum annotation_kind kind,
                                     const char *tag, const char *name, const char *save_id,
                                     const char *text, struct sidestep_error *err)
{
    OWNED_BUFFER bytes = {0};
    uint8_t id[SAVE_ID_BYTES];
    char file[FILE_NAME_BYTES], tmp[FILE_NAME_BYTES], hex[SAVE_ID_HEX];

    TRY(format_name(kind, tag, name, file, err));
    TRY(random_bytes(id, sizeof(id), err)); /* several processes may annotate at once */
    hash_to_hex(id, sizeof(id), hex);
    snprintf(tmp, sizeof(tmp), "new.%s", hex);
    buffer_printf(&bytes, "save %s\n%s", save_id != NULL ? save_id : "-", text != NULL ? text : "");
    TRY(buffer_check(&bytes, err));
    if (bytes.length > ANNOTATIONS_MAX_TEXT)
        return FAIL(err, SIDESTEP_EINVAL, "an annotation of '%s' is longer than %u bytes", name,
                    ANNOTATIONS_MAX_TEXT);
    return small_file_replace(dir, file, tmp, bytes.bytes, bytes.length, err);
}

enum sidestep_status annotations_remove(struct store_dir *dir, enum annotation_kind kind,
                                        const char *tag, const char *name,
                                        struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    char file[FILE_NAME_BYTES];

    TRY(format_name(kind, tag, name, file, err));
    enum sidestep_status status = store_unlink(dir, file, &why);
    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    if (status == SIDESTEP_OK)
        return store_dir_sync(dir, err);
    return error_copy(err, &why);
}

bool annotations_may_exist(struct store_dir *dir, enum annotation_kind kind, const char *name)
{
    char file[FILE_NAME_BYTES];
    struct store_stat stat;

    return format_name(kind, NULL, name, file, NULL) != SIDESTEP_OK ||
           store_stat(dir, file, &stat, NULL) != SIDESTEP_ENOTFOUND;
}

void annotations_remove_checkpoint(struct store_dir *dir, const struct annotations *annotations,
                                   const char *name)
{
    size_t count;
    const struct annotation *annotation = annotations_of_checkpoint(annotations, name, &count);

    for (size_t i = 0; i < count; i++)
        (void)annotations_remove(dir, annotation[i].kind, annotation[i].tag, name, NULL);
}
