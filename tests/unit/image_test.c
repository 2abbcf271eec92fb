/* SPDX-License-Identifier: BSD-3-Clause */
/* image_test.c -- the layout of items and windows of a shard file. Windows may be
 * hashed in any order. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/checked.h"
#include "base/fault.h"
#include "base/owned.h"
#include "snapshot/image.h"
#include "snapshot/memory_map.h"
#include "support/prng.h"
#include "support/reader.h"
#include "support/unit.h"

#define MIB ((uint64_t)1 << 20)
#define MEMORY_BYTES (24 * MIB)
#define MAX_WINDOWS 64

static uint8_t *memory;

/* Tensors of bytes, at offsets in ${memory}. */
struct tensor {
    uint64_t at;
    uint64_t bytes;
};

static const struct tensor tensors[] = {
    {64, MIB + 4096},        {2 * MIB + 1, 5 * MIB + 4095}, {8 * MIB + 100, 3000},
    {9 * MIB, 4 * MIB + 17}, {14 * MIB + 64, MIB},          {16 * MIB + 4095, 7 * MIB},
};
#define COUNT (sizeof(tensors) / sizeof(tensors[0]))

static void make_state(struct sidestep_state_dict **state, uint64_t shift)
{
    assert_int_equal(sidestep_state_dict_new(state, NULL), SIDESTEP_OK);
    for (size_t i = 0; i < COUNT; i++) {
        struct sidestep_tensor tensor = SIDESTEP_TENSOR_INIT;
        const int64_t length = (int64_t)tensors[i].bytes;
        char name[16];
        snprintf(name, sizeof(name), "t%zu", i);
        tensor.name = name;
        tensor.dtype = SIDESTEP_UINT8;
        tensor.ndim = 1;
        tensor.shape = &length;
        tensor.data = memory + tensors[i].at + shift;
        assert_int_equal(sidestep_state_dict_add_tensor(*state, &tensor, NULL), SIDESTEP_OK);
    }
}

static void make_plan(const struct sidestep_state_dict *state, struct save_plan *plan)
{
    OWNED_BUFFER table = {0};
    OWNED_BUFFER plans = {0};
    size_t size = 0;

    assert_int_equal(save_plan_table_encode(state, NULL, &table, NULL), SIDESTEP_OK);
    const void *bytes = table.bytes;
    assert_int_equal(save_plan_build(&bytes, &table.length, 1, NULL, &plans, &size, NULL),
                     SIDESTEP_OK);
    assert_int_equal(save_plan_decode(plans.bytes, size, state, plan, NULL), SIDESTEP_OK);
}

/* A state, its image, and the file that the image becomes. */
struct filled {
    struct sidestep_state_dict *state;
    struct save_plan plan;
    struct image image;
    uint8_t *file;
};

static void open_image(struct filled *f, uint64_t shift)
{
    *f = (struct filled){0};
    make_state(&f->state, shift);
    make_plan(f->state, &f->plan);
    assert_int_equal(image_build(&f->image, &f->plan, f->state, NULL), SIDESTEP_OK);
    assert_int_equal(image_bind(&f->image, &f->plan, f->state, NULL), SIDESTEP_OK);
    assert_true(f->image.window_count <= MAX_WINDOWS);
    f->file = malloc(f->image.body_bytes);
    assert_non_null(f->file);
}

static void close_image(struct filled *f)
{
    free(f->file);
    image_release(&f->image);
    save_plan_release(&f->plan);
    sidestep_state_dict_free(&f->state);
}

/* Hash in a random order. */
static void hash_all(struct filled *f, struct prng *prng)
{
    bool done[MAX_WINDOWS] = {false};
    size_t left = f->image.window_count;

    while (left != 0) {
        size_t i = (size_t)prng_below(prng, f->image.window_count);
        if (done[i])
            continue;
        image_hash(&f->image, i, f->file + f->image.windows[i].offset);
        done[i] = true;
        left--;
    }
}

static void expect_windows(const struct image *image)
{
    uint64_t at = 0;

    for (size_t i = 0; i < image->window_count; i++) {
        const struct image_window *w = &image->windows[i];
        assert_int_equal(w->offset, at);
        assert_true(w->bytes != 0 && w->bytes % 4096 == 0);
        assert_int_equal(w->bytes % (uint64_t)sysconf(_SC_PAGESIZE), 0);
        assert_true(w->bytes <= IMAGE_WINDOW_MAX_BYTES);
        at += w->bytes;
    }
    assert_int_equal(at, image->body_bytes);
}

