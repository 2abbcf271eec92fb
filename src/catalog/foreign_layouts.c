/* SPDX-License-Identifier: BSD-3-Clause */
/* foreign_layouts.c -- see foreign_layouts.h.  Each test says what that program writes last, or how
 * its files show that they were cut short; a pointer file ("latest") may hold back what is newer
 * than it says, for it is written last, but never vouches for anything. */
#include "catalog/foreign_layouts.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "catalog/list.h"
#include "catalog/file_probe.h"
#include "commit/commit.h"
#include "format/format.h"

#define MAX_RECORD_BYTES ((uint64_t)64 << 20) /* of indexes and states in JSON */
#define MAX_POINTER_BYTES 256u

/* ---- names */

static bool starts_with(const char *name, const char *text)
{
    return strncmp(name, text, strlen(text)) == 0;
}

static bool is_like(const char *name, const char *begin, const char *end)
{
    return starts_with(name, begin) && file_name_has_suffix(name, end);
}

static bool has(const struct foreign_layouts_probe *look, const char *name)
{
    for (size_t i = 0; i < look->names->count; i++)
        if (strcmp(look->names->names[i], name) == 0)
            return true;
    return false;
}

/* The first name with this beginning and end, or NULL. */
static const char *find_like(const struct foreign_layouts_probe *look, const char *begin,
                             const char *end)
{
    for (size_t i = 0; i < look->names->count; i++)
        if (is_like(look->names->names[i], begin, end))
            return look->names->names[i];
    return NULL;
}

static enum sidestep_status say(struct foreign_layouts_probe *look, struct sidestep_error *err,
                                const char *what, const char *name)
{
    look->reason = arena_printf(look->arena, "%s%s", name, what);
    return look->reason != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(name) + strlen(what));
}

/* A file must be there, and not be cut short. */
static enum sidestep_status check_file(struct foreign_layouts_probe *look, struct store_dir *dir,
                                       const char *name, struct sidestep_error *err)
{
    const char *problem;

    TRY(file_probe_check(dir, name, &problem, err));
    return problem == NULL || look->reason != NULL ? SIDESTEP_OK : say(look, err, problem, name);
}

/* Every file of a name like this. */
static enum sidestep_status check_like(struct foreign_layouts_probe *look, const char *begin,
                                       const char *end, struct sidestep_error *err)
{
    for (size_t i = 0; i < look->names->count && look->reason == NULL; i++)
        if (is_like(look->names->names[i], begin, end))
            TRY(check_file(look, look->dir, look->names->names[i], err));
    return SIDESTEP_OK;
}

/* BEGIN0END, BEGIN1END, ...: none may be missing in between, and the first must be there. */
static enum sidestep_status check_ranks(struct foreign_layouts_probe *look, const char *begin,
                                        const char *end, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];
    size_t count = 0;

    for (size_t i = 0; i < look->names->count; i++)
        count += is_like(look->names->names[i], begin, end);
    for (size_t rank = 0; rank < (count != 0 ? count : 1) && look->reason == NULL; rank++) {
        snprintf(name, sizeof(name), "%s%zu%s", begin, rank, end);
        if (!has(look, name))
            return say(look, err, " is missing", name);
        TRY(check_file(look, look->dir, name, err));
    }
    return SIDESTEP_OK;
}

/* ---- records */

static void free_json(json_t **json)
{
    json_decref(*json);
}
#define OWNED_JSON OWNED_BY(free_json) json_t

/* ${*json} is NULL if it is not there, or is no JSON. */
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

/* The number that a pointer file in the root says, behind ${prefix}; -1: there is none that does.
 */
static int64_t read_pointer(const struct foreign_layouts_probe *look, const char *file,
                            const char *prefix)
{
    OWNED_BUFFER text = {0};
    char *end;

    if (small_file_read(look->root, file, 0, MAX_POINTER_BYTES, &text, NULL) != SIDESTEP_OK)
        return -1;
    buffer_put_u8(&text, 0);
    if (buffer_check(&text, NULL) != SIDESTEP_OK || !starts_with((char *)text.bytes, prefix))
        return -1;
    const char *digits = (const char *)text.bytes + strlen(prefix);
    long long number = strtoll(digits, &end, 10);
    return end != digits && number >= 0 && (*end == '\0' || *end == '\n') ? number : -1;
}

