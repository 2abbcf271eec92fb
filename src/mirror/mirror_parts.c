/* SPDX-License-Identifier: BSD-3-Clause */
/* mirror_parts.c -- sends a checkpoint whose parts lie in the directories of several nodes; see
 * mirror.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mirror/mirror.h"
#include "object/object.h"

/* In ".sidestep" of the mirror: the save that is being sent, or was sent last. */
#define SENDING "sending"
#define SENDING_BYTES 1024u

struct sending {
    bool has_ended; /* who began this attempt sends nothing more; the rest is not known, but ... */
    bool is_sent;   /* ... whether that save is at the mirror */
    char attempt[SAVE_ID_HEX]; /* random: what was done in an earlier one may be gone */
    char save_id[SAVE_ID_HEX];
    char name[FILE_NAME_BYTES];
    uint32_t ranks;
};

/* ---- what is being sent */

static enum sidestep_status replace_sending(struct mirror_look *m, const struct buffer *text,
                                            struct sidestep_error *err)
{
    TRY(buffer_check(text, err));
    return small_file_replace(m->far.annotations_dir, SENDING, SENDING ".new", text->bytes,
                              text->length, err);
}

static enum sidestep_status write_sending(struct mirror_look *m,
                                          const struct sidestep_listed *entry,
                                          struct sidestep_error *err)
{
    uint8_t attempt[SAVE_ID_BYTES];
    OWNED_BUFFER text = {0};

    TRY(mirror_open_to_write(&m->far, err));
    TRY(random_bytes(attempt, sizeof(attempt), err));
    hash_to_hex(attempt, sizeof(attempt), m->attempt);
    buffer_printf(&text, "save %s attempt %s ranks %u name %s\n", entry->save_id, m->attempt,
                  entry->ranks, entry->name);
    return replace_sending(m, &text, err);
}

void mirror_end_sending(struct mirror_look *m)
{
    OWNED_BUFFER text = {0};

    if (m->attempt[0] == '\0')
        return;
    buffer_printf(&text, "ended %s %s\n", m->attempt, m->attempt_is_sent ? "sent" : "failed");
    (void)replace_sending(m, &text, NULL); /* else the others wait for a while */
}

static bool is_name_of_checkpoint(const char *name)
{
    return strchr(name, '/') == NULL && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           strcmp(name, FILE_NAME_SERIES_DIR) != 0 && file_name_parse(name).kind == FILE_NAME_NONE;
}

static bool parse_sending(const char *text, struct sending *sending)
{
    uint8_t id[SAVE_ID_BYTES];
    int end = 0;

    _Static_assert(SAVE_ID_HEX == 33 && FILE_NAME_BYTES == 256, "the widths below");
    *sending = (struct sending){0};
    if (sscanf(text, "ended %32s%n", sending->attempt, &end) == 1) {
        sending->is_sent = strcmp(text + end, " sent\n") == 0;
        return sending->has_ended = sending->is_sent || strcmp(text + end, " failed\n") == 0;
    }
    /* The name comes from outside, and is joined to the root. */
    return sscanf(text, "save %32s attempt %32s ranks %u name %255[^\n]%n", sending->save_id,
                  sending->attempt, &sending->ranks, sending->name, &end) == 4 &&
           strcmp(text + end, "\n") == 0 && hash_from_hex(sending->save_id, SAVE_ID_BYTES, id) &&
           is_name_of_checkpoint(sending->name) && sending->ranks > 1 &&
           sending->ranks <= INT32_MAX;
}

/* ENOTFOUND: there is none. */
static enum sidestep_status read_sending(const struct mirror_look *m, struct sending *sending,
                                         struct sidestep_error *err)
{
    char path[COMMIT_PATH_BYTES];
    OWNED_BUFFER text = {0};
    OWNED_DIR *dir = NULL;

    snprintf(path, sizeof(path), "%s/%s", m->far.root, FILE_NAME_SERIES_DIR);
    TRY(store_dir_open(m->far.store, NULL, path, &dir, err));
    TRY(small_file_read(dir, SENDING, 0, SENDING_BYTES, &text, err));
    buffer_put_u8(&text, 0);
    TRY(buffer_check(&text, err));
    if (!parse_sending((const char *)text.bytes, sending))
        return FAIL(err, SIDESTEP_ENOTFOUND, "'%s/%s' says nothing", path, SENDING);
    return SIDESTEP_OK;
}

