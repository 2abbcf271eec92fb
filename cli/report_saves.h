/* SPDX-License-Identifier: BSD-3-Clause */
/* report_saves.h -- what saves were and cost, summed up from the events of a series. */
#ifndef CLI_REPORT_SAVES_H
#define CLI_REPORT_SAVES_H

#include "event_log.h"

/** Times are in seconds.  Of rank 0, if nothing else is said. */
struct cli_report_saves {
    double from, to; /* of the first and the last event, of all ranks */
    uint64_t committed, failed, resumes;
    uint64_t starts;      /* of the series */
    uint64_t broken;      /* starts after one that did not close it: the job was killed */
    double call, longest; /* that training waited for committed saves: together, and at most */
    double background;    /* together */
    double bytes;         /* together */
    double slowest;       /* the longest wait of any rank, and which */
    int64_t slowest_rank;
};

void cli_report_saves_sum(const struct cli_event_log *log, struct cli_report_saves *saves);

/** cli_report_saves_interval(saves): the interval between saves that would have lost least, by
 * Young's formula; 0: the job was never killed, or nothing was saved. */
double cli_report_saves_interval(const struct cli_report_saves *saves);

#endif
