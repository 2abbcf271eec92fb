/* SPDX-License-Identifier: BSD-3-Clause */
/* interval.h -- how often to save, by what a save costs and how often something fails. */
#ifndef CLI_INTERVAL_H
#define CLI_INTERVAL_H

struct cli_interval {
    double seconds;       /* of training between two saves */
    double saving;        /* part of all time that goes into saves */
    double lost;          /* part that failures cost: repeated work and loads */
    double lost_per_fail; /* seconds, on average */
};

/**
 * cli_interval(stall, background, load, mtbf): all in seconds.  Daly's estimate of the best
 * interval (J. Daly, A higher order estimate of the optimum checkpoint interval, 2006), whose first
 * term is Young's sqrt(2 * cost * mtbf), for the time that a save takes from training, ${stall};
 * but no less than ${background}, since a save begins when the one before has ended.  What is in
 * the background when something fails is lost with it.
 */
struct cli_interval cli_interval(double stall, double background, double load, double mtbf);

#endif
