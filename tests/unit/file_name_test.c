/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * file_name_test.c -- names are made and parsed exactly, hide from other tools, and stay beneath
 * their directory.
 */
#include <regex.h>

#include "base/owned.h"
#include "format/file_name.h"
#include "support/guard.h"
#include "support/unit.h"

#define ID "0123456789abcdef0123456789abcdef"
#define ZEROES "00000000000000000000000000000000"
#define NINES "99999999999999999999999999999999"
#define LETTERS "deadbeefdeadbeefdeadbeefdeadbeef"

static const struct {
    enum file_name_kind kind;
    const char *save_id;
    uint32_t rank, shard;
    const char *name;
} forms[] = {
    {FILE_NAME_SAVING, ID, 0, 0, ".sidestep." ID ".saving"},
    {FILE_NAME_TRASH, ID, 0, 0, ".sidestep." ID ".trash"},
    {FILE_NAME_BAD, ID, 0, 0, ".sidestep." ID ".bad"},
    {FILE_NAME_OUTCOME, ID, 0, 0, ".sidestep." ID ".outcome"},
    {FILE_NAME_PENDING, ID, 0, 0, ".sidestep." ID ".pending"},
    {FILE_NAME_MANIFEST, ID, 0, 0, ".sidestep.manifest." ID},
    {FILE_NAME_INDEX, ID, 0, 0, ".sidestep.index." ID},
    {FILE_NAME_VOTE, ID, 0, 0, "__0." ID ".yes"},
    {FILE_NAME_VOTE, ID, 1023, 0, "__1023." ID ".yes"},
    {FILE_NAME_FAILED, ID, 7, 0, "__7." ID ".failed"},
    {FILE_NAME_FAILED, NINES, UINT32_MAX, 0, "__4294967295." NINES ".failed"},
    {FILE_NAME_SHARD, "", 0, 0, "__0_0.distcp"},
    {FILE_NAME_SHARD, "", 10, 20, "__10_20.distcp"},
    {FILE_NAME_SHARD, ID, 10, 20, "__10_20." ID ".distcp"},
    {FILE_NAME_SHARD, ZEROES, UINT32_MAX, UINT32_MAX, "__4294967295_4294967295." ZEROES ".distcp"},
    {FILE_NAME_PART, "", 3, 1, "__3_1.distcp.part"},
    {FILE_NAME_PART, LETTERS, 3, 1, "__3_1." LETTERS ".distcp.part"},
    {FILE_NAME_EXTRA, ID, 3, 12, "__3_12." ID ".file"},
    {FILE_NAME_METADATA_TMP, ID, 0, 0, ".metadata." ID},
};

TEST(every_form_is_made_and_recognised)
{
    for (size_t i = 0; i < ARRAY_LENGTH(forms); i++) {
        char name[FILE_NAME_BYTES];
        file_name_format(forms[i].kind, forms[i].save_id, forms[i].rank, forms[i].shard, name);
        assert_string_equal(name, forms[i].name);
        struct file_name parsed = file_name_parse(name);
        assert_int_equal(parsed.kind, forms[i].kind);
        assert_string_equal(parsed.save_id, forms[i].save_id);
        assert_int_equal(parsed.rank, forms[i].rank);
        assert_int_equal(parsed.shard, forms[i].shard);
    }
}

TEST(the_lock_has_a_name_without_an_id)
{
    struct file_name parsed = file_name_parse(FILE_NAME_COMMIT_LOCK);

    assert_int_equal(parsed.kind, FILE_NAME_LOCK);
    assert_string_equal(parsed.save_id, "");
}

static void is_none_of_ours(const char *name)
{
    char *copy = guard_copy(name, strlen(name) + 1);
    struct file_name parsed = file_name_parse(copy);

    if (parsed.kind != FILE_NAME_NONE)
        print_error("'%s' was taken for kind %d\n", name, (int)parsed.kind);
    assert_int_equal(parsed.kind, FILE_NAME_NONE);
    assert_string_equal(parsed.save_id, "");
    assert_int_equal(parsed.rank, 0);
    assert_int_equal(parsed.shard, 0);
    guard_free(copy);
}