/* It was to be written after all else of this step was. */
static enum sidestep_status check_pointer(struct foreign_layouts_probe *look, const char *file,
                                          const char *prefix, struct sidestep_error *err)
{
    int64_t says = read_pointer(look, file, prefix);

    if (look->reason != NULL || says < 0 || says >= look->step)
        return SIDESTEP_OK;
    return say(look, err, " does not say that it was finished", file);
}

/* All files that an index of Hugging Face's form names. */
static enum sidestep_status check_index(struct foreign_layouts_probe *look, const char *name,
                                        struct sidestep_error *err)
{
    OWNED_JSON *index = NULL;
    const char *tensor, *last = "";
    json_t *file;

    TRY(read_json(look->dir, name, &index, err));
    json_t *map = json_object_get(index, "weight_map");
    if (!json_is_object(map))
        return say(look, err, " is no index", name);
    json_object_foreach(map, tensor, file)
    {
        const char *shard = json_string_value(file);
        if (look->reason != NULL)
            break;
        if (shard == NULL || !file_name_is_beneath(shard, strlen(shard)))
            return say(look, err, " names what is no file", name);
        if (strcmp(shard, last) != 0) /* most neighbours lie in one file */
            TRY(check_file(look, look->dir, shard, err));
        last = shard;
    }
    return SIDESTEP_OK;
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

static bool is_weights_folder(const char *name)
{
    return starts_with(name, "pytorch_model_fsdp") || starts_with(name, "global_step") ||
           strcmp(name, "pytorch_model") == 0;
}

static bool has_weights(const struct foreign_layouts_probe *look)
{
    for (size_t i = 0; i < ARRAY_LENGTH(weights); i++)
        if (has(look, weights[i]))
            return true;
    for (size_t i = 0; i < look->names->count; i++)
        if (is_weights_folder(look->names->names[i]))
            return true;
    return find_like(look, "model-", ".safetensors") != NULL;
}

static enum sidestep_status say_damage(struct foreign_layouts_probe *look, const char *name,
                                       const char *message, struct sidestep_error *err)
{
    look->reason = arena_printf(look->arena, "%s: %s", name, message);
    return look->reason != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(message));
}

/* Of FSDP's weights, or of the states of its optimizers. */
static bool is_dcp_folder(const char *name)
{
    return (starts_with(name, "pytorch_model_fsdp") || starts_with(name, "optimizer_")) &&
           strchr(name, '.') == NULL;
}

/* A folder of FSDP's is a DCP: its .metadata is written last. */
static enum sidestep_status check_folder(struct foreign_layouts_probe *look, const char *name,
                                         struct sidestep_error *err)
{
    OWNED_BY(reader_close) struct reader *reader = NULL;
    struct sidestep_error why = {0};

    const char *path = arena_printf(look->arena, "%s/%s", look->path, name);
    if (path == NULL)
        return FAIL_NOMEM(err, strlen(name));
    enum sidestep_status status = reader_open(look->root->store, path, 0, &reader, &why);
    if (status == SIDESTEP_EUNCOMMITTED)
        return say(look, err, " has no .metadata", name);
    if (status == SIDESTEP_OK || reader_status_is_damage(status))
        return status == SIDESTEP_OK ? status : say_damage(look, name, why.message, err);
    error_copy(err, &why);
    return status;
}

static enum sidestep_status check_weights(struct foreign_layouts_probe *look,
                                          struct sidestep_error *err)
{
    if (!has_weights(look))
        return say(look, err, "there are no weights", "");
    for (size_t i = 0; i < ARRAY_LENGTH(weights) && look->reason == NULL; i++)
        if (has(look, weights[i]))
            TRY(file_name_has_suffix(weights[i], ".json")
                    ? check_index(look, weights[i], err)
                    : check_file(look, look->dir, weights[i], err));
    for (size_t i = 0; i < look->names->count && look->reason == NULL; i++)
        if (is_dcp_folder(look->names->names[i]))
            TRY(check_folder(look, look->names->names[i], err));
    /* Shards are written before the index that names them. */
    if (look->reason == NULL && find_like(look, "model-", ".safetensors") != NULL &&
        !has(look, "model.safetensors.index.json"))
        return say(look, err, " is missing", "model.safetensors.index.json");
    return SIDESTEP_OK;
}

/* ---- the layouts */

/* torchtitan: step-N is a DCP, or, at the end, weights as Hugging Face has them. */
static bool is_titan(const struct foreign_layouts_probe *look)
{
    return has(look, FILE_NAME_METADATA) || find_like(look, "model", ".safetensors") != NULL ||
           has(look, "model.safetensors.index.json") || find_like(look, "__", ".distcp") != NULL;
}

