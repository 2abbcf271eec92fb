/* SPDX-License-Identifier: BSD-3-Clause */
/* interval.h -- the best interval between saves, by their cost and by how often the job fails. */
#ifndef CLI_INTERVAL_H
#define CLI_INTERVAL_H

struct cli_interval {
    double seconds;       /* of training between two saves */
    double saving;        /* fraction of all time that saves cost */
    double lost;          /* fraction that failures cost: repeated work and loads */
    double lost_per_fail; /* seconds, on average */
};

/**
 * cli_interval(stall, background, load, mtbf): all in seconds.  Uses Daly's estimate of the best
 * interval (J. Daly, A higher order estimate of the optimum checkpoint interval, 2006), whose first
 * term is Young's sqrt(2 * cost * mtbf).  The cost is ${stall}: a save stops training so long.  The
 * interval is at least ${background}, because a save begins when the one before has ended.  A
 * failure also loses the save that is in the background.
 */
struct cli_interval cli_interval(double stall, double background, double load, double mtbf);

#endif
