/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shares.c -- see shares.h.
 *
 * Bytes go to the hosts with the least, until these have as many as the next one, and so on: as
 * water fills a vessel with steps.  What a host gets goes to its ranks in the same way.
 */
#include "plan/shares.h"

#include <stdbool.h>
#include <stdlib.h>

static int compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* By the load of the host, the host, the load, and the index. */
static int compare_by_load(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    int order = compare_numbers(x->host_load, y->host_load);

    order = order != 0 ? order : compare_numbers(x->host, y->host);
    order = order != 0 ? order : compare_numbers(x->load, y->load);
    return order != 0 ? order : compare_numbers(x->index, y->index);
}

static int compare_by_bytes(const void *a, const void *b)
{
    const struct share *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return compare_numbers(x->index, y->index);
}

static int compare_by_index(const void *a, const void *b)
{
    return compare_numbers(((const struct share *)a)->index, ((const struct share *)b)->index);
}

/* The end of the shares of one host, the first of which is at ${begin}. */
static size_t end_of_host(const struct share *shares, size_t count, size_t begin)
{
    size_t end = begin + 1;

    while (end < count && shares[end].host == shares[begin].host)
        end++;
    return end;
}

/* The load to which ${bytes} fill those with the least.  Hosts, or ranks, are in order of loads. */
static double find_level(const struct share *shares, size_t count, bool of_hosts, double bytes)
{
    double loads = 0, level = 0;
    size_t filled = 0;

    for (size_t i = 0; i < count; i = of_hosts ? end_of_host(shares, count, i) : i + 1) {
        double load = (double)(of_hosts ? shares[i].host_load : shares[i].load);
        if (filled != 0 && load >= level)
            break;
        loads += load;
        level = (bytes + loads) / (double)++filled;
    }
    return level;
}

static double rise(double level, uint64_t load)
{
    return level > (double)load ? level - (double)load : 0;
}

void shares_divide(struct share *shares, size_t count, uint64_t bytes)
{
    qsort(shares, count, sizeof(*shares), compare_by_load);
    double host_level = find_level(shares, count, true, (double)bytes);
    for (size_t i = 0, end; i < count; i = end) {
        end = end_of_host(shares, count, i);
        double level =
            find_level(shares + i, end - i, false, rise(host_level, shares[i].host_load));
        for (size_t k = i; k < end; k++)
            shares[k].bytes = rise(level, shares[k].load);
    }
}

void shares_choose(struct share *shares, size_t count, size_t wanted)
{
    qsort(shares, count, sizeof(*shares), compare_by_bytes);
    qsort(shares, wanted, sizeof(*shares), compare_by_index);
}
