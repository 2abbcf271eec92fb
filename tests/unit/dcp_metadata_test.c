/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dcp_metadata_test.c -- reads `.metadata` of all versions of torch and of other programs, and
 * refuses what is wrong, with the right message.
 */
#include "base/owned.h"
#include "format/dcp_metadata.h"
#include "format/pickle.h"
#include "support/guard.h"
#include "support/metadata_show.h"
#include "support/pickle_build.h"
#include "support/unit.h"

/* ---------------------------------------------------------------- what torch wrote */

/* The same state by two versions. */
#define NESTED                                                                                     \
    "w (w) float32 [2,3]: [0:2,0:3] __0_0.distcp@5044+1577\n"                                      \
    "step (step) object __0_0.distcp@0+1261\n"                                                     \
    "o.a.0 (o, a, 0) bfloat16 [2]: [0:2] __0_0.distcp@6621+1577\n"                                 \
    "o.a.1.x (o, a, 1, x) object __0_0.distcp@1261+1261\n"                                         \
    "o.lst (o, lst) object __0_0.distcp@2522+1261\n"                                               \
    "o.tup (o, tup) object __0_0.distcp@3783+1261\n"                                               \
    "s (s) int64 []: [] __0_0.distcp@8198+1577\n"

static const struct {
    const char *path;
    const char *shown;
} golden[] = {
    {"tests/golden/torch-2.6.0/nested/.metadata",
     "id=/exp/ck_trixie save=6ccd6239-d163-4be9-8d9e-fc26b019cd3e\n"
     "w (w) float32 [2,3]: [0:2,0:3] __0_0.distcp@3456+1180\n"
     "step (step) object __0_0.distcp@0+864\n"
     "o.a.0 (o, a, 0) bfloat16 [2]: [0:2] __0_0.distcp@4636+1180\n"
     "o.a.1.x (o, a, 1, x) object __0_0.distcp@864+864\n"
     "o.lst (o, lst) object __0_0.distcp@1728+864\n"
     "o.tup (o, tup) object __0_0.distcp@2592+864\n"
     "s (s) int64 []: [] __0_0.distcp@5816+1180\n"},
    {"tests/golden/torch-2.14.1/nested/.metadata",
     "id=/exp/ck_sid save=dde629cc-f204-4330-964d-e790178c43bf\n" NESTED},
    {"tests/golden/torch-2.14.1/four_ranks/.metadata",
     "id=/exp/mr_save save=c75ccf5d-ee02-47b7-a073-c31b9cc0d587\n"
     "w (w) float32 [7,6]: [0:2,0:6] __0_0.distcp@1261+1577; [2:4,0:6] __1_0.distcp@1261+1577; "
     "[4:6,0:6] __2_0.distcp@2522+1577; [6:7,0:6] __3_0.distcp@1261+1577\n"
     "c (c) float32 [7,6]: [0:7,0:2] __0_0.distcp@2838+1577; [0:7,2:4] __1_0.distcp@2838+1577; "
     "[0:7,4:6] __2_0.distcp@4099+1577; [0:7,6:6] __3_0.distcp@2838+1513\n"
     "only0 (only0) object __0_0.distcp@0+1261\n"
     "uneven (uneven) float32 [2]: [0:1] __0_0.distcp@4415+1577; [1:2] __1_0.distcp@5992+1577; "
     "[2:2] __3_0.distcp@6312+1513\n"
     "r (r) float32 [5]: [0:5] __1_0.distcp@4415+1577\n"
     "only1 (only1) object __1_0.distcp@0+1261\n"
     "plain (plain) float32 [3]: [0:3] __2_0.distcp@5676+1577\n"
     "step (step) object __2_0.distcp@0+1261\n"
     "only2 (only2) object __2_0.distcp@1261+1261\n"
     "big (big) float32 [1000]: [0:1000] __2_0.distcp@7253+5545\n"
     "plain2 (plain2) float32 [100]: [0:100] __3_0.distcp@4351+1961\n"
     "only3 (only3) object __3_0.distcp@0+1261\n"},
    {"tests/golden/torch-2.15.0/nested/.metadata", /* with the strides of tensors */
     "id=/exp/torch-2.15.0 save=41891b82-0353-4bb5-bc84-50e63564e19f\n" NESTED},
};

static enum sidestep_status read_guarded(const void *bytes, size_t length, struct metadata *out,
                                         struct sidestep_error *err)
{
    void *copy = guard_copy(bytes, length);
    enum sidestep_status status = dcp_metadata_read(copy, length, out, err);