static const char *const near_misses[] = {
    "",
    ".",
    "..",
    ".sidestep",
    ".sidestep.",
    ".metadata",
    ".metadata.",
    ".metadata.tmp",
    ".metadata." ID "0",
    ".metadata.0123456789ABCDEF0123456789abcdef",
    ".metadata.0123456789abcdef0123456789abcde",
    ".metadata.0123456789abcdef0123456789abcdeg",
    ".sidestep." ID,
    ".sidestep." ID ".",
    ".sidestep." ID ".savin",
    ".sidestep." ID ".savings",
    ".sidestep." ID ".SAVING",
    ".sidestep." ID "0.saving",
    ".sidestep.." ID ".saving",
    ".sidestep.0123456789abcdef.saving",
    "sidestep." ID ".saving",
    ".sidestep.committin",
    ".sidestep.committing.",
    ".sidestep." ID ".committing",
    ".sidestep.manifest",
    ".sidestep.manifest.",
    ".sidestep.manifest." ID ".saving",
    ".sidestep." ID ".manifest",
    "__",
    "__0",
    "__0_",
    "__0_0",
    "__0_0.",
    "__0_0.distcp.",
    "__0_0.distcp.part.part",
    "__0_0.distcp.par",
    "__0_0..distcp",
    "__0_0.distc",
    "__0_0." ID,
    "__0_0." ID ".",
    "__0_0." ID ".yes",
    "__0_0." ID ID ".distcp",
    "__0_0.0123.distcp",
    "__00_0.distcp",
    "__01_0.distcp",
    "__0_00.distcp",
    "__0_01.distcp",
    "__-1_0.distcp",
    "__+1_0.distcp",
    "__ 1_0.distcp",
    "__1_ 0.distcp",
    "__1__0.distcp",
    "__4294967296_0.distcp",
    "__0_4294967296.distcp",
    "__99999999999999999999_0.distcp",
    "___0_0.distcp",
    "_0_0.distcp",
    "__0x1_0.distcp",
    "__0.metadata",
    "__0.distcp",
    "__0." ID,
    "__0." ID ".no",
    "__0." ID ".yess",
    "__00." ID ".yes",
    "__4294967296." ID ".yes",
    "__0_1." ID ".failed",
    "__." ID ".yes",
    "__0.yes",
    "step-42",
    "config.json",
};

TEST(similar_names_are_not_ours)
{
    for (size_t i = 0; i < ARRAY_LENGTH(near_misses); i++)
        is_none_of_ours(near_misses[i]);
}

/* Each beginning of each form, each form with one more byte, and each form with one byte changed.
 * None of them is a name, or it is another one that is written in the same way. */
TEST(no_name_has_two_spellings)
{
    for (size_t i = 0; i < ARRAY_LENGTH(forms); i++) {
        size_t length = strlen(forms[i].name);
        for (size_t at = 0; at <= length; at++)
            for (int byte = 0; byte < 256; byte++) {
                char text[FILE_NAME_BYTES + 1], again[FILE_NAME_BYTES];
                memcpy(text, forms[i].name, length + 1);
                text[length + 1] = '\0';
                text[at] = (char)byte;
                struct file_name parsed = file_name_parse(text);
                if (parsed.kind == FILE_NAME_NONE)
                    continue;
                file_name_format(parsed.kind, parsed.save_id, parsed.rank, parsed.shard, again);
                assert_string_equal(again, text);
            }
    }
}

/* Patterns of other tools that search anywhere in a name. */
TEST(other_tools_do_not_see_us)
{
    static const char *const finders[] = {
        "step-([0-9]+)",       "checkpoint-([0-9]+)", "checkpoint_([0-9]+)", "iter_([0-9]+)",
        "global_step([0-9]+)", "step_([0-9]+)",       "step([0-9]+)",        "step=([0-9]+)",
        "epoch[-_=]?([0-9]+)", "ckpt[-_]?([0-9]+)",   "iter-([0-9]+)",
    };
    static const char *const ids[] = {ID, ZEROES, NINES, LETTERS};

    for (size_t f = 0; f < ARRAY_LENGTH(finders); f++) {
        regex_t finder;
        assert_int_equal(regcomp(&finder, finders[f], REG_EXTENDED | REG_NOSUB), 0);
        assert_int_not_equal(regexec(&finder, FILE_NAME_SERIES_DIR, 0, NULL, 0), 0);
        assert_int_not_equal(regexec(&finder, FILE_NAME_METADATA, 0, NULL, 0), 0);
        for (unsigned kind = FILE_NAME_SAVING; kind <= FILE_NAME_EXPORT; kind++)
            for (size_t i = 0; i < ARRAY_LENGTH(ids) + 1; i++) {
                char name[FILE_NAME_BYTES];
                bool no_id = i == ARRAY_LENGTH(ids);
                if (no_id && kind != FILE_NAME_SHARD && kind != FILE_NAME_PART)
                    continue;
                file_name_format((enum file_name_kind)kind, no_id ? "" : ids[i], 12, 345, name);
                assert_int_not_equal(regexec(&finder, name, 0, NULL, 0), 0);
            }
        regfree(&finder);
    }
    /* The test would see it. */
    regex_t finder;
    assert_int_equal(regcomp(&finder, finders[0], REG_EXTENDED | REG_NOSUB), 0);
    assert_int_equal(regexec(&finder, ".sidestep-step-12.saving", 0, NULL, 0), 0);
    regfree(&finder);
}

