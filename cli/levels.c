/* SPDX-License-Identifier: BSD-3-Clause */
/* levels.c -- finds the mirror of a root, and lists both together; see levels.h. */
#include "levels.h"

#include "memory.h"
#include "output.h"

#include <stdlib.h>

#define MOST_BYTES 4096 /* of a record in .sidestep */

/* ---- which mirror */

int cli_levels_check_options(const struct cli *cli)
{
    if (cli->operand_count < 2 || !cli_has_option(cli, CLI_OPTION_MIRROR) ||
        cli->options[CLI_OPTION_MIRROR][0] == '\0')
        return 0;
    return cli_output_usage(cli, "%s: --mirror=PLACE is for one ROOT", cli->command->name);
}

/* Read a record in ".sidestep" of a place; NULL: there is none (ENOTFOUND), or it cannot be read.
 */
static char *read_record(const char *place, const char *name, struct sidestep_error *err)
{
    char *path = NULL, *text = NULL;
    size_t length = 0;
    void *bytes = NULL;

    if (asprintf(&path, "%s/.sidestep", place) < 0)
        cli_memory_exhausted();
    if (sidestep_read_file(path, name, MOST_BYTES, &bytes, &length, err) == SIDESTEP_OK)
        text = cli_memory_copy(bytes, length);
    sidestep_bytes_free(&bytes);
    free(path);
    return text;
}

static enum sidestep_status find_place(const struct cli *cli, const char *root, char **mirror,
                                       struct sidestep_error *err)
{
    const char *named = cli->options[CLI_OPTION_MIRROR];

    *mirror = named[0] != '\0' ? cli_memory_copy(named, strlen(named))
                               : read_record(root, "mirror-at", err);
    if (*mirror == NULL && err->status != SIDESTEP_ENOTFOUND)
        return (enum sidestep_status)err->status;
    if (*mirror == NULL || ((*mirror)[0] != '/' && strstr(*mirror, "://") == NULL && !named[0]))
        return cli_error_set(err, SIDESTEP_ENOTFOUND,
                             "'%s' remembers no mirror: a run that has one records its absolute "
                             "path there; name it: --mirror=PLACE",
                             root);
    return SIDESTEP_OK;
}

/* The run of a record "run ID incarnation N"; false: it has none. */
static bool parse_run(const char *text, char run[64], unsigned long long *incarnation)
{
    return text != NULL && sscanf(text, "run %63s incarnation %llu", run, incarnation) == 2;
}

static enum sidestep_status check_run(struct cli_levels *levels, const char *near, const char *far,
                                      struct sidestep_error *err)
{
    char ours[64], theirs[64];
    unsigned long long our_turn, their_turn;
    bool is_known = parse_run(near, ours, &our_turn);

    if (!parse_run(far, theirs, &their_turn))
        return cli_error_set(err, SIDESTEP_EIO,
                             "'%s' is no mirror now, because '.sidestep/mirror-of' is missing: is "
                             "its file system mounted?",
                             levels->mirror);
    if (is_known && strcmp(ours, theirs) != 0)
        return cli_error_set(err, SIDESTEP_EMISMATCH,
                             "'%s' is the mirror of another run (%s) than '%s' (%s)",
                             levels->mirror, theirs, levels->root, ours);
    levels->is_outdated = is_known && our_turn < their_turn;
    return SIDESTEP_OK;
}

enum sidestep_status cli_levels_find(const struct cli *cli, const char *root,
                                     struct cli_levels *levels, struct sidestep_error *err)
{
    struct sidestep_error no_near = {0}, no_far = {0};
    char *near = NULL, *far = NULL;