static void expect_item(const struct filled *f, size_t i, uint64_t shift)
{
    const struct image_item *item = &f->image.items[i];
    const struct footer_item *footer = &item->footer;
    const uint8_t *data = memory + tensors[i].at + shift;
    struct source file = source_from_memory(f->file, f->image.body_bytes);
    struct archive_tensor tensor;

    assert_int_equal(archive_tensor_read(&file, footer->offset, footer->bytes, &tensor, NULL),
                     SIDESTEP_OK);
    assert_int_equal(tensor.data_bytes, tensors[i].bytes);
    assert_int_equal(tensor.data_crc, hash_crc32(0, data, tensors[i].bytes));
    assert_memory_equal(f->file + footer->offset + footer->data_offset, data, tensors[i].bytes);
    assert_memory_equal(item->first_bytes, data, sizeof(item->first_bytes));
    for (uint64_t block = 0; block < footer->block_count; block++) {
        uint64_t begin = block * HASH_BLOCK_BYTES;
        assert_int_equal(
            item->blocks[block],
            hash_block(data + begin, min_u64(HASH_BLOCK_BYTES, tensors[i].bytes - begin)));
    }
}

static void fill_and_check(uint64_t shift, struct prng *prng)
{
    struct filled f;

    open_image(&f, shift);
    expect_windows(&f.image);
    for (size_t i = 0; i < f.image.window_count; i++)
        assert_int_equal(image_stage_window(&f.image, i, f.file + f.image.windows[i].offset, NULL),
                         SIDESTEP_OK);
    hash_all(&f, prng);
    for (size_t i = 0; i < f.image.window_count; i++)
        assert_int_equal(image_finish_window(&f.image, i, f.file + f.image.windows[i].offset, NULL),
                         SIDESTEP_OK);
    for (size_t i = 0; i < COUNT; i++)
        expect_item(&f, i, shift);
    close_image(&f);
}

TEST(hashes_are_those_of_the_bytes)
{
    struct prng prng = prng_new(5);

    for (uint64_t round = 0; round < 6; round++)
        fill_and_check(round * prng_below(&prng, 4096), &prng);
}

/* The same state at other addresses has the same layout. */
TEST(addresses_may_change)
{
    struct sidestep_state_dict *elsewhere = NULL;
    struct filled f;

    open_image(&f, 0);
    uint64_t bytes = f.image.body_bytes;
    make_state(&elsewhere, 640);
    assert_int_equal(image_bind(&f.image, &f.plan, elsewhere, NULL), SIDESTEP_OK);
    expect_windows(&f.image);
    assert_int_equal(f.image.body_bytes, bytes);
    close_image(&f);
    sidestep_state_dict_free(&elsewhere);
}

TEST(memory_may_be_short)
{
    struct filled f;
    unsigned long nth = 0;
    enum sidestep_status status;

    open_image(&f, 0);
    do {
        fault_arm("memory", ++nth, false, ENOMEM);
        status = image_bind(&f.image, &f.plan, f.state, NULL);
        assert_true(status == SIDESTEP_OK || status == SIDESTEP_ENOMEM);
    } while (status != SIDESTEP_OK);
    fault_arm("", 0, false, 0);
    assert_true(nth > 1);
    expect_windows(&f.image);
    close_image(&f);
}

/* ---- memory of mapped files */

/* How many tensors are found to be of a file, if their memory is ${mapped}. */
static size_t count_in_file(void *mapped, struct filled *f)
{
    uint8_t *usual = memory;
    size_t found = 0;

    assert_true(mapped != MAP_FAILED);
    memory = mapped;
    open_image(f, 0);
    memory = usual;
    for (size_t i = 0; i < f->image.count; i++)
        found += f->image.items[i].in_file;
    return found;
}

