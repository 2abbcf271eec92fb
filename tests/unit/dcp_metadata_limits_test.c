/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dcp_metadata_limits_test.c -- `.metadata` that exceeds each limit by one, and small files that
 * describe something large.
 */
#include "base/owned.h"
#include "format/dcp_metadata.h"
#include "format/pickle.h"
#include "support/metadata_show.h"
#include "support/pickle_build.h"
#include "support/unit.h"

#define PROPERTIES "$TensorProperties{'dtype': <torch int8>}"
#define INFO "<torch.distributed.checkpoint.filesystem _StorageInfo>"

/* Write ${unit} ${count} times. %zu in it becomes the number of the repetition. */
static void put_repeated(struct buffer *out, const char *unit, size_t count)
{
    const char *number = strstr(unit, "%zu");

    for (size_t i = 0; i < count; i++) {
        if (number == NULL) {
            buffer_put_text(out, unit);
            continue;
        }
        buffer_put(out, unit, (size_t)(number - unit));
        buffer_printf(out, "%zu", i);
        buffer_put_text(out, number + 3);
    }
}

static enum sidestep_status read_notation(struct buffer *notation, struct sidestep_error *err)
{
    OWNED_METADATA metadata = {0};

    buffer_put_u8(notation, 0);
    OWNED_BUFFER pickle = pickle_build((const char *)notation->bytes);
    return dcp_metadata_read(pickle.bytes, pickle.length, &metadata, err);
}

static const struct {
    const char *before;
    const char *unit;
    const char *after;
    size_t most;
    enum sidestep_status status;
    const char *message; /* with one more */
} limits[] = {
    {"$Metadata{'state_dict_metadata': {'w': $TensorStorageMetadata{'properties': " PROPERTIES
     ", 'chunks': [], 'size': (",
     "1, ", ")}}}", SIDESTEP_MAX_NDIM, SIDESTEP_EUNSUPPORTED,
     "tensor 'w': size has 65 dimensions, the limit is 64"},
    {"$Metadata{'state_dict_metadata': {'", "x",
     "': $TensorStorageMetadata{'properties': " PROPERTIES ", 'chunks': [], 'size': ()}}}",
     SIDESTEP_MAX_NAME, SIDESTEP_EUNSUPPORTED,
     "a name of state_dict_metadata has 4097 bytes, the limit is 4096"},
    {"$Metadata{'state_dict_metadata': {'w': $TensorStorageMetadata{'properties': " PROPERTIES
     ", 'chunks': [], 'size': ()}}, 'planner_data': {'w': (",
     "'x', ", ")}}", SIDESTEP_MAX_PATH_ITEMS, SIDESTEP_EUNSUPPORTED,
     "'w' lies 65 levels deep, the limit is 64"},
    {"$Metadata{'state_dict_metadata': {}, ", "'f%zu': 1, ", "}", DCP_METADATA_MAX_FIELDS - 1,
     SIDESTEP_ECORRUPT, "the root has 257 fields, the limit is 256"},
    {"$Metadata{'state_dict_metadata': {'w': $TensorStorageMetadata{'properties': "
     "$TensorProperties{'dtype': <torch int8>, ",
     "'f%zu': 1, ", "}, 'chunks': [], 'size': ()}}}", DCP_METADATA_MAX_FIELDS - 1,
     SIDESTEP_ECORRUPT, "tensor 'w': properties is not a tuple of 5 or a dict"},
    {"$Metadata{'state_dict_metadata': {'o': $BytesStorageMetadata.}, 'storage_data': "
     "{$MetadataIndex{'fqn': 'o'}: " INFO
     "{'relative_path': 'f', 'offset': 0, 'length': 0, 'transform_descriptors': [",
     "'x', ", "]}}}", DCP_METADATA_MAX_TRANSFORMS, SIDESTEP_EUNSUPPORTED,
     "storage_data of 'o': 17 transforms of one item, the limit is 16"},
    {"$Metadata{'state_dict_metadata': {'o': $BytesStorageMetadata.}, 'storage_data': "
     "{$MetadataIndex{'fqn': 'o'}: " INFO
     "{'relative_path': 'f', 'offset': 0, 'length': 0, 'transform_descriptors': ['",
     "x", "']}}}", DCP_METADATA_MAX_TRANSFORM_NAME, SIDESTEP_EUNSUPPORTED,
     "storage_data of 'o': a transform has 65 bytes, the limit is 64"},
    {"$Metadata{'state_dict_metadata': {'o': $BytesStorageMetadata.}, 'storage_data': "
     "{$MetadataIndex{'fqn': 'o'}: " INFO "{'offset': 0, 'length': 0, 'relative_path': '",
     "x", "'}}}", 4095, SIDESTEP_EUNSUPPORTED,
     "storage_data of 'o': relative_path has 4096 bytes, the limit is 4095"},
    {"$Metadata{'state_dict_metadata': {}, 'storage_meta': $StorageMeta{'checkpoint_id': '", "x",
     "'}}", 65536, SIDESTEP_EUNSUPPORTED, "checkpoint_id has 65537 bytes, the limit is 65536"},
    {"$Metadata{'state_dict_metadata': {}, 'storage_meta': $StorageMeta{'checkpoint_id': "
     "<pathlib PosixPath>('",
     "x", "')}}", 65535, SIDESTEP_EUNSUPPORTED, "checkpoint_id has more than 65536 bytes"},
};

