/* SPDX-License-Identifier: BSD-3-Clause */
/* cgroup.c -- reads the limits of cgroups of both versions; see cgroup.h. */
#include "base/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"

#define PATH_BYTES 1024

/* The names that a version gives to one thing. */
struct names {
    const char *limit, *usage, *inactive, *active;
};
static const struct names v1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                "total_inactive_file", "total_active_file"};
static const struct names v2 = {"memory.max", "memory.current", "inactive_file", "active_file"};

/* Read the first line of ${dir}/${file}; "" if there is none. */
static void read_line(const char *dir, const char *file, char line[64])
{
    char path[PATH_BYTES + 64];

    line[0] = '\0';
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    FILE *stream = fopen(path, "re");
    if (stream == NULL)
        return;
    if (fgets(line, 64, stream) == NULL)
        line[0] = '\0';
    (void)fclose(stream);
}

/* A number of bytes.  UINT64_MAX: there is none, or it is "max". */
static uint64_t read_number(const char *dir, const char *file)
{
    char line[64];
    unsigned long long value;

    read_line(dir, file, line);
    return sscanf(line, "%llu", &value) == 1 ? value : UINT64_MAX;
}

/* Bytes of page cache, which the kernel takes back before it kills: those that were used once, and
 * those that were used again. */
static void read_page_cache(const char *dir, const struct names *names, uint64_t *once,
                            uint64_t *again)
{
    char path[PATH_BYTES + 64], line[128], name[64];
    unsigned long long value;

    *once = *again = 0;
    snprintf(path, sizeof(path), "%s/memory.stat", dir);
    FILE *stream = fopen(path, "re");
    while (stream != NULL && fgets(line, sizeof(line), stream) != NULL) {
        if (sscanf(line, "%63s %llu", name, &value) != 2)
            continue;
        *once = strcmp(name, names->inactive) == 0 ? value : *once;
        *again = strcmp(name, names->active) == 0 ? value : *again;
    }
    if (stream != NULL)
        (void)fclose(stream);
}

/* A cgroup has ${usage} of ${limit}. ${least}: at most what it leaves, if ${freed} counts as free.
 */
static void limit_room(uint64_t *least, uint64_t limit, uint64_t usage, uint64_t freed)
{
    *least = min_u64(*least, limit - min_u64(limit, usage - min_u64(usage, freed)));
}

static void read_memory(const char *dir, const struct names *names, struct cgroup_limits *limits)
{
    uint64_t limit = read_number(dir, names->limit);

    /* Version 1 has no word for "no limit", but a number near INT64_MAX. */
    if (limit > INT64_MAX / 2)
        return;
    limits->memory = min_u64(limits->memory, limit);
    uint64_t usage = read_number(dir, names->usage), once, again;
    if (usage == UINT64_MAX)
        return;
    read_page_cache(dir, names, &once, &again);
    limit_room(&limits->memory_room, limit, usage, once + again);
    limit_room(&limits->memory_free, limit, usage, once);
}

static void read_cpus(const char *dir, bool is_v2, struct cgroup_limits *limits)
{
    unsigned long long quota = 0, period = 0;
    char line[64];

    if (is_v2) {
        read_line(dir, "cpu.max", line);
        if (sscanf(line, "%llu %llu", &quota, &period) != 2) /* "max 100000" */
            return;
    } else {
        quota = read_number(dir, "cpu.cfs_quota_us"); /* -1: none */
        period = read_number(dir, "cpu.cfs_period_us");
    }
    if (quota == 0 || period == 0 || quota > INT64_MAX || period > INT64_MAX)
        return;
    unsigned cpus = (unsigned)min_u64((quota + period - 1) / period, 1u << 20);
    if (limits->cpus == 0 || cpus < limits->cpus)
        limits->cpus = cpus;
}

/* Look at the cgroup ${path} below ${mount}, and at those around it.  In a container the path may
 * not exist; the root of the mount does. */
static void read_all(const char *mount, char *path, bool memory, bool cpu, bool is_v2,
                     struct cgroup_limits *limits)
{
    char dir[PATH_BYTES];

    for (;;) {
        snprintf(dir, sizeof(dir), "%s%s", mount, path);
        if (memory)
            read_memory(dir, is_v2 ? &v2 : &v1, limits);
        if (cpu)
            read_cpus(dir, is_v2, limits);
        char *slash = strrchr(path, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

/* Is ${name} in "cpu,cpuacct"? */
static bool has_controller(const char *names, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = names; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

/* ${line} of /proc/self/cgroup: "0::/path" is version 2, "4:memory:/path" version 1, whose
 * controllers are mounted one beside the other. */
static void read_line_of_list(const char *root, char *line, struct cgroup_limits *limits)
{
    char mount[PATH_BYTES], copy[512];
    char *names = strchr(line, ':'), *path = names != NULL ? strchr(names + 1, ':') : NULL;

    if (path == NULL)
        return;
    *path++ = '\0';
    names++;
    path[strcspn(path, "\n")] = '\0';
    if (*names == '\0') {
        snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup", root);
        read_all(mount, path, true, true, true, limits);
        return;
    }
    for (int cpu = 0; cpu < 2; cpu++) {
        if (!has_controller(names, cpu ? "cpu" : "memory"))
            continue;
        snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup/%s", root, cpu ? "cpu" : "memory");
        snprintf(copy, sizeof(copy), "%s", path);
        read_all(mount, copy, !cpu, cpu, false, limits);
    }
}

void cgroup_read(const char *root, struct cgroup_limits *limits)
{
    char path[PATH_BYTES], line[512];

    *limits = (struct cgroup_limits){
        .memory = UINT64_MAX, .memory_room = UINT64_MAX, .memory_free = UINT64_MAX};
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *list = fopen(path, "re");
    while (list != NULL && fgets(line, sizeof(line), list) != NULL)
        read_line_of_list(root, line, limits);
    if (list != NULL)
        (void)fclose(list);
}

uint64_t cgroup_meminfo(const char *first, const char *second)
{
    unsigned long long kib;
    char line[128], name[64];
    uint64_t bytes = 0;

    FILE *meminfo = fopen("/proc/meminfo", "re");
    while (meminfo != NULL && fgets(line, sizeof(line), meminfo) != NULL)
        if (sscanf(line, "%63[^:]: %llu kB", name, &kib) == 2 &&
            (strcmp(name, first) == 0 || (second != NULL && strcmp(name, second) == 0)))
            bytes += kib * 1024;
    if (meminfo != NULL)
        (void)fclose(meminfo);
    return bytes;
}

uint64_t cgroup_memory_room(void)
{
    struct cgroup_limits limits;
    uint64_t room = cgroup_meminfo("MemAvailable", NULL);

    cgroup_read("", &limits);
    return min_u64(room != 0 ? room : UINT64_MAX, limits.memory_room);
}

uint64_t cgroup_memory_free(void)
{
    struct cgroup_limits limits;

    cgroup_read("", &limits);
    return min_u64(cgroup_meminfo("MemFree", "Inactive(file)"), limits.memory_free);
}
