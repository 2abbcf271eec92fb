/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * attack_table.h -- runs a table of attacks on protected memory. Each row is a test and, as
 * negative control, a second test with the library's checks switched off.
 */
#ifndef SUPPORT_ATTACK_TABLE_H
#define SUPPORT_ATTACK_TABLE_H

#include <errno.h>
#include <sys/wait.h>

#include "support/attack.h"
#include "support/unit.h"

#define PART_AT (2 * MIB)    /* the attacked part of the tensor begins here ... */
#define PART_BYTES (3 * MIB) /* ... and has this size: no granule begins or ends there */
#define MAX_ATTACKS 40

enum outcome {
    HELD,     /* the save contains the bytes of the call */
    REFUSED,  /* the save fails */
    NOT_HERE, /* this machine does not allow the attack; errno says why */
};

struct attack {
    const char *name;
    enum outcome (*act)(void);
    const char
        *expected_words; /* if the save fails, its message contains one of these words, "a|b" */
    bool is_untouched;   /* the memory was never touched */
    bool is_zero;        /* all pages of the memory are equal */
    bool part_is_lost;   /* afterwards the part is unmapped or cannot be written */
    bool has_control;    /* without the checks, the attack must not be detected */
};

static pid_t other_process; /* a process that an attack has left running */

static inline unsigned char *part(void)
{
    return attacked + PART_AT;
}

static inline enum outcome advise(int advice, enum outcome then)
{
    return madvise(part(), PART_BYTES, advice) == 0 ? then : NOT_HERE;
}

static inline bool says_one_of(const char *message, const char *words)
{
    char text[64];

    snprintf(text, sizeof(text), "%s", words);
    for (char *word = strtok(text, "|"); word != NULL; word = strtok(NULL, "|"))
        if (strstr(message, word) != NULL)
            return true;
    return false;
}

/* The program writes the next epoch wherever it still has memory. */
static inline void write_next_epoch(const struct attack *attack)
{
    attack_write(attacked, 2, PART_AT);
    if (!attack->part_is_lost)
        attack_write(part(), 2, PART_BYTES);
    attack_write(attacked + PART_AT + PART_BYTES, 2, ATTACK_BYTES - PART_AT - PART_BYTES);
}

static inline void expect_what_was_there(const struct attack *attack)
{
    uint64_t *loaded = malloc(ATTACK_BYTES);
    struct sidestep_state_dict *target = new_state(&loaded);

    expect_ok(sidestep_load(job.engine, job.path, target, NULL, NULL, &job.err));
    for (size_t n = 0; n < WORDS(ATTACK_BYTES); n++)
        assert_int_equal(loaded[n], attack->is_untouched || attack->is_zero ? 0 : (n << 24 ^ 1));
    sidestep_state_dict_free(&target);
    free(loaded);
}

/* Start a save, attack it, and let it continue. ${outcome}: the result of the attack. */
static inline enum sidestep_status run_attack(const struct attack *attack, const char *switched_off,
                                              enum outcome *outcome)
{
    attacked = map(ATTACK_BYTES);
    attack_begin(0);
    if (attack->is_untouched)
        assert_int_equal(madvise(attacked, ATTACK_BYTES, MADV_DONTNEED), 0);
    if (attack->is_zero)
        memset(attacked, 0, ATTACK_BYTES);
    fault_arm(switched_off, 1, true, 0);
    attack_start();
    other_process = 0;
    *outcome = attack->act();
    int refused_because = errno;
    if (*outcome != NOT_HERE)
        write_next_epoch(attack);
    enum sidestep_status status = attack_finish();
    fault_arm("", 0, false, 0);
    if (other_process != 0)
        assert_int_equal(waitpid(other_process, NULL, 0), other_process);
    errno = refused_because;
    return status;
}

/* Unmap only memory that the attack has not unmapped: another mapping may be there now. */
static inline void end_attack(const struct attack *attack)
{
    int saved = errno;

    attack_end();
    (void)munmap(attacked, PART_AT);
    (void)munmap(part() + PART_BYTES, ATTACK_BYTES - PART_AT - PART_BYTES);
    if (!attack->part_is_lost)
        (void)munmap(part(), PART_BYTES);
    errno = saved;
}

static inline void is_held_or_refused(void **state)
{
    const struct attack *attack = *state;
    enum outcome outcome;

    need_cow();
    enum sidestep_status status = run_attack(attack, "none", &outcome);
    if (outcome == REFUSED) {
        print_message("# %s\n", job.err.message);
        assert_int_equal(status, SIDESTEP_EINVAL);
        assert_non_null(strstr(job.err.message, "'t0'"));
        assert_true(says_one_of(job.err.message, attack->expected_words));
    } else if (outcome == HELD) {
        expect_ok(status);
        expect_cow(ATTACK_BYTES, "");
        expect_what_was_there(attack);
    }
    end_attack(attack);
    if (outcome == NOT_HERE) {
        print_message("not on this machine: %s\n", strerror(errno));
        skip();
    }
}

/* The negative control of attacks that cause no event. */
static inline void wins_without_checks(void **state)
{
    const struct attack *attack = *state;
    enum outcome outcome;

    need_cow();
    enum sidestep_status status = run_attack(attack, "trust.", &outcome);
    bool won = status == SIDESTEP_OK && outcome != NOT_HERE && attack_has_won();
    end_attack(attack);
    if (outcome == NOT_HERE) {
        print_message("not on this machine: %s\n", strerror(errno));
        skip();
    }
    assert_true(won);
}

static inline int run_attacks(const char *name, const struct attack *attacks, size_t attack_count)
{
    struct CMUnitTest tests[2 * MAX_ATTACKS];
    char names[2 * MAX_ATTACKS][64];
    size_t count = 0;

    assert_true(attack_count <= MAX_ATTACKS);
    for (size_t i = 0; i < attack_count; i++)
        for (int control = 0; control <= (int)attacks[i].has_control; control++) {
            snprintf(names[count], sizeof(names[count]), "%s%s", attacks[i].name,
                     control ? ", unseen" : "");
            tests[count] = (struct CMUnitTest){
                .name = names[count],
                .test_func = control ? wins_without_checks : is_held_or_refused,
                .initial_state = (void *)(uintptr_t)&attacks[i],
            };
            count++;
        }
    return _cmocka_run_group_tests(name, tests, count, setup, teardown);
}

#endif
