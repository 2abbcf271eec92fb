/* SPDX-License-Identifier: BSD-3-Clause */
/* kept.c -- see kept.h; and sidestep_list_root(), which lists with these reasons. */
#include "selection/kept.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "object/object.h"
#include "selection/candidates.h"

/* ---- the record ---- */

#define NAMED "\nnamed "

void kept_format_record(const struct retention *r, const struct name_template *naming,
                        char text[LEASE_KEEPS_BYTES])
{
    char template[NAME_TEMPLATE_MAX_BYTES + 1], policy[160] = "all";

    name_template_to_text(naming, template);
    if (r->wanted)
        snprintf(policy, sizeof(policy),
                 "last %" PRIu32 " every %" PRIu64 " best %" PRIu32 " %s %s", r->keep_last,
                 r->keep_every, r->keep_best, r->best_is_max ? "max" : "min",
                 r->keep_best != 0 ? r->metric : "-");
    snprintf(text, LEASE_KEEPS_BYTES, "%s" NAMED "%s\n", policy, template);
}

/* False: there is no record, or not of this form. */
static bool parse_record(const char *text, struct retention *r, struct name_template *naming)
{
    char template[NAME_TEMPLATE_MAX_BYTES + 1] = "", direction[4] = "";
    const char *named = strstr(text, NAMED);

    *r = (struct retention){0};
    if (named == NULL || sscanf(named, NAMED "%136[^\n]", template) != 1 ||
        name_template_from_text(template, naming, NULL) != SIDESTEP_OK)
        return false;
    if (strncmp(text, "all\n", 4) == 0)
        return true;
    if (sscanf(text, "last %" SCNu32 " every %" SCNu64 " best %" SCNu32 " %3s %64s\n",
               &r->keep_last, &r->keep_every, &r->keep_best, direction, r->metric) != 5)
        return false;
    r->best_is_max = strcmp(direction, "max") == 0;
    r->wanted = true;
    return true;
}
_Static_assert(NAME_TEMPLATE_MAX_BYTES == 136 && RETENTION_MAX_METRIC == 64, "widths of sscanf()");

/* ---- the reasons ---- */

static const struct retention_reason is_unknown = {"unknown",
                                                   "no run has recorded here what it keeps"};

static void set_reason(struct sidestep_listed *entry, const struct retention_reason *why)
{
    entry->kept = why != NULL ? why->word : NULL;
    entry->kept_because = why != NULL ? why->text : NULL;
}

/* The entry of ${list} with this name: mostly the one at ${from}, because both are sorted. */
static size_t find_entry(const struct sidestep_list *list, const char *name, size_t from)
{
    for (size_t n = 0; n < list->count; n++) {
        size_t i = (from + n) % list->count;
        if (sidestep_list_entry(list, i)->name == name)
            return i;
    }
    return list->count;
}

enum sidestep_status kept_mark(struct sidestep_list *list,
                               bool (*is_flawed)(const void *context,
                                                 const struct sidestep_listed *entry),
                               const void *context, struct sidestep_error *err)
{
    OWNED_BY(candidates_release) struct candidates c = {0};
    struct sidestep_listed *entries = list_entries(list);
    struct retention retention;
    struct name_template naming;
    bool is_known = parse_record(list_record(list), &retention, &naming);
    const struct prune p = {.retention = &retention,
                            .naming = is_known ? &naming : NULL,
                            .run_id = is_known ? list_run_id(list) : NULL};

    TRY(candidates_find(&p, list, &c, err));
    for (size_t i = 0; i < c.count; i++)
        if (is_flawed != NULL && is_flawed(context, &c.entries[i]))
            c.items[i].flaw = &RETENTION_DAMAGED;
    retention_plan(&retention, c.items, c.count);
    for (size_t i = 0, at = 0; i < c.count; i++, at++) {
        at = find_entry(list, c.entries[i].name, at);
        set_reason(&entries[at], is_known ? c.items[i].keep : &is_unknown);
    }
    for (size_t i = 0; i < c.other_count; i++)
        set_reason(&entries[c.others[i] - entries], candidates_why_other(&p, c.others[i]));
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_list_root(const char *root, struct sidestep_list *list,
                                        struct sidestep_error *err)
{
    if (root == NULL || list == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "root or list is NULL");
    OWNED_STORE *store = NULL;
    enum sidestep_status status = object_path_open(root, &store, err);
    if (status == SIDESTEP_OK)
        status = list_root(store, root, LIST_CHECKED, list, err);
    if (status == SIDESTEP_OK) {
        status = kept_mark(list, NULL, NULL, err);
        if (status != SIDESTEP_OK)
            sidestep_list_release(list);
    }
    return WRAP(status, err, "list '%s'", root);
}
