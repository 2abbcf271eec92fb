/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory_reader.c -- copies memory of this process through a pipe; see memory_reader.h.
 *
 * vmsplice(2) only takes references to the pages, and read(2) copies them.  process_vm_readv(2)
 * gives the same bytes, but takes 1.5 times as long on pages of 4 KiB.  If the pipe does not return
 * all bytes, they are read again with process_vm_readv(2), whose result counts: for example, it
 * ignores the memory protection keys of this thread.
 */
#include "snapshot/memory_reader.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/base.h"

/* Each part may begin and end within a page, and a page takes a place in the pipe. */
#define PIPE_BYTES (MEMORY_READER_BYTES + 2 * MEMORY_READER_PARTS * (size_t)4096)

static size_t total_bytes(const struct iovec *parts, size_t count)
{
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += parts[i].iov_len;
    return bytes;
}

static void close_pipe(struct memory_reader *reader)
{
    for (int i = 0; i < 2; i++) {
        if (reader->pipe[i] >= 0)
            (void)close(reader->pipe[i]);
        reader->pipe[i] = -1;
    }
}

static void open_pipe(struct memory_reader *reader)
{
    reader->opened = true;
    reader->pipe[0] = reader->pipe[1] = -1;
    if (fault_hit("reader.pipe") || !seccomp_survives(SECCOMP_vmsplice) ||
        pipe2(reader->pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        return;
    if (fcntl(reader->pipe[1], F_SETPIPE_SZ, (int)PIPE_BYTES) < (int)PIPE_BYTES)
        close_pipe(reader);
}

/* False: not all bytes were read. */
static bool copy_through_pipe(struct memory_reader *reader, const struct iovec *to,
                              const struct iovec *from, size_t count, size_t bytes)
{
    if (!reader->opened)
        open_pipe(reader);
    if (reader->pipe[1] < 0)
        return false;
    ssize_t filled = vmsplice(reader->pipe[1], from, count, SPLICE_F_NONBLOCK);
    if (filled < 0)
        return false;
    ssize_t done = readv(reader->pipe[0], to, (int)count);
    if (done != filled)
        close_pipe(reader); /* the next read must not get the rest */
    return done >= 0 && (size_t)done == bytes;
}

int memory_reader_copy(struct memory_reader *reader, const struct iovec *to,
                       const struct iovec *from, size_t count)
{
    size_t bytes = total_bytes(from, count);

    assert(count <= MEMORY_READER_PARTS && bytes <= MEMORY_READER_BYTES);
    assert(total_bytes(to, count) == bytes);
    if (copy_through_pipe(reader, to, from, count, bytes))
        return 0;
    if (!seccomp_survives(SECCOMP_process_vm_readv))
        return errno;
    ssize_t n = process_vm_readv(getpid(), to, count, from, count, 0);
    if (n < 0)
        return errno;
    return (size_t)n == bytes ? 0 : EFAULT;
}

void memory_reader_close(struct memory_reader *reader)
{
    if (reader->opened)
        close_pipe(reader);
    *reader = (struct memory_reader){0};
}

bool memory_reader_works(void)
{
    char from = 1, to = 0;
    struct iovec local = {&to, 1}, remote = {&from, 1};

    return seccomp_survives(SECCOMP_process_vm_readv) &&
           process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}
