/* SPDX-License-Identifier: BSD-3-Clause */
/* convert_partial.c -- finds the tensors and objects of a damaged checkpoint that pass
 * verification, so that they can be converted. */
#include <string.h>

#include "base/base.h"
#include "convert/convert.h"
#include "verify/verify.h"

/* Why an item is lost; if its whole file is lost, what is wrong with the file. */
static const char *reason_of(const struct reader *r, const struct sidestep_problem *problem)
{
    size_t i = problem->file != NULL ? hash_table_find(&r->file_names, problem->file) : SIZE_MAX;

    if (i == SIZE_MAX || r->files[i].problem == NULL || reader_file_has_wrong_size(&r->files[i]))
        return problem->message;
    return r->files[i].message;
}

/* Record the first problem of each name; a tensor may have several. */
static enum sidestep_status record_problem(struct conversion *c,
                                           const struct sidestep_problem *problem,
                                           struct sidestep_error *err)
{
    const char *name = arena_strndup(&c->arena, problem->name, strlen(problem->name));
    size_t existing = SIZE_MAX, number = c->damaged.count;

    if (name == NULL)
        return FAIL_NOMEM(err, strlen(problem->name));
    TRY(hash_table_insert(&c->damaged, name, number, &existing, err));
    if (existing != SIZE_MAX)
        return SIDESTEP_OK;
    c->reasons[number] =
        arena_printf(&c->arena, "%s%s%s", problem->file != NULL ? problem->file : "",
                     problem->file != NULL ? ": " : "", reason_of(c->reader, problem));
    return c->reasons[number] != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(problem->message));
}

static enum sidestep_status record_problems(struct conversion *c,
                                            const struct verify_findings *findings,
                                            struct sidestep_error *err)
{
    c->reasons = arena_new(&c->arena, findings->count, sizeof(*c->reasons));
    c->lost = arena_new(&c->arena, c->reader->metadata.count + c->reader->manifest.extra_count,
                        sizeof(*c->lost));
    if (c->reasons == NULL || c->lost == NULL)
        return FAIL_NOMEM(err, findings->count * sizeof(*c->reasons));
    for (size_t i = 0; i < findings->count; i++)
        if (findings->problems[i].name != NULL)
            TRY(record_problem(c, &findings->problems[i], err));
    return SIDESTEP_OK;
}

enum sidestep_status convert_find_damaged(struct conversion *c, struct sidestep_error *err)
{
    OWNED_BY(workers_free) struct workers *workers = NULL;
    struct verify_findings findings = {.max_count = SIZE_MAX};
    const struct verify_options options = {.names_unread = true,
                                           .on_progress = c->options.on_progress,
                                           .context = c->options.context,
                                           .cancel = c->options.cancel};

    if (c->reader->foreign != NULL)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "only a checkpoint has hashes that show which part is damaged: this is %s",
                    c->reader->foreign->format);
    TRY(workers_new(c->threads - 1, "sidestep-verify", &workers, err));
    enum sidestep_status status = verify_reader(c->reader, workers, &options, &findings, err);
    if (status == SIDESTEP_OK)
        status = record_problems(c, &findings, err);
    c->lost_status = verify_findings_judge(&findings);
    verify_findings_release(&findings);
    return status;
}

enum sidestep_status convert_add_lost(struct conversion *c, const char *name, const char *reason,
                                      struct sidestep_error *err)
{
    const char *text = name != NULL ? arena_printf(&c->arena, "%s: %s", name, reason) : NULL;

    if (text == NULL)
        return FAIL_NOMEM(err, strlen(reason));
    c->lost[c->lost_count++] = text;
    return SIDESTEP_OK;
}

enum sidestep_status convert_is_damaged(struct conversion *c, const struct metadata_entry *entry,
                                        bool *is_lost, struct sidestep_error *err)
{
    size_t i = hash_table_find(&c->damaged, entry->name);

    *is_lost = i != SIZE_MAX;
    return *is_lost ? convert_add_lost(c, entry->name, c->reasons[i], err) : SIDESTEP_OK;
}