#define PATH(text, verdict)                                                                        \
    {                                                                                              \
        text, sizeof(text) - 1, verdict                                                            \
    }
static const struct {
    const char *path;
    size_t length;
    bool beneath;
} paths[] = {
    /* Good paths that look odd. */
    PATH("a", true),
    PATH("__0_0.distcp", true),
    PATH("a/b", true),
    PATH("a/b/c/d/e/f", true),
    PATH(".hidden", true),
    PATH("...", true),
    PATH("....", true),
    PATH("..a", true),
    PATH("a..", true),
    PATH("a..b", true),
    PATH(".a", true),
    PATH("a.", true),
    PATH("a/.b", true),
    PATH("a/..b", true),
    PATH("a/b..", true),
    PATH("a/...", true),
    PATH("a/.../b", true),
    PATH(". .", true),
    PATH(".. ", true),
    PATH(" ..", true),
    PATH(" ", true),
    PATH("a b", true),
    PATH("~", true),
    PATH("~root", true),
    PATH("~/a", true),
    PATH("$HOME", true),
    PATH("%2e%2e", true),
    PATH("%2e%2e/a", true),
    PATH("..%2f", true),
    PATH("%00", true),
    PATH("\\", true),
    PATH("..\\a", true),
    PATH("a\\..\\b", true),
    PATH("\\\\server\\share", true),
    PATH("C:", true),
    PATH("C:\\a", true),
    PATH("c:a", true),
    PATH("-rf", true),
    PATH("--", true),
    PATH("*", true),
    PATH("a;b", true),
    PATH("a|b", true),
    PATH("a&b", true),
    PATH("`a`", true),
    PATH("$(a)", true),
    PATH("'a'", true),
    PATH("\"a\"", true),
    PATH("<a>", true),
    PATH("a:b", true),
    PATH("proc/self/fd/0", true),
    PATH("dev/null", true),
    PATH("file:a", true),
    PATH("\xc3\xa4", true),
    PATH("\xe2\x80\xa6", true),
    PATH("\xef\xbc\x8e\xef\xbc\x8e/a", true),
    PATH("\xc0\xae\xc0\xae/a", true),
    PATH("\xff", true),
    PATH("\x80", true),
    PATH("a/\xf0\x9f\x98\x80", true),
    /* Empty, or with an empty component. */
    PATH("", false),
    PATH("/", false),
    PATH("//", false),
    PATH("///", false),
    PATH("a/", false),
    PATH("a//", false),
    PATH("a//b", false),
    PATH("a///b", false),
    PATH("a/b/", false),
    PATH("a/b//", false),
    PATH("a/b//c", false),
    PATH(" /", false),
    PATH("a/ /", false),
    /* Absolute. */
    PATH("/a", false),
    PATH("//a", false),
    PATH("/a/b", false),
    PATH("/etc/passwd", false),
    PATH("/proc/self/environ", false),
    PATH("/proc/self/root/etc/passwd", false),
    PATH("/dev/zero", false),
    PATH("/dev/stdin", false),
    PATH("/.", false),
    PATH("/..", false),
    PATH("//server/share", false),
    PATH("/ ", false),
    PATH("/\\a", false),
    PATH("/C:/a", false),
    PATH("file:///a", false),
    PATH("http://host/a", false),
    /* Dots. */
    PATH(".", false),
    PATH("..", false),
    PATH("./", false),
    PATH("../", false),
    PATH("./a", false),
    PATH("../a", false),
    PATH("a/.", false),
    PATH("a/..", false),
    PATH("a/./", false),
    PATH("a/../", false),
    PATH("a/./b", false),
    PATH("a/../b", false),
    PATH("a/../../b", false),
    PATH("a/b/..", false),
    PATH("a/b/../..", false),
    PATH("a/b/../../..", false),
    PATH("a/b/../../../c", false),
    PATH("./.", false),
    PATH("./..", false),
    PATH("../.", false),
    PATH("../..", false),
    PATH("../../..", false),
    PATH("../../../../../../etc/passwd", false),
    PATH("../__0_0.distcp", false),
    PATH("../step-41/__0_0.distcp", false),
    PATH("./__0_0.distcp", false),
    PATH("__0_0.distcp/.", false),
    PATH("__0_0.distcp/..", false),
    PATH(".//a", false),
    PATH("..//a", false),
    PATH(".../..", false),
    PATH(".../../a", false),
    PATH("..../..", false),
    PATH("~/..", false),
    PATH("a/..//b", false),
    PATH("..\\../a/..", false),
    PATH("\xc3\xa4/..", false),
    PATH("\xff/../a", false),
    PATH("%2e/..", false),
    PATH(" /..", false),
    PATH("a /../b", false),
    /* NUL, wherever it stands. */
    PATH("\0", false),
    PATH("\0a", false),
    PATH("a\0", false),
    PATH("a\0b", false),
    PATH("a/\0", false),
    PATH("a/\0/b", false),
    PATH("a\0/../b", false),
    PATH("..\0", false),
    PATH(".\0.", false),
    PATH("__0_0.distcp\0.txt", false),
    PATH("__0_0.distcp\0/../../etc/passwd", false),
    /* Control bytes. */
    PATH("\x01", false),
    PATH("\x02y", false),
    PATH("a\x03", false),
    PATH("a\x04z", false),
    PATH("a\x05", false),
    PATH("a\x06", false),
    PATH("a\a", false),
    PATH("a\b", false),
    PATH("a\b\b..", false),
    PATH("a\tb", false),
    PATH("\t", false),
    PATH("a\nb", false),
    PATH("\n", false),
    PATH("a\n", false),
    PATH("\na", false),
    PATH("a\vb", false),
    PATH("a\fb", false),
    PATH("a\rb", false),
    PATH("a\r\n", false),
    PATH("a\x0e", false),
    PATH("a\x0f", false),
    PATH("a\x10", false),
    PATH("a\x11", false),
    PATH("a\x12", false),
    PATH("a\x13", false),
    PATH("a\x14", false),
    PATH("a\x15", false),
    PATH("a\x16", false),
    PATH("a\x17", false),
    PATH("a\x18", false),
    PATH("a\x19", false),
    PATH("a\x1a", false),
    PATH("\x1b[2J", false),
    PATH("a\x1b]0;owned\a", false),
    PATH("a\x1c", false),
    PATH("a\x1d", false),
    PATH("a\x1e", false),
    PATH("a\x1f", false),
    PATH("a\x7f", false),
    PATH("\x7f", false),
    PATH("a/\x7f/b", false),
    PATH("a\n../b", false),
    PATH("..\n", false),
    PATH(".\x7f.", false),
};

