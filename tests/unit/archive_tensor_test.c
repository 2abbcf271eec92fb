/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive_tensor_test.c -- reads pickles of tensors, valid and wrong ones, and resolves elements.
 */
#include <stdbool.h>

#include "base/owned.h"
#include "format/archive.h"
#include "support/guard.h"
#include "support/unit.h"
#include "support/zip_build.h"

#define CORRUPT SIDESTEP_ECORRUPT
#define UNSUPPORTED SIDESTEP_EUNSUPPORTED
#define UNSAFE SIDESTEP_EUNSAFE

static void expect(const char *what, enum sidestep_status got, const struct sidestep_error *err,
                   enum sidestep_status status, const char *words)
{
    if (got != status || (status != SIDESTEP_OK && strstr(err->message, words) == NULL))
        fail_msg("%s: '%s' (%d) is not '%s' (%d)", what, err->message, got, words, status);
}

/* ---------------------------------------------------------------- pickles, by their parts */

/* Literals with their length, for they hold NULs. */
struct text {
    const char *bytes;
    size_t length;
};
#define T(literal)                                                                                 \
    {                                                                                              \
        literal, sizeof(literal) - 1                                                               \
    }

/* Integers, tuples of them, and the parts of a storage. */
#define K(n) "K" n
#define TUPLE2(a, b) K(a) K(b) "\x86"
#define BIG "\x8a\x08\0\0\0\0\0\0\0\x40"                /* 2^62 */
#define MOST "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f" /* 2^63 - 1 */
#define HUGE_INT "\x8a\x09\0\0\0\0\0\0\0\x80\0"         /* 2^63 */
#define MINUS_ONE "J\xff\xff\xff\xff"
#define STR(length, text) "X" length "\0\0\0" text
#define STORAGE(class, key, count)                                                                 \
    "(" STR("\7", "storage") "c" class "\n" key STR("\3", "cpu") count "tQ"
#define FLOATS(count) STORAGE("torch\nFloatStorage", STR("\1", "0"), count)
#define UNTYPED(count) STORAGE("torch.storage\nUntypedStorage", STR("\1", "0"), count)
#define HOOKS "ccollections\nOrderedDict\n)R"
#define V2 "ctorch._utils\n_rebuild_tensor_v2\n"
#define V3 "ctorch._utils\n_rebuild_tensor_v3\n"
#define CALL(function, storage, rest) "\x80\x02" function "(" storage rest "tR."
#define GEOMETRY(offset, size, stride) offset size stride "\x89" HOOKS
#define PLAIN GEOMETRY(K("\0"), TUPLE2("\2", "\3"), TUPLE2("\3", "\1"))
#define ONES8 "K\1K\1K\1K\1K\1K\1K\1K\1"
#define ONES64 ONES8 ONES8 ONES8 ONES8 ONES8 ONES8 ONES8 ONES8
#define SHAPED(offset, size, stride) CALL(V2, FLOATS(K("\6")), GEOMETRY(offset, size, stride))

