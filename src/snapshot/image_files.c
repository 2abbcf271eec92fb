/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * image_files.c -- tensors in memory of mapped files, which somebody may cut at any time.
 *
 * A load from memory behind the end of its file is a SIGBUS, which would end the program.  So the
 * kernel copies such memory, with process_vm_readv(2) of this process itself, and returns an error.
 * It takes longer than a load from memory that nobody can cut, which is copied as before.
 */
#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/base.h"
#include "snapshot/file_memory.h"
#include "snapshot/image.h"
#include "snapshot/memory_reader.h"

#define PARTS 64u /* that one call copies */

void image_find_files(struct image *image)
{
    struct file_memory files;
    bool can_read = memory_reader_works();

    file_memory_open(&files);
    for (size_t i = 0; i < image->count; i++) {
        struct image_item *item = &image->items[i];
        uint64_t begin, bytes;

        item->in_file = false;
        if (!can_read || item->footer.is_object || item->entry->reader != NULL ||
            item->footer.data_bytes == 0)
            continue;
        state_entry_extent(item->entry, &begin, &bytes);
        item->in_file = file_memory_has(&files, begin, bytes);
    }
    file_memory_close(&files);
}

/* ---- copying */

/* The context of add_rows(): the parts that the next call copies. */
struct file_copy {
    const struct image_item *item;
    uint8_t *to;
    struct iovec local[PARTS];
    struct iovec remote[PARTS];
    size_t count;
    uint64_t bytes;
    enum sidestep_status status;
    struct sidestep_error *err;
};

static void copy_parts(struct file_copy *copy)
{
    ssize_t n = 0;

    if (copy->count == 0 || copy->status != SIDESTEP_OK)
        return;
    if (fault_hit("image.file"))
        n = -1;
    else
        n = process_vm_readv(getpid(), copy->local, copy->count, copy->remote, copy->count, 0);
    bool is_cut = n < 0 ? errno == EFAULT : (uint64_t)n != copy->bytes;
    if (is_cut)
        copy->status = FAIL(copy->err, SIDESTEP_EIO,
                            "memory of tensor '%s' cannot be read: it is of a mapped file that was "
                            "cut since it was mapped, or whose storage has failed. Map or load it "
                            "again, and save again",
                            copy->item->footer.name);
    else if (n < 0)
        copy->status = FAIL_SYS(copy->err, "read memory of tensor '%s', which is of a mapped file",
                                copy->item->footer.name);
    copy->count = copy->bytes = 0;
}

static void add_rows(void *context, const struct box_rows *rows)
{
    struct file_copy *copy = context;

    for (uint64_t i = 0; i < rows->count && copy->status == SIDESTEP_OK; i++) {
        uint8_t *to = copy->to + rows->at + (int64_t)i * rows->at_step;
        uint8_t *from = (uint8_t *)rows->memory + (int64_t)i * rows->memory_step;

        copy->local[copy->count] = (struct iovec){to, rows->bytes};
        copy->remote[copy->count++] = (struct iovec){from, rows->bytes};
        copy->bytes += rows->bytes;
        if (copy->count == PARTS)
            copy_parts(copy);
    }
}

enum sidestep_status image_copy_from_file(const struct image *image, size_t k, uint64_t begin,
                                          uint64_t end, uint8_t *to, struct sidestep_error *err)
{
    const struct image_item *item = &image->items[k];
    struct file_copy copy = {.item = item, .to = to, .err = err};
    struct box_memory memory = state_entry_memory(item->entry);

    (void)box_visit_rows(&item->footer.box, begin, end - begin, &memory, add_rows, &copy);
    copy_parts(&copy);
    return copy.status;
}
