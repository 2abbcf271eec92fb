/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_findings.c -- collects what is wrong with a checkpoint; see verify_findings.h. */
#include "verify/verify_findings.h"
#include "checkpoint/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void verify_findings_release(struct verify_findings *findings)
{
    free(findings->problems);
    free(findings->unchecked);
    arena_release(&findings->arena);
    *findings = (struct verify_findings){.max_count = findings->max_count};
}

/* Copy the path of ${file} in the current folder.  If ${file} is NULL: the path of the folder, or
 * NULL if there is none. */
static enum sidestep_status copy_path(struct verify_findings *f, const char *file, const char **out,
                                      struct sidestep_error *err)
{
    const char *folder = f->folder != NULL ? f->folder : "";
    size_t length = strlen(folder);

    *out = NULL;
    if (file == NULL && length == 0)
        return SIDESTEP_OK;
    *out = file != NULL ? arena_printf(&f->arena, "%s%s", folder, file)
                        : arena_strndup(&f->arena, folder, length - 1);
    return *out != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, length);
}

enum sidestep_status verify_findings_add(struct verify_findings *findings, const char *file,
                                         const char *name, const char *kind, const char *message,
                                         struct sidestep_error *err)
{
    if (findings->count >= (findings->max_count != 0 ? findings->max_count : VERIFY_MAX_PROBLEMS)) {
        findings->unlisted_count++;
        return SIDESTEP_OK;
    }
    TRY_GROW(findings->problems, findings->capacity, findings->count, err);
    struct sidestep_problem *problem = &findings->problems[findings->count];
    *problem = (struct sidestep_problem){
        .name = name != NULL ? arena_strndup(&findings->arena, name, strlen(name)) : NULL,
        .kind = kind,
        .message = arena_strndup(&findings->arena, message, strlen(message)),
    };
    if (problem->message == NULL || (name != NULL && problem->name == NULL))
        return FAIL_NOMEM(err, strlen(message));
    TRY(copy_path(findings, file, &problem->file, err));
    findings->count++;
    return SIDESTEP_OK;
}

enum sidestep_status verify_findings_add_unchecked(struct verify_findings *findings,
                                                   const char *file, const char *what,
                                                   struct sidestep_error *err)
{
    TRY_GROW(findings->unchecked, findings->unchecked_capacity, findings->unchecked_count, err);
    struct sidestep_unchecked *unchecked = &findings->unchecked[findings->unchecked_count];
    *unchecked = (struct sidestep_unchecked){.what = what};
    TRY(copy_path(findings, file, &unchecked->file, err));
    findings->unchecked_count++;
    return SIDESTEP_OK;
}

const char *verify_kind(enum sidestep_status status)
{
    if (status == SIDESTEP_EPERM)
        return "permission";
    if (status == SIDESTEP_EUNCOMMITTED)
        return "incomplete";
    if (!reader_status_is_damage(status))
        return "io";
    return status == SIDESTEP_ECORRUPT ? "hash" : "format";
}

/* The status for the kind of a problem. */
static enum sidestep_status status_of(const struct sidestep_problem *problem)
{
    if (strcmp(problem->kind, "io") == 0)
        return SIDESTEP_EIO;
    if (strcmp(problem->kind, "permission") == 0)
        return SIDESTEP_EPERM;
    return strcmp(problem->kind, "incomplete") == 0 ? SIDESTEP_EUNCOMMITTED : SIDESTEP_ECORRUPT;
}

static const struct sidestep_problem *find_status(const struct verify_findings *findings,
                                                  enum sidestep_status status)
{
    for (size_t i = 0; i < findings->count; i++)
        if (status_of(&findings->problems[i]) == status)
            return &findings->problems[i];
    return NULL;
}

const struct sidestep_problem *verify_findings_worst(const struct verify_findings *findings)
{
    const struct sidestep_problem *worst = find_status(findings, SIDESTEP_ECORRUPT);

    if (worst == NULL)
        worst = find_status(findings, SIDESTEP_EUNCOMMITTED);
    return worst != NULL ? worst : &findings->problems[0];
}

enum sidestep_status verify_findings_judge(const struct verify_findings *findings)
{
    return findings->count != 0 ? status_of(verify_findings_worst(findings)) : SIDESTEP_OK;
}
