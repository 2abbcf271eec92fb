/* SPDX-License-Identifier: BSD-3-Clause */
/* standin_memory.c -- the memory of the stand-in's devices: mapped twice, once for the program,
 * which cannot touch it, and once for the streams. */
#include <assert.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin_inside.h"

void *map_memory(int device, size_t bytes, size_t mapped_bytes, bool managed)
{
    int fd = memfd_create("device", MFD_CLOEXEC);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), i = 0;

    bytes = (bytes + page - 1) / page * page;
    mapped_bytes = mapped_bytes < bytes ? mapped_bytes : bytes;
    assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    int access = managed ? PROT_READ | PROT_WRITE : PROT_NONE;
    void *address = mmap(NULL, bytes, access, MAP_SHARED, fd, 0);
    void *alias = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert(address != MAP_FAILED && alias != MAP_FAILED);
    (void)close(fd);
    while (i < MAX_THINGS && the.memory[i].address != NULL)
        i++;
    assert(i < MAX_THINGS);
    the.memory[i] = (struct memory){.address = address,
                                    .alias = alias,
                                    .bytes = bytes,
                                    .mapped_bytes = mapped_bytes,
                                    .device = device,
                                    .managed = managed};
    return address;
}

void unmap_memory(struct memory *m)
{
    if (is_in_use(m->address, m->bytes, false))
        blame("memory was freed while a copy of it was pending");
    (void)munmap(m->address, m->bytes);
    (void)munmap(m->alias, m->bytes);
    *m = (struct memory){0};
}
