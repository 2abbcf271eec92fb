/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cgroup.h -- what the cgroups of this process, and the machine, leave to it.
 *
 * The kernel kills a process of a cgroup that needs more memory than the limit, and stops one for a
 * while that has used its share of the processors.  Containers are made of cgroups.
 *
 * Source: the kernel's admin-guide, cgroup-v2.rst and cgroup-v1/memory.rst.
 */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

#include <stdint.h>

struct cgroup_limits {
    uint64_t memory;      /* bytes; UINT64_MAX: no limit */
    uint64_t memory_room; /* bytes that may be taken before that; page cache counts as free */
    uint64_t memory_free; /* the same, but page cache that was used more than once is taken */
    unsigned cpus;        /* processors, rounded up; 0: no limit */
};

/* The least of this process's cgroups and of those around them.  ${root}: "", or a directory that
 * has "proc" and "sys", for tests. */
void cgroup_read(const char *root, struct cgroup_limits *limits);

/* A line of /proc/meminfo ("MemFree"), or the sum of two, in bytes.  ${second} may be NULL.  0:
 * there is none. */
uint64_t cgroup_meminfo(const char *first, const char *second);
/* Bytes of memory that this process may take before the kernel kills one: the least of what its
 * cgroups and the machine have.  UINT64_MAX: unknown.  It takes some 100 us. */
uint64_t cgroup_memory_room(void);
/* Bytes of memory that nobody uses: free, or page cache that was used once (the kernel's inactive
 * list), as by somebody who reads data once.  0: unknown. */
uint64_t cgroup_memory_free(void);

#endif