TEST(one_past_each_limit)
{
    for (size_t i = 0; i < ARRAY_LENGTH(limits); i++)
        for (size_t more = 0; more < 2; more++) {
            OWNED_BUFFER notation = {0};
            struct sidestep_error err = {0};
            buffer_put_text(&notation, limits[i].before);
            put_repeated(&notation, limits[i].unit, limits[i].most + more);
            buffer_put_text(&notation, limits[i].after);
            enum sidestep_status status = read_notation(&notation, &err);
            assert_string_equal(err.message, more != 0 ? limits[i].message : "");
            assert_int_equal(status, more != 0 ? limits[i].status : SIDESTEP_OK);
        }
}

TEST(too_many_bytes)
{
    struct sidestep_error err = {0};
    struct metadata metadata;
    assert_int_equal(dcp_metadata_read("", DCP_METADATA_MAX_BYTES + 1, &metadata, &err),
                     SIDESTEP_ECORRUPT);
    assert_string_equal(err.message, "2147483649 bytes of metadata, the limit is 2147483648");
}

/* Fragments of pickles with a memo, which the notation does not have. */
static void put_notation(struct buffer *out, const char *notation)
{
    OWNED_BUFFER pickle = pickle_build(notation);

    buffer_put(out, pickle.bytes + 2, pickle.length - 3);
}

#define B(literal) literal, sizeof(literal) - 1

static void put_key(struct buffer *out, const char *key)
{
    buffer_put_u8(out, 'U');
    buffer_put_u8(out, (uint8_t)strlen(key));
    buffer_put_text(out, key);
}

/* 1,000 keys, each with the same ${value} of two bytes. */
static void put_keys(struct buffer *out, const char value[2])
{
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        put_key(out, name);
        buffer_put(out, value, 2);
    }
}

/* A list of many chunks, which all of many tensors refer to. */
TEST(lists_of_chunks_that_are_shared)
{
    OWNED_BUFFER out = {0};
    OWNED_METADATA metadata = {0};
    struct sidestep_error err = {0};
    put_notation(&out, "$ChunkStorageMetadata{'offsets': (0,), 'sizes': (0,)}");
    buffer_put(&out, B("q\0"
                       "0]("));
    for (int i = 0; i < 1000; i++)
        buffer_put(&out, B("h\0"));
    buffer_put(&out, B("eq\1"
                       "0"));
    put_notation(&out, "$TensorStorageMetadata.");
    buffer_put(&out, B("}"));
    put_key(&out, "properties");
    put_notation(&out, PROPERTIES);
    buffer_put(&out, B("s"));
    put_key(&out, "size");
    put_notation(&out, "(4,)");
    buffer_put(&out, B("s"));
    put_key(&out, "chunks");
    buffer_put(&out, B("h\1sbq\2"
                       "0"));
    put_notation(&out, "$Metadata.");
    buffer_put(&out, B("}"));
    put_key(&out, "state_dict_metadata");
    buffer_put(&out, B("}("));
    put_keys(&out, "h\2");
    buffer_put(&out, B("usb."));
    assert_int_equal(dcp_metadata_read(out.bytes, out.length, &metadata, &err), SIDESTEP_ECORRUPT);
    assert_string_equal(err.message, "tensor '1': more chunks (2000) than the file can describe");
}

