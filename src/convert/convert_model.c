/* SPDX-License-Identifier: BSD-3-Clause */
/* convert_model.c -- finds the model in a training state, by the names that training programs
 * give to its parts. */
#include <string.h>

#include "base/base.h"
#include "convert/convert.h"
#include "model/model.h"

#define LISTED_TOPS 20u

/* Dicts at the top of training states that hold the weights ... */
static const char *const model_names[] = {"model", "model_state_dict", "state_dict", "module",
                                          "app.model"};
/* ... and those that hold something else. */
static const char *const other_names[] = {"optim",
                                          "optimizer",
                                          "optimizers",
                                          "optimizer_state_dict",
                                          "optimizer_states",
                                          "opt",
                                          "lr_scheduler",
                                          "lr_schedulers",
                                          "lr_scheduler_state_dict",
                                          "scheduler",
                                          "dataloader",
                                          "train_state",
                                          "rng",
                                          "rng_state",
                                          "loops"};

/* Suffixes of names that only optimizers use. */
static const char *const optimizer_ends[] = {".exp_avg", ".exp_avg_sq", ".momentum_buffer",
                                             ".max_exp_avg_sq"};

/* Does the entry's path begin with ${top}?  If the source has no paths, its name decides. */
static bool is_under(const struct metadata_entry *entry, const char *top)
{
    size_t length = strlen(top);
    char decimal[PATH_ITEM_DECIMAL_BYTES];
    uint32_t steps = entry->path_length;

    if (strncmp(entry->name, top, length) != 0 || entry->name[length] != '.')
        return false;
    if (steps <= 1)
        return steps == 0;
    /* "app.model" is two items. */
    size_t used = strlen(path_item_text(&entry->path[0], decimal));
    if (used < length && steps > 2)
        used += 1 + strlen(path_item_text(&entry->path[1], decimal));
    return used == length;
}

static bool is_under_any(const struct metadata_entry *entry, const char *const *tops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_under(entry, tops[i]))
            return true;
    return false;
}

/* ---------------------------------------------------------------- names at the top */

/* The first item of the entry's path: a key at the top. */
static const char *top_of(struct arena *arena, const struct metadata_entry *entry)
{
    char decimal[PATH_ITEM_DECIMAL_BYTES];

    if (entry->path_length == 0)
        return arena_strndup(arena, entry->name, strcspn(entry->name, "."));
    const char *text = path_item_text(&entry->path[0], decimal);
    return arena_strndup(arena, text, strlen(text));
}

/* "'a', 'b' and 3 more" */
static enum sidestep_status list_tops(const struct metadata *m, struct buffer *out,
                                      struct sidestep_error *err)
{
    OWNED_HASH_TABLE seen = {0};
    OWNED_ARENA arena = {0};
    size_t count = 0, existing;

    for (size_t i = 0; i < m->count; i++) {
        const char *top = top_of(&arena, &m->entries[i]);

        if (top == NULL)
            return FAIL_NOMEM(err, strlen(m->entries[i].name));
        TRY(hash_table_insert(&seen, top, i, &existing, err));
        if (existing == SIZE_MAX && count++ < LISTED_TOPS)
            buffer_printf(out, "%s'%s'", count > 1 ? ", " : "", display_name(top).text);
    }
    if (count > LISTED_TOPS)
        buffer_printf(out, " and %zu more", count - LISTED_TOPS);
    buffer_put_u8(out, '\0');
    return buffer_check(out, err);
}

static enum sidestep_status fail_ambiguous(const struct metadata *m, struct sidestep_error *err,
                                           const char *a, const char *b, const char *why)
{
    OWNED_BUFFER tops = {0};

    TRY(list_tops(m, &tops, err));
    return FAIL(err, SIDESTEP_EMISMATCH,
                "which part of it is the model? '%s'%s%s%s %s; select names with the option "
                "include; at its top are %s",
                display_name(a).text, b != NULL ? " and '" : "", b != NULL ? b : "",
                b != NULL ? "'" : "", why, (const char *)tops.bytes);
}

static bool is_optimizer(const struct metadata_entry *entry)
{
    size_t length = strlen(entry->name);

    for (size_t i = 0; i < ARRAY_LENGTH(optimizer_ends); i++) {
        size_t end = strlen(optimizer_ends[i]);

        if (length > end && strcmp(entry->name + length - end, optimizer_ends[i]) == 0)
            return true;
    }
    return strstr(entry->name, ".param_groups.") != NULL;
}

/* ---------------------------------------------------------------- choosing the model */

/* If no part is known to be the model, the rest must not contain the state of an optimizer. */
static enum sidestep_status check_rest(const struct metadata *m, const struct convert_model *model,
                                       struct sidestep_error *err)
{
    for (size_t i = 0; i < m->count; i++)
        if (convert_model_contains(model, &m->entries[i]) && is_optimizer(&m->entries[i]))
            return fail_ambiguous(
                m, err, m->entries[i].name, NULL,
                "looks like the state of an optimizer, and no part has a name of models");
    return SIDESTEP_OK;
}

static bool has_tensors(const struct metadata *m, const char *top)
{
    for (size_t i = 0; i < m->count; i++)
        if (!m->entries[i].is_object && is_under(&m->entries[i], top))
            return true;
    return false;
}

/* Safetensors hold only weights.  In other sources, names at the top decide. */
enum sidestep_status convert_model_find(const struct conversion *c, struct convert_model *model,
                                        struct sidestep_error *err)
{
    const struct metadata *m = &c->reader->metadata;
    bool has_paths = false, has_others = false;

    model->wanted = true;
    if (c->reader->foreign != NULL && strcmp(c->reader->foreign->format, "safetensors") == 0)
        return SIDESTEP_OK;
    for (size_t i = 0; i < m->count; i++) {
        has_paths = has_paths || m->entries[i].path_length > 1;
        has_others =
            has_others || is_under_any(&m->entries[i], other_names, ARRAY_LENGTH(other_names));
    }
    if (!has_paths && !has_others)
        return check_rest(m, model, err);
    for (size_t k = 0; k < ARRAY_LENGTH(model_names); k++) {
        if (!has_tensors(m, model_names[k]))
            continue;
        if (model->name != NULL)
            return fail_ambiguous(m, err, model->name, model_names[k], "could both be the model");
        model->name = model_names[k];
    }
    return model->name != NULL ? SIDESTEP_OK : check_rest(m, model, err);
}

bool convert_model_contains(const struct convert_model *model, const struct metadata_entry *entry)
{
    if (!model->wanted)
        return true;
    return model->name != NULL ? is_under(entry, model->name)
                               : !is_under_any(entry, other_names, ARRAY_LENGTH(other_names));
}

uint32_t convert_model_prefix_length(const struct convert_model *model,
                                     const struct metadata_entry *entry)
{
    char decimal[PATH_ITEM_DECIMAL_BYTES];

    if (entry->path_length == 0)
        return 0;
    return strlen(path_item_text(&entry->path[0], decimal)) == strlen(model->name) ? 1 : 2;
}