    guard_free(copy);
    return status;
}

TEST(metadata_that_torch_wrote)
{
    for (size_t i = 0; i < ARRAY_LENGTH(golden); i++) {
        OWNED_BUFFER file = metadata_show_file(golden[i].path);
        OWNED_METADATA metadata = {0};
        struct sidestep_error err = {0};
        assert_int_equal(read_guarded(file.bytes, file.length, &metadata, &err), SIDESTEP_OK);
        OWNED_BUFFER shown = metadata_show(&metadata);
        assert_string_equal((char *)shown.bytes, golden[i].shown);
        assert_ptr_equal(metadata_find(&metadata, "w"), &metadata.entries[0]);
        assert_int_equal(metadata.entries[0].dtype, SIDESTEP_FLOAT32);
        assert_null(metadata_find(&metadata, "nothing"));
    }
}

TEST(no_prefix_of_a_file_is_a_file)
{
    for (size_t i = 0; i < ARRAY_LENGTH(golden); i++) {
        OWNED_BUFFER file = metadata_show_file(golden[i].path);
        for (size_t n = 0; n < file.length; n++) {
            OWNED_METADATA metadata = {0};
            assert_int_equal(read_guarded(file.bytes, n, &metadata, NULL), SIDESTEP_ECORRUPT);
            assert_int_equal(metadata.count, 0);
        }
    }
}

/* Each byte of a file is replaced by each other one. Nothing crashes, and what is accepted can be
 * written and read again. */
TEST(every_byte_changed)
{
    OWNED_BUFFER file = metadata_show_file(golden[0].path);
    uint8_t *copy = guard_copy(file.bytes, file.length);
    size_t accepted = 0, refused = 0;
    for (size_t at = 0; at < file.length; at++) {
        for (unsigned value = 0; value < 256; value++) {
            OWNED_METADATA metadata = {0};
            OWNED_METADATA again = {0};
            copy[at] = (uint8_t)value;
            if (dcp_metadata_read(copy, file.length, &metadata, NULL) != SIDESTEP_OK) {
                refused++;
                continue;
            }
            accepted++;
            if (value % 16 != 0)
                continue;
            OWNED_BUFFER out = {0};
            assert_int_equal(dcp_metadata_write(&out, &metadata, NULL), SIDESTEP_OK);
            assert_int_equal(dcp_metadata_read(out.bytes, out.length, &again, NULL), SIDESTEP_OK);
            assert_int_equal(again.count, metadata.count);
        }
        copy[at] = file.bytes[at];
    }
    guard_free(copy);
    assert_true(accepted > 1000);
    assert_true(refused > 1000);
}

/* ---------------------------------------------------------------- by hand */

#define STRIDED "<torch.serialization _get_layout>('torch.strided')"
#define PROPERTIES                                                                                 \
    "$TensorProperties[[<torch float32>, " STRIDED ", True, $_MEM_FORMAT_ENCODING(0), False]]"
#define OLD "torch.distributed._shard.sharded_tensor.metadata "
#define SIZE(numbers) "<torch Size>((" numbers "))"
#define CHUNK(offsets, sizes)                                                                      \
    "$ChunkStorageMetadata{'offsets': " SIZE(offsets) ", 'sizes': " SIZE(sizes) "}"
#define INFO(path, offset, length)                                                                 \
    "<torch.distributed.checkpoint.filesystem _StorageInfo>{'relative_path': '" path               \
    "', 'offset': " offset ", 'length': " length "}"
#define INDEX(name, offsets) "$MetadataIndex{'fqn': '" name "', 'offset': " SIZE(offsets) "}"
#define DEFAULT_SHOWN "w (w) float32 grad [4,6]: [0:4,0:6] f@5+7\n"
#define BEFORE(x) "id=None save=None\n" x

/* A checkpoint of one tensor of 4 x 6 in one chunk.  A NULL field has its default. */
struct recipe {
    const char *properties, *size, *chunks;
    const char *entries; /* of state_dict_metadata, instead of the tensor */
    const char *key, *info;
    const char *storage; /* storage_data as a whole */
    const char *planner, *storage_meta;
    const char *more; /* fields of Metadata */
    const char *root;
    enum sidestep_status status;
    const char *expected; /* shown, or the message */
};

static const char *or_else(const char *text, const char *fallback)
{
    return text != NULL ? text : fallback;
}

static struct buffer cook(const struct recipe *r)
{
    OWNED_BUFFER text = {0};

