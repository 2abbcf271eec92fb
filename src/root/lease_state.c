/* SPDX-License-Identifier: BSD-3-Clause */
/* lease_state.c -- see lease_state.h. */
#include "root/lease_state.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

#define LEASE_KEEPS "\nkeeps "

enum sidestep_status lease_state_parse(const char *text, struct lease_state *state,
                                       struct sidestep_error *err)
{
    unsigned long long number = 0;
    uint8_t id[SAVE_ID_BYTES];

    *state = (struct lease_state){0};
    if (sscanf(text, "run %32s incarnation %llu\n", state->run_id, &number) != 2 ||
        strlen(state->run_id) != SAVE_ID_HEX - 1 ||
        !hash_from_hex(state->run_id, SAVE_ID_BYTES, id))
        return FAIL(err, SIDESTEP_ECORRUPT, "the state of the series is damaged");
    state->incarnation = number;
    const char *rest = strchr(text, '\n');
    if (rest != NULL)
        (void)sscanf(rest, "\ntoken %32s\nholder %159[^\n]", state->token, state->holder);
    rest = strstr(text, LEASE_KEEPS);
    if (rest != NULL)
        snprintf(state->keeps, sizeof(state->keeps), "%s", rest + strlen(LEASE_KEEPS));
    return SIDESTEP_OK;
}

void lease_state_format(const struct lease *lease, const char *holder, struct buffer *text)
{
    buffer_printf(text, "run %s incarnation %llu\n", lease->run_id,
                  (unsigned long long)lease->incarnation);
    if (holder != NULL)
        buffer_printf(text, "token %s\nholder %s\n", lease->token, holder);
    if (lease->keeps[0] != '\0')
        buffer_printf(text, "%s%s", &LEASE_KEEPS[1], lease->keeps);
}

enum sidestep_status lease_state_read(struct store_dir *dir, struct lease_state *state,
                                      struct sidestep_error *err)
{
    OWNED_BUFFER text = {0};

    TRY(small_file_read(dir, LEASE_STATE, 0, LEASE_MAX_BYTES, &text, err));
    buffer_put_u8(&text, 0);
    TRY(buffer_check(&text, err));
    return lease_state_parse((const char *)text.bytes, state, err);
}

const char *lease_state_read_holder(struct store_file *lock, struct lease_holder *holder)
{
    struct store_stat stat;

    *holder = (struct lease_holder){0};
    if (store_file_stat(lock, &stat, NULL) == SIDESTEP_OK && stat.size != 0 &&
        stat.size <= LEASE_MAX_BYTES)
        (void)store_file_read_at(lock, holder->text, stat.size, 0, NULL);
    holder->text[strcspn(holder->text, "\n")] = '\0';
    return holder->text[0] != '\0' ? holder->text : "another process";
}
