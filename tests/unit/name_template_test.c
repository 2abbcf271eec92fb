/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * name_template_test.c -- each step has one name and each name one step, or the template is
 * refused.
 */
#include "base/owned.h"
#include "format/name_template.h"
#include "sidestep/sidestep_series.h"
#include "support/unit.h"

/* ---- what is taken ---- */

static const struct {
    const char *template;
    uint64_t step;
    const char *name;
    const char *spelled; /* NULL: as it is */
} made[] = {
    {"step-{step}", 0, "step-0", NULL},
    {"step-{step:01}", 42, "step-42", "step-{step}"},
    {"step-{step:01d}", 42, "step-42", "step-{step}"},
    {"{step}", 7, "7", NULL},
    {"{step:06}", 7, "000007", NULL},
    {"{step:06}", 1234567, "1234567", NULL},
    {"{step:02}", 99, "99", NULL},
    {"{step:02}", 100, "100", NULL},
    {"step_{step:08d}", 42, "step_00000042", "step_{step:08}"},
    {"iter_{step:07}", 1000, "iter_0001000", NULL},
    {"step-{step}.dcp", 42, "step-42.dcp", NULL},
    {"run7_{step:03}-v2.dcp", 42, "run7_042-v2.dcp", NULL},
    {"schritt-{step}-größe", 3, "schritt-3-größe", NULL},
    {"a b{step} (x)", 3, "a b3 (x)", NULL},
    {"{step:020}", INT64_MAX, "09223372036854775807", NULL},
    {"{step:010}", 1, "0000000001", NULL},
    {"s{step}.part.x", 1, "s1.part.x", NULL},
    {"__{step}_0", 1, "__1_0", NULL},
};

TEST(names_are_made_and_read_back)
{
    for (size_t i = 0; i < ARRAY_LENGTH(made); i++) {
        char name[FILE_NAME_BYTES], again[NAME_TEMPLATE_MAX_BYTES + 1];
        struct name_template naming;
        uint64_t step = 1;
        assert_int_equal(name_template_from_text(made[i].template, &naming, NULL), SIDESTEP_OK);
        name_template_format_name(&naming, made[i].step, name);
        assert_string_equal(name, made[i].name);
        assert_true(name_template_parse_name(&naming, name, &step));
        assert_int_equal(step, made[i].step);
        assert_int_equal(file_name_parse(name).kind, FILE_NAME_NONE);
        name_template_to_text(&naming, again);
        assert_string_equal(again, made[i].spelled != NULL ? made[i].spelled : made[i].template);
        assert_true(name_template_is_prefix_only(&naming) ==
                    (naming.suffix[0] == '\0' && strchr(again, ':') == NULL));
    }
}

static const struct {
    const char *template, *name;
} others[] = {
    {"step-{step}", "step-007"},
    {"step-{step:03}", "step-7"},
    {"step-{step:03}", "step-0007"},
    {"step-{step:03}", "step-0100"},
    {"step-{step:03}", "step-"},
    {"step-{step}", "step-"},
    {"step-{step}", "step--1"},
    {"step-{step}", "step-+1"},
    {"step-{step}", "step- 1"},
    {"step-{step}", "step-1e3"},
    {"step-{step}", "step-1 "},
    {"step-{step}", "Step-1"},
    {"step-{step}", "step-1.dcp"},
    {"step-{step}.dcp", "step-1"},
    {"step-{step}.dcp", "step-.dcp"},
    {"step-{step}.dcp", "step-1.dcp.bak"},
    {"step-{step}.dcp", "1.dcp"},
    {"{step}", ""},
    {"{step}", "x1"},
    {"{step}", "9223372036854775808"},
    {"{step}", "18446744073709551619"}, /* 2^64 + 3 */
    {"{step:020}", "09223372036854775808"},
};

TEST(other_names_are_no_members)
{
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++) {
        struct name_template naming;
        uint64_t step;
        assert_int_equal(name_template_from_text(others[i].template, &naming, NULL), SIDESTEP_OK);
        if (name_template_parse_name(&naming, others[i].name, &step))
            fail_msg("'%s' is '%s'", others[i].name, others[i].template);
    }
}

TEST(a_prefix_equals_a_plain_template)
{
    char template[NAME_TEMPLATE_MAX_BYTES + 1], name[FILE_NAME_BYTES];
    struct name_template naming;

    assert_int_equal(name_template_from_prefix("run7_iter_", &naming, NULL), SIDESTEP_OK);
    assert_true(name_template_is_prefix_only(&naming));
    name_template_to_text(&naming, template);
    assert_string_equal(template, "run7_iter_{step}");
    name_template_format_name(&naming, UINT64_MAX, name);
    assert_string_equal(name, "run7_iter_18446744073709551615");
}

/* ---- what is refused ---- */

