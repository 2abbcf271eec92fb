/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_list_test.c -- what a rank takes from the list of chunks that all ranks of a load make. */
#include "format/chunk_list.h"
#include "support/unit.h"

#define ROWS 2
#define COLUMNS 8

static const char *const file_names[] = {"__0_0.distcp", "__1_0.distcp"};

static void add_rows(struct chunk_list *list, const char *name, int64_t first, size_t file)
{
    chunk_list_add(list, &(struct chunk_record){.name = name,
                                                .dtype = SIDESTEP_FLOAT32,
                                                .ndim = 2,
                                                .shape = (int64_t[]){4, COLUMNS},
                                                .box = {.ndim = 2,
                                                        .offsets = (int64_t[]){first, 0},
                                                        .lengths = (int64_t[]){2, COLUMNS}},
                                                .file = file,
                                                .offset = 64 + (uint64_t)first,
                                                .length = 1u << 20});
}

/* Two lists behind each other: {layer.0, layer.1, other} x 2 files, and an object. */
static void make_lists(struct buffer *both)
{
    for (size_t file = 0; file < 2; file++) {
        OWNED_BY(chunk_list_free) struct chunk_list *list = chunk_list_new(NULL);
        assert_non_null(list);
        add_rows(list, "layer.0", 2 * (int64_t)file, file);
        add_rows(list, "layer.1", 2 * (int64_t)file, file);
        add_rows(list, "other", 2 * (int64_t)file, file);
        if (file == 1)
            chunk_list_add(list, &(struct chunk_record){.name = "layer.step",
                                                        .is_object = true,
                                                        .file = file,
                                                        .offset = 4096,
                                                        .length = 300,
                                                        .transform = "stream.zstd/1"});
        buffer_put(both, list->bytes.bytes, list->bytes.length);
    }
    assert_false(both->failed);
}

static struct sidestep_state_dict *want_rows(const char *name, int64_t first)
{
    static float data[ROWS][COLUMNS];
    struct sidestep_state_dict *state = NULL;
    const struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                           .name = name,
                                           .dtype = SIDESTEP_FLOAT32,
                                           .ndim = 2,
                                           .shape = (int64_t[]){4, COLUMNS},
                                           .offsets = (int64_t[]){first, 0},
                                           .lengths = (int64_t[]){ROWS, COLUMNS},
                                           .data = data};

    assert_int_equal(sidestep_state_dict_new(&state, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_add_tensor(state, &tensor, NULL), SIDESTEP_OK);
    return state;
}

static enum sidestep_status read_list(const struct buffer *list, size_t length,
                                      const struct sidestep_state_dict *state, bool all_names,
                                      struct metadata *out)
{
    const struct chunk_list_filter filter = {
        .state = state, .all_names = all_names, .files = file_names, .file_count = 2};

    return chunk_list_read(list->bytes, length, &filter, out, NULL);
}

TEST(a_rank_takes_what_it_needs)
{
    OWNED_BY(sidestep_state_dict_free) struct sidestep_state_dict *state = want_rows("layer.1", 1);
    OWNED_BUFFER list = {0};

    make_lists(&list);
    for (int all = 0; all < 2; all++) {
        OWNED_METADATA metadata = {0};
        assert_int_equal(read_list(&list, list.length, state, all != 0, &metadata), SIDESTEP_OK);
        assert_int_equal(metadata.count, all != 0 ? 4 : 1);
        const struct metadata_entry *entry = metadata_find(&metadata, "layer.1");
        assert_non_null(entry);
        assert_int_equal(entry->chunk_count, 2);
        assert_string_equal(entry->chunks[1].storage.file, "__1_0.distcp");
        assert_int_equal(entry->chunks[1].storage.offset, 66);
        assert_int_equal(entry->chunks[1].box.offsets[0], 2);
        entry = metadata_find(&metadata, "layer.0");
        assert_int_equal(entry != NULL, all);
        assert_true(entry == NULL || entry->chunk_count == 0);
    }
}

TEST(a_chunk_that_does_not_overlap_is_left_out)
{
    OWNED_BY(sidestep_state_dict_free) struct sidestep_state_dict *state = want_rows("layer.0", 2);
    OWNED_METADATA metadata = {0};
    OWNED_BUFFER list = {0};

    make_lists(&list);
    assert_int_equal(read_list(&list, list.length, state, false, &metadata), SIDESTEP_OK);
    assert_int_equal(metadata.entries[0].chunk_count, 1);
    assert_string_equal(metadata.entries[0].chunks[0].storage.file, "__1_0.distcp");
}

TEST(objects_keep_their_transform)
{
    OWNED_BY(sidestep_state_dict_free) struct sidestep_state_dict *state = NULL;
    OWNED_METADATA metadata = {0};
    OWNED_BUFFER list = {0};

    make_lists(&list);
    assert_int_equal(sidestep_state_dict_new(&state, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_add_value(state, "layer.step", NULL, 0, NULL, NULL),
                     SIDESTEP_OK);
    assert_int_equal(read_list(&list, list.length, state, false, &metadata), SIDESTEP_OK);
    assert_int_equal(metadata.count, 1);
    assert_true(metadata.entries[0].is_object);
    assert_string_equal(metadata.entries[0].storage.transform, "stream.zstd/1");
    assert_int_equal(metadata.entries[0].storage.length, 300);
}

/* Cut off at each byte, or with any byte changed, a list is refused or says something else; it is
 * never read past its end, and never more than the files that there are. */
TEST(a_damaged_list_is_no_danger)
{
    OWNED_BY(sidestep_state_dict_free) struct sidestep_state_dict *state = want_rows("layer.1", 1);
    OWNED_BUFFER list = {0};
    unsigned refused = 0;

    make_lists(&list);
    for (size_t at = 0; at < list.length; at++)
        for (unsigned change = 0; change < 9; change++) {
            OWNED_METADATA metadata = {0};
            OWNED_BUFFER copy = {0};
            buffer_put(&copy, list.bytes, change == 8 ? at : list.length);
            if (change < 8)
                copy.bytes[at] ^= (uint8_t)(1u << change);
            enum sidestep_status status = read_list(&copy, copy.length, state, true, &metadata);
            assert_true(status == SIDESTEP_OK || status == SIDESTEP_EPEER ||
                        status == SIDESTEP_ECORRUPT);
            refused += status != SIDESTEP_OK;
        }
    assert_true(refused > list.length);
}
