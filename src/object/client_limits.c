/* SPDX-License-Identifier: BSD-3-Clause */
/* client_limits.c -- what the requests of a client share: its limits of requests in flight and of
 * bandwidth, its endpoint, and helpers. */
#include "object/client_internal.h"

#include <isa-l/crc.h>
#include <nettle/base64.h>

#define WATCH_MS 50u /* between checks of ${cancelled} */

bool client_is_cancelled(const struct client *client)
{
    return client->cancelled != NULL && atomic_load(client->cancelled);
}

bool client_sleep(const struct client *client, uint64_t ms)
{
    while (ms > 0 && !client_is_cancelled(client)) {
        uint64_t step = client->cancelled != NULL ? min_u64(ms, WATCH_MS) : ms;
        clock_system()->sleep_ms(clock_system(), step);
        ms -= step;
    }
    return !client_is_cancelled(client);
}

/* Wait until another request ends, or it is time to check ${cancelled}. */
static void wait_for_slot(struct client *client) REQUIRES(&client->shared.lock)
{
    uint64_t until_ns = clock_now(clock_system()) + (uint64_t)WATCH_MS * 1000000u;

    (void)lock_wait_until(&client->shared.lock, &client->shared.freed, until_ns);
}

bool client_acquire_slot(struct client *client)
{
    lock_acquire(&client->shared.lock);
    while (client->shared.in_flight >= client->max_requests && !client_is_cancelled(client))
        wait_for_slot(client);
    bool has_slot = !client_is_cancelled(client);
    client->shared.in_flight += has_slot;
    lock_release(&client->shared.lock);
    return has_slot;
}

void client_release_slot(struct client *client)
{
    lock_acquire(&client->shared.lock);
    client->shared.in_flight--;
    lock_wake_all(&client->shared.freed);
    lock_release(&client->shared.lock);
}

/* A low latency shows the distance of the store, a high one may only show load, so it counts less.
 * Of threads that record at the same time, one counts. */
void client_record_latency(struct client *client, uint64_t ns)
{
    if (ns == 0)
        return;
    uint64_t before_ns = atomic_load(&client->latency_ns);
    bool is_quicker = before_ns == 0 || ns < before_ns;

    atomic_store(&client->latency_ns, is_quicker ? ns : before_ns + (ns - before_ns) / 4);
}

/* A body may be sent when the ones before it have been sent at the limit. */
bool client_wait_for_bandwidth(struct client *client, uint64_t bytes)
{
    if (client->bytes_per_second == 0 || bytes == 0)
        return !client_is_cancelled(client);
    uint64_t now = clock_now(clock_system());
    uint64_t takes_ns = (uint64_t)((double)bytes * 1e9 / (double)client->bytes_per_second);
    lock_acquire(&client->shared.lock);
    uint64_t begin = max_u64(now, client->shared.next_send_ns);
    client->shared.next_send_ns = begin + takes_ns;
    lock_release(&client->shared.lock);
    return client_sleep(client, (begin - now + 999999) / 1000000);
}

struct endpoint client_endpoint(struct client *client)
{
    lock_acquire(&client->shared.lock);
    struct endpoint endpoint = client->shared.endpoint;
    lock_release(&client->shared.lock);
    return endpoint;
}

void client_set_endpoint(struct client *client, const struct endpoint *endpoint)
{
    lock_acquire(&client->shared.lock);
    client->shared.endpoint = *endpoint;
    lock_release(&client->shared.lock);
}

enum sidestep_status client_check_key(const char *doing, const char *key,
                                      struct sidestep_error *err)
{
    size_t length = strlen(key);

    if (length == 0 || length >= OBJECT_KEY_BYTES)
        return FAIL(err, SIDESTEP_EINVAL, "%s: a key has 1 to %u bytes, this one has %zu", doing,
                    OBJECT_KEY_BYTES - 1, length);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)key[i] < 0x20 || key[i] == 0x7f)
            return FAIL(err, SIDESTEP_EINVAL, "%s: the key has a control character at byte %zu",
                        doing, i);
    if (!utf8_is_valid(key, length))
        return FAIL(err, SIDESTEP_EINVAL, "%s: the key is not UTF-8", doing);
    return SIDESTEP_OK;
}

void client_fill_info(const struct answer *answer, struct object_info *info)
{
    info->key[0] = '\0';
    memcpy(info->tag, answer->tag, sizeof(info->tag));
    memcpy(info->maker, answer->maker, sizeof(info->maker));
    info->bytes = answer->length;
    info->modified = answer->modified;
    info->now = answer->date;
}

uint32_t client_crc32c(const void *bytes, size_t length)
{
    uint32_t crc = 0xffffffffu;

    for (const unsigned char *at = bytes; length != 0;) {
        int piece = (int)min_u64(length, 1u << 30); /* crc32_iscsi() takes an int */
        crc = crc32_iscsi((unsigned char *)(uintptr_t)at, piece, crc);
        at += piece;
        length -= (size_t)piece;
    }
    return ~crc;
}

void client_crc32c_text(uint32_t crc, char text[CLIENT_CRC32C_CHARACTERS])
{
    const uint8_t bytes[4] = {(uint8_t)(crc >> 24), (uint8_t)(crc >> 16), (uint8_t)(crc >> 8),
                              (uint8_t)crc};

    _Static_assert(BASE64_ENCODE_RAW_LENGTH(4) == CLIENT_CRC32C_CHARACTERS - 1, "4 bytes");
    base64_encode_raw(text, sizeof(bytes), bytes);
    text[CLIENT_CRC32C_CHARACTERS - 1] = '\0';
}
