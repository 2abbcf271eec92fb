/* SPDX-License-Identifier: BSD-3-Clause */
/* interval.c -- computes the best interval between saves; see interval.h. */
#include "interval.h"

#include <math.h>

static double daly(double cost, double mtbf)
{
    double part = cost / (2 * mtbf);

    if (part >= 1)
        return mtbf;
    return sqrt(2 * cost * mtbf) * (1 + sqrt(part) / 3 + part / 9) - cost;
}

struct cli_interval cli_interval(double stall, double background, double load, double mtbf)
{
    struct cli_interval result = {.seconds = fmax(daly(stall, mtbf), background)};

    result.saving = stall / (result.seconds + stall);
    result.lost_per_fail = result.seconds / 2 + stall + background + load;
    result.lost = fmin(result.lost_per_fail / mtbf, 1);
    return result;
}