    if (r->root != NULL)
        return pickle_build(r->root);
    buffer_put_text(&text, "$Metadata{'state_dict_metadata': ");
    if (r->entries != NULL)
        buffer_put_text(&text, r->entries);
    else
        buffer_printf(&text,
                      "{'w': $TensorStorageMetadata{'properties': %s, 'size': %s, 'chunks': %s}}",
                      or_else(r->properties, PROPERTIES), or_else(r->size, SIZE("4, 6")),
                      or_else(r->chunks, "[" CHUNK("0, 0", "4, 6") "]"));
    buffer_put_text(&text, ", 'storage_data': ");
    if (r->storage != NULL)
        buffer_put_text(&text, r->storage);
    else
        buffer_printf(&text, "{%s: %s}", or_else(r->key, INDEX("w", "0, 0")),
                      or_else(r->info, INFO("f", "5", "7")));
    buffer_printf(&text, ", 'planner_data': %s, 'storage_meta': %s %s}",
                  or_else(r->planner, "{'w': ('w',)}"), or_else(r->storage_meta, "None"),
                  or_else(r->more, ""));
    buffer_put_u8(&text, 0);
    return pickle_build((const char *)text.bytes);
}

static void check_recipes(const struct recipe *recipes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        OWNED_BUFFER pickle = cook(&recipes[i]);
        OWNED_METADATA metadata = {0};
        struct sidestep_error err = {0};
        enum sidestep_status status = read_guarded(pickle.bytes, pickle.length, &metadata, &err);
        if (status != SIDESTEP_OK) {
            assert_string_equal(err.message, recipes[i].expected);
            assert_int_equal(status, recipes[i].status);
            assert_int_equal(err.status, recipes[i].status);
            assert_null(metadata.arena.blocks);
            continue;
        }
        OWNED_BUFFER shown = metadata_show(&metadata);
        assert_string_equal((char *)shown.bytes, recipes[i].expected);
        assert_int_equal(recipes[i].status, SIDESTEP_OK);
    }
}

