/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_index_test.c -- the index of chunks: what is written is read back, by few pages, and what
 * is malformed is refused. */
#include "commit/commit.h"
#include "format/chunk_index.h"
#include "format/chunk_list.h"
#include "support/footer_sample.h"
#include "support/same_metadata.h"
#include "support/unit.h"

#define ASSERT_OK(call) assert_int_equal(call, SIDESTEP_OK)

#define FILES 40u
#define SAVE_ID "00112233445566778899aabbccddeeff"
#define HEADER 48u
#define ROW 12u
#define MANY 12000 /* chunks of one tensor: several pages */

/* A checkpoint of FILES files. The first has the items of footer_sample.h, each other one a row of
 * "layers.wide" and a tensor of its own; the last one has ${rows} rows more. */
struct rig {
    struct sample sample;
    struct footer footers[FILES];
    struct footer_item items[FILES][2];
    struct footer_item *rows;
    int64_t (*numbers)[2];
    const char *names[FILES];
    char texts[FILES][2][32];
    struct manifest_file files[FILES];
    struct manifest manifest;
    struct metadata metadata;
    struct buffer bytes; /* the index */
};

static const int64_t row_shape[2] = {1 << 20, 8}, whole[2] = {4, 8}, zero[2];
static const int64_t row_lengths[2] = {1, 8};
static const struct sidestep_path_item wide_path[] = {{.key = "layers"}, {.key = "wide"}};

static struct footer_item row_item(int64_t *offsets, uint64_t offset)
{
    return (struct footer_item){.name = "layers.wide",
                                .dtype = SIDESTEP_FLOAT32,
                                .ndim = 2,
                                .shape = row_shape,
                                .box = {2, offsets, (int64_t *)row_lengths},
                                .path = wide_path,
                                .path_length = 2,
                                .offset = offset,
                                .bytes = 512};
}

static struct footer_item own_item(struct rig *rig, size_t f)
{
    static struct sidestep_path_item paths[FILES];

    snprintf(rig->texts[f][1], sizeof(rig->texts[f][1]), "own.%zu", f);
    paths[f] = (struct sidestep_path_item){.key = rig->texts[f][1]};
    return (struct footer_item){.name = rig->texts[f][1],
                                .dtype = SIDESTEP_INT64,
                                .requires_grad = f % 2 != 0,
                                .ndim = 2,
                                .shape = whole,
                                .box = {2, (int64_t *)zero, (int64_t *)whole},
                                .path = &paths[f],
                                .path_length = 1,
                                .offset = 1024,
                                .bytes = 700};
}

static void add_rows(struct rig *rig, size_t rows)
{
    struct footer *last = &rig->footers[FILES - 1];

    for (size_t i = 0; i < rows; i++) {
        rig->numbers[FILES + i][0] = (int64_t)(FILES + i);
        rig->rows[i] = row_item(rig->numbers[FILES + i], 4096 + 512 * i);
    }
    last->items = rig->rows;
    last->count = rows;
}

static void rig_init(struct rig *rig, size_t rows)
{
    memset(rig, 0, sizeof(*rig));
    rig->numbers = calloc(FILES + rows, sizeof(*rig->numbers));
    rig->rows = calloc(rows + 1, sizeof(*rig->rows));
    assert_true(rig->numbers != NULL && rig->rows != NULL);
    sample_init(&rig->sample);
    rig->footers[0] = rig->sample.footer;
    for (size_t f = 0; f < FILES; f++) {
        snprintf(rig->texts[f][0], sizeof(rig->texts[f][0]), "__%zu_0.distcp", f);
        rig->names[f] = rig->files[f].name = rig->texts[f][0];
        snprintf(rig->files[f].origin, SAVE_ID_HEX, "%s", SAVE_ID);
        if (f == 0)
            continue;
        rig->numbers[f][0] = (int64_t)f;
        rig->items[f][0] = row_item(rig->numbers[f], 64);
        rig->items[f][1] = own_item(rig, f);
        rig->footers[f] = (struct footer){.items = rig->items[f], .count = 2};
    }
    if (rows != 0)
        add_rows(rig, rows);
    rig->manifest = (struct manifest){
        .step = -1, .world_size = FILES, .file_count = FILES, .files = rig->files};
    snprintf(rig->manifest.save_id, SAVE_ID_HEX, "%s", SAVE_ID);
    ASSERT_OK(commit_metadata_from_footers(rig->footers, rig->names, FILES, &rig->metadata, NULL));
    ASSERT_OK(chunk_index_encode(&rig->metadata, &rig->manifest, &rig->bytes, NULL));
}

