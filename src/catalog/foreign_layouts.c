/* SPDX-License-Identifier: BSD-3-Clause */
/* foreign_layouts.c -- the checks for each program's checkpoints; see foreign_layouts.h.
 *
 * Each check knows what its program writes last, or how its files show that they were truncated. It
 * knows the programs that may save to one root with sidestep, through its adapters. */
#include "catalog/foreign_layouts.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "catalog/list.h"
#include "catalog/file_probe.h"
#include "commit/commit.h"
#include "format/format.h"

#define MAX_RECORD_BYTES ((uint64_t)64 << 20) /* of indexes and states in JSON, in bytes */

/* ---- names */

static bool starts_with(const char *name, const char *text)
{
    return strncmp(name, text, strlen(text)) == 0;
}

/* Does the name have this beginning and end? */
static bool matches(const char *name, const char *begin, const char *end)
{
    return starts_with(name, begin) && file_name_has_suffix(name, end);
}

static bool has(const struct foreign_layouts_probe *probe, const char *name)
{
    return name_list_contains(probe->names, name);
}

/* The first name with this beginning and end, or NULL. */
static const char *find_matching(const struct foreign_layouts_probe *probe, const char *begin,
                                 const char *end)
{
    for (size_t i = 0; i < probe->names->count; i++)
        if (matches(probe->names->names[i], begin, end))
            return probe->names->names[i];
    return NULL;
}

static enum sidestep_status set_reason(struct foreign_layouts_probe *probe,
                                       struct sidestep_error *err, const char *what,
                                       const char *name)
{
    probe->reason = arena_printf(probe->arena, "%s%s", name, what);
    return probe->reason != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(name) + strlen(what));
}

/* Check that a file exists and is not truncated. */
static enum sidestep_status check_file(struct foreign_layouts_probe *probe, struct store_dir *dir,
                                       const char *name, struct sidestep_error *err)
{
    const char *problem;

    TRY(file_probe_check(dir, name, &problem, err));
    return problem == NULL || probe->reason != NULL ? SIDESTEP_OK
                                                    : set_reason(probe, err, problem, name);
}

/* Check every file whose name has this beginning and end. */
static enum sidestep_status check_matching(struct foreign_layouts_probe *probe, const char *begin,
                                           const char *end, struct sidestep_error *err)
{
    for (size_t i = 0; i < probe->names->count && probe->reason == NULL; i++)
        if (matches(probe->names->names[i], begin, end))
            TRY(check_file(probe, probe->dir, probe->names->names[i], err));
    return SIDESTEP_OK;
}

/* Check the files BEGIN0END, BEGIN1END, ... The first must exist, and there must be no gaps. */
static enum sidestep_status check_ranks(struct foreign_layouts_probe *probe, const char *begin,
                                        const char *end, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];
    size_t count = 0;

    for (size_t i = 0; i < probe->names->count; i++)
        count += matches(probe->names->names[i], begin, end);
    for (size_t rank = 0; rank < (count != 0 ? count : 1) && probe->reason == NULL; rank++) {
        snprintf(name, sizeof(name), "%s%zu%s", begin, rank, end);
        if (!has(probe, name))
            return set_reason(probe, err, " is missing", name);
        TRY(check_file(probe, probe->dir, name, err));
    }
    return SIDESTEP_OK;
}

/* ---- records */

static void free_json(json_t **json)
{
    json_decref(*json);
}
#define OWNED_JSON OWNED_BY(free_json) json_t

/* Read a JSON file. ${*json} is NULL if it does not exist, or is not JSON. */
static enum sidestep_status read_json(struct store_dir *dir, const char *name, json_t **json,
                                      struct sidestep_error *err)
{
    OWNED_BUFFER text = {0};

    *json = NULL;
    enum sidestep_status status = small_file_read(dir, name, 0, MAX_RECORD_BYTES, &text, err);
    if (status == SIDESTEP_OK)
        *json = json_loadb((const char *)text.bytes, text.length, 0, NULL);
    return reader_status_is_damage(status) ? SIDESTEP_OK : status;
}

