/* SPDX-License-Identifier: BSD-3-Clause */
/* named_dir.c -- opens a directory, or finds what a mistyped path may mean; see named_dir.h. */
#include "commit/named_dir.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "model/model.h"

#define MAX_WORD 64u /* longer names are not compared */
#define MAX_SUGGESTIONS 3u
#define MAX_PATH 256u    /* a longer one is not explained */
#define MAX_NAMES 10000u /* of a directory, that are compared */

/* The names that are nearest to ${typed}, the nearest first. */
struct suggestions {
    const char *typed;
    struct near {
        char name[MAX_WORD + 1];
        size_t score;
    } near[MAX_SUGGESTIONS];
    size_t count;
    size_t names; /* compared so far */
};

/* Copy ${name} without its digits. */
static void drop_digits(const char *name, char word[MAX_WORD + 1])
{
    for (; *name != '\0'; name++)
        if (!isdigit((unsigned char)*name))
            *word++ = *name;
    *word = '\0';
}

static int compare(const struct near *a, const struct near *b)
{
    return a->score != b->score ? (a->score < b->score ? -1 : 1) : strcmp(b->name, a->name);
}

/* Suggest ${name} if few letters differ.  Digits may all differ: step-1000 is near step-30. */
static void suggest(struct suggestions *suggestions, const char *name)
{
    char typed[MAX_WORD + 1], word[MAX_WORD + 1];

    if (strlen(name) > MAX_WORD || (name[0] == '.') != (suggestions->typed[0] == '.'))
        return;
    drop_digits(suggestions->typed, typed);
    drop_digits(name, word);
    size_t distance = edit_distance(typed, word);
    if (distance > 1 + strlen(typed) / 4 || (distance != 0 && distance >= strlen(word)))
        return;
    struct near one = {.score = distance * MAX_WORD + edit_distance(suggestions->typed, name)};
    memcpy(one.name, name, strlen(name) + 1);
    size_t place = 0; /* after the nearer ones; of equal ones the last comes first */
    while (place < suggestions->count && compare(&suggestions->near[place], &one) < 0)
        place++;
    if (place == MAX_SUGGESTIONS)
        return;
    suggestions->count = min_u64(suggestions->count + 1, MAX_SUGGESTIONS);
    for (size_t i = suggestions->count - 1; i > place; i--)
        suggestions->near[i] = suggestions->near[i - 1];
    suggestions->near[place] = one;
}

/* Write "; did you mean 'run/step-20' or 'run/step-10'?"; ${folder} is "run/". */
static void write_suggestions(const struct suggestions *suggestions, const char *folder, char *text,
                              size_t bytes)
{
    size_t used = 0;

    for (size_t i = 0; i < suggestions->count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s'%s%s'%s",
                                 i == 0                       ? "; did you mean "
                                 : i + 1 < suggestions->count ? ", "
                                                              : " or ",
                                 folder, display_name(suggestions->near[i].name).text,
                                 i + 1 == suggestions->count ? "?" : "");
}

/* Cut the last name off ${path}, which ends with it.  Returns the name, or NULL if there is none.
 */
static const char *cut_name(char *path, char name[MAX_PATH])
{
    size_t length = strlen(path);

    while (length > 0 && path[length - 1] == '/')
        path[--length] = '\0';
    while (length > 0 && path[length - 1] != '/')
        length--;
    snprintf(name, MAX_PATH, "%s", path + length);
    path[length] = '\0';
    return name[0] != '\0' ? name : NULL;
}

static bool visit_name(void *context, const char *name)
{
    struct suggestions *suggestions = context;

    suggest(suggestions, name);
    return ++suggestions->names < MAX_NAMES;
}

/* Find the names beside the first missing part of ${path}: ${path} becomes the directory where it
 * would be, and ${typed} is its name. A prefix of keys without any key is missing, too. */
static bool find_beside(struct store *store, char *path, char typed[MAX_PATH],
                        struct suggestions *suggestions, bool *is_last)
{
    for (*is_last = true; cut_name(path, typed) != NULL; *is_last = false) {
        OWNED_DIR *dir = NULL;
        *suggestions = (struct suggestions){.typed = typed};
        if (store_dir_open(store, NULL, path[0] != '\0' ? path : ".", &dir, NULL) != SIDESTEP_OK)
            continue;
        if (strlen(typed) <= MAX_WORD)
            (void)store_dir_list(dir, visit_name, suggestions, NULL);
        if (suggestions->names != 0 || store->ops->layout == STORE_OF_DIRECTORIES)
            return true;
    }
    return false;
}

void named_dir_explain(struct store *store, const char *path, struct sidestep_error *err)
{
    char folder[MAX_PATH], typed[MAX_PATH], text[MAX_PATH + 600] = "";
    struct suggestions suggestions;
    bool is_last;

    if (err == NULL || path[0] == '\0' || strlen(path) >= sizeof(folder))
        return;
    memcpy(folder, path, strlen(path) + 1);
    if (!find_beside(store, folder, typed, &suggestions, &is_last))
        return;
    if (suggestions.count != 0)
        write_suggestions(&suggestions, folder, text, sizeof(text));
    else if (!is_last)
        snprintf(text, sizeof(text), "; there is no '%s%s'", folder, typed);
    size_t used = strlen(err->message);
    snprintf(err->message + used, sizeof(err->message) - used, "%s", text);
}

enum sidestep_status named_dir_open(struct store *store, const char *path, struct store_dir **dir,
                                    struct sidestep_error *err)
{
    struct sidestep_error why = {0};
    enum sidestep_status status = store_dir_open(store, NULL, path, dir, &why);

    if (status == SIDESTEP_OK || err == NULL)
        return status;
    (void)error_copy(err, &why);
    if (why.sys_errno == ENOENT)
        named_dir_explain(store, path, err);
    return status;
}