static void rig_release(struct rig *rig)
{
    metadata_release(&rig->metadata);
    buffer_release(&rig->bytes);
    free(rig->numbers);
    free(rig->rows);
}

static uint64_t page_bytes(const struct rig *rig)
{
    return rig->manifest.index.bytes - rig->manifest.index.table_bytes;
}

static enum sidestep_status read_table(const struct rig *rig, struct arena *arena,
                                       struct chunk_index *index, struct sidestep_error *err)
{
    uint64_t begin = page_bytes(rig);

    return chunk_index_table_read(rig->bytes.bytes + begin, rig->bytes.length - begin, begin,
                                  SAVE_ID, arena, index, err);
}

/* Read pages [begin, end). */
static enum sidestep_status read_pages(const struct rig *rig, const struct chunk_index *index,
                                       size_t begin, size_t end,
                                       const struct sidestep_state_dict *state,
                                       struct metadata *out)
{
    const struct chunk_list_filter filter = {
        .state = state, .files = rig->names, .file_count = FILES};
    OWNED_BY(chunk_list_reader_free)
    struct chunk_list_reader *l = chunk_list_reader_new(&filter, out, NULL);

    assert_non_null(l);
    for (size_t i = begin; i < end; i++) {
        const struct chunk_index_page *page = &index->pages[i];
        const uint8_t *bytes = rig->bytes.bytes + page->begin;
        if (hash_block(bytes, page->bytes) != page->hash)
            return SIDESTEP_ECORRUPT;
        TRY(chunk_list_reader_add(l, bytes, page->bytes, page->first, NULL));
    }
    return chunk_list_reader_finish(l, NULL);
}

/* ---- what is written is read back */

TEST(everything_is_read_back_in_the_order_of_metadata)
{
    for (size_t rows = 0; rows <= MANY; rows += MANY) {
        OWNED_METADATA metadata = {0};
        OWNED_ARENA arena = {0};
        struct chunk_index index;
        struct rig rig;

        rig_init(&rig, rows);
        ASSERT_OK(read_table(&rig, &arena, &index, NULL));
        assert_in_range(index.page_count, rows == 0 ? 1 : 2, 100);
        ASSERT_OK(read_pages(&rig, &index, 0, index.page_count, NULL, &metadata));
        assert_int_equal(metadata.count, rig.metadata.count);
        for (size_t i = 0; i < metadata.count; i++)
            assert_same_entry(&rig.metadata.entries[i], &metadata.entries[i]);
        assert_ptr_equal(
            metadata_find(&metadata, "own.7"),
            &metadata.entries[metadata_find(&rig.metadata, "own.7") - rig.metadata.entries]);
        rig_release(&rig);
    }
}

static struct sidestep_state_dict *want(const char *name, const int64_t *shape, int64_t row,
                                        int64_t rows)
{
    struct sidestep_state_dict *state = NULL;
    static double data[64];
    const struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                           .name = name,
                                           .dtype = SIDESTEP_FLOAT32,
                                           .ndim = 2,
                                           .shape = shape,
                                           .offsets = (int64_t[]){row, 0},
                                           .lengths = (int64_t[]){rows, 8},
                                           .data = data};

    ASSERT_OK(sidestep_state_dict_new(&state, NULL));
    ASSERT_OK(sidestep_state_dict_add_tensor(state, &tensor, NULL));
    return state;
}

/* Each name is found in the pages that the table says, and few pages hold it. */
TEST(a_name_is_found_in_its_pages)
{
    OWNED_ARENA arena = {0};
    struct chunk_index index;
    struct rig rig;

    rig_init(&rig, MANY);
    ASSERT_OK(read_table(&rig, &arena, &index, NULL));
    for (size_t f = 1; f < FILES - 1; f++) {
        OWNED_BY(sidestep_state_dict_free)
        struct sidestep_state_dict *state = want(rig.texts[f][1], whole, 0, 4);
        OWNED_METADATA metadata = {0};
        size_t begin, end;
        chunk_index_find(&index, rig.texts[f][1], &begin, &end);
        assert_in_range(end - begin, 1, 2);
        ASSERT_OK(read_pages(&rig, &index, begin, end, state, &metadata));
        assert_int_equal(metadata.count, 1);
        assert_int_equal(metadata.entries[0].chunk_count, 1);
        assert_string_equal(metadata.entries[0].chunks[0].storage.file, rig.names[f]);
    }
    rig_release(&rig);
}

