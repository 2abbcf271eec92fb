/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * large_limits_test.c -- limits that only large files reach, and the last ones that no other test
 * has: one past each is refused in words, and at it nothing is said of the limit.  What is large is
 * holes: a source whose middle nobody has written.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/owned.h"
#include "catalog/annotations.h"
#include "format/archive.h"
#include "format/archive_zip.h"
#include "format/safetensors.h"
#include "format/torch_file.h"
#include "format/torch_write.h"
#include "sidestep/sidestep_tools.h"
#include "support/footer_sample.h"
#include "support/one_rank.h"
#include "support/unit.h"
#include "support/zip_build.h"

#define MAX_HOLES 100000 /* of torch_write.c */

/* ---------------------------------------------------------------- files that are mostly holes */

/* ${head}, zeros, and ${tail} at the end. */
struct holey {
    struct source source;
    const uint8_t *head, *tail;
    uint64_t head_bytes, tail_bytes;
};

static enum sidestep_status read_holey(const struct source *source, void *to, size_t bytes,
                                       uint64_t offset, struct sidestep_error *why)
{
    const struct holey *h = source->context;
    uint64_t tail_at = source->length - h->tail_bytes;
    uint8_t *out = to;

    (void)why;
    memset(out, 0, bytes);
    if (offset < h->head_bytes)
        memcpy(out, h->head + offset, min_u64(bytes, h->head_bytes - offset));
    if (offset + bytes > tail_at) {
        uint64_t from = max_u64(offset, tail_at);
        memcpy(out + (from - offset), h->tail + (from - tail_at), offset + bytes - from);
    }
    return SIDESTEP_OK;
}

static void holey_init(struct holey *h, uint64_t length)
{
    h->source = (struct source){.length = length, .read_at = read_holey, .context = h};
}

/* Was it refused with these words?  Else it may be refused for anything but that. */
static void expect(bool refused, enum sidestep_status status, const struct sidestep_error *why,
                   const char *words)
{
    bool is_said = status != SIDESTEP_OK && strstr(why->message, words) != NULL;

    if (is_said != refused || (refused && status != SIDESTEP_EUNSUPPORTED))
        fail_msg("status %d, '%s': '%s' %s", status, why->message, words,
                 refused ? "is missing" : "is said too early");
}

/* ---------------------------------------------------------------- zips */

/* A zip whose end says that it has so many members, in a directory of so many bytes (of zeros). */
static void open_claimed(bool is_large, uint64_t members, uint64_t bytes, bool refused,
                         const char *words)
{
    OWNED_BUFFER end = {0};
    struct archive_zip *zip = calloc(1, sizeof(*zip));
    struct sidestep_error why = {0};
    struct holey h = {0};

    assert_non_null(zip);
    buffer_put_u32le(&end, ZIP_END64_SIGNATURE);
    buffer_put_u64le(&end, 44);
    buffer_put_u32le(&end, 0x002d031e); /* versions */
    buffer_put_u64le(&end, 0);          /* disks */
    buffer_put_u64le(&end, members);
    buffer_put_u64le(&end, members);
    buffer_put_u64le(&end, bytes);
    buffer_put_u64le(&end, 0); /* where it begins */
    buffer_put_u32le(&end, ZIP_LOCATOR_SIGNATURE);
    buffer_put_u32le(&end, 0);
    buffer_put_u64le(&end, bytes); /* where that record begins */
    buffer_put_u32le(&end, 1);
    buffer_put_u32le(&end, ZIP_END_SIGNATURE);
    buffer_put_u32le(&end, 0);
    buffer_put_u32le(&end, UINT32_MAX);
    buffer_put_u64le(&end, UINT64_MAX);
    buffer_put_u16le(&end, 0);
    h.tail = end.bytes;
    h.tail_bytes = end.length;
    holey_init(&h, bytes + end.length);
    zip->is_large = is_large;
    enum sidestep_status status = archive_zip_open(zip, &h.source, 0, h.source.length, &why);
    assert_int_not_equal(status, SIDESTEP_OK);
    expect(refused, status, &why, words);
    if (!refused)
        assert_non_null(strstr(why.message, "entry 0 of the directory is damaged"));
    archive_zip_release(zip);
    free(zip);
}

TEST(members_and_directories)
{
    open_claimed(false, 1, ARCHIVE_MAX_DIRECTORY_BYTES, false, "is larger than");
    open_claimed(false, 1, ARCHIVE_MAX_DIRECTORY_BYTES + 1, true, "1048577 bytes is larger than");
    open_claimed(true, ARCHIVE_LARGE_MAX_RECORDS, ARCHIVE_LARGE_MAX_DIRECTORY_BYTES, false, "than");
    open_claimed(true, ARCHIVE_LARGE_MAX_RECORDS + 1, 1000, true,
                 "1048577 members are more than 1048576");
    open_claimed(true, 1, ARCHIVE_LARGE_MAX_DIRECTORY_BYTES + 1, true,
                 "268435457 bytes is larger than 268435456");
}

