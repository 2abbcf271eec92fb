/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_findings.c -- see verify_findings.h. */
#include "engine/verify_findings.h"

#include <stdlib.h>
#include <string.h>

void verify_findings_release(struct verify_findings *findings)
{
    free(findings->problems);
    arena_release(&findings->arena);
    *findings = (struct verify_findings){.most = findings->most};
}

enum sidestep_status verify_findings_add(struct verify_findings *findings, const char *file,
                                         const char *name, const char *kind, const char *message,
                                         struct sidestep_error *err)
{
    if (findings->count >= (findings->most != 0 ? findings->most : VERIFY_MAX_PROBLEMS)) {
        findings->unlisted_count++;
        return SIDESTEP_OK;
    }
    if (findings->count == findings->room) {
        size_t room = findings->room != 0 ? findings->room * 2 : 16;
        struct sidestep_problem *problems =
            memory_resize(findings->problems, room, sizeof(*problems));
        if (problems == NULL)
            return FAIL_NOMEM(err, room * sizeof(*problems));
        findings->problems = problems;
        findings->room = room;
    }
    struct sidestep_problem *problem = &findings->problems[findings->count];
    *problem = (struct sidestep_problem){
        .file = file != NULL ? arena_strndup(&findings->arena, file, strlen(file)) : NULL,
        .name = name != NULL ? arena_strndup(&findings->arena, name, strlen(name)) : NULL,
        .kind = kind,
        .message = arena_strndup(&findings->arena, message, strlen(message)),
    };
    if (problem->message == NULL || (file != NULL && problem->file == NULL) ||
        (name != NULL && problem->name == NULL))
        return FAIL_NOMEM(err, strlen(message));
    findings->count++;
    return SIDESTEP_OK;
}

bool verify_is_damage(enum sidestep_status status)
{
    switch (status) {
    case SIDESTEP_ECORRUPT:
    case SIDESTEP_EUNSAFE:
    case SIDESTEP_EUNCOMMITTED:
    case SIDESTEP_ENOTFOUND:
    case SIDESTEP_EUNSUPPORTED:
        return true;
    default:
        return false;
    }
}

const char *verify_kind(enum sidestep_status status)
{
    if (status == SIDESTEP_EPERM)
        return "permission";
    if (!verify_is_damage(status))
        return "io";
    return status == SIDESTEP_ECORRUPT ? "hash" : "format";
}

static bool is_permission(const struct sidestep_problem *problem)
{
    return strcmp(problem->kind, "permission") == 0;
}

static bool is_damage(const struct sidestep_problem *problem)
{
    return strcmp(problem->kind, "io") != 0 && !is_permission(problem);
}

const struct sidestep_problem *verify_findings_worst(const struct verify_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++)
        if (is_damage(&findings->problems[i]))
            return &findings->problems[i];
    return &findings->problems[0];
}

enum sidestep_status verify_findings_judge(const struct verify_findings *findings)
{
    if (findings->count == 0)
        return SIDESTEP_OK;
    const struct sidestep_problem *worst = verify_findings_worst(findings);
    if (is_damage(worst))
        return SIDESTEP_ECORRUPT;
    return is_permission(worst) ? SIDESTEP_EPERM : SIDESTEP_EIO;
}