/* ---- one part */

/* Put the files of the part ${path}, and vote for its ranks. */
static enum sidestep_status put_part(struct mirror_look *m, const char *path, const char *to,
                                     struct commit *save, struct sidestep_copy_report *copied,
                                     struct sidestep_error *err)
{
    struct checkpoint_copy c = {.source = path,
                                .destination = to,
                                .save = save,
                                .from = m->near.store,
                                .to = m->far.store,
                                .clock = m->clock,
                                .throttle = &m->throttle,
                                .options = {.threads = mirror_threads(m),
                                            .on_progress = m->options.on_progress,
                                            .context = m->options.context,
                                            .cancel = m->options.cancel}};
    enum sidestep_status status = copy_run(&c, copied, err);

    if (status == SIDESTEP_OK) { /* the whole has what its parts say */
        save->layout_digest = c.reader->files[0].footer.layout_digest;
        memcpy(save->request.naming, c.reader->manifest.naming, sizeof(save->request.naming));
    }
    copy_release(&c);
    return status;
}

/* ---- the process that begins and publishes */

struct sender {
    struct mirror_look *m;
    const struct sidestep_listed *replaced; /* by name, at the mirror; NULL: there is none */
    bool has_begun;
    bool is_decided; /* it cannot be given up any more */
};

static enum sidestep_status check_wanted(void *context, const struct commit *commit UNUSED,
                                         struct sidestep_error *err)
{
    const struct sender *sender = context;
    const struct mirror_parts *parts = sender->m->parts;

    if (sender->is_decided || !parts->gives_up(parts->context))
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EABORTED, "it was cancelled");
}

/* The mirror has another save of this name, which the run has left behind, or a damaged copy of
 * this one. A directory must go before the new one gets the name; a bucket exchanges them itself. A
 * pin of a damaged copy holds for the new one. */
static enum sidestep_status remove_replaced(struct mirror_look *m,
                                            const struct sidestep_listed *replaced,
                                            const char *save_id, struct sidestep_error *err)
{
    struct lease lease = {0};
    bool is_same = strcmp(replaced->save_id, save_id) == 0;
    enum sidestep_status status = lease_acquire_to_delete(&lease, m->far.store, m->far.root, err);

    if (status == SIDESTEP_OK)
        status = prune_delete(m->far.dir, is_same ? NULL : lease.dir, replaced->name,
                              replaced->save_id, NULL, err);
    lease_release(&lease);
    return WRAP(status == SIDESTEP_ENOTFOUND ? SIDESTEP_OK : status, err,
                "delete what it replaces");
}

/* All is at the mirror, and is whole: the next call gives it its name. */
static enum sidestep_status decide(void *context, const struct commit *commit,
                                   struct sidestep_error *err)
{
    struct sender *sender = context;

    TRY(check_wanted(sender, commit, err));
    sender->is_decided = true;
    return sender->replaced != NULL && commit->store->ops->layout == STORE_OF_DIRECTORIES
               ? remove_replaced(sender->m, sender->replaced, commit->save_id, err)
               : SIDESTEP_OK;
}

static enum sidestep_status begin(struct sender *sender, const struct sidestep_listed *entry,
                                  const char *to, struct commit *commit, struct sidestep_error *err)
{
    struct mirror_look *m = sender->m;
    uint8_t id[SAVE_ID_BYTES];

    if (!hash_from_hex(entry->save_id, SAVE_ID_BYTES, id))
        return FAIL(err, SIDESTEP_ECORRUPT, "its save id is malformed");
    memcpy(commit->request.run_id, m->run_id, sizeof(m->run_id));
    TRY(commit_open(commit, to, err));
    commit_set_save_id(commit, id);
    commit_remove_outcome(commit); /* of an earlier attempt */
    TRY(commit_begin(commit, id, err));
    sender->has_begun = true;
    if (commit->previous != 0 && sender->replaced != NULL &&
        commit->previous != commit_identity(sender->replaced->save_id))
        return FAIL(err, SIDESTEP_EEXISTS, "'%s' holds another checkpoint than was listed there",
                    to);
    return write_sending(m, entry, err);
}

static enum sidestep_status publish(const struct sidestep_listed *entry, struct commit *commit,
                                    enum commit_outcome *outcome, struct sidestep_error *err)
{
    OWNED_BY(commit_contents_release) struct commit_contents contents = {0};