static enum sidestep_status set_missing(struct foreign_layouts_probe *probe,
                                        const struct weights_missing *missing,
                                        struct sidestep_error *err)
{
    char text[WEIGHTS_TEXT_BYTES];

    if (missing->count == 0)
        return SIDESTEP_OK;
    weights_say_missing(missing, text);
    return set_reason(probe, err, "", text);
}

/* Check all files that an index in Hugging Face's format references. */
static enum sidestep_status check_index(struct foreign_layouts_probe *probe, const char *name,
                                        struct sidestep_error *err)
{
    OWNED_JSON *index = NULL;
    OWNED_HASH_TABLE seen = {0};
    struct weights_missing missing = {0};
    const char *tensor;
    size_t existing;
    json_t *file;

    TRY(read_json(probe->dir, name, &index, err));
    json_t *map = json_object_get(index, "weight_map");
    if (!json_is_object(map))
        return set_reason(probe, err, " is not an index", name);
    json_object_foreach(map, tensor, file)
    {
        const char *shard = json_string_value(file);
        if (probe->reason != NULL)
            break;
        if (shard == NULL || !file_name_is_beneath(shard, strlen(shard)))
            return set_reason(probe, err, " names something that is not a file", name);
        TRY(hash_table_insert(&seen, shard, 0, &existing, err));
        if (existing != SIZE_MAX)
            continue;
        if (strchr(shard, '/') == NULL && !has(probe, shard))
            weights_add_missing(&missing, shard);
        else
            TRY(check_file(probe, probe->dir, shard, err));
    }
    return probe->reason == NULL ? set_missing(probe, &missing, err) : SIDESTEP_OK;
}

/* ---- weights in the forms of Hugging Face's libraries */

static const char *const weights[] = {
    "model.safetensors",
    "pytorch_model.bin",
    "adapter_model.safetensors",
    "adapter_model.bin",
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
};

/* Shards, and the index that references them. */
static const struct {
    const char *begin, *end, *index;
} sets[] = {
    {"model-", ".safetensors", "model.safetensors.index.json"},
    {"pytorch_model-", ".bin", "pytorch_model.bin.index.json"},
};

static bool is_weights_folder(const char *name)
{
    return starts_with(name, "pytorch_model_fsdp") || starts_with(name, "global_step") ||
           strcmp(name, "pytorch_model") == 0;
}

static bool has_weights(const struct foreign_layouts_probe *probe)
{
    for (size_t i = 0; i < ARRAY_LENGTH(weights); i++)
        if (has(probe, weights[i]))
            return true;
    for (size_t i = 0; i < probe->names->count; i++)
        if (is_weights_folder(probe->names->names[i]))
            return true;
    return find_matching(probe, "model-", ".safetensors") != NULL ||
           find_matching(probe, "pytorch_model-", ".bin") != NULL;
}

static enum sidestep_status set_damage(struct foreign_layouts_probe *probe, const char *name,
                                       const char *message, struct sidestep_error *err)
{
    probe->reason = arena_printf(probe->arena, "%s: %s", name, message);
    return probe->reason != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(message));
}

/* Is it a directory of FSDP: weights, or the state of an optimizer? */
static bool is_dcp_folder(const char *name)
{
    return (starts_with(name, "pytorch_model_fsdp") || starts_with(name, "optimizer_")) &&
           strchr(name, '.') == NULL;
}

/* A directory of FSDP is a DCP checkpoint: its .metadata is written last. */
static enum sidestep_status check_folder(struct foreign_layouts_probe *probe, const char *name,
                                         struct sidestep_error *err)
{
    OWNED_BY(reader_close) struct reader *reader = NULL;
    struct sidestep_error why = {0};

    const char *path = arena_printf(probe->arena, "%s/%s", probe->path, name);
    if (path == NULL)
        return FAIL_NOMEM(err, strlen(name));
    enum sidestep_status status = reader_open(probe->root->store, path, READER_ALL, &reader, &why);
    if (status == SIDESTEP_EUNCOMMITTED)
        return set_reason(probe, err, " has no .metadata", name);
    if (status == SIDESTEP_OK || reader_status_is_damage(status))
        return status == SIDESTEP_OK ? status : set_damage(probe, name, why.message, err);
    return error_copy(err, &why);
}

