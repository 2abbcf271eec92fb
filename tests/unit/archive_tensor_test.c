/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive_tensor_test.c -- what a tensor's pickle may say, and what is refused; archives of more
 * than 4 GiB, without the bytes; making elements plain.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/owned.h"
#include "codec/hash.h"
#include "format/archive.h"
#include "support/guard.h"
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
#define BIG "\x8a\x08\0\0\0\0\0\0\0\x40"  /* 2^62 */
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
    {"stride of one", T(SHAPED(K("\5"), "K\1" MOST "\x86" + 0, "")), CORRUPT, ""},

    {"none", T("\x80\x02N."), CORRUPT, "holds an object, not a tensor"},
    {"list", T("\x80\x02]."), CORRUPT, "holds an object, not a tensor"},
    {"persid", T("\x80\x02" FLOATS(K("\6")) "."), CORRUPT, "holds an object"},
    {"system", T("\x80\x02" "cos\nsystem\n(tR."), UNSAFE, "calls 'os system'"},
    {"eval", T("\x80\x02" "c__builtin__\neval\n(tR."), UNSAFE, "calls '__builtin__ eval'"},
    {"escape", T("\x80\x02" "cos\nsys\x1b[2Jtem\n(tR."), UNSAFE, "calls 'os sys\\x1b[2Jtem'"},
    {"v1", T("\x80\x02" "ctorch._utils\n_rebuild_tensor\n(tR."), UNSAFE, "_rebuild_tensor'"},
    {"quantised", T("\x80\x02" "ctorch._utils\n_rebuild_qtensor\n(tR."), UNSUPPORTED, "quantised"},
    {"sparse", T("\x80\x02" "ctorch._utils\n_rebuild_sparse_tensor\n(tR."), UNSUPPORTED,
     "a sparse tensor (_rebuild_sparse_tensor)"},
    {"subclass", T("\x80\x02" "ctorch._tensor\n_rebuild_from_type_v2\n(tR."), UNSUPPORTED,
     "a tensor subclass"},
    {"object", T("\x80\x02" V2 ")\x81."), CORRUPT, "holds an object"},
    {"nested call", T("\x80\x02" V2 ")R)R."), UNSAFE, "calls something without a name"},
    {"no arguments", T("\x80\x02" V2 ")R."), CORRUPT, "wrong arguments for _rebuild_tensor_v2"},
    {"too few", T(CALL(V2, FLOATS(K("\6")), "K\0))\x89")), CORRUPT, "wrong arguments"},
    {"too many", T(CALL(V2, FLOATS(K("\6")), PLAIN "NN")), CORRUPT, "wrong arguments"},
    {"v3 without", T(CALL(V3, UNTYPED(K("\x18")), PLAIN)), CORRUPT, "wrong arguments"},
    {"state", T("\x80\x02" V2 "(" FLOATS(K("\6")) PLAIN "tR}b."), UNSUPPORTED, "has attributes"},
    {"hook", T(CALL(V2, FLOATS(K("\6")),
                    "K\0" TUPLE2("\2", "\3") TUPLE2("\3", "\1") "\x89" HOOKS "K\0cos\nsystem\ns")),
     UNSUPPORTED, "backward hooks"},
    {"other hooks", T(CALL(V2, FLOATS(K("\6")), "K\0))\x89" "cos\nsystem\n)R")), UNSUPPORTED,
     "backward hooks"},

    {"no storage", T(CALL(V2, "N", PLAIN)), CORRUPT, "storage is not a storage"},
    {"tuple", T(CALL(V2, "(" STR("\7", "storage") "tQ", PLAIN)), CORRUPT, "not a storage"},
    {"module", T(CALL(V2, "(" STR("\7", "modular") "ctorch\nFloatStorage\n" STR("\1", "0")
                      STR("\3", "cpu") K("\6") "tQ", PLAIN)), CORRUPT, "not a storage"},
    {"negative count", T(CALL(V2, FLOATS(MINUS_ONE), PLAIN)), CORRUPT, "not a storage"},
    {"count is text", T(CALL(V2, FLOATS(STR("\1", "6")), PLAIN)), CORRUPT, "not a storage"},
    {"count over 63 bits", T(CALL(V2, FLOATS(HUGE_INT), PLAIN)), CORRUPT, "not a storage"},
    {"2^62 floats", T(CALL(V2, FLOATS(BIG), PLAIN)), CORRUPT,
     "a storage of 4611686018427387904 elements is too large"},
    {"2^63 - 1 bytes", T(CALL(V3, UNTYPED(MOST), PLAIN "ctorch\nuint8\n")), CORRUPT, "too large"},
    {"fewer", T(CALL(V2, FLOATS(K("\7")), PLAIN)), CORRUPT,
     "data/0 has 24 bytes, data.pkl wants 28"},
    {"more", T(CALL(V2, FLOATS(K("\5")), SHAPELESS_5)), CORRUPT,
     "data/0 has 24 bytes, data.pkl wants 20"},
    {"v3 by elements", T(CALL(V3, UNTYPED(K("\6")), "K\0))\x89" HOOKS "ctorch\nuint32\n")), CORRUPT,
     "data/0 has 24 bytes, data.pkl wants 6"},
    {"other key", T(CALL(V2, STORAGE("torch\nFloatStorage", STR("\1", "1"), K("\6")), PLAIN)),
     CORRUPT, "it has no data/1"},
    {"key up", T(CALL(V2, STORAGE("torch\nFloatStorage", STR("\2", ".."), K("\6")), PLAIN)),
     CORRUPT, "key is no number"},
    {"key empty", T(CALL(V2, STORAGE("torch\nFloatStorage", STR("\0", ""), K("\6")), PLAIN)),
     CORRUPT, "key is no number"},
    {"key with NUL", T(CALL(V2, STORAGE("torch\nFloatStorage", STR("\3", "0\0x"), K("\6")), PLAIN)),
     CORRUPT, "not a storage"},
    {"long key", T(CALL(V2, STORAGE("torch\nFloatStorage",
                                    STR("\x21", "000000000000000000000000000000000"), K("\6")),
                        PLAIN)), CORRUPT, "key is no number"},
    {"quantised storage", T(CALL(V2, STORAGE("torch\nQInt8Storage", STR("\1", "0"), K("\6")),
                                 PLAIN)), UNSUPPORTED, "'torch QInt8Storage' is no type"},
    {"storage of os", T(CALL(V2, STORAGE("os\nFloatStorage", STR("\1", "0"), K("\6")), PLAIN)),
     UNSUPPORTED, "'os FloatStorage' is no type"},
    {"untyped v2", T(CALL(V2, UNTYPED(K("\x18")), PLAIN)), UNSUPPORTED, "is no type"},
    {"typed v3", T(CALL(V3, FLOATS(K("\6")), PLAIN "ctorch\nuint32\n")), CORRUPT,
     "without UntypedStorage"},
    {"unknown dtype", T(CALL(V3, UNTYPED(K("\x18")), PLAIN "ctorch\nuint3\n")), UNSUPPORTED,
     "'torch uint3' is no type"},
    {"dtype elsewhere", T(CALL(V3, UNTYPED(K("\x18")), PLAIN "ctorn\nuint32\n")), UNSUPPORTED,
     "is no type"},
    {"dtype twice", T(CALL(V3, UNTYPED(K("\x18")), PLAIN "ctorch\ntorch.uint8\n")), UNSUPPORTED,
     "'torch torch.uint8' is no type"},
    {"dtype is text", T(CALL(V3, UNTYPED(K("\x18")), PLAIN STR("\5", "uint8"))), CORRUPT,
     "type has no name"},

    {"negative offset", T(SHAPED(MINUS_ONE, ")", ")")), CORRUPT, "damaged size, stride or offset"},
    {"size is a list", T(SHAPED("K\0", "]", ")")), CORRUPT, "damaged size"},
    {"stride is a number", T(SHAPED("K\0", ")", "K\1")), CORRUPT, "damaged size"},
    {"more strides", T(SHAPED("K\0", "K\2\x85", TUPLE2("\1", "\1"))), CORRUPT, "damaged size"},
    {"negative length", T(SHAPED("K\0", MINUS_ONE "\x85", "K\1\x85")), CORRUPT,
     "dimension 0 has a length or stride that is no number >= 0"},
    {"negative stride", T(SHAPED("K\5", "K\2\x85", MINUS_ONE "\x85")), CORRUPT,
     "dimension 0 has a length or stride"},
    {"length is a float", T(SHAPED("K\0", "G\x3f\xf0\0\0\0\0\0\0\x85", "K\1\x85")), CORRUPT,
     "dimension 0"},
    {"length is true", T(SHAPED("K\0", "\x88\x85", "K\1\x85")), CORRUPT, "dimension 0"},
    {"huge length", T(SHAPED("K\0", HUGE_INT "\x85", "K\0\x85")), CORRUPT, "dimension 0"},
    {"one too many", T(SHAPED("K\1", TUPLE2("\2", "\3"), TUPLE2("\3", "\1"))), CORRUPT,
     "shape [2,3] reaches out of its storage of 24 bytes"},
    {"offset at the end", T(SHAPED(K("\6"), ")", ")")), CORRUPT, "shape [] reaches out"},
    {"empty behind the end", T(SHAPED(K("\7"), "K\0\x85", "K\1\x85")), CORRUPT, "reaches out"},
    {"offset 2^63 - 1", T(SHAPED(MOST, ")", ")")), CORRUPT, "reaches out"},
    {"stride 2^63 - 1", T(SHAPED("K\0", "K\2\x85", MOST "\x85")), CORRUPT, "reaches out"},
    {"sum of reaches", T(SHAPED("K\0", TUPLE2("\3", "\3"), MOST MOST "\x86")), CORRUPT,
     "reaches out"},
    {"2^62 times 4", T(SHAPED("K\0", BIG "\x85", "K\0\x85")), CORRUPT,
     "shape [4611686018427387904] is too large"},
    {"product", T(SHAPED("K\0", MOST MOST "\x86", TUPLE2("\0", "\0"))), CORRUPT, "is too large"},
    {"product with 0", T(SHAPED("K\0", "K\0" MOST MOST "\x87", "K\1K\1K\1\x87")), CORRUPT,
     "is too large"},
    {"wraps to 4", T(SHAPED("K\0", TUPLE2("\2", "\3"), "K\1" MOST "\x86")), CORRUPT, "reaches out"},

    {"conj", T(CALL(V2, FLOATS(K("\6")), PLAIN "}" STR("\4", "conj") "\x88s")), CORRUPT,
     "a float32 tensor has no conjugate"},
    {"neg of bits", T(CALL(V3, UNTYPED(K("\x18")), PLAIN "ctorch\nbits8\n}" STR("\3", "neg")
                           "\x88s")), UNSUPPORTED, "negation of a bits8 tensor"},
    {"unknown flag", T(CALL(V2, FLOATS(K("\6")), PLAIN "}" STR("\3", "odd") "\x88s")), UNSUPPORTED,
     "unknown metadata 'odd'"},
    {"flag is a number", T(CALL(V2, FLOATS(K("\6")), PLAIN "}" STR("\3", "neg") "K\1s")), CORRUPT,
     "metadata is damaged"},
    {"metadata is a list", T(CALL(V2, FLOATS(K("\6")), PLAIN "]")), CORRUPT, "metadata is damaged"},
    {"key is a number", T(CALL(V2, FLOATS(K("\6")), PLAIN "}K\1\x88s")), CORRUPT,
     "metadata is damaged"},
};