static enum sidestep_status check_titan(struct foreign_layouts_probe *look,
                                        struct sidestep_error *err)
{
    if (has(look, FILE_NAME_METADATA))
        return SIDESTEP_OK;
    if (find_like(look, "__", ".distcp") != NULL)
        return say(look, err, " is missing", FILE_NAME_METADATA);
    return check_weights(look, err);
}

/* transformers' Trainer: checkpoint-N; trainer_state.json comes last. */
static bool is_trainer(const struct foreign_layouts_probe *look)
{
    return has(look, "trainer_state.json") || has(look, "training_args.bin") ||
           has(look, "optimizer.pt") || has_weights(look);
}

static enum sidestep_status check_trainer(struct foreign_layouts_probe *look,
                                          struct sidestep_error *err)
{
    static const char *const states[] = {"optimizer.pt", "scheduler.pt", "optimizer.bin"};

    OWNED_JSON *state = NULL;

    TRY(read_json(look->dir, "trainer_state.json", &state, err));
    json_t *step = json_object_get(state, "global_step");
    bool is_read = json_is_object(state);
    bool is_other = json_is_integer(step) && json_integer_value(step) != look->step;
    if (!has(look, "trainer_state.json"))
        return say(look, err, " is missing", "trainer_state.json");
    if (!is_read || is_other)
        return say(look, err, is_read ? " is of another step" : " is cut short",
                   "trainer_state.json");
    TRY(check_weights(look, err));
    for (size_t i = 0; i < ARRAY_LENGTH(states) && look->reason == NULL; i++)
        if (has(look, states[i]))
            TRY(check_file(look, look->dir, states[i], err));
    if (look->reason == NULL && find_like(look, "rng_state_", ".pth") != NULL)
        TRY(check_ranks(look, "rng_state_", ".pth", err));
    return SIDESTEP_OK;
}

/* accelerate: checkpoint_N; the random states of all ranks come last. */
static bool is_accelerate(const struct foreign_layouts_probe *look)
{
    return find_like(look, "random_states_", ".pkl") != NULL || has(look, "optimizer.bin") ||
           has(look, "scheduler.bin") || has_weights(look);
}

static enum sidestep_status check_accelerate(struct foreign_layouts_probe *look,
                                             struct sidestep_error *err)
{
    TRY(check_weights(look, err));
    TRY(check_like(look, "optimizer", ".bin", err));
    if (look->reason == NULL)
        TRY(check_ranks(look, "random_states_", ".pkl", err));
    return SIDESTEP_OK;
}

/* Megatron-LM: iter_N and, last, latest_checkpointed_iteration.txt beside it. */
static bool is_megatron(const struct foreign_layouts_probe *look)
{
    return has(look, FILE_NAME_METADATA) || find_like(look, "mp_rank_", "") != NULL ||
           has(look, "common.pt") || has(look, "metadata.json");
}

static enum sidestep_status check_megatron_rank(struct foreign_layouts_probe *look,
                                                const char *name, struct sidestep_error *err)
{
    static const char *const states[] = {"model_optim_rng.pt", "model_rng.pt"};
    OWNED_DIR *dir = NULL;
    struct store_stat stat;

    enum sidestep_status status = store_dir_open(look->root->store, look->dir, name, &dir, err);
    if (status == SIDESTEP_ENOTFOUND || status == SIDESTEP_EUNSAFE)
        return say(look, err, " is no directory", name);
    TRY(status);
    for (size_t i = 0; i < ARRAY_LENGTH(states); i++) {
        status = store_stat(dir, states[i], &stat, err);
        if (status == SIDESTEP_OK)
            return check_file(look, dir, states[i], err);
        if (status != SIDESTEP_ENOTFOUND)
            return status;
    }
    return say(look, err, " has no model_optim_rng.pt", name);
}

static enum sidestep_status check_megatron(struct foreign_layouts_probe *look,
                                           struct sidestep_error *err)
{
    if (has(look, FILE_NAME_METADATA))
        return SIDESTEP_OK;
    if (has(look, "metadata.json") || has(look, "common.pt"))
        return say(look, err, " is missing", FILE_NAME_METADATA);
    for (size_t i = 0; i < look->names->count && look->reason == NULL; i++)
        if (starts_with(look->names->names[i], "mp_rank_"))
            TRY(check_megatron_rank(look, look->names->names[i], err));
    return check_pointer(look, "latest_checkpointed_iteration.txt", "", err);
}