static enum sidestep_status check_weights(struct foreign_layouts_probe *probe,
                                          struct sidestep_error *err)
{
    if (!has_weights(probe))
        return set_reason(probe, err, "there are no weights", "");
    for (size_t i = 0; i < ARRAY_LENGTH(weights) && probe->reason == NULL; i++)
        if (has(probe, weights[i]))
            TRY(file_name_has_suffix(weights[i], ".json")
                    ? check_index(probe, weights[i], err)
                    : check_file(probe, probe->dir, weights[i], err));
    for (size_t i = 0; i < probe->names->count && probe->reason == NULL; i++)
        if (is_dcp_folder(probe->names->names[i]))
            TRY(check_folder(probe, probe->names->names[i], err));
    /* Shards are written before the index that references them. */
    for (size_t i = 0; i < ARRAY_LENGTH(sets) && probe->reason == NULL && probe->layout != NULL;
         i++)
        if (find_matching(probe, sets[i].begin, sets[i].end) != NULL && !has(probe, sets[i].index))
            return set_reason(probe, err, " is missing", sets[i].index);
    return SIDESTEP_OK;
}

/* ---- the layouts */

/* torchtitan: step-N is a DCP checkpoint. The last one may be weights in Hugging Face's format. */
static bool is_titan(const struct foreign_layouts_probe *probe)
{
    return has(probe, FILE_NAME_METADATA) ||
           find_matching(probe, "model", ".safetensors") != NULL ||
           has(probe, "model.safetensors.index.json") ||
           find_matching(probe, "__", ".distcp") != NULL;
}

static enum sidestep_status check_titan(struct foreign_layouts_probe *probe,
                                        struct sidestep_error *err)
{
    if (has(probe, FILE_NAME_METADATA))
        return SIDESTEP_OK;
    if (find_matching(probe, "__", ".distcp") != NULL)
        return set_reason(probe, err, " is missing", FILE_NAME_METADATA);
    return check_weights(probe, err);
}

/* transformers' Trainer: checkpoint-N. trainer_state.json is written last. */
static bool is_trainer(const struct foreign_layouts_probe *probe)
{
    return has(probe, "trainer_state.json") || has(probe, "training_args.bin") ||
           has(probe, "optimizer.pt") || has_weights(probe);
}

static enum sidestep_status check_trainer(struct foreign_layouts_probe *probe,
                                          struct sidestep_error *err)
{
    static const char *const states[] = {"optimizer.pt", "scheduler.pt", "optimizer.bin"};

    OWNED_JSON *state = NULL;

    TRY(read_json(probe->dir, "trainer_state.json", &state, err));
    json_t *step = json_object_get(state, "global_step");
    bool is_read = json_is_object(state);
    bool is_other = json_is_integer(step) && json_integer_value(step) != probe->step;
    if (!has(probe, "trainer_state.json"))
        return set_reason(probe, err, " is missing", "trainer_state.json");
    if (!is_read || is_other)
        return set_reason(probe, err, is_read ? " is of another step" : " is truncated",
                          "trainer_state.json");
    TRY(check_weights(probe, err));
    for (size_t i = 0; i < ARRAY_LENGTH(states) && probe->reason == NULL; i++)
        if (has(probe, states[i]))
            TRY(check_file(probe, probe->dir, states[i], err));
    if (probe->reason == NULL && find_matching(probe, "rng_state_", ".pth") != NULL)
        TRY(check_ranks(probe, "rng_state_", ".pth", err));
    return SIDESTEP_OK;
}

/* accelerate: checkpoint_N. The random states of all ranks are written last. */
static bool is_accelerate(const struct foreign_layouts_probe *probe)
{
    return find_matching(probe, "random_states_", ".pkl") != NULL || has(probe, "optimizer.bin") ||
           has(probe, "scheduler.bin") || has_weights(probe);
}