    TRY(commit_collect_votes(commit, &contents, err));
    contents.manifest.saved_at = entry->saved_at;
    return commit_publish(commit, &contents, outcome, err);
}

enum sidestep_status mirror_send_parts(struct mirror_look *m, const struct sidestep_listed *entry,
                                       const char *to, struct sidestep_copy_report *copied,
                                       struct sidestep_error *err)
{
    struct sender sender = {
        .m = m, .replaced = mirror_replaces(m, entry->name) ? mirror_find(m, entry->name) : NULL};
    const struct commit_guard guard = {decide, check_wanted, &sender};
    struct commit commit = {.store = m->far.store,
                            .clock = m->clock,
                            .world_size = entry->ranks,
                            .request = {.timeout_ns = m->parts->timeout_ns,
                                        .step = entry->step,
                                        .incarnation = entry->incarnation,
                                        .guard = &guard,
                                        .no_replace = sender.replaced == NULL,
                                        .resumes = true}};
    enum commit_outcome outcome = COMMIT_ABORTED;
    struct sidestep_error why = {.rank = -1};
    enum sidestep_status status = begin(&sender, entry, to, &commit, &why);

    if (status == SIDESTEP_OK)
        status = put_part(m, entry->path, to, &commit, copied, &why);
    if (status == SIDESTEP_OK)
        status = publish(entry, &commit, &outcome, &why);
    m->attempt_is_sent = status == SIDESTEP_OK;
    m->has_unnamed |= status != SIDESTEP_OK && sender.is_decided;
    /* What could go on stays: the next look finds the files and the votes that are there. So does
     * what lacks only its name, because what it replaces may be gone. */
    if (status != SIDESTEP_OK && sender.has_begun && !sender.is_decided &&
        outcome == COMMIT_ABORTED && !copy_can_resume(status))
        commit_abort(&commit, &why);
    commit_close(&commit);
    if (status == SIDESTEP_EABORTED && m->parts->gives_up(m->parts->context))
        return FAIL(err, SIDESTEP_ECANCELLED, "the call was cancelled");
    return status == SIDESTEP_OK ? SIDESTEP_OK : error_copy(err, &why);
}

/* ---- the others */

/* The lowest rank of the part but 0, whose place is taken: it keeps the save alive in its name. */
static uint32_t choose_rank(const struct manifest *manifest)
{
    for (uint32_t i = 0; i < manifest->part.rank_count; i++)
        if (manifest->part.ranks[i] != 0)
            return manifest->part.ranks[i];
    return 1;
}

/* Without a part, the rank of this process, if the saved world had it. */
static uint32_t choose_rank_without(const struct mirror_look *m, const struct sending *sending)
{
    return m->parts->rank != 0 && m->parts->rank < sending->ranks ? m->parts->rank : 1;
}

/* Has the near level a part of this save? An error while looking is none of the two. */
static enum sidestep_status find_part(const struct mirror_look *m, const struct sending *sending,
                                      const char *path, bool *has_part, uint32_t *rank,
                                      struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    char name[FILE_NAME_BYTES];
    OWNED_BUFFER text = {0};
    OWNED_ARENA arena = {0};
    struct manifest manifest;
    OWNED_DIR *dir = NULL;

    *has_part = false;
    file_name_format(FILE_NAME_MANIFEST, sending->save_id, 0, 0, name);
    enum sidestep_status status = store_dir_open(m->near.store, NULL, path, &dir, &why);
    if (status == SIDESTEP_OK)
        status = small_file_read(dir, name, 0, MANIFEST_MAX_BYTES, &text, &why);
    if (status == SIDESTEP_OK)
        status = manifest_decode(text.bytes, text.length, &arena, &manifest, &why);
    if (status != SIDESTEP_OK)
        return reader_status_is_damage(status) ? SIDESTEP_OK : error_copy(err, &why);
    *has_part = manifest.part.rank_count != 0 && manifest.world_size == sending->ranks;
    if (*has_part)
        *rank = choose_rank(&manifest);
    return SIDESTEP_OK;
}

