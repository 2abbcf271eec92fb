/* SPDX-License-Identifier: BSD-3-Clause */
/* load.c -- performs a load: all ranks open the checkpoint and plan together, then fetch. */
#include "load/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "load/aliases.h"
#include "load/fetch.h"
#include "load/open_all.h"
#include "load/target.h"
#include "load/writable_targets.h"
#include "verify/verify.h"
#include "plan/plan.h"

_Static_assert(sizeof(struct sidestep_load_options) == 56, "a field was added: apply it below");

enum sidestep_status load_options_copy(struct sidestep_load_options *copy,
                                       const struct sidestep_load_options *options,
                                       struct sidestep_error *err)
{
    TRY(options_copy(copy, sizeof(*copy), options, "load options", err));
    if (copy->failure != NULL)
        return engine_copy_failure(copy->failure, err);
    if ((copy->flags & ~(SIDESTEP_LOAD_PARTIAL | SIDESTEP_LOAD_STRICT)) != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "load options: unknown flags 0x%x", copy->flags);
    if ((unsigned)copy->verify > SIDESTEP_VERIFY_STRUCTURE)
        return FAIL(err, SIDESTEP_EINVAL, "load options: verify mode %d", (int)copy->verify);
    if (copy->stream_count != 0 && copy->streams == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "load options: streams is NULL");
    return SIDESTEP_OK;
}

/* Fail with the first of ${names}.  The message has ${one} after the number 1, and ${many} after
 * other numbers. */
static enum sidestep_status fail_with_names(enum sidestep_status status, const char *one,
                                            const char *many, const char *const *names,
                                            size_t count, struct sidestep_error *err)
{
    if (count == 1)
        return FAIL(err, status, "1 %s: '%s'", one, names[0]);
    return FAIL(err, status, "%zu %s, the first is '%s'", count, many, names[0]);
}

static enum sidestep_status check_plan(const struct load_plan *plan, uint32_t flags,
                                       struct sidestep_error *err)
{
    bool partial = (flags & SIDESTEP_LOAD_PARTIAL) != 0;

    if (plan->missing_count != 0 && !partial)
        return fail_with_names(SIDESTEP_EMISMATCH, "name is not in the checkpoint",
                               "names are not in the checkpoint", plan->missing,
                               plan->missing_count, err);
    if (plan->mismatched_count != 0 && !partial)
        return fail_with_names(SIDESTEP_EMISMATCH, "tensor or object does not match what was saved",
                               "tensors or objects do not match what was saved", plan->mismatched,
                               plan->mismatched_count, err);
    if (plan->unexpected_count != 0 && (flags & SIDESTEP_LOAD_STRICT) != 0)
        return fail_with_names(SIDESTEP_EMISMATCH, "name of the checkpoint is not in the state",
                               "names of the checkpoint are not in the state", plan->unexpected,
                               plan->unexpected_count, err);
    return SIDESTEP_OK;
}

static const char *const *copy_list(struct arena *arena, const char **names, size_t count)
{
    const char **copy = arena_new(arena, count, sizeof(*copy));

    for (size_t i = 0; copy != NULL && i < count; i++)
        if ((copy[i] = arena_strndup(arena, names[i], strlen(names[i]))) == NULL)
            return NULL;
    return copy;
}

void sidestep_load_report_release(struct sidestep_load_report *report)
{
    if (report == NULL || report->owner == NULL)
        return;
    arena_release(report->owner);
    free(report->owner);
    report->owner = NULL;
    report->missing_count = report->unexpected_count = report->mismatched_count = 0;
    report->missing = report->unexpected = report->mismatched = NULL;
}

static enum sidestep_status fill_report(struct sidestep_load_report *report,
                                        const struct load_plan *plan, struct sidestep_error *err)
{
    struct arena *arena;

    if (report == NULL)
        return SIDESTEP_OK;
    if (report->struct_size != sizeof(*report))
        return FAIL(err, SIDESTEP_EINVAL, "report: start from SIDESTEP_LOAD_REPORT_INIT");
    arena = memory_new(1, sizeof(*arena));
    if (arena == NULL)
        return FAIL_NOMEM(err, sizeof(*arena));
    *report = (struct sidestep_load_report){
        .struct_size = sizeof(*report),
        .missing_count = plan->missing_count,
        .unexpected_count = plan->unexpected_count,
        .mismatched_count = plan->mismatched_count,
        .missing = copy_list(arena, plan->missing, plan->missing_count),
        .unexpected = copy_list(arena, plan->unexpected, plan->unexpected_count),
        .mismatched = copy_list(arena, plan->mismatched, plan->mismatched_count),
        .owner = arena,
    };
    if (report->missing != NULL && report->unexpected != NULL && report->mismatched != NULL)
        return SIDESTEP_OK;
    sidestep_load_report_release(report);
    return FAIL_NOMEM(err, sizeof(*report));
}