/* DeepSpeed: global_stepN, and, last, `latest` beside it. */
static bool is_deepspeed(const struct foreign_layouts_probe *look)
{
    return find_like(look, "", "_states.pt") != NULL;
}

static enum sidestep_status check_deepspeed(struct foreign_layouts_probe *look,
                                            struct sidestep_error *err)
{
    static const char *const kinds[] = {"zero_pp_rank_", "bf16_zero_pp_rank_"};

    if (find_like(look, "", "_model_states.pt") == NULL)
        return say(look, err, "there are no model states", "");
    TRY(check_like(look, "", "_states.pt", err));
    for (size_t i = 0; i < ARRAY_LENGTH(kinds) && look->reason == NULL; i++)
        if (find_like(look, kinds[i], "_mp_rank_00_optim_states.pt") != NULL)
            TRY(check_ranks(look, kinds[i], "_mp_rank_00_optim_states.pt", err));
    return check_pointer(look, "latest", "global_step", err);
}

/* Lightning: a file, or a directory that is a DCP with meta.pt, which comes last. */
static bool is_lightning(const struct foreign_layouts_probe *look)
{
    return look->dir == NULL || has(look, FILE_NAME_METADATA) || has(look, "meta.pt") ||
           find_like(look, "__", ".distcp") != NULL;
}

static enum sidestep_status check_lightning(struct foreign_layouts_probe *look,
                                            struct sidestep_error *err)
{
    if (look->dir == NULL)
        return check_file(look, look->root, look->name, err);
    if (!has(look, FILE_NAME_METADATA))
        return say(look, err, " is missing", FILE_NAME_METADATA);
    if (!has(look, "meta.pt"))
        return say(look, err, " is missing", "meta.pt");
    return check_file(look, look->dir, "meta.pt", err);
}

static const struct layout {
    const char *name;
    const char *begin; /* of the checkpoints' names */
    const char *end;
    bool (*is)(const struct foreign_layouts_probe *look);
    enum sidestep_status (*check)(struct foreign_layouts_probe *look, struct sidestep_error *err);
} layouts[] = {
    {"lightning", "", ".ckpt", is_lightning, check_lightning},
    {"torchtitan", "step-", "", is_titan, check_titan},
    {"transformers", "checkpoint-", "", is_trainer, check_trainer},
    {"accelerate", "checkpoint_", "", is_accelerate, check_accelerate},
    {"megatron", "iter_", "", is_megatron, check_megatron},
    {"deepspeed", "global_step", "", is_deepspeed, check_deepspeed},
};

bool foreign_layouts_is_file(const char *name, enum file_probe_format form)
{
    if (!file_name_has_suffix(name, ".ckpt"))
        return false;
    return step_name_parse(name) >= 0 || strcmp(name, "last.ckpt") == 0 || form == FILE_PROBE_ZIP ||
           form == FILE_PROBE_EMPTY;
}

const char *foreign_layouts_find_tensors(const struct name_list *names)
{
    const char *found = NULL;

    for (size_t i = 0; i < names->count; i++) {
        const char *name = names->names[i];
        if (file_name_has_suffix(name, ".safetensors"))
            return "safetensors";
        if (file_name_has_suffix(name, ".pt") || file_name_has_suffix(name, ".pth") ||
            is_like(name, "pytorch_model", ".bin") || strcmp(name, "adapter_model.bin") == 0)
            found = "torch";
    }
    return found;
}

enum sidestep_status foreign_layouts_check_weights(struct foreign_layouts_probe *look,
                                                   struct sidestep_error *err)
{
    look->reason = NULL;
    return has_weights(look) ? check_weights(look, err) : SIDESTEP_OK;
}

enum sidestep_status foreign_layouts_probe(struct foreign_layouts_probe *look,
                                           struct sidestep_error *err)
{
    look->layout = look->reason = NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(layouts); i++) {
        const struct layout *layout = &layouts[i];
        bool is_named = is_like(look->name, layout->begin, layout->end);
        bool has_step = look->step >= 0 || strcmp(look->name, "last.ckpt") == 0;
        if (!is_named || (!has_step && look->dir != NULL) || !layout->is(look))
            continue;
        look->layout = layout->name;
        return layout->check(look, err);
    }
    return SIDESTEP_OK;
}