TEST(memory_that_nobody_can_cut_is_copied_without_the_kernel)
{
    void *shared = mmap(NULL, MEMORY_BYTES, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    OWNED_FD zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
    void *device = mmap(NULL, MEMORY_BYTES, PROT_READ, MAP_SHARED, zero, 0);
    struct filled f;

    for (unsigned long old = 0; old < 2; old++) { /* the second time on an older kernel */
        fault_arm("maps.query", old, true, ENOTTY);
        assert_int_equal(count_in_file(memory, &f), 0);
        close_image(&f);
        assert_int_equal(count_in_file(shared, &f), 0);
        close_image(&f);
        assert_int_equal(count_in_file(device, &f), 0);
        close_image(&f);
        fault_arm("", 0, false, 0);
    }
    munmap(shared, MEMORY_BYTES);
    munmap(device, MEMORY_BYTES);
}

/* A state has its tensors in turn on a device and in the host's heap: the kernel is asked once for
 * each place between two mapped files, not for each tensor. */
TEST(the_kernel_is_asked_once_for_each_place)
{
    struct memory_map_files files;
    OWNED_FD fd = memfd_create("between", MFD_CLOEXEC);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (!memory_map_files_open(&files)) {
        print_message("this kernel does not answer for one address (PROCMAP_QUERY)\n");
        skip();
    }
    assert_int_equal(ftruncate(fd, MEMORY_BYTES), 0);
    uint8_t *between = mmap(NULL, 5 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(between != MAP_FAILED);
    for (size_t i = 0; i < 5; i += 2) /* files in the pages 0, 2 and 4 */
        assert_true(mmap(between + i * page, page, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) !=
                    MAP_FAILED);
    fault_arm("maps.query", 3, true, ENOTTY);
    for (size_t i = 0; i < 100; i++) {
        uint64_t one = (uint64_t)(uintptr_t)between + page + i, other = one + 2 * page;
        assert_false(memory_map_has_file(&files, one, one + 1));
        assert_false(memory_map_has_file(&files, other, other + 1));
    }
    fault_arm("", 0, false, 0);
    for (size_t i = 1; i < 5; i += 2) { /* each end of a safe range is exact */
        uint64_t begin = (uint64_t)(uintptr_t)between + i * page;
        assert_true(memory_map_has_file(&files, begin - 1, begin + 1));
        assert_true(memory_map_has_file(&files, begin + page - 1, begin + page + 1));
        assert_false(memory_map_has_file(&files, begin, begin + page));
    }
    memory_map_files_close(&files);
    munmap(between, 5 * page);
}

/* The tensors that lie before the cut are read, and the first one that does not is named. */
TEST(a_cut_file_is_an_error_with_the_name_of_a_tensor)
{
    need_reader();
    OWNED_FD fd = memfd_create("weights", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, MEMORY_BYTES), 0);
    void *mapped = mmap(NULL, MEMORY_BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
    struct sidestep_error err = {0};
    struct filled f;

    fault_arm("maps.query", 1, true, ENOTTY); /* an older kernel */
    assert_int_equal(count_in_file(mapped, &f), COUNT);
    fault_arm("", 0, false, 0);
    close_image(&f);
    assert_int_equal(count_in_file(mapped, &f), COUNT);
    for (size_t i = 0; i < f.image.window_count; i++)
        assert_int_equal(image_stage_window(&f.image, i, f.file, &err), SIDESTEP_OK);
    assert_int_equal(ftruncate(fd, 10 * MIB), 0); /* in t3 */
    size_t failed = 0;
    while (image_stage_window(&f.image, failed, f.file, &err) == SIDESTEP_OK)
        failed++;
    assert_true(failed != 0);
    assert_int_equal(err.status, SIDESTEP_EIO);
    assert_non_null(strstr(err.message, "tensor 't3'"));
    fault_arm("image.file", 1, false, EPERM); /* and the kernel may refuse */
    assert_int_equal(image_stage_window(&f.image, 0, f.file, &err), SIDESTEP_EPERM);
    fault_arm("", 0, false, 0);
    close_image(&f);
    munmap(mapped, MEMORY_BYTES);
}

/* Without an answer, any memory may be of a file. */
TEST(an_unknown_memory_map_means_files)
{
    need_reader();
    struct filled f;

    fault_arm("maps.open", 1, true, EMFILE);
    assert_int_equal(count_in_file(memory, &f), COUNT);
    fault_arm("", 0, false, 0);
    for (size_t i = 0; i < f.image.window_count; i++)
        assert_int_equal(image_stage_window(&f.image, i, f.file + f.image.windows[i].offset, NULL),
                         SIDESTEP_OK);
    const struct footer_item *first = &f.image.items[0].footer;
    assert_memory_equal(f.file + first->offset + first->data_offset, memory + tensors[0].at,
                        tensors[0].bytes);
    close_image(&f);
}

static int setup(void **state)
{
    struct prng prng = prng_new(1);

    (void)state;
    memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -1;
    for (uint64_t i = 0; i < MEMORY_BYTES; i += sizeof(uint64_t)) {
        uint64_t word = prng_next(&prng);
        memcpy(memory + i, &word, sizeof(word));
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return munmap(memory, MEMORY_BYTES);
}

ALL_TESTS(setup, teardown);