/* torch.save() with a data.pkl of so many bytes, most of them zeros. */
static void large_pickle(uint64_t pickle_bytes, struct zip_build *zip, struct holey *h)
{
    zip_build_text(zip, "a/version", "3\n");
    zip_build_text(zip, "a/byteorder", "little");
    zip_build_text(zip, "a/data.pkl", "x");
    size_t directory = zip->bytes.length;
    zip_build_end(zip);
    uint8_t *bytes = zip->bytes.bytes;
    size_t length = zip->bytes.length;
    size_t local = zip_find(bytes, length, ZIP_LOCAL, "data.pkl");
    size_t central = zip_find(bytes, length, ZIP_CENTRAL, "data.pkl");
    size_t end = zip_find(bytes, length, ZIP_END, NULL);
    for (size_t at = 0; at < 3; at++) { /* no CRC, and both sizes */
        zip_set(bytes + local + 14 + 4 * at, 4, at == 0 ? 0 : pickle_bytes);
        zip_set(bytes + central + 16 + 4 * at, 4, at == 0 ? 0 : pickle_bytes);
    }
    zip_set(bytes + end + 16, 4, directory + pickle_bytes - 1);
    h->head = bytes;
    h->head_bytes = directory;
    h->tail = bytes + directory;
    h->tail_bytes = length - directory;
    holey_init(h, length + pickle_bytes - 1);
}

static enum sidestep_status read_torch(uint64_t pickle_bytes, struct sidestep_error *why)
{
    OWNED_ARENA arena = {0};
    OWNED_ZIP_BUILD zip = {0};
    struct torch_file file;
    struct holey h = {0};

    large_pickle(pickle_bytes, &zip, &h);
    return torch_file_read(&h.source, &arena, &file, why);
}

/* The same in memory, of which only the ends were touched, as the archive of an object. */
static enum sidestep_status read_object(uint64_t pickle_bytes, struct sidestep_error *why)
{
    OWNED_ZIP_BUILD zip = {0};
    struct holey h = {0};
    struct sidestep_value *value = NULL;

    large_pickle(pickle_bytes, &zip, &h);
    size_t length = (size_t)h.source.length;
    uint8_t *bytes = mmap(NULL, length, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(bytes != MAP_FAILED);
    memcpy(bytes, h.head, h.head_bytes);
    memcpy(bytes + length - h.tail_bytes, h.tail, h.tail_bytes);
    enum sidestep_status status = archive_object_read(bytes, length, &value, why);
    assert_null(value);
    assert_int_equal(munmap(bytes, length), 0);
    return status;
}

TEST(pickles_of_large_files)
{
    struct sidestep_error why = {0};

    enum sidestep_status status = read_torch(ARCHIVE_LARGE_MAX_PICKLE_BYTES, &why);
    assert_int_equal(status, SIDESTEP_ECORRUPT); /* for what is in it: "x", and zeros */
    assert_non_null(strstr(why.message, "pickle: "));
    status = read_torch(ARCHIVE_LARGE_MAX_PICKLE_BYTES + 1, &why);
    expect(true, status, &why, "268435457");
}

TEST(pickles_of_objects)
{
    struct sidestep_error why = {0};

    /* A pickle that was refused once. */
    assert_int_equal(read_object((64 << 20) + 1, &why), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(why.message, "pickle: "));
    enum sidestep_status status = read_object(ARCHIVE_MAX_PICKLE_BYTES + 1, &why);
    expect(true, status, &why, "has 2147483649 bytes, more than 2147483648");
}

/* ---------------------------------------------------------------- torch.save() */

#define BATCH 1000u /* the stack has a limit, too */

/* A dict {0: None, 1: None ...}. */
static enum sidestep_status read_dict(uint32_t count, size_t *entries, struct sidestep_error *why)
{
    OWNED_ARENA arena = {0};
    OWNED_BUFFER pickle = {0};
    OWNED_ZIP_BUILD zip = {0};
    struct torch_file file;