static enum sidestep_status check_accelerate(struct foreign_layouts_probe *probe,
                                             struct sidestep_error *err)
{
    TRY(check_weights(probe, err));
    TRY(check_matching(probe, "optimizer", ".bin", err));
    if (probe->reason == NULL)
        TRY(check_ranks(probe, "random_states_", ".pkl", err));
    return SIDESTEP_OK;
}

/* Lightning: a file, or a directory that is a DCP checkpoint with meta.pt, which is written
 * last. */
static bool is_lightning(const struct foreign_layouts_probe *probe)
{
    return probe->dir == NULL || has(probe, FILE_NAME_METADATA) || has(probe, "meta.pt") ||
           find_matching(probe, "__", ".distcp") != NULL;
}

static enum sidestep_status check_lightning(struct foreign_layouts_probe *probe,
                                            struct sidestep_error *err)
{
    if (probe->dir == NULL)
        return check_file(probe, probe->root, probe->name, err);
    if (!has(probe, FILE_NAME_METADATA))
        return set_reason(probe, err, " is missing", FILE_NAME_METADATA);
    if (!has(probe, "meta.pt"))
        return set_reason(probe, err, " is missing", "meta.pt");
    return check_file(probe, probe->dir, "meta.pt", err);
}

static const struct layout {
    const char *name;
    const char *begin; /* of the names of its checkpoints */
    const char *end;
    bool (*is)(const struct foreign_layouts_probe *probe);
    enum sidestep_status (*check)(struct foreign_layouts_probe *probe, struct sidestep_error *err);
} layouts[] = {
    {"lightning", "", ".ckpt", is_lightning, check_lightning},
    {"torchtitan", "step-", "", is_titan, check_titan},
    {"transformers", "checkpoint-", "", is_trainer, check_trainer},
    {"accelerate", "checkpoint_", "", is_accelerate, check_accelerate},
};

bool foreign_layouts_is_file(const char *name, enum file_probe_format format)
{
    if (!file_name_has_suffix(name, ".ckpt"))
        return false;
    return step_name_parse(name) >= 0 || strcmp(name, "last.ckpt") == 0 ||
           format == FILE_PROBE_ZIP || format == FILE_PROBE_EMPTY;
}

const char *foreign_layouts_find_tensors(const struct name_list *names)
{
    const char *found = NULL;

    for (size_t i = 0; i < names->count; i++) {
        const char *name = names->names[i];
        if (file_name_has_suffix(name, ".safetensors"))
            return "safetensors";
        if (file_name_has_suffix(name, ".pt") || file_name_has_suffix(name, ".pth") ||
            matches(name, "pytorch_model", ".bin") || strcmp(name, "adapter_model.bin") == 0)
            found = "torch";
    }
    return found;
}

enum sidestep_status foreign_layouts_check_weights(struct foreign_layouts_probe *probe,
                                                   struct sidestep_error *err)
{
    probe->layout = probe->reason = NULL;
    if (has_weights(probe))
        TRY(check_weights(probe, err));
    for (size_t i = 0; i < ARRAY_LENGTH(sets) && probe->reason == NULL; i++) {
        struct weights_missing missing = {0};
        if (!has(probe, sets[i].index)) /* without it, the names say how many there are */
            weights_find_missing(probe->names, sets[i].end, &missing);
        TRY(set_missing(probe, &missing, err));
    }
    return SIDESTEP_OK;
}

enum sidestep_status foreign_layouts_probe(struct foreign_layouts_probe *probe,
                                           struct sidestep_error *err)
{
    probe->layout = probe->reason = NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(layouts); i++) {
        const struct layout *layout = &layouts[i];
        bool is_named = matches(probe->name, layout->begin, layout->end);
        bool has_step = probe->step >= 0 || strcmp(probe->name, "last.ckpt") == 0;
        if (!is_named || (!has_step && probe->dir != NULL) || !layout->is(probe))
            continue;
        probe->layout = layout->name;
        return layout->check(probe, err);
    }
    return SIDESTEP_OK;
}