/* A path of 64 items at each of many names. */
TEST(paths_that_are_shared)
{
    OWNED_BUFFER out = {0};
    OWNED_METADATA metadata = {0};
    struct sidestep_error err = {0};
    buffer_put(&out, B("("));
    for (int i = 0; i < 64; i++)
        buffer_put(&out, B("K\1"));
    buffer_put(&out, B("tq\0"
                       "0"));
    put_notation(&out,
                 "$TensorStorageMetadata{'properties': " PROPERTIES ", 'size': (), 'chunks': []}");
    buffer_put(&out, B("q\1"
                       "0"));
    put_notation(&out, "$Metadata.");
    buffer_put(&out, B("}"));
    for (int round = 0; round < 2; round++) {
        put_key(&out, round == 0 ? "state_dict_metadata" : "planner_data");
        buffer_put(&out, B("}("));
        put_keys(&out, round == 0 ? "h\1" : "h\0");
        buffer_put(&out, B("us"));
    }
    buffer_put(&out, B("b."));
    assert_int_equal(dcp_metadata_read(out.bytes, out.length, &metadata, &err), SIDESTEP_ECORRUPT);
    assert_string_equal(err.message, "planner_data is longer than the file can describe");
}

/* A text with many references is copied once: a name of 4 KiB in 1,000 paths. */
TEST(copies_are_kept)
{
    OWNED_BUFFER out = {0};
    OWNED_METADATA metadata = {0};
    struct sidestep_error err = {0};
    char name[4001];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    buffer_put(&out, B("X\xa0\x0f\0\0"));
    buffer_put_text(&out, name);
    buffer_put(&out, B("q\0"
                       "0"));
    put_notation(&out,
                 "$TensorStorageMetadata{'properties': " PROPERTIES ", 'size': (), 'chunks': []}");
    buffer_put(&out, B("q\1"
                       "0"));
    put_notation(&out, "$Metadata.");
    buffer_put(&out, B("}"));
    for (int round = 0; round < 2; round++) {
        put_key(&out, round == 0 ? "state_dict_metadata" : "planner_data");
        buffer_put(&out, B("}("));
        for (int i = 0; i < 1000; i++) {
            snprintf(name, sizeof(name), "%d", i);
            put_key(&out, name);
            buffer_put(&out, round == 0 ? "h\1" : "h\0\x85", round == 0 ? 2 : 3);
        }
        buffer_put(&out, B("us"));
    }
    buffer_put(&out, B("b."));
    assert_int_equal(dcp_metadata_read(out.bytes, out.length, &metadata, &err), SIDESTEP_OK);
    assert_int_equal(metadata.entries[7].path_length, 1);
    assert_ptr_equal(metadata.entries[7].path[0].key, metadata.entries[8].path[0].key);
    assert_true(metadata.arena.used_bytes < 32 * out.length);
}

/* Nodes that take much more memory than their bytes, and that are dropped again. */
TEST(memory_has_a_limit)
{
    OWNED_BUFFER out = {0};
    OWNED_METADATA metadata = {0};
    struct sidestep_error err = {0};
    const size_t count = 900000;
    for (int i = 0; i < 5; i++) {
        buffer_put_u8(&out, '('); /* MARK, empty lists, POP_MARK */
        uint8_t *bytes = buffer_extend(&out, count);
        assert_non_null(bytes);
        memset(bytes, ']', count);
        buffer_put_u8(&out, '1');
    }
    put_notation(&out, "$Metadata{'state_dict_metadata': {}}");
    buffer_put(&out, B("."));
    assert_int_equal(dcp_metadata_read(out.bytes, out.length, &metadata, &err), SIDESTEP_ENOMEM);
}