/* The chunks of a name that goes on over several pages are all found. */
TEST(a_name_may_take_several_pages)
{
    static const int64_t rows[] = {1, FILES, FILES + MANY / 2, FILES + MANY - 1};
    OWNED_ARENA arena = {0};
    struct chunk_index index;
    size_t begin, end;
    struct rig rig;

    rig_init(&rig, MANY);
    ASSERT_OK(read_table(&rig, &arena, &index, NULL));
    chunk_index_find(&index, "layers.wide", &begin, &end);
    assert_in_range(end - begin, 2, index.page_count);
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        OWNED_BY(sidestep_state_dict_free)
        struct sidestep_state_dict *state = want("layers.wide", row_shape, rows[i], 1);
        OWNED_METADATA metadata = {0};
        ASSERT_OK(read_pages(&rig, &index, begin, end, state, &metadata));
        assert_int_equal(metadata.entries[0].chunk_count, 1);
        assert_int_equal(metadata.entries[0].chunks[0].box.offsets[0], rows[i]);
    }
    /* Names that are nowhere: before the first, between two, behind the last. */
    for (const char *const *name = (const char *const[]){"", "layers.wid", "\x7f\x7f", NULL}; *name;
         name++) {
        chunk_index_find(&index, *name, &begin, &end);
        assert_true(end - begin <= 1 && end <= index.page_count);
    }
    rig_release(&rig);
}

/* A file that the manifest does not list cannot be in an index. */
TEST(an_unlisted_file_is_refused)
{
    OWNED_BUFFER bytes = {0};
    struct rig rig;

    rig_init(&rig, 0);
    rig.manifest.file_count = FILES - 1;
    assert_int_equal(chunk_index_encode(&rig.metadata, &rig.manifest, &bytes, NULL),
                     SIDESTEP_ECORRUPT);
    rig_release(&rig);
}

/* The bytes of version 1, which never change. */
TEST(the_bytes_are_those_of_version_1)
{
    uint8_t golden[8192];
    FILE *file = fopen("tests/golden/index/version-1.bin", "rb");
    struct rig rig;

    assert_non_null(file);
    size_t length = fread(golden, 1, sizeof(golden), file);
    fclose(file);
    rig_init(&rig, 0);
    assert_int_equal(rig.bytes.length, length);
    assert_memory_equal(rig.bytes.bytes, golden, length);
    rig_release(&rig);
}

/* ---- the table is not trusted */

static uint8_t *table_of(struct rig *rig)
{
    return rig->bytes.bytes + page_bytes(rig);
}

static void refuses_table(struct rig *rig, size_t at, uint64_t value, unsigned bytes,
                          enum sidestep_status status, const char *said)
{
    OWNED_ARENA arena = {0};
    struct sidestep_error err = {0};
    struct chunk_index index;
    uint8_t before[8];

    memcpy(before, table_of(rig) + at, bytes);
    sample_put_le(table_of(rig) + at, value, bytes);
    assert_int_equal(read_table(rig, &arena, &index, &err), status);
    if (strstr(err.message, said) == NULL)
        fail_msg("'%s' instead of '%s'", err.message, said);
    memcpy(table_of(rig) + at, before, bytes);
    ASSERT_OK(read_table(rig, &arena, &index, &err));
}