/* Every case is an archive of 24 bytes of data: 6 floats, or 24 bytes for v3. */
static const struct row {
    const char *what;
    struct text pickle;
    enum sidestep_status status;
    const char *words;
} rows[] = {
    {"plain", T(CALL(V2, FLOATS(K("\6")), PLAIN)), SIDESTEP_OK, ""},
    {"v3", T(CALL(V3, UNTYPED(K("\x18")), PLAIN "ctorch\nuint32\n")), SIDESTEP_OK, ""},
    {"no metadata", T(CALL(V2, FLOATS(K("\6")), PLAIN "N")), SIDESTEP_OK, ""},
    {"empty metadata", T(CALL(V2, FLOATS(K("\6")), PLAIN "}")), SIDESTEP_OK, ""},
    {"not conj", T(CALL(V2, FLOATS(K("\6")), PLAIN "}" STR("\4", "conj") "\x89s")), SIDESTEP_OK,
     ""},
    {"no hooks", T(CALL(V2, FLOATS(K("\6")), "K\0" TUPLE2("\2", "\3") TUPLE2("\3", "\1") "\x89N")),
     SIDESTEP_OK, ""},
    {"scalar", T(SHAPED(K("\0"), ")", ")")), SIDESTEP_OK, ""},
    {"last element", T(SHAPED(K("\5"), ")", ")")), SIDESTEP_OK, ""},
    {"transposed", T(SHAPED(K("\0"), TUPLE2("\3", "\2"), TUPLE2("\1", "\3"))), SIDESTEP_OK, ""},
    {"expanded", T(SHAPED(K("\5"), TUPLE2("\x7f", "\x7f"), TUPLE2("\0", "\0"))), SIDESTEP_OK, ""},
    {"to the end", T(SHAPED(K("\1"), TUPLE2("\2", "\2"), TUPLE2("\3", "\1"))), SIDESTEP_OK, ""},
    {"empty at the end", T(SHAPED(K("\6"), TUPLE2("\0", "\3"), TUPLE2("\3", "\1"))), SIDESTEP_OK,
     ""},
    {"64 dimensions", T(SHAPED("K\5", "(" ONES64 "t", "(" ONES64 "t")), SIDESTEP_OK, ""},
    {"65 dimensions", T(SHAPED("K\5", "(" ONES64 "K\1t", "(" ONES64 "K\1t")), UNSUPPORTED,
     "65 dimensions are more than 64"},
    {"any stride for one", T(SHAPED(K("\5"), "K\1\x85", MOST "\x85")), SIDESTEP_OK, ""},

    {"none", T("\x80\x02N."), CORRUPT, "holds an object, not a tensor"},
    {"list", T("\x80\x02]."), CORRUPT, "holds an object, not a tensor"},
    {"persid", T("\x80\x02" FLOATS(K("\6")) "."), CORRUPT, "holds an object"},
    {"system",
     T("\x80\x02"
       "cos\nsystem\n(tR."),
     UNSAFE, "calls 'os system'"},
    {"eval",
     T("\x80\x02"
       "c__builtin__\neval\n(tR."),
     UNSAFE, "calls '__builtin__ eval'"},
    {"escape",
     T("\x80\x02"
       "cos\nsys\x1b[2Jtem\n(tR."),
     UNSAFE, "calls 'os sys\\x1b[2Jtem'"},
    {"v1",
     T("\x80\x02"
       "ctorch._utils\n_rebuild_tensor\n(tR."),
     UNSAFE, "_rebuild_tensor'"},
    {"quantised",
     T("\x80\x02"
       "ctorch._utils\n_rebuild_qtensor\n(tR."),
     UNSUPPORTED, "quantised"},
    {"sparse",
     T("\x80\x02"
       "ctorch._utils\n_rebuild_sparse_tensor\n(tR."),
     UNSUPPORTED, "a sparse tensor (_rebuild_sparse_tensor)"},
    {"subclass",
     T("\x80\x02"
       "ctorch._tensor\n_rebuild_from_type_v2\n(tR."),
     UNSUPPORTED, "a tensor subclass"},
    {"object", T("\x80\x02" V2 ")\x81."), CORRUPT, "holds an object"},
    {"nested call", T("\x80\x02" V2 ")R)R."), UNSAFE, "calls something without a name"},
    {"no arguments", T("\x80\x02" V2 ")R."), CORRUPT, "wrong arguments for _rebuild_tensor_v2"},
    {"too few", T(CALL(V2, FLOATS(K("\6")), "K\0))\x89")), CORRUPT, "wrong arguments"},
    {"too many", T(CALL(V2, FLOATS(K("\6")), PLAIN "NN")), CORRUPT, "wrong arguments"},
    {"v3 without", T(CALL(V3, UNTYPED(K("\x18")), PLAIN)), CORRUPT, "wrong arguments"},
    {"state", T("\x80\x02" V2 "(" FLOATS(K("\6")) PLAIN "tR}b."), UNSUPPORTED, "has attributes"},
    {"hook",
     T(CALL(V2, FLOATS(K("\6")),
            "K\0" TUPLE2("\2", "\3") TUPLE2("\3", "\1") "\x89" HOOKS "K\0cos\nsystem\ns")),
     UNSUPPORTED, "backward hooks"},
    {"other hooks",
     T(CALL(V2, FLOATS(K("\6")),
            "K\0))\x89"
            "cos\nsystem\n)R")),
     UNSUPPORTED, "backward hooks"},

    {"no storage", T(CALL(V2, "N", PLAIN)), CORRUPT, "storage is not a storage"},
    {"tuple", T(CALL(V2, "(" STR("\7", "storage") "tQ", PLAIN)), CORRUPT, "not a storage"},
    {"module",
     T(CALL(V2,
            "(" STR("\7", "modular") "ctorch\nFloatStorage\n" STR("\1", "0") STR("\3", "cpu")
                K("\6") "tQ",
            PLAIN)),
     CORRUPT, "not a storage"},
    {"negative count", T(CALL(V2, FLOATS(MINUS_ONE), PLAIN)), CORRUPT, "not a storage"},
    {"count is text", T(CALL(V2, FLOATS(STR("\1", "6")), PLAIN)), CORRUPT, "not a storage"},
    {"count over 63 bits", T(CALL(V2, FLOATS(HUGE_INT), PLAIN)), CORRUPT, "not a storage"},
    {"2^62 floats", T(CALL(V2, FLOATS(BIG), PLAIN)), CORRUPT,
     "a storage of 4611686018427387904 elements is too large"},
    {"2^63 - 1 bytes", T(CALL(V3, UNTYPED(MOST), PLAIN "ctorch\nuint8\n")), CORRUPT, "too large"},
    {"fewer", T(CALL(V2, FLOATS(K("\7")), PLAIN)), CORRUPT,
     "data/0 has 24 bytes, data.pkl wants 28"},
    {"more", T(CALL(V2, FLOATS(K("\5")), GEOMETRY("K\0", ")", ")"))), CORRUPT,
     "data/0 has 24 bytes, data.pkl wants 20"},
    {"v3 by elements", T(CALL(V3, UNTYPED(K("\6")), "K\0))\x89" HOOKS "ctorch\nuint32\n")), CORRUPT,
     "data/0 has 24 bytes, data.pkl wants 6"},
    {"other key", T(CALL(V2, STORAGE("torch\nFloatStorage", STR("\1", "1"), K("\6")), PLAIN)),
     CORRUPT, "it has no data/1"},
    {"key up", T(CALL(V2, STORAGE("torch\nFloatStorage", STR("\2", ".."), K("\6")), PLAIN)),
     CORRUPT, "key is not a number"},
    {"key empty", T(CALL(V2, STORAGE("torch\nFloatStorage", STR("\0", ""), K("\6")), PLAIN)),
     CORRUPT, "key is not a number"},
    {"key with NUL", T(CALL(V2, STORAGE("torch\nFloatStorage", STR("\3", "0\0x"), K("\6")), PLAIN)),
     CORRUPT, "not a storage"},
    {"long key",
     T(CALL(
         V2,
         STORAGE("torch\nFloatStorage", STR("\x21", "000000000000000000000000000000000"), K("\6")),
         PLAIN)),
     CORRUPT, "key is not a number"},
    {"quantised storage",
     T(CALL(V2, STORAGE("torch\nQInt8Storage", STR("\1", "0"), K("\6")), PLAIN)), UNSUPPORTED,
     "the type 'torch QInt8Storage' cannot be read"},
    {"storage of os", T(CALL(V2, STORAGE("os\nFloatStorage", STR("\1", "0"), K("\6")), PLAIN)),
     UNSUPPORTED, "the type 'os FloatStorage' cannot be read"},
    {"untyped v2", T(CALL(V2, UNTYPED(K("\x18")), PLAIN)), UNSUPPORTED, "cannot be read"},
    {"typed v3", T(CALL(V3, FLOATS(K("\6")), PLAIN "ctorch\nuint32\n")), CORRUPT,
     "without UntypedStorage"},
    {"unknown dtype", T(CALL(V3, UNTYPED(K("\x18")), PLAIN "ctorch\nuint3\n")), UNSUPPORTED,
     "the type 'torch uint3' cannot be read"},
    {"dtype elsewhere", T(CALL(V3, UNTYPED(K("\x18")), PLAIN "ctorn\nuint32\n")), UNSUPPORTED,
     "cannot be read"},
    {"dtype twice", T(CALL(V3, UNTYPED(K("\x18")), PLAIN "ctorch\ntorch.uint8\n")), UNSUPPORTED,
     "the type 'torch torch.uint8' cannot be read"},
    {"dtype is text", T(CALL(V3, UNTYPED(K("\x18")), PLAIN STR("\5", "uint8"))), CORRUPT,
     "type has no name"},

    {"negative offset", T(SHAPED(MINUS_ONE, ")", ")")), CORRUPT, "damaged size, stride or offset"},
    {"size is a list", T(SHAPED("K\0", "]", ")")), CORRUPT, "damaged size"},
    {"stride is a number", T(SHAPED("K\0", ")", "K\1")), CORRUPT, "damaged size"},
    {"more strides", T(SHAPED("K\0", "K\2\x85", TUPLE2("\1", "\1"))), CORRUPT, "damaged size"},
    {"negative length", T(SHAPED("K\0", MINUS_ONE "\x85", "K\1\x85")), CORRUPT,
     "length or stride of dimension 0 is not a number >= 0"},
    {"negative stride", T(SHAPED("K\5", "K\2\x85", MINUS_ONE "\x85")), CORRUPT,
     "length or stride of dimension 0"},
    {"length is a float", T(SHAPED("K\0", "G\x3f\xf0\0\0\0\0\0\0\x85", "K\1\x85")), CORRUPT,
     "dimension 0"},
    {"length is true", T(SHAPED("K\0", "\x88\x85", "K\1\x85")), CORRUPT, "dimension 0"},
    {"huge length", T(SHAPED("K\0", HUGE_INT "\x85", "K\0\x85")), CORRUPT, "dimension 0"},
    {"one too many", T(SHAPED("K\1", TUPLE2("\2", "\3"), TUPLE2("\3", "\1"))), CORRUPT,
     "shape [2,3] does not fit its storage of 24 bytes"},
    {"offset at the end", T(SHAPED(K("\6"), ")", ")")), CORRUPT, "shape [] does not fit"},
    {"empty behind the end", T(SHAPED(K("\7"), "K\0\x85", "K\1\x85")), CORRUPT, "does not fit"},
    {"offset 2^63 - 1", T(SHAPED(MOST, ")", ")")), CORRUPT, "does not fit"},
    {"stride 2^63 - 1", T(SHAPED("K\0", "K\2\x85", MOST "\x85")), CORRUPT, "does not fit"},
    {"sum of reaches", T(SHAPED("K\0", TUPLE2("\3", "\3"), MOST MOST "\x86")), CORRUPT,
     "does not fit"},
    {"2^62 times 4", T(SHAPED("K\0", BIG "\x85", "K\0\x85")), CORRUPT,
     "shape [4611686018427387904] is too large"},
    {"product", T(SHAPED("K\0", MOST MOST "\x86", TUPLE2("\0", "\0"))), CORRUPT, "is too large"},
    {"product with 0", T(SHAPED("K\0", "K\0" MOST MOST "\x87", "K\1K\1K\1\x87")), CORRUPT,
     "is too large"},
    {"wraps to 4", T(SHAPED("K\0", TUPLE2("\2", "\3"), "K\1" MOST "\x86")), CORRUPT,
     "does not fit"},

    {"conj", T(CALL(V2, FLOATS(K("\6")), PLAIN "}" STR("\4", "conj") "\x88s")), CORRUPT,
     "a float32 tensor has no conjugate"},
    {"neg of bits",
     T(CALL(V3, UNTYPED(K("\x18")), PLAIN "ctorch\nbits8\n}" STR("\3", "neg") "\x88s")),
     UNSUPPORTED, "negation of a bits8 tensor"},
    {"unknown flag", T(CALL(V2, FLOATS(K("\6")), PLAIN "}" STR("\3", "odd") "\x88s")), UNSUPPORTED,
     "unknown metadata 'odd'"},
    {"flag is a number", T(CALL(V2, FLOATS(K("\6")), PLAIN "}" STR("\3", "neg") "K\1s")), CORRUPT,
     "metadata is damaged"},
    {"metadata is a list", T(CALL(V2, FLOATS(K("\6")), PLAIN "]")), CORRUPT, "metadata is damaged"},
    {"key is a number", T(CALL(V2, FLOATS(K("\6")), PLAIN "}K\1\x88s")), CORRUPT,
     "metadata is damaged"},
};

