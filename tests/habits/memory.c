/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c -- what one host remembers of names on shared storage; see habits.h. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "habits/habits.h"

static struct remembered *known;

double memory_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool is_of(const struct remembered *entry, uint64_t parent, const char *name)
{
    return entry->parent == parent && strcmp(entry->name, name) == 0;
}

const struct remembered *memory_find(uint64_t parent, const char *name)
{
    for (struct remembered *entry = known; entry != NULL; entry = entry->next)
        if (is_of(entry, parent, name))
            return entry->until > memory_now() ? entry : NULL;
    return NULL;
}

void memory_keep(uint64_t parent, const char *name, uint64_t inode, double seconds)
{
    memory_changed(parent, name, true);
    struct remembered *entry = calloc(1, sizeof(*entry) + strlen(name) + 1);
    if (entry == NULL)
        return;
    entry->parent = parent;
    entry->inode = inode;
    entry->until = memory_now() + seconds;
    memcpy(entry->name, name, strlen(name) + 1);
    entry->next = known;
    known = entry;
}

void memory_changed(uint64_t parent, const char *name, bool only)
{
    for (struct remembered **at = &known; *at != NULL;) {
        struct remembered *entry = *at;
        if (entry->parent == parent && (!only || strcmp(entry->name, name) == 0)) {
            *at = entry->next;
            free(entry);
        } else {
            at = &entry->next;
        }
    }
}