    buffer_put_text(&pickle, "\x80\x02}");
    for (uint32_t i = 0; i < count; i++) {
        if (i % BATCH == 0)
            buffer_put_u8(&pickle, '(');
        buffer_put_u8(&pickle, 'J');
        buffer_put_u32le(&pickle, i);
        buffer_put_u8(&pickle, 'N');
        if (i % BATCH == BATCH - 1 || i + 1 == count)
            buffer_put_u8(&pickle, 'u');
    }
    buffer_put_u8(&pickle, '.');
    zip_build_text(&zip, "a/version", "3\n");
    zip_build_text(&zip, "a/byteorder", "little");
    zip_build_put(&zip, "a/data.pkl", pickle.bytes, pickle.length);
    zip_build_end(&zip);
    struct source source = source_from_memory(zip.bytes.bytes, zip.bytes.length);
    enum sidestep_status status = torch_file_read(&source, &arena, &file, why);
    *entries = file.count;
    return status;
}

TEST(values_of_a_file)
{
    struct sidestep_error why = {0};
    size_t count;

    enum sidestep_status status = read_dict(TORCH_FILE_MAX_ENTRIES, &count, &why);
    if (status != SIDESTEP_OK)
        fail_msg("%s", why.message);
    assert_int_equal(count, TORCH_FILE_MAX_ENTRIES);
    status = read_dict(TORCH_FILE_MAX_ENTRIES + 1, &count, &why);
    expect(true, status, &why, "torch.save: it has more than 1000000 values");
    assert_int_equal(count, 0);
}

/* One value of a list, at so large a place. */
static enum sidestep_status write_list(int64_t place, struct sidestep_error *why)
{
    const struct sidestep_path_item path[] = {{.key = "list"}, {.index = place}};
    struct sidestep_value *value = sidestep_value_int(7);
    const struct torch_write_entry entry = {
        .name = "list", .path = path, .path_length = 2, .value = value};
    OWNED_BUFFER out = {0};

    assert_non_null(value);
    enum sidestep_status status = torch_write_pickle(&entry, 1, &out, why);
    sidestep_value_free(&value);
    return status;
}

TEST(holes_of_a_list)
{
    struct sidestep_error why = {0};

    assert_int_equal(write_list(MAX_HOLES, &why), SIDESTEP_OK);
    expect(true, write_list(MAX_HOLES + 1, &why), &why,
           "a list has 1 values, but its last index is 100001");
    expect(true, write_list(INT64_MAX - 1, &why), &why, "a list has 1 values");
}

/* ---------------------------------------------------------------- footers */

static enum sidestep_status encode(const char *const *transforms, size_t count,
                                   struct sidestep_error *why)
{
    OWNED_ARENA arena = {0};
    OWNED_BUFFER bytes = {0};
    struct sample s;
    struct footer footer;

    sample_init(&s);
    s.footer.transforms = transforms;
    s.footer.transform_count = count;
    s.items[OBJECT].transform = (uint32_t)count;
    TRY(footer_encode(&s.footer, SAMPLE_ITEMS_END, &bytes, why));
    TRY(sample_read(bytes.bytes, bytes.length, &arena, &footer, why));
    assert_int_equal(footer.transform_count, count);
    assert_string_equal(footer.transforms[count - 1], transforms[count - 1]);
    return SIDESTEP_OK;
}

TEST(transforms_of_a_footer)
{
    const char *names[FOOTER_MAX_TRANSFORMS + 1];
    char name[FOOTER_MAX_TRANSFORM_BYTES + 2] = {0};
    struct sidestep_error why = {0};

    memset(name, 'n', FOOTER_MAX_TRANSFORM_BYTES);
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        names[i] = name;
    if (encode(names, FOOTER_MAX_TRANSFORMS, &why) != SIDESTEP_OK)
        fail_msg("%s", why.message);
    assert_int_equal(encode(names, FOOTER_MAX_TRANSFORMS + 1, &why), SIDESTEP_EINVAL);
    assert_non_null(strstr(why.message, "256 transforms (at most 255)"));
    name[FOOTER_MAX_TRANSFORM_BYTES] = 'n';
    assert_int_equal(encode(names, 1, &why), SIDESTEP_EINVAL);
    assert_non_null(strstr(why.message, "transform 1 has no name (UTF-8, 1 to 1100 bytes)"));
}

/* A footer whose list, one name of 2 * ${count} - 1 letters, is cut into ${count} names. */
static enum sidestep_status read_cut_names(size_t count, size_t *found, struct sidestep_error *why)
{
    OWNED_ARENA arena = {0};
    OWNED_BUFFER bytes = {0};
    struct sample s;
    struct footer footer;
    char name[FOOTER_MAX_TRANSFORM_BYTES] = {0};
    const char *const names[] = {name};