TEST(a_table_that_contradicts_itself_is_refused)
{
    struct rig rig;

    rig_init(&rig, MANY);
    size_t names = HEADER + ROW * (size_t)table_of(&rig)[12];
    refuses_table(&rig, 0, 0, 1, SIDESTEP_ECORRUPT, "magic");
    refuses_table(&rig, 8, 2, 4, SIDESTEP_EUNSUPPORTED, "version 2");
    refuses_table(&rig, 8, 0, 4, SIDESTEP_ECORRUPT, "version 0");
    refuses_table(&rig, 12, table_of(&rig)[12] + 1u, 4, SIDESTEP_ECORRUPT, "");
    refuses_table(&rig, 12, table_of(&rig)[12] - 1u, 4, SIDESTEP_ECORRUPT, "");
    refuses_table(&rig, 12, UINT32_MAX, 4, SIDESTEP_ECORRUPT, "pages");
    refuses_table(&rig, 16, 1, 1, SIDESTEP_ECORRUPT, "of save 01112233");
    refuses_table(&rig, 32, 4, 8, SIDESTEP_EUNSUPPORTED, "feature bit 2");
    refuses_table(&rig, HEADER, 0, 4, SIDESTEP_ECORRUPT, "page 0 has 0 bytes");
    refuses_table(&rig, HEADER, CHUNK_INDEX_MAX_PAGE_BYTES + 1, 4, SIDESTEP_ECORRUPT, "page 0 has");
    refuses_table(&rig, HEADER, 100, 4, SIDESTEP_ECORRUPT, "its pages have");
    refuses_table(&rig, names, 0, 1, SIDESTEP_ECORRUPT, "name of page 0");
    refuses_table(&rig, names, 0x7f, 1, SIDESTEP_ECORRUPT, "page 1 is not in the order");
    refuses_table(&rig, rig.manifest.index.table_bytes - 1, 'x', 1, SIDESTEP_ECORRUPT,
                  "is missing");
    buffer_put_u8(&rig.bytes, 0);
    struct chunk_index index;
    OWNED_ARENA arena = {0};
    assert_int_equal(read_table(&rig, &arena, &index, NULL), SIDESTEP_ECORRUPT);
    rig_release(&rig);
}

static void put_header(struct buffer *b, const struct rig *rig, uint32_t pages)
{
    buffer_put(b, rig->bytes.bytes + page_bytes(rig), HEADER);
    sample_put_le(b->bytes + 12, pages, 4);
}

/* A name of 4,096 bytes is the longest; a table of 64 MiB the largest. */
TEST(a_table_has_limits)
{
    struct rig rig;

    rig_init(&rig, 0);
    for (size_t length = SIDESTEP_MAX_NAME; length <= SIDESTEP_MAX_NAME + 1; length++) {
        OWNED_BUFFER b = {0};
        OWNED_ARENA arena = {0};
        struct chunk_index index;
        put_header(&b, &rig, 1);
        buffer_put_u32le(&b, (uint32_t)CHUNK_INDEX_MAX_PAGE_BYTES);
        buffer_put_u64le(&b, 0);
        memset(buffer_extend(&b, length), 'x', length);
        buffer_put_u8(&b, 0);
        assert_int_equal(chunk_index_table_read(b.bytes, b.length, CHUNK_INDEX_MAX_PAGE_BYTES,
                                                SAVE_ID, &arena, &index, NULL),
                         length == SIDESTEP_MAX_NAME ? SIDESTEP_OK : SIDESTEP_ECORRUPT);
    }
    OWNED_BUFFER large = {0};
    OWNED_ARENA arena = {0};
    struct sidestep_error err = {0};
    struct chunk_index index;
    put_header(&large, &rig, 0);
    size_t more = CHUNK_INDEX_MAX_TABLE_BYTES + 1 - HEADER;
    memset(buffer_extend(&large, more), 0, more);
    assert_int_equal(
        chunk_index_table_read(large.bytes, large.length, 0, SAVE_ID, &arena, &index, &err),
        SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "at most"));
    assert_int_equal(
        chunk_index_table_read(large.bytes, large.length - 1, 0, SAVE_ID, &arena, &index, &err),
        SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "follow the table"));
    rig_release(&rig);
}

/* ---- pages are not trusted */

static enum sidestep_status read_page(const void *bytes, size_t length, const char *first)
{
    static const char *const files[] = {"a", "b"};
    const struct chunk_list_filter filter = {.files = files, .file_count = ARRAY_LENGTH(files)};
    OWNED_METADATA metadata = {0};
    OWNED_BY(chunk_list_reader_free)
    struct chunk_list_reader *l = chunk_list_reader_new(&filter, &metadata, NULL);

    assert_non_null(l);
    TRY(chunk_list_reader_add(l, bytes, length, first, NULL));
    return chunk_list_reader_finish(l, NULL);
}

/* Pages that begin with the name "ab", mostly of an object in place 0, whose path is "ab", in file
 * 1, at 64, of 300 bytes. */