static void build(struct zip_build *zip, const struct text *pickle, const char *byte_order,
                  const char *version)
{
    static const uint8_t data[24];

    zip_build_put(zip, "x/data.pkl", pickle->bytes, pickle->length);
    if (byte_order != NULL)
        zip_build_text(zip, "x/byteorder", byte_order);
    zip_build_put(zip, "x/data/0", data, sizeof(data));
    if (version != NULL)
        zip_build_text(zip, "x/version", version);
    zip_build_end(zip);
}

static enum sidestep_status read_zip(const struct zip_build *zip, struct archive_tensor *tensor,
                                     struct sidestep_error *err)
{
    uint8_t *copy = guard_copy(zip->bytes.bytes, zip->bytes.length);
    struct source source = source_from_memory(copy, zip->bytes.length);
    enum sidestep_status status = archive_tensor_read(&source, 0, zip->bytes.length, tensor, err);

    guard_free(copy);
    return status;
}

TEST(test_pickles)
{
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        OWNED_ZIP_BUILD zip = {0};
        struct archive_tensor tensor;
        struct sidestep_error err = {0};

        build(&zip, &rows[i].pickle, NULL, "3\n");
        expect(rows[i].what, read_zip(&zip, &tensor, &err), &err, rows[i].status, rows[i].words);
    }
}