/* Verify all files; ${reader} opens only those that this rank needs. */
static enum sidestep_status verify_whole(struct sidestep_engine *engine, struct reader *reader,
                                         struct verify_findings *findings,
                                         struct sidestep_error *err)
{
    OWNED_BY(reader_close) struct reader *whole = NULL;

    TRY(reader_open(reader->store, reader->path, READER_ALL, &whole, err));
    if (memcmp(whole->manifest_sha256, reader->manifest_sha256, HASH_SHA256_BYTES) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "the checkpoint was replaced during the load");
    return verify_reader(whole, engine->stagers, NULL, findings, err);
}

/* Rank 0 verifies everything before any rank writes to a tensor. */
static enum sidestep_status verify_before_all(struct sidestep_engine *engine, struct reader *reader,
                                              struct sidestep_error *err)
{
    struct verify_findings findings = {0};
    enum sidestep_status status = SIDESTEP_OK;

    if (engine->comm.rank == 0)
        status = verify_whole(engine, reader, &findings, err);
    if (status == SIDESTEP_OK && findings.count != 0)
        status = FAIL(err, SIDESTEP_ECORRUPT, "%zu problems, the first: %s%s%s", findings.count,
                      findings.problems[0].file != NULL ? findings.problems[0].file : "",
                      findings.problems[0].file != NULL ? ": " : "", findings.problems[0].message);
    verify_findings_release(&findings);
    return comm_agree_all(&engine->comm, status, err);
}

/* Fetch the objects of ${plan}, and have the caller look at them. */
static enum sidestep_status load_objects_all(struct sidestep_engine *engine, struct reader *reader,
                                             const struct load_plan *plan,
                                             const struct sidestep_load_options *options,
                                             uint64_t *bytes_read, struct sidestep_error *err)
{
    struct sidestep_error why = {0};
    enum sidestep_status status =
        fetch_run(reader, plan, FETCH_OBJECTS, engine->stagers, NULL, bytes_read, err);

    if (status == SIDESTEP_OK) {
        why.status = options->check_objects(options->context, &why);
        if (why.status != SIDESTEP_OK)
            status = engine_copy_failure(&why, err);
    }
    if (status != SIDESTEP_OK)
        error_wrap(err, "no tensor was changed");
    return comm_agree_all(&engine->comm, status, err);
}

/* Fetch everything: the objects first, if the caller wants to look at them. */
static enum sidestep_status fetch_all(struct sidestep_engine *engine, struct reader *reader,
                                      const struct load_plan *plan,
                                      const struct sidestep_load_options *options,
                                      struct devices *devices, uint64_t *bytes_read,
                                      struct sidestep_error *err)
{
    bool checks = options->check_objects != NULL;
    OWNED_BY(aliases_release) struct aliases aliases = {0};
    uint64_t object_bytes = 0;

    if (checks)
        TRY(load_objects_all(engine, reader, plan, options, &object_bytes, err));
    enum sidestep_status status = aliases_find(reader, plan, &aliases, err);
    if (status == SIDESTEP_OK)
        status = fetch_run(reader, plan, checks ? FETCH_TENSORS : FETCH_ALL, engine->stagers,
                           devices, bytes_read, err);
    *bytes_read += object_bytes;
    if (status == SIDESTEP_OK && !reader->has_manifest)
        status = reader_check_unchanged(reader, err);
    if (status == SIDESTEP_OK)
        status = aliases_check(reader, &aliases, engine->stagers, err);
    if (status != SIDESTEP_OK)
        error_wrap(err, "the tensors to be loaded are in an unspecified state");
    return comm_agree_all(&engine->comm, status, err);
}

