/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * attack_table.h -- a table of what can be done to memory that is held: each row is a test, and a
 * second one, the negative control, where nothing but the library's checks would notice.
 */
#ifndef SUPPORT_ATTACK_TABLE_H
#define SUPPORT_ATTACK_TABLE_H

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

#include "support/attack.h"

#define PART_AT (2 * MIB)    /* what is attacked of the tensor ... */
#define PART_BYTES (3 * MIB) /* ... and so much of it: no granule begins or ends there */
#define MAX_ATTACKS 40

enum outcome {
    HELD,     /* the save has the bytes of the call */
    REFUSED,  /* it fails */
    NOT_HERE, /* this machine does not let us: errno */
};

struct attack {
    const char *name;
    enum outcome (*act)(void);
    const char *said;   /* where the save fails: one of these words, "a|b" */
    bool untouched;     /* of memory that was never touched */
    bool zeros;         /* of memory whose pages are all equal */
    bool goes;          /* the part is not there, or not to be written, any more */
    bool comes_to_pass; /* unseen without the checks: the control */
};

static pid_t other_process; /* that an attack has left behind */

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

/* The program goes on, wherever it has memory. */
static inline void write_next_epoch(const struct attack *attack)
{
    attack_write(attacked, 2, PART_AT);
    if (!attack->goes)
        attack_write(part(), 2, PART_BYTES);
    attack_write(attacked + PART_AT + PART_BYTES, 2, ATTACK_BYTES - PART_AT - PART_BYTES);
}

static inline void expect_what_was_there(const struct attack *attack)
{
    uint64_t *loaded = malloc(ATTACK_BYTES);
    struct sidestep_state_dict *target = new_state(&loaded);

    expect_ok(sidestep_load(job.engine, job.path, target, NULL, NULL, &job.err));
    for (size_t n = 0; n < WORDS(ATTACK_BYTES); n++)
        assert_int_equal(loaded[n], attack->untouched || attack->zeros ? 0 : (n << 24 ^ 1));
    sidestep_state_dict_free(&target);
    free(loaded);
}

/* Begin a save, attack it, go on.  ${outcome}: as the attack says. */
static inline enum sidestep_status run_attack(const struct attack *attack, const char *switched_off,
                                              enum outcome *outcome)
{
    attacked = map(ATTACK_BYTES);
    attack_begin(0);
    if (attack->untouched)
        assert_int_equal(madvise(attacked, ATTACK_BYTES, MADV_DONTNEED), 0);
    if (attack->zeros)
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

/* What an attack has taken away may be somebody else's by now. */
static inline void end_attack(const struct attack *attack)
{
    int saved = errno;

    attack_end();
    (void)munmap(attacked, PART_AT);
    (void)munmap(part() + PART_BYTES, ATTACK_BYTES - PART_AT - PART_BYTES);
    if (!attack->goes)
        (void)munmap(part(), PART_BYTES);
    errno = saved;
}

static inline void it_is_held_or_refused(void **state)
{
    const struct attack *attack = *state;
    enum outcome outcome;

    need_cow();
    enum sidestep_status status = run_attack(attack, "none", &outcome);
    if (outcome == REFUSED) {
        print_message("# %s\n", job.err.message);
        assert_int_equal(status, SIDESTEP_EINVAL);
        assert_non_null(strstr(job.err.message, "'t0'"));
        assert_true(says_one_of(job.err.message, attack->said));
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

/* The negative control of those that no event tells of. */
static inline void unseen_it_wins(void **state)
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
        for (int control = 0; control <= (int)attacks[i].comes_to_pass; control++) {
            snprintf(names[count], sizeof(names[count]), "%s%s", attacks[i].name,
                     control ? ", unseen" : "");
            tests[count] = (struct CMUnitTest){
                .name = names[count],
                .test_func = control ? unseen_it_wins : it_is_held_or_refused,
                .initial_state = (void *)(uintptr_t)&attacks[i],
            };
            count++;
        }
    return _cmocka_run_group_tests(name, tests, count, setup, teardown);
}

#endif