static const struct recipe accepted[] = {
    {.expected = BEFORE(DEFAULT_SHOWN)},
    /* TensorProperties of torch 2.0 to 2.2, as a tuple and as a dict; more elements; the enum by
     * name. */
    {.properties = "<" OLD "TensorProperties>[[<torch float32>, " STRIDED ", True, <" OLD
                   "MEM_FORMAT_ENCODING>(0), False]]",
     .expected = BEFORE(DEFAULT_SHOWN)},
    {.properties = "<" OLD "TensorProperties>{'dtype': <torch float32>, 'layout': <torch strided>, "
                   "'requires_grad': True, 'memory_format': <torch contiguous_format>}",
     .expected = BEFORE(DEFAULT_SHOWN)},
    {.properties = "$TensorProperties{'dtype': <torch float32>, 'requires_grad': True}",
     .expected = BEFORE(DEFAULT_SHOWN)},
    {.properties = "$TensorProperties[[<torch float32>, " STRIDED ", True, <builtins "
                   "getattr>($_MEM_FORMAT_ENCODING, 'TORCH_PRESERVE_FORMAT'), False, (6, 1), 'x']]",
     .expected = BEFORE(DEFAULT_SHOWN)},
    {.properties =
         "$TensorProperties[[<torch float32>, " STRIDED ", True, <__builtin__ getattr>(<" OLD
         "MEM_FORMAT_ENCODING>, 'TORCH_CHANNELS_LAST'), False]]",
     .expected = BEFORE(DEFAULT_SHOWN)},
    {.properties = "$TensorProperties[[<torch float96_new>, " STRIDED ", False, "
                   "$_MEM_FORMAT_ENCODING(2), True]]",
     .expected = BEFORE("w (w) float96_new [4,6]: [0:4,0:6] f@5+7\n")},
    /* Sizes as tuples. */
    {.size = "(4, 6)", .expected = BEFORE(DEFAULT_SHOWN)},
    {.size = SIZE(""),
     .chunks = "(" CHUNK("", "") ")",
     .key = INDEX("w", ""),
     .expected = BEFORE("w (w) float32 grad []: [] f@5+7\n")},
    /* Tensors without chunks, and chunks without elements, which are ignored if another chunk
     * begins at their place. */
    {.entries = "{}", .storage = "{}", .expected = BEFORE("")},
    {.entries = "{}", .storage = "None", .expected = BEFORE("")},
    {.chunks = "[]", .storage = "{}", .expected = BEFORE("w (w) float32 grad [4,6]:\n")},
    {.chunks = "[" CHUNK("0, 0", "4, 6") CHUNK("0, 0", "0, 6") CHUNK("0, 0", "0, 6") "]",
     .expected = BEFORE(DEFAULT_SHOWN)},
    {.chunks = "[" CHUNK("0, 0", "0, 6") CHUNK("0, 0", "4, 6") "]",
     .expected = BEFORE(DEFAULT_SHOWN)},
    {.chunks = "[" CHUNK("0, 0", "4, 6") CHUNK("4, 0", "0, 6") "]",
     .storage = "{" INDEX("w", "0, 0") ":" INFO("f", "5", "7")
         INDEX("w", "4, 0") ":" INFO("a/b", "0", "9223372036854775807") "}",
     .expected = BEFORE("w (w) float32 grad [4,6]: [0:4,0:6] f@5+7; [4:4,0:6] "
                        "a/b@0+9223372036854775807\n")},
    /* Objects; an index and an offset that are None; storage of entries that do not exist. */
    {.entries = "{'o': $BytesStorageMetadata., 'p': $BytesStorageMetadata{}}",
     .storage = "{$MetadataIndex{'fqn': 'o'}: " INFO(
         "f", "0", "0") "$MetadataIndex{'fqn': 'p', 'index': None, 'offset': None}: " INFO("g", "1",
                                                                                           "0")
         INDEX("o", "0") ": <os system>('x') " INDEX("w", "0") ": None }",
     .planner = "None",
     .expected = BEFORE("o () object f@0+0\np () object g@1+0\n")},
    {.storage = "{" INDEX("w", "0, 0") ":" INFO("f", "5", "7")
         INDEX("w", "1, 0") ": 1, " INDEX("w", "0") ": 2, $MetadataIndex{'fqn': 'w'}: 3}",
     .expected = BEFORE(DEFAULT_SHOWN)},
    /* Transforms. */
    {.info = "<torch.distributed.checkpoint.filesystem _StorageInfo>{'relative_path': 'f', "
             "'offset': 5, 'length': 7, 'transform_descriptors': ['stream.zstd/1', 'x']}",
     .expected = BEFORE("w (w) float32 grad [4,6]: [0:4,0:6] f@5+7,stream.zstd/1,x\n")},
    {.info = "<torch.distributed.checkpoint.filesystem _StorageInfo>{'relative_path': 'f', "
             "'offset': 5, 'length': 7, 'transform_descriptors': [], 'new': <os system>('x')}",
     .expected = BEFORE(DEFAULT_SHOWN)},
    {.info = "<torch.distributed.checkpoint.filesystem _StorageInfo>{'relative_path': 'f', "
             "'offset': 5, 'length': 7, 'transform_descriptors': None}",
     .expected = BEFORE(DEFAULT_SHOWN)},
    /* planner_data of others. */
    {.planner = "None", .expected = BEFORE("w () float32 grad [4,6]: [0:4,0:6] f@5+7\n")},
    {.planner = "<os system>('halt')",
     .expected = BEFORE("w () float32 grad [4,6]: [0:4,0:6] f@5+7\n")},
    {.planner = "{'w': <os system>('x'), 'v': ('v',), 1: (1,)}",
     .expected = BEFORE("w () float32 grad [4,6]: [0:4,0:6] f@5+7\n")},
    {.planner = "{'w': ('a', None)}",
     .expected = BEFORE("w () float32 grad [4,6]: [0:4,0:6] f@5+7\n")},
    {.planner = "{'w': ['a', 3, -1, '']}",
     .expected = BEFORE("w (a, 3, -1, ) float32 grad [4,6]: [0:4,0:6] f@5+7\n")},
    /* storage_meta, and the ways to write a path. */
    {.storage_meta = "$StorageMeta{'checkpoint_id': 'here', 'save_id': 'x', 'load_id': None, "
                     "'modules': []}",
     .expected = "id=here save=x\n" DEFAULT_SHOWN},
    {.storage_meta = "$StorageMeta{'checkpoint_id': None, 'save_id': None}",
     .expected = BEFORE(DEFAULT_SHOWN)},
    {.storage_meta = "$StorageMeta.", .expected = BEFORE(DEFAULT_SHOWN)},
    {.storage_meta = "$StorageMeta{'checkpoint_id': <pathlib PosixPath>('/', 'a', 'b')}",
     .expected = "id=/a/b save=None\n" DEFAULT_SHOWN},
    {.storage_meta = "$StorageMeta{'checkpoint_id': <pathlib._local PosixPath>('/a/b')}",
     .expected = "id=/a/b save=None\n" DEFAULT_SHOWN},
    {.storage_meta = "$StorageMeta{'checkpoint_id': <pathlib PurePosixPath>('a', 'b')}",
     .expected = "id=a/b save=None\n" DEFAULT_SHOWN},
    {.storage_meta = "$StorageMeta{'checkpoint_id': <pathlib PosixPath>()}",
     .expected = "id= save=None\n" DEFAULT_SHOWN},
    {.storage_meta = "$StorageMeta{'checkpoint_id': '\xff'}", .expected = BEFORE(DEFAULT_SHOWN)},
    {.storage_meta = "$StorageMeta{'checkpoint_id': <pathlib PosixPath>('\xff')}",
     .expected = BEFORE(DEFAULT_SHOWN)},
    /* What nobody asks for. */
    {.more = ", 'version': '1.0.0', 'mcore_data': <os system>('halt'), 'all_local_plans': "
             "[<torch.distributed.checkpoint.planner SavePlan>{'x': 1}]",
     .expected = BEFORE(DEFAULT_SHOWN)},
    /* Protocols 0 and 1. */
    {.entries =
         "{'o': <copy_reg _reconstructor>($BytesStorageMetadata, <__builtin__ object>, None)}",
     .storage = "{$MetadataIndex{'fqn': 'o'}: " INFO("f", "0", "0") "}",
     .expected = BEFORE("o () object f@0+0\n")},
    /* Of Megatron-core before 0.16. */
    {.root = "<megatron.core.dist_checkpointing.strategies.torch MCoreMetadata>"
             "{'state_dict_metadata': {'o': $BytesStorageMetadata{}}, 'storage_data': "
             "{$MetadataIndex{'fqn': 'o'}: " INFO("f", "0", "0") "}, 'mcore_data': {'o': {}}}",
     .expected = BEFORE("o () object f@0+0\n")},
};

