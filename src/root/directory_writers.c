/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * directory_writers.c -- see writers.h: finds the ranks of a save in a directory by its files and
 * votes.
 *
 * It looks for holes in files, which struct store_ops cannot do, so it makes system calls itself.
 */
#include "root/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

#define MAX_RANGES 4096u /* ranges of data in one file that are counted one by one */

/* Count the bytes of a file that are not holes. */
static uint64_t count_data(int fd, uint64_t size)
{
    uint64_t data = 0;
    off_t at = 0;

    for (unsigned i = 0; i < MAX_RANGES; i++) {
        off_t begin = lseek(fd, at, SEEK_DATA);
        if (begin < 0)
            return errno == ENXIO ? data : size; /* all holes; or cannot find holes here */
        at = lseek(fd, begin, SEEK_HOLE);
        if (at < 0)
            return size;
        data += (uint64_t)(at - begin);
    }
    return data;
}

static void measure(int dir, const char *name, bool is_whole, struct writer *rank)
{
    OWNED_FD fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat stat;

    /* The size is known even without permission to read the file. */
    int failed = fd >= 0 ? fstat(fd, &stat) : fstatat(dir, name, &stat, AT_SYMLINK_NOFOLLOW);
    if (failed != 0 || !S_ISREG(stat.st_mode))
        return; /* it was sealed or removed in the meantime */
    is_whole |= fd < 0;
    rank->bytes += (uint64_t)stat.st_size;
    rank->written += is_whole ? (uint64_t)stat.st_size : count_data(fd, (uint64_t)stat.st_size);
}

/* Note a name in the directory of the save. In place, the directory also contains files of other
 * saves: those of the current checkpoint. */
static enum sidestep_status note_name(struct writers *writers, const struct writers_save *save,
                                      int dir, const char *name, struct sidestep_error *err)
{
    struct file_name parsed = file_name_parse(name);
    bool is_file = parsed.kind == FILE_NAME_SHARD || parsed.kind == FILE_NAME_PART;
    bool is_vote = parsed.kind == FILE_NAME_VOTE || parsed.kind == FILE_NAME_FAILED;
    enum writer_state state = parsed.kind == FILE_NAME_PART    ? WRITER_WRITING
                              : parsed.kind == FILE_NAME_SHARD ? WRITER_SEALED
                              : parsed.kind == FILE_NAME_VOTE  ? WRITER_DONE
                                                               : WRITER_FAILED;
    struct writer *rank = NULL;

    if (!is_file && !is_vote)
        return SIDESTEP_OK;
    if (strcmp(parsed.save_id, is_file && !save->in_place ? "" : save->save_id) != 0)
        return SIDESTEP_OK;
    TRY(writers_note(writers, parsed.rank, state, &rank, err));
    if (is_file)
        measure(dir, name, parsed.kind == FILE_NAME_SHARD, rank);
    return SIDESTEP_OK;
}

enum sidestep_status directory_find_writers(struct writers *writers,
                                            const struct writers_save *save,
                                            struct sidestep_error *err)
{
    OWNED_FD dir = open(save->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (dir < 0)
        return FAIL_SYS(err, "open directory '%s'", save->path);
    for (size_t i = 0; i < save->names->count; i++)
        TRY(note_name(writers, save, dir, save->names->names[i], err));
    return SIDESTEP_OK;
}