static const struct {
    const char *template, *word;
} refused[] = {
    {"", "it must contain {step}"},
    {"step-", "it must contain {step}"},
    {"iter_%07d", "'%'"},
    {"epoch={epoch}-step={step}", "it must contain {step}"},
    {"{step}-{step}", "once"},
    {"{step}-{epoch}", "once"},
    {"{step}}", "once"},
    {"}{step}", "once"},
    {"{{step}", "it must contain {step}"},
    {"{Step}", "it must contain {step}"},
    {"{step", "are known"},
    {"{steps}", "are known"},
    {"{step!r}", "are known"},
    {"{step:}", "are known"},
    {"{step:0}", "are known"},
    {"{step:00}", "are known"},
    {"{step:008}", "are known"},
    {"{step:8}", "are known"},
    {"{step:08x}", "are known"},
    {"{step:08dd}", "are known"},
    {"{step:08", "are known"},
    {"{step:>08}", "are known"},
    {"{step:0-8}", "are known"},
    {"{step:d}", "are known"},
    {"{step:021}", "are known"},
    {"{step:04294967298}", "are known"},
    {"step-{step}/dcp", "'/'"},
    {"/{step}", "'/'"},
    {"a\n{step}", "control"},
    {"a{step}\x7f", "control"},
    {"a\"{step}", "quote"},
    {"a{step}\\", "control"},
    {"\xff{step}", "UTF-8"},
    {"{step}\xc3", "UTF-8"},
    {".{step}", "hidden"},
    {".sidestep.{step}", "hidden"},
    {"v2{step}", "digit"},
    {"{step}0", "digit"},
    {"{step:04}0.dcp", "digit"},
    {"__{step}_0.distcp", ".distcp"},
    {"__0_{step}.distcp", ".distcp"},
    {"__0_{step}.distcp.part", ".part"},
    {"{step}.saving", ".saving"},
    {"{step}.trash", ".trash"},
    {"{step}.bad", ".bad"},
    {"{step}.outcome", ".outcome"},
    {"{step}.pending", ".pending"},
    {"{step}.export", ".export"},
    {"{step}.yes", ".yes"},
    {"{step}.failed", ".failed"},
    {"{step}.metadata", ".metadata"},
    {"{step}-x.bad", ".bad"},
};

TEST(values_that_could_not_be_read_back_are_refused)
{
    for (size_t i = 0; i < ARRAY_LENGTH(refused); i++) {
        struct sidestep_error err = {0};
        struct name_template naming;
        const char *word = strcmp(refused[i].word, "quote") == 0 ? "'\"'" : refused[i].word;
        if (name_template_from_text(refused[i].template, &naming, &err) != SIDESTEP_EINVAL ||
            strstr(err.message, word) == NULL || strncmp(err.message, "series name '", 13) != 0)
            fail_msg("'%s': status %d, '%s'", refused[i].template, err.status, err.message);
    }
}

TEST(limits_hold_one_past)
{
    char template[2 * FILE_NAME_BYTES], name[FILE_NAME_BYTES];
    const unsigned limit = 63;
    struct name_template naming;
    uint64_t step;

    for (unsigned prefix = limit; prefix <= limit + 1; prefix++)
        for (unsigned suffix = limit; suffix <= limit + 1; suffix++)
            for (unsigned digits = 20; digits <= 21; digits++) {
                int length =
                    snprintf(template, sizeof(template), "%.*s{step:0%u}%.*s", (int)prefix,
                             "pppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp",
                             digits, (int)suffix,
                             "ssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss");
                bool fits = prefix == limit && suffix == limit && digits == 20;
                assert_int_equal(name_template_from_text(template, &naming, NULL),
                                 fits ? SIDESTEP_OK : SIDESTEP_EINVAL);
                if (fits)
                    assert_int_equal(length, NAME_TEMPLATE_MAX_BYTES);
            }
    memset(template, 'p', limit);
    snprintf(template + limit, sizeof(template) - limit, "{step:020}%s",
             "sssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss");
    assert_int_equal(name_template_from_text(template, &naming, NULL), SIDESTEP_OK);
    name_template_format_name(&naming, 5, name);
    assert_int_equal(strlen(name), NAME_TEMPLATE_MAX_NAME);
    assert_true(name_template_parse_name(&naming, name, &step));
    assert_int_equal(step, 5);
    name_template_to_text(&naming, name);
    assert_string_equal(name, template);
}

/* ---- the public functions ---- */

TEST(public_functions_use_the_template)
{
    char name[256];
    uint64_t step = 0;
    struct sidestep_error err;

    assert_int_equal(sidestep_name_of_step("step_{step:08}", 42, name, NULL), SIDESTEP_OK);
    assert_string_equal(name, "step_00000042");
    assert_int_equal(sidestep_step_of_name("step_{step:08d}", name, &step, NULL), SIDESTEP_OK);
    assert_int_equal(step, 42);
    assert_int_equal(sidestep_step_of_name("step_{step:08}", "step_42", &step, &err),
                     SIDESTEP_ENOTFOUND);
    assert_non_null(strstr(err.message, "'step_42' is not a name that 'step_{step:08}' makes"));
    assert_int_equal(sidestep_name_of_step("step_", 42, name, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_step_of_name("step_", "step_42", &step, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_name_of_step(NULL, 42, name, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_name_of_step("{step}", 42, NULL, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_step_of_name(NULL, "1", &step, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_step_of_name("{step}", NULL, &step, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_step_of_name("{step}", "1", NULL, &err), SIDESTEP_EINVAL);
}