static enum sidestep_status load_reader_all(struct sidestep_engine *engine, struct reader *reader,
                                            const struct load_plan *plan,
                                            struct sidestep_state_dict *state,
                                            const struct sidestep_load_options *options,
                                            struct sidestep_load_report *report,
                                            uint64_t *bytes_read, struct sidestep_error *err)
{
    bool on_device = false;
    enum sidestep_status status = fill_report(report, plan, err);

    if (status == SIDESTEP_OK)
        status = check_plan(plan, options->flags, err);
    if (status == SIDESTEP_OK)
        status = target_prepare(&engine->devices, state, options->streams, options->stream_count,
                                &on_device, err);
    if (status == SIDESTEP_OK)
        status = targets_check_writable(plan, err);
    TRY(comm_agree_all(&engine->comm, status, err));
    /* A foreign file has nothing that can be checked without reading it. */
    if (options->verify == SIDESTEP_VERIFY_BEFORE && reader->foreign == NULL)
        TRY(verify_before_all(engine, reader, err));
    TRY(fetch_all(engine, reader, plan, options, on_device ? &engine->devices : NULL, bytes_read,
                  err));
    TRACE(load, "rank %d: '%s': %zu chunks, %llu bytes read", engine->comm.rank, reader->path,
          plan->count, (unsigned long long)*bytes_read);
    if (report != NULL) {
        report->bytes_loaded = plan->wanted_bytes;
        report->bytes_read = *bytes_read;
    }
    return SIDESTEP_OK;
}

/* Is it done again, because what lies beside the checkpoint is perhaps the reason, on some rank? */
static bool is_done_again(const struct load_bring *bring, enum sidestep_status status)
{
    return bring != NULL && bring->blame != NULL &&
           (reader_status_is_damage(status) || status == SIDESTEP_EIO || status == SIDESTEP_EPERM);
}

static enum sidestep_status
load_once_all(struct sidestep_engine *engine, const char *path, const struct load_bring *bring,
              struct sidestep_state_dict *state, const struct sidestep_load_options *options,
              uint32_t flags, struct sidestep_load_report *report, struct sidestep_error *err)
{
    OWNED_BY(load_plan_release) struct load_plan plan = {0};
    struct reader *reader = NULL;
    uint64_t bytes_read = 0; /* by this rank */
    bool all_names = report != NULL || (options->flags & SIDESTEP_LOAD_STRICT) != 0;
    enum sidestep_status status =
        open_and_plan_all(engine, path, flags, bring, state, all_names, &reader, &plan, err);

    if (status == SIDESTEP_OK) {
        reader->queue.depth = engine->io.depth;
        reader->skips_hashes = options->verify == SIDESTEP_VERIFY_STRUCTURE;
    }
    if (status == SIDESTEP_OK)
        status = load_reader_all(engine, reader, &plan, state, options, report, &bytes_read, err);
    if (!is_done_again(bring, status))
        events_emit(&engine->events, status == SIDESTEP_OK ? "loaded" : "load_failed",
                    json_pack("{s:o, s:I, s:I}", "path", events_text(path), "bytes",
                              reader != NULL ? (json_int_t)reader_data_bytes(reader) : 0,
                              "bytes_read", (json_int_t)bytes_read));
    reader_close(&reader);
    return status;
}

enum sidestep_status load_path_all(struct sidestep_engine *engine, const char *path,
                                   struct sidestep_state_dict *state,
                                   const struct sidestep_load_options *options, uint32_t flags,
                                   struct sidestep_load_report *report, struct sidestep_error *err)
{
    const struct load_bring *bring =
        engine->bring != NULL && strcmp(engine->bring->path, path) == 0 ? engine->bring : NULL;
    struct sidestep_error why = {.rank = -1};

    /* A checkpoint that is verified first is read twice: the second time from the page cache. */
    if (options->verify != SIDESTEP_VERIFY_BEFORE && engine->direct_io)
        flags |= STORE_DIRECT | (engine->io.ring ? READER_IO_URING : 0);
    flags |= bring != NULL && bring->all != NULL ? READER_SPREAD : 0;
    enum sidestep_status status =
        load_once_all(engine, path, bring, state, options, flags, report, &why);
    if (is_done_again(bring, status)) {
        bring->blame(bring->context, &why);
        status = load_once_all(engine, path, bring, state, options, flags, report, err);
    } else if (status != SIDESTEP_OK)
        error_copy(err, &why);
    return WRAP(status, err, "load '%s'", path);
}

enum sidestep_status sidestep_load(struct sidestep_engine *engine, const char *path,
                                   struct sidestep_state_dict *state,
                                   const struct sidestep_load_options *theirs,
                                   struct sidestep_load_report *report, struct sidestep_error *err)
{
    struct sidestep_load_options options;

    TRY(engine_check(engine, err));
    enum sidestep_status status = load_options_copy(&options, theirs, err);
    if (status == SIDESTEP_OK && (path == NULL || state == NULL))
        status = FAIL(err, SIDESTEP_EINVAL, "%s is NULL", path == NULL ? "path" : "state");
    TRY(comm_agree_all(&engine->comm, status, err));
    return load_path_all(engine, path, state, &options, READER_FOREIGN, report, err);
}