/* Join the save, if it is under way. */
static enum sidestep_status join(const struct mirror_look *m, const struct sending *sending,
                                 uint32_t rank, const char *to, struct commit *commit,
                                 bool *is_under_way, struct sidestep_error *err)
{
    uint8_t id[SAVE_ID_BYTES];

    *is_under_way = false;
    *commit = (struct commit){
        .store = m->far.store, .clock = m->clock, .rank = rank, .world_size = sending->ranks};
    if (!hash_from_hex(sending->save_id, SAVE_ID_BYTES, id)) /* it was parsed */
        return FAIL(err, SIDESTEP_ECORRUPT, "its save id is malformed");
    TRY(commit_open(commit, to, err));
    commit_set_save_id(commit, id);
    *is_under_way = commit_join(commit, NULL) == SIDESTEP_OK && commit_is_pending(commit);
    return SIDESTEP_OK;
}

/* Must the save end, because this process cannot put its part? Other errors may pass, so it tries
 * again, but not for ever: rank 0 takes each attempt for progress. */
static bool ends_save(const struct mirror_look *m, struct mirror_answer *answer,
                      const struct sending *sending, enum sidestep_status status)
{
    uint64_t now = clock_now(m->clock);

    if (!copy_can_resume(status) && status != SIDESTEP_ENOSPC && status != SIDESTEP_EEXISTS)
        return true;
    if (strcmp(answer->failing, sending->attempt) != 0) {
        memcpy(answer->failing, sending->attempt, sizeof(answer->failing));
        answer->failing_since_ns = now;
    }
    return now - answer->failing_since_ns >= m->parts->timeout_ns;
}

static enum sidestep_status put_or_refuse(struct mirror_look *m, struct mirror_answer *answer,
                                          const struct sending *sending, struct commit *commit,
                                          const char *path, const char *to, bool has_part,
                                          struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    enum sidestep_status status =
        has_part ? put_part(m, path, to, commit, NULL, &why)
                 : FAIL(&why, SIDESTEP_ENOTFOUND, "'%s' has no part of it", m->near.root);

    bool refuses = status != SIDESTEP_OK && (!has_part || ends_save(m, answer, sending, status));
    if (status == SIDESTEP_OK || refuses)
        memcpy(answer->attempt, sending->attempt, sizeof(answer->attempt));
    if (status == SIDESTEP_OK)
        return SIDESTEP_OK;
    error_wrap(&why, "send the part '%s'", path);
    if (refuses)
        commit_vote_no(commit, &why);
    return error_copy(err, &why);
}

static enum sidestep_status answer_sending(struct mirror_look *m, struct mirror_answer *answer,
                                           const struct sending *sending, const char *refused,
                                           struct commit *commit, struct sidestep_error *err)
{
    char path[COMMIT_PATH_BYTES], to[COMMIT_PATH_BYTES];
    bool has_part, is_under_way;
    uint32_t rank = choose_rank_without(m, sending);

    snprintf(path, sizeof(path), "%s/%s", m->near.root, sending->name);
    snprintf(to, sizeof(to), "%s/%s", m->far.root, sending->name);
    memcpy(answer->save_id, sending->save_id, sizeof(answer->save_id));
    memcpy(answer->name, sending->name, sizeof(answer->name));
    answer->is_wanted = false;
    TRY(find_part(m, sending, path, &has_part, &rank, err));
    TRY(join(m, sending, rank, to, commit, &is_under_way, err));
    if (!is_under_way || (!has_part && strcmp(refused, sending->save_id) != 0)) {
        answer->is_wanted = is_under_way;
        return SIDESTEP_OK;
    }
    return put_or_refuse(m, answer, sending, commit, path, to, has_part, err);
}

enum sidestep_status mirror_answer(struct mirror_look *m, struct mirror_answer *answer,
                                   const char *refused, bool *again, struct sidestep_error *err)
{
    struct commit commit = {0};
    struct sending sending;

    *again = false;
    if (read_sending(m, &sending, NULL) != SIDESTEP_OK) /* who begins it reports what is wrong */
        return SIDESTEP_OK;
    answer->has_ended = sending.has_ended && strcmp(answer->seen, sending.attempt) == 0;
    answer->is_sent = answer->has_ended && sending.is_sent;
    if (sending.has_ended || strcmp(answer->attempt, sending.attempt) == 0)
        return SIDESTEP_OK;
    memcpy(answer->seen, sending.attempt, sizeof(answer->seen));
    enum sidestep_status status = answer_sending(m, answer, &sending, refused, &commit, err);
    commit_close(&commit);
    *again = strcmp(answer->attempt, sending.attempt) == 0;
    return status;
}