TEST(paths_stay_beneath)
{
    assert_true(ARRAY_LENGTH(paths) >= 150);
    for (size_t i = 0; i < ARRAY_LENGTH(paths); i++) {
        char *copy = guard_copy(paths[i].path, paths[i].length);
        if (file_name_is_beneath(copy, paths[i].length) != paths[i].beneath)
            fail_msg("path %zu: '%s'", i, paths[i].path);
        guard_free(copy);
    }
}

TEST(paths_have_a_longest_length)
{
    char path[4097];

    memset(path, 'a', sizeof(path));
    assert_true(file_name_is_beneath(path, 4095));
    assert_false(file_name_is_beneath(path, 4096));
    assert_false(file_name_is_beneath(path, 4097));
    for (size_t i = 1; i < 4095; i += 2)
        path[i] = '/';
    assert_true(file_name_is_beneath(path, 4095));
    path[4094] = '.';
    assert_false(file_name_is_beneath(path, 4095));
}

/* All paths of up to six bytes of special characters, compared with a simple implementation. */
TEST(short_paths_agree_with_a_simple_rule)
{
    static const char alphabet[] = {'/', '.', 'a', '\0', '\n'};
    char path[6], padded[16];

    for (size_t length = 1; length <= sizeof(path); length++) {
        size_t combinations = 1;
        for (size_t i = 0; i < length; i++)
            combinations *= sizeof(alphabet);
        for (size_t n = 0; n < combinations; n++) {
            size_t rest = n;
            for (size_t i = 0; i < length; i++, rest /= sizeof(alphabet))
                path[i] = alphabet[rest % sizeof(alphabet)];
            bool clean = memchr(path, '\0', length) == NULL && memchr(path, '\n', length) == NULL;
            snprintf(padded, sizeof(padded), "/%.*s/", (int)length, path);
            bool beneath = clean && strstr(padded, "//") == NULL && strstr(padded, "/./") == NULL &&
                           strstr(padded, "/../") == NULL;
            assert_int_equal(file_name_is_beneath(path, length), beneath);
        }
    }
}