static const struct text plain = T(CALL(V2, FLOATS(K("\6")), PLAIN));

/* A pickle that is cut short, or has one byte changed, is refused or gives a valid tensor. */
TEST(test_damaged_pickles)
{
    char bytes[256];
    struct text pickle = {bytes, 0};

    assert_true(plain.length <= sizeof(bytes));
    for (pickle.length = 0; pickle.length < plain.length; pickle.length++) {
        OWNED_ZIP_BUILD zip = {0};
        struct archive_tensor tensor;

        memcpy(bytes, plain.bytes, plain.length);
        build(&zip, &pickle, NULL, "3");
        assert_int_not_equal(read_zip(&zip, &tensor, NULL), SIDESTEP_OK);
    }
    for (size_t i = 0; i < plain.length * 256; i++) {
        OWNED_ZIP_BUILD zip = {0};
        struct archive_tensor tensor;

        bytes[i / 256] = (char)i;
        build(&zip, &pickle, NULL, "3");
        if (read_zip(&zip, &tensor, NULL) == SIDESTEP_OK)
            assert_int_equal(tensor.data_bytes, 24);
        bytes[i / 256] = plain.bytes[i / 256];
    }
}

TEST(test_version_and_byte_order)
{
    static const struct {
        const char *version;
        const char *byte_order;
        enum sidestep_status status;
        const char *words;
    } cases[] = {
        {"3\n", "little", SIDESTEP_OK, ""},
        {"3\n", "big", SIDESTEP_OK, ""},
        {"1", NULL, SIDESTEP_OK, ""},
        {"10\n", NULL, SIDESTEP_OK, ""},
        {"010", NULL, SIDESTEP_OK, ""},
        {"11\n", NULL, UNSUPPORTED, "version 11 is newer than 10"},
        {"9999", NULL, UNSUPPORTED, "version 9999 is newer"},
        {"99999", NULL, CORRUPT, "version is not a number"},
        {"0", NULL, CORRUPT, "version is not a number"},
        {"", NULL, CORRUPT, "version is not a number"},
        {"\n", NULL, CORRUPT, "version is not a number"},
        {"3\n\n", NULL, CORRUPT, "version is not a number"},
        {"3x", NULL, CORRUPT, "version is not a number"},
        {"-3", NULL, CORRUPT, "version is not a number"},
        {"3                               ", NULL, CORRUPT, "version is not a number"},
        {"3                                ", NULL, UNSUPPORTED, "'version' has 33 bytes"},
        {NULL, NULL, CORRUPT, "it has no version"},
        {"3", "Little", CORRUPT, "byte order is neither"},
        {"3", "", CORRUPT, "byte order is neither"},
        {"3", "big\n", CORRUPT, "byte order is neither"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        OWNED_ZIP_BUILD zip = {0};
        struct archive_tensor tensor;
        struct sidestep_error err = {0};

        build(&zip, &plain, cases[i].byte_order, cases[i].version);
        enum sidestep_status status = read_zip(&zip, &tensor, &err);
        expect(cases[i].words, status, &err, cases[i].status, cases[i].words);
        if (status == SIDESTEP_OK)
            assert_int_equal(tensor.swapped, cases[i].byte_order != NULL &&
                                                 strcmp(cases[i].byte_order, "big") == 0);
    }
}

/* One byte has no order. */
TEST(test_byte_order_of_bytes)
{
    static const struct text bytes = T(CALL(V3, UNTYPED(K("\x18")), PLAIN "ctorch\nbits8\n"));
    OWNED_ZIP_BUILD zip = {0};
    struct archive_tensor tensor;

    build(&zip, &bytes, "big", "3");
    assert_int_equal(read_zip(&zip, &tensor, NULL), SIDESTEP_OK);
    assert_false(tensor.swapped);
}

TEST(test_missing_members)
{
    OWNED_ZIP_BUILD zip = {0};
    struct archive_tensor tensor;
    struct sidestep_error err = {0};
    struct sidestep_value *value = NULL;

    zip_build_text(&zip, "x/version", "3");
    zip_build_end(&zip);
    expect("tensor", read_zip(&zip, &tensor, &err), &err, CORRUPT, "it has no data.pkl");
    expect("object", archive_object_read(zip.bytes.bytes, zip.bytes.length, &value, &err), &err,
           CORRUPT, "it has no data.pkl");
    struct source source = source_from_memory(zip.bytes.bytes, zip.bytes.length);
    expect("check", archive_check(&source, 0, zip.bytes.length, &err), &err, CORRUPT,
           "it has no data.pkl");
}

TEST(test_large_pickle)
{
    OWNED_ZIP_BUILD zip = {0};
    OWNED char *bytes = calloc(1, (1 << 20) + 1);
    struct text pickle = {bytes, (1 << 20) + 1};
    struct archive_tensor tensor;
    struct sidestep_error err = {0};

    build(&zip, &pickle, NULL, "3");
    expect("large", read_zip(&zip, &tensor, &err), &err, UNSUPPORTED,
           "'data.pkl' has 1048577 bytes, more than 1048576");
}

/* ---------------------------------------------------------------- plain elements */

#define SWAPPED 1
#define CONJ 2
#define NEG 4

TEST(test_resolve)
{
    static const struct {
        enum sidestep_dtype dtype;
        int flags;
        const char *stored;
        const char *plain;
    } cases[] = {
        {SIDESTEP_INT8, SWAPPED, "\1\2\3\4", "\1\2\3\4"},
        {SIDESTEP_INT16, SWAPPED, "\1\2\3\4", "\2\1\4\3"},
        {SIDESTEP_BITS16, SWAPPED, "\1\2\3\4", "\2\1\4\3"},
        {SIDESTEP_BFLOAT16, SWAPPED | NEG, "\1\2\3\4", "\2\x81\4\x83"},
        {SIDESTEP_FLOAT32, SWAPPED, "\1\2\3\4", "\4\3\2\1"},
        {SIDESTEP_FLOAT32, NEG, "\1\2\3\4", "\1\2\3\x84"},
        {SIDESTEP_INT32, NEG, "\1\1\1\1", "\xff\xfe\xfe\xfe"},
        {SIDESTEP_INT32, SWAPPED | NEG, "\1\1\1\3", "\xfd\xfe\xfe\xfe"},
        {SIDESTEP_UINT8, NEG, "\1\2\x80\xff", "\xff\xfe\x80\1"},
        {SIDESTEP_FLOAT8_E5M2, NEG, "\1\2\3\x84", "\x81\x82\x83\4"},
        {SIDESTEP_INT64, SWAPPED, "\1\2\3\4\5\6\7\10", "\10\7\6\5\4\3\2\1"},
        {SIDESTEP_FLOAT64, NEG, "\1\2\3\4\5\6\7\10", "\1\2\3\4\5\6\7\x88"},
        {SIDESTEP_COMPLEX64, SWAPPED, "\1\2\3\4\5\6\7\10", "\4\3\2\1\10\7\6\5"},
        {SIDESTEP_COMPLEX64, CONJ, "\1\2\3\4\5\6\7\10", "\1\2\3\4\5\6\7\x88"},
        {SIDESTEP_COMPLEX64, NEG, "\1\2\3\4\5\6\7\10", "\1\2\3\x84\5\6\7\x88"},
        {SIDESTEP_COMPLEX64, CONJ | NEG, "\1\2\3\4\5\6\7\10", "\1\2\3\x84\5\6\7\10"},
        {SIDESTEP_COMPLEX32, SWAPPED | CONJ, "\1\2\3\4\5\6\7\10", "\2\1\4\x83\6\5\10\x87"},
        {SIDESTEP_BCOMPLEX32, CONJ, "\1\2\3\4\5\6\7\10", "\1\2\3\x84\5\6\7\x88"},
        {SIDESTEP_COMPLEX128, SWAPPED | CONJ | NEG, "\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17\20",
         "\10\7\6\5\4\3\2\x81\20\17\16\15\14\13\12\11"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct archive_tensor tensor = {.dtype = cases[i].dtype,
                                        .swapped = (cases[i].flags & SWAPPED) != 0,
                                        .conjugate = (cases[i].flags & CONJ) != 0,
                                        .negative = (cases[i].flags & NEG) != 0};
        size_t length = strlen(cases[i].stored);
        uint8_t *data = guard_copy(cases[i].stored, length);

        assert_int_equal(length % sidestep_dtype_size(cases[i].dtype), 0);
        archive_tensor_resolve(&tensor, data, 0);
        assert_memory_equal(data, cases[i].stored, length);
        archive_tensor_resolve(&tensor, data, length / sidestep_dtype_size(cases[i].dtype));
        if (memcmp(data, cases[i].plain, length) != 0)
            fail_msg("row %zu", i);
        guard_free(data);
    }
}