TEST(what_is_accepted)
{
    check_recipes(accepted, ARRAY_LENGTH(accepted));
}

#define T "tensor 'w': "
#define S "storage_data of 'w': "
#define NOT_RUN " but made by 'posix system', which is not run"

static const struct recipe refused[] = {
    /* The root and its fields. */
    {.root = "1", .status = SIDESTEP_ECORRUPT, .expected = "the root is not Metadata"},
    {.root = "<posix system>('halt')",
     .status = SIDESTEP_EUNSAFE,
     .expected = "the root is not Metadata" NOT_RUN},
    {.root = "<posix system>",
     .status = SIDESTEP_EUNSAFE,
     .expected = "the root is not Metadata" NOT_RUN},
    {.root = "<x getattr>(1, 'system')",
     .status = SIDESTEP_EUNSAFE,
     .expected = "the root is not Metadata but made by 'x getattr', which is not run"},
    {.root = "$TensorStorageMetadata{}",
     .status = SIDESTEP_EUNSAFE,
     .expected = "the root is not Metadata but made by 'torch.distributed.checkpoint.metadata "
                 "TensorStorageMetadata', which is not run"},
    {.root = "<copyreg _reconstructor>(<posix system>, 1, None)",
     .status = SIDESTEP_EUNSAFE,
     .expected = "the root is not Metadata" NOT_RUN},
    {.root = "<copyreg _reconstructor>($Metadata, <builtins object>, None)",
     .status = SIDESTEP_ECORRUPT,
     .expected = "state_dict_metadata (a dict) is missing"},
    {.root = "$Metadata.",
     .status = SIDESTEP_ECORRUPT,
     .expected = "state_dict_metadata (a dict) is missing"},
    {.root = "$Metadata[1]",
     .status = SIDESTEP_ECORRUPT,
     .expected = "the root is not a dict of fields"},
    {.root = "$Metadata{'state_dict_metadata': 1}",
     .status = SIDESTEP_ECORRUPT,
     .expected = "state_dict_metadata is not a dict"},
    {.root = "$Metadata{'state_dict_metadata': <posix system>('x')}",
     .status = SIDESTEP_EUNSAFE,
     .expected = "state_dict_metadata is not a dict" NOT_RUN},
    {.storage = "<posix system>('x')",
     .status = SIDESTEP_EUNSAFE,
     .expected = "storage_data is not a dict" NOT_RUN},
    {.storage_meta = "<posix system>('x')",
     .status = SIDESTEP_EUNSAFE,
     .expected = "storage_meta is not StorageMeta" NOT_RUN},
    {.storage_meta = "$StorageMeta{'save_id': 7}",
     .status = SIDESTEP_ECORRUPT,
     .expected = "save_id is not a str"},
    {.storage_meta = "$StorageMeta{'checkpoint_id': <posix system>('x')}",
     .status = SIDESTEP_EUNSAFE,
     .expected = "checkpoint_id is not a str or path" NOT_RUN},
    {.storage_meta = "$StorageMeta{'checkpoint_id': <pathlib PosixPath>(1)}",
     .status = SIDESTEP_ECORRUPT,
     .expected = "checkpoint_id is not a path"},
    /* Names. */
    {.entries = "{1: None}",
     .status = SIDESTEP_ECORRUPT,
     .expected = "a name of state_dict_metadata is not a str"},
    {.entries = "{'\xff': None}",
     .status = SIDESTEP_ECORRUPT,
     .expected = "a name of state_dict_metadata is not UTF-8, or has a NUL in it"},
    {.entries = "{'o': $BytesStorageMetadata., 'o': $BytesStorageMetadata.}",
     .status = SIDESTEP_ECORRUPT,
     .expected = "'o' appears twice in the metadata"},
    {.entries = "{'a\nb': <posix system>('x')}",
     .status = SIDESTEP_EUNSAFE,
     .expected = "tensor 'a\\x0ab': the entry is not TensorStorageMetadata" NOT_RUN},
    {.entries = "{'o': None}",
     .status = SIDESTEP_ECORRUPT,
     .expected = "tensor 'o': the entry is not TensorStorageMetadata"},
    /* Properties. */
    {.properties = "None",
     .status = SIDESTEP_ECORRUPT,
     .expected = T "properties (TensorProperties) is missing"},
    {.properties = "<posix system>('x')",
     .status = SIDESTEP_EUNSAFE,
     .expected = T "properties is not TensorProperties" NOT_RUN},
    {.properties = "$TensorProperties.",
     .status = SIDESTEP_ECORRUPT,
     .expected = T "properties (a tuple of 5 or a dict) is missing"},
    {.properties = "$TensorProperties[[<torch float32>]]",
     .status = SIDESTEP_ECORRUPT,
     .expected = T "properties is not a tuple of 5 or a dict"},
    {.properties = "$TensorProperties{'requires_grad': True}",
     .status = SIDESTEP_ECORRUPT,
     .expected = T "dtype (a torch.dtype) is missing"},
    {.properties = "$TensorProperties{'dtype': 'float32'}",
     .status = SIDESTEP_ECORRUPT,
     .expected = T "dtype is not a torch.dtype"},
    {.properties = "$TensorProperties{'dtype': <torch load>}",
     .status = SIDESTEP_EUNSAFE,
     .expected = T "dtype is not a torch.dtype but made by 'torch load', which is not run"},
    {.properties = "$TensorProperties{'dtype': <torch float32.x>}",
     .status = SIDESTEP_EUNSAFE,
     .expected = T "dtype is not a torch.dtype but made by 'torch float32.x', which is not run"},
    {.properties = "$TensorProperties{'dtype': <posix system>}",
     .status = SIDESTEP_EUNSAFE,
     .expected = T "dtype is not a torch.dtype" NOT_RUN},
    {.properties = "$TensorProperties{'dtype': <torch int8>, 'requires_grad': 1}",
     .status = SIDESTEP_ECORRUPT,
     .expected = T "requires_grad is not a bool"},
    {.properties = "$TensorProperties{'dtype': <torch int8>, 'layout': <torch sparse_coo>}",
     .status = SIDESTEP_EUNSAFE,
     .expected = T "layout is not a torch.layout but made by 'torch sparse_coo', which is not run"},
    {.properties = "$TensorProperties{'dtype': <torch int8>, 'layout': <torch.serialization "
                   "_get_layout>('torch.sparse_coo')}",
     .status = SIDESTEP_EUNSUPPORTED,
     .expected = T "the layout is 'torch.sparse_coo', only torch.strided is known"},
    {.properties = "$TensorProperties{'dtype': <torch int8>, 'memory_format': 0}",
     .status = SIDESTEP_ECORRUPT,
     .expected = T "memory_format is not a torch.memory_format"},
    {.properties = "$TensorProperties{'dtype': <torch int8>, 'memory_format': <builtins "
                   "getattr>(<posix x>, 'system')}",
     .status = SIDESTEP_EUNSAFE,
     .expected = T "memory_format is not a torch.memory_format but made by 'builtins getattr', "
                   "which is not run"},
    {.properties = "$TensorProperties{'dtype': <torch int8>, 'memory_format': "
                   "$_MEM_FORMAT_ENCODING('x')}",
     .status = SIDESTEP_EUNSAFE,
     .expected =
         T "memory_format is not a torch.memory_format but made by "
           "'torch.distributed.checkpoint.metadata _MEM_FORMAT_ENCODING', which is not run"},
    /* Sizes and chunks. */
    {.size = "None", .status = SIDESTEP_ECORRUPT, .expected = T "size (a torch.Size) is missing"},
    {.size = "[4, 6]", .status = SIDESTEP_ECORRUPT, .expected = T "size is not a torch.Size"},
    {.size = "<torch Size>(4)",
     .status = SIDESTEP_EUNSAFE,
     .expected = T "size is not a torch.Size but made by 'torch Size', which is not run"},
    {.size = SIZE("4, 'x'"), .status = SIDESTEP_ECORRUPT, .expected = T "size is not integers"},
    {.size = SIZE("4, <posix system>('x')"),
     .status = SIDESTEP_EUNSAFE,
     .expected = T "size is not integers" NOT_RUN},
    {.size = SIZE("4, 9223372036854775808"),
     .status = SIDESTEP_ECORRUPT,
     .expected = T "size[1] does not fit in 63 bits"},
    {.info = INFO("f", "-9223372036854775809", "1"),
     .status = SIDESTEP_ECORRUPT,
     .expected = S "offset does not fit in 63 bits"},
    {.size = SIZE("-4, 6"), .status = SIDESTEP_ECORRUPT, .expected = T "shape[0] is -4"},
    {.size = SIZE("1152921504606846976, 1"),
     .status = SIDESTEP_ECORRUPT,
     .expected = T "the shape has more than 2^62 bytes"},
    {.size = SIZE("4294967296, 4294967296"),
     .status = SIDESTEP_ECORRUPT,
     .expected = T "the shape has more than 2^62 bytes"},
    {.chunks = "None", .status = SIDESTEP_ECORRUPT, .expected = T "chunks (a list) is missing"},
    {.chunks = "{}", .status = SIDESTEP_ECORRUPT, .expected = T "chunks is not a list"},
    {.chunks = "[1]",
     .status = SIDESTEP_ECORRUPT,
     .expected = T "chunk 0: a chunk is not ChunkStorageMetadata"},
    {.chunks = "[" CHUNK("0, 0", "4, 6") "<posix system>('x')]",
     .status = SIDESTEP_EUNSAFE,
     .expected = T "chunk 1: a chunk is not ChunkStorageMetadata" NOT_RUN},
    {.chunks = "[$ChunkStorageMetadata{'sizes': (1, 1)}]",
     .status = SIDESTEP_ECORRUPT,
     .expected = T "chunk 0: offsets (a torch.Size) is missing"},
    {.chunks = "[" CHUNK("0", "4, 6") "]",
     .status = SIDESTEP_ECORRUPT,
     .expected = T "chunk 0: 1 offsets and 2 sizes for a tensor of 2 dimensions"},
    {.chunks = "[" CHUNK("0, 0", "4, 6, 1") "]",
     .status = SIDESTEP_ECORRUPT,
     .expected = T "chunk 0: 2 offsets and 3 sizes for a tensor of 2 dimensions"},
    {.chunks = "[" CHUNK("-1, 0", "4, 6") "]",
     .status = SIDESTEP_ECORRUPT,
     .expected = T "chunk 0: offsets[0] is -1"},
    {.chunks = "[" CHUNK("0, 0", "4, -6") "]",
     .status = SIDESTEP_ECORRUPT,
     .expected = T "chunk 0: lengths[1] is -6"},
    {.chunks = "[" CHUNK("0, 0", "2, 6") CHUNK("2, 1", "2, 6") "]",
     .status = SIDESTEP_ECORRUPT,
     .expected = T "chunk 1: in dimension 1, 6 elements at offset 1 lie outside 6"},
    {.chunks = "[" CHUNK("0, 9223372036854775807", "4, 9223372036854775807") "]",
     .status = SIDESTEP_ECORRUPT,
     .expected = T "chunk 0: in dimension 1, 9223372036854775807 elements at offset "
                   "9223372036854775807 lie outside 6"},
    {.chunks = "[" CHUNK("0, 0", "2, 6") CHUNK("0, 0", "4, 6") "]",
     .status = SIDESTEP_ECORRUPT,
     .expected = T "two chunks begin at [0,0]"},
    /* storage_data. */
    {.storage = "{}",
     .status = SIDESTEP_ECORRUPT,
     .expected = "tensor 'w': chunk at (0, 0) has no storage entry"},
    {.storage = "None",
     .status = SIDESTEP_ECORRUPT,
     .expected = "tensor 'w': chunk at (0, 0) has no storage entry"},
    {.chunks = "[" CHUNK("0, 0", "4, 4") CHUNK("0, 4", "4, 2") "]",
     .status = SIDESTEP_ECORRUPT,
     .expected = "tensor 'w': chunk at (0, 4) has no storage entry"},
    {.entries = "{'o': $BytesStorageMetadata.}",
     .key = INDEX("o", ""),
     .status = SIDESTEP_ECORRUPT,
     .expected = "object 'o' has no storage entry"},
    {.key = "'w'",
     .status = SIDESTEP_ECORRUPT,
     .expected = "a key of storage_data is not MetadataIndex"},
    {.key = "$MetadataIndex{'fqn': 1}",
     .status = SIDESTEP_ECORRUPT,
     .expected = "a name of storage_data is not a str"},
    {.key = "$MetadataIndex{'fqn': 'w', 'offset': 0}",
     .status = SIDESTEP_ECORRUPT,
     .expected = "the offset of a key of storage_data is not a torch.Size"},
    {.info = "<torch.distributed.checkpoint._s3 _RdmaObjectInfo>{'key': 'x'}",
     .status = SIDESTEP_EUNSAFE,
     .expected = S "the storage entry is not _StorageInfo but made by "
                   "'torch.distributed.checkpoint._s3 _RdmaObjectInfo', which is not run"},
    {.info = "1",
     .status = SIDESTEP_ECORRUPT,
     .expected = S "the storage entry is not _StorageInfo"},
    {.info = INFO("../f", "0", "1"),
     .status = SIDESTEP_EUNSAFE,
     .expected = S "the file name '../f' leads out of the checkpoint"},
    {.info = INFO("/etc/passwd", "0", "1"),
     .status = SIDESTEP_EUNSAFE,
     .expected = S "the file name '/etc/passwd' leads out of the checkpoint"},
    {.info = INFO("a\nb", "0", "1"),
     .status = SIDESTEP_EUNSAFE,
     .expected = S "the file name 'a\\x0ab' leads out of the checkpoint"},
    {.info = INFO("", "0", "1"),
     .status = SIDESTEP_EUNSAFE,
     .expected = S "the file name '' leads out of the checkpoint"},
    {.info = INFO("f", "-1", "1"), .status = SIDESTEP_ECORRUPT, .expected = S "offset is -1"},
    {.info = INFO("f", "0", "-9223372036854775808"),
     .status = SIDESTEP_ECORRUPT,
     .expected = S "length is -9223372036854775808"},
    {.info = INFO("f", "1", "9223372036854775807"),
     .status = SIDESTEP_ECORRUPT,
     .expected = S "offset and length exceed 63 bits"},
    {.info = INFO("f", "'1'", "1"),
     .status = SIDESTEP_ECORRUPT,
     .expected = S "offset is not an int"},
    {.info = INFO("f", "1", "<posix system>('x')"),
     .status = SIDESTEP_EUNSAFE,
     .expected = S "length is not an int" NOT_RUN},
    {.storage = "{" INDEX("w", "0, 0") ":" INFO("f", "5", "7")
         INDEX("w", "0, 0") ":" INFO("f", "5", "7") "}",
     .status = SIDESTEP_ECORRUPT,
     .expected = S "two storage entries for the same item"},
#define TRANSFORMS(list)                                                                           \
    "<torch.distributed.checkpoint.filesystem _StorageInfo>{'relative_path': 'f', 'offset': 0, "   \
    "'length': 0, 'transform_descriptors': " list "}"
    {.info = TRANSFORMS("'x'"),
     .status = SIDESTEP_ECORRUPT,
     .expected = S "transform_descriptors is not a list"},
    {.info = TRANSFORMS("[1]"),
     .status = SIDESTEP_ECORRUPT,
     .expected = S "a transform is not a str"},
    {.info = TRANSFORMS("['a,b']"),
     .status = SIDESTEP_EUNSUPPORTED,
     .expected = S "a transform is called 'a,b'"},
    {.info = TRANSFORMS("['']"),
     .status = SIDESTEP_EUNSUPPORTED,
     .expected = S "a transform is called ''"},
    /* planner_data, with keys for names that exist. */
    {.planner = "{'w': ('\xc3',)}",
     .status = SIDESTEP_ECORRUPT,
     .expected = "a key of planner_data is not UTF-8, or has a NUL in it"},
};

TEST(what_is_refused)
{
    check_recipes(refused, ARRAY_LENGTH(refused));
}