    *levels = (struct cli_levels){.root = root};
    enum sidestep_status status = find_place(cli, root, &levels->mirror, err);
    if (status != SIDESTEP_OK)
        return status;
    near = read_record(root, "state", &no_near);
    far = read_record(levels->mirror, "mirror-of", &no_far);
    if (near == NULL && no_near.status != SIDESTEP_ENOTFOUND)
        status = cli_error_set(err, (enum sidestep_status)no_near.status, "%s", no_near.message);
    else if (far == NULL && no_far.status != SIDESTEP_ENOTFOUND)
        status = cli_error_set(err, (enum sidestep_status)no_far.status,
                               "the mirror cannot be read: %s", no_far.message);
    else
        status = check_run(levels, near, far, err);
    free(near);
    free(far);
    return status;
}

/* ---- both */

static bool is_same(const struct sidestep_listed *a, const struct sidestep_listed *b)
{
    return a->save_id != NULL && b->save_id != NULL && strcmp(a->save_id, b->save_id) == 0 &&
           strcmp(a->name, b->name) == 0 && a->state == b->state;
}

static struct cli_level_row *find_row(struct cli_levels *levels, const struct sidestep_listed *far)
{
    for (size_t i = 0; i < levels->count; i++)
        if (is_same(levels->rows[i].entry, far))
            return &levels->rows[i];
    return NULL;
}

/* Of one step, the root's entry comes first. */
static int compare(const void *a, const void *b)
{
    const struct cli_level_row *x = a, *y = b;

    if (x->entry->step != y->entry->step)
        return x->entry->step < y->entry->step ? -1 : 1;
    int order = strcmp(x->entry->name, y->entry->name);
    return order != 0 ? order : strcmp(y->level, x->level);
}

static void merge(struct cli_levels *levels)
{
    const char *level = levels->mirror != NULL ? "near" : NULL;

    levels->rows =
        cli_memory_resize(NULL, levels->near.count + levels->far.count + 1, sizeof(*levels->rows));
    for (size_t i = 0; i < levels->near.count; i++)
        levels->rows[levels->count++] =
            (struct cli_level_row){sidestep_list_entry(&levels->near, i), level};
    for (size_t i = 0; i < levels->far.count; i++) {
        const struct sidestep_listed *far = sidestep_list_entry(&levels->far, i);
        struct cli_level_row *both = find_row(levels, far);
        if (both != NULL)
            both->level = "both";
        else
            levels->rows[levels->count++] = (struct cli_level_row){far, "mirror"};
    }
    if (levels->mirror != NULL)
        qsort(levels->rows, levels->count, sizeof(*levels->rows), compare);
}

void cli_levels_note(const struct cli *cli, const struct cli_levels *levels, bool is_lost)
{
    if (levels->is_outdated)
        cli_output_note(cli, "'%s' is outdated: the run went on elsewhere, with '%s'", levels->root,
                        levels->mirror);
    if (is_lost)
        cli_output_note(cli, "there is no '%s': only its mirror is looked at", levels->root);
}

static enum sidestep_status list_both(const struct cli *cli, struct cli_levels *levels,
                                      struct sidestep_error *err)
{
    enum sidestep_status status = cli_levels_find(cli, levels->root, levels, err);

    if (status == SIDESTEP_OK)
        status = sidestep_list_root(levels->mirror, &levels->far, err);
    if (status != SIDESTEP_OK)
        return status;
    status = sidestep_list_root(levels->root, &levels->near, err);
    cli_levels_note(cli, levels, status == SIDESTEP_ENOTFOUND);
    return status == SIDESTEP_ENOTFOUND ? SIDESTEP_OK : status;
}

enum sidestep_status cli_levels_read(const struct cli *cli, const char *root,
                                     struct cli_levels *levels, struct sidestep_error *err)
{
    *levels = (struct cli_levels){.root = root};
    enum sidestep_status status = cli_has_option(cli, CLI_OPTION_MIRROR)
                                      ? list_both(cli, levels, err)
                                      : sidestep_list_root(root, &levels->near, err);
    if (status == SIDESTEP_OK)
        merge(levels);
    return status;
}

void cli_levels_release(struct cli_levels *levels)
{
    sidestep_list_release(&levels->near);
    sidestep_list_release(&levels->far);
    free(levels->mirror);
    free(levels->rows);
}