    memset(name, 'n', 2 * count - 1);
    sample_init(&s);
    s.footer.transforms = names;
    s.footer.transform_count = 1;
    s.items[OBJECT].transform = 1;
    TRY(footer_encode(&s.footer, SAMPLE_ITEMS_END, &bytes, why));
    uint8_t *list = memmem(bytes.bytes, bytes.length, name, 2 * count);
    assert_non_null(list);
    for (size_t i = 0; i < count; i++)
        list[2 * i + 1] = '\0';
    sample_fix_hashes(bytes.bytes, bytes.length);
    TRY(sample_read(bytes.bytes, bytes.length, &arena, &footer, why));
    *found = footer.transform_count;
    return SIDESTEP_OK;
}

TEST(transforms_that_are_read)
{
    struct sidestep_error why = {0};
    size_t found = 0;

    if (read_cut_names(FOOTER_MAX_TRANSFORMS, &found, &why) != SIDESTEP_OK)
        fail_msg("%s", why.message);
    assert_int_equal(found, FOOTER_MAX_TRANSFORMS);
    assert_int_equal(read_cut_names(FOOTER_MAX_TRANSFORMS + 1, &found, &why), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(why.message, "the list of transforms is malformed"));
}

/* ---------------------------------------------------------------- files on disk */

TEST(an_index_of_safetensors)
{
    struct sidestep_checkpoint *checkpoint = NULL;
    char path[400];

    snprintf(path, sizeof(path), "%s/" SAFETENSORS_INDEX_NAME, scratch.path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), (off_t)SAFETENSORS_MAX_INDEX_BYTES + 1), 0);
    assert_int_not_equal(sidestep_checkpoint_open(scratch.path, &checkpoint, &err), SIDESTEP_OK);
    assert_non_null(strstr(err.message, SAFETENSORS_INDEX_NAME));
    assert_non_null(strstr(err.message, "268435457 bytes"));
    assert_int_equal(fclose(file), 0);
    assert_int_equal(unlink(path), 0);
}

/* A tag has as many bytes as may be, and not one more. */
TEST(words_of_a_tag)
{
    char path[400], tag[ANNOTATIONS_MAX_WORD + 2];

    snprintf(path, sizeof(path), "%s/step-1", scratch.path);
    ASSERT_OK(sidestep_save(engine, path, world.state, NULL, NULL, &err));
    memset(tag, 't', sizeof(tag));
    tag[ANNOTATIONS_MAX_WORD + 1] = '\0';
    assert_int_equal(sidestep_tag(path, tag, true, &err), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "64"));
    tag[ANNOTATIONS_MAX_WORD] = '\0';
    ASSERT_OK(sidestep_tag(path, tag, true, &err));
}

/* What a series notes of a checkpoint is one small file. */
TEST(metrics_of_a_checkpoint)
{
    enum { FEWER = 100, HUNDREDS = 1000 };
    static char names[HUNDREDS][20];
    static struct sidestep_metric metrics[HUNDREDS];
    struct sidestep_series *series = NULL;
    char root[400];

    for (unsigned i = 0; i < HUNDREDS; i++) {
        snprintf(names[i], sizeof(names[i]), "a-long-name-%u", i);
        metrics[i] = (struct sidestep_metric){.name = names[i], .value = i};
    }
    snprintf(root, sizeof(root), "%s/series", scratch.path);
    ASSERT_OK(sidestep_series_open(engine, root, NULL, &series, &err));
    ASSERT_OK(sidestep_series_save(series, 1, world.state, NULL, NULL, &err));
    ASSERT_OK(sidestep_series_note(series, 1, metrics, FEWER, NULL, 0, &err));
    assert_int_equal(sidestep_series_note(series, 1, metrics, HUNDREDS, NULL, 0, &err),
                     SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "an annotation of 'step-1' is longer than 16384 bytes"));
    ASSERT_OK(sidestep_series_close(&series, &err));
}

TEST(a_mapping_of_names)
{
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
    char from[400], to[400], mapping[400];

    snprintf(from, sizeof(from), "%s/source", scratch.path);
    snprintf(to, sizeof(to), "%s/target", scratch.path);
    snprintf(mapping, sizeof(mapping), "%s/mapping.json", scratch.path);
    ASSERT_OK(sidestep_save(engine, from, world.state, NULL, NULL, &err));
    FILE *file = fopen(mapping, "w");
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), ((off_t)256 << 20) + 1), 0);
    options.mapping = mapping;
    assert_int_not_equal(sidestep_convert(from, to, &options, NULL, &err), SIDESTEP_OK);
    assert_non_null(strstr(err.message, "mapping.json"));
    assert_non_null(strstr(err.message, "268435457 bytes"));
    assert_int_not_equal(access(to, F_OK), 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(unlink(mapping), 0);
}

ALL_TESTS(one_rank_setup, one_rank_teardown);