static const struct {
    const char *hex;
    bool is_good;
    const char *what;
} pages[] = {
    {"61000261620001080140ac02", true, "good"},
    {"e1000261620001080140ac02", false, "an unknown flag"},
    {"61010261620001080140ac02", false, "more in common than there is"},
    {"61000261ff0001080140ac02", false, "not UTF-8"},
    {"41000261620140ac02", false, "not its first record"},
    {"61000261620101080140ac02", false, "place 1 of 1"},
    {"61000261620041080140ac02", false, "a path of 65 items"},
    {"61000261620001040140ac02", false, "'a' is not the name"},
    {"610002616200010c0140ac02", false, "nor are 3 bytes of it"},
    {"610002616200010b0140ac02", false, "an item of kind 3"},
    {"61000261620001090140ac02", false, "an index that is no number"},
    {"61000261620001080240ac02", false, "file 2 of 2"},
    {"6100026162000108014080808080808080808001", false, "a number of 64 bits"},
    {"61000261620001080140ac", false, "cut off"},
    {"61000261620001080140ac026100026161010108014001", false, "names that do not ascend"},
    {"61000261620001080140ac02010200014001", false, "an object twice"},
    {"61000261620001080140ac026100026163010108014001", true, "good"},
    {"61000261620001080140ac026100026163000108014001", false, "two names in place 0"},
    {"6800026162000108020105004014", true, "a tensor"},
    {"6800026162000108000105004014", false, "no dtype"},
    {"6c0002616200010802004014", false, "the shape of no tensor"},
    {"6800026162000108024105004014", false, "65 dimensions"},
    {"60000261620001080201050104004014", true, "good"},
    {"60000261620001080201050204004014", false, "a box that is outside"},
};

TEST(a_malformed_page_is_refused)
{
    uint8_t bytes[64];

    for (size_t i = 0; i < ARRAY_LENGTH(pages); i++) {
        size_t length = strlen(pages[i].hex) / 2;
        assert_true(length <= sizeof(bytes) && hash_from_hex(pages[i].hex, length, bytes));
        enum sidestep_status status = read_page(bytes, length, "ab");
        if (status != (pages[i].is_good ? SIDESTEP_OK : SIDESTEP_ECORRUPT))
            fail_msg("%s: %d", pages[i].what, (int)status);
    }
    size_t length = strlen(pages[0].hex) / 2;
    assert_true(hash_from_hex(pages[0].hex, length, bytes));
    assert_int_equal(read_page(bytes, length, "aa"), SIDESTEP_ECORRUPT);
    assert_int_equal(read_page(bytes, 0, "ab"), SIDESTEP_ECORRUPT);
}

/* Cut off at each byte, or with any bit changed, an index is refused or says something else. */
TEST(a_damaged_index_is_no_danger)
{
    unsigned refused = 0, tried = 0;
    struct rig rig;

    rig_init(&rig, 0);
    for (size_t at = 0; at < rig.bytes.length; at += 3)
        for (unsigned bit = 0; bit < 8; bit++) {
            OWNED_METADATA metadata = {0};
            OWNED_ARENA arena = {0};
            struct chunk_index index;
            rig.bytes.bytes[at] ^= (uint8_t)(1u << bit);
            tried++;
            if (read_table(&rig, &arena, &index, NULL) != SIDESTEP_OK ||
                read_pages(&rig, &index, 0, index.page_count, NULL, &metadata) != SIDESTEP_OK)
                refused++;
            /* The same without hashes. */
            (void)read_page(rig.bytes.bytes, (size_t)page_bytes(&rig), "big");
            rig.bytes.bytes[at] ^= (uint8_t)(1u << bit);
        }
    assert_in_range(refused, tried - 64 - 8, tried - 1); /* optional features are ignored */
    rig_release(&rig);
}

/* ---- the manifest says where it is */

TEST(the_manifest_lists_the_index)
{
    OWNED_BUFFER text = {0};
    OWNED_ARENA arena = {0};
    struct manifest read;
    struct rig rig;

    rig_init(&rig, 0);
    ASSERT_OK(manifest_encode(&rig.manifest, &text, NULL));
    ASSERT_OK(manifest_decode(text.bytes, text.length, &arena, &read, NULL));
    assert_memory_equal(&read.index, &rig.manifest.index, sizeof(read.index));
    text.length = 0;
    rig.manifest.index.table_bytes = rig.manifest.index.bytes + 1;
    assert_int_equal(manifest_encode(&rig.manifest, &text, NULL), SIDESTEP_EINVAL);
    rig.manifest.index.bytes = (uint64_t)INT64_MAX + 1;
    assert_int_equal(manifest_encode(&rig.manifest, &text, NULL), SIDESTEP_EINVAL);
    rig_release(&rig);
}
