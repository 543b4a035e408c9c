/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the statistics of a process under the preload library, and their two forms: a line and a
 * JSON object. Under `fallow run` the process posts them to the page (runpage.h) 25 times a
 * second, so that statistics exist however the process ends.
 * Does not: count on the hot paths; pools, tracer and hooks do that. */
#ifndef FLW_PRELOAD_SUMMARY_H
#define FLW_PRELOAD_SUMMARY_H

#include "fallow/fallow.h"
#include "preload/bypass.h"
#include "preload/poison.h"
#include "preload/settings.h"
#include "preload/tracer.h"

/* Further pools are in the sums but not listed. */
#define FLW_SUMMARY_POOLS      16
#define FLW_SUMMARY_NAME_BYTES 256

/* Fields of a pool, by name and field of fallow_stats: sums over pools (SUM), and peaks over pools
 * that lived at the same time (PEAK). */
/* clang-format off */
#define FLW_SUMMARY_FIELDS(SUM, PEAK) \
    SUM(allocs, alloc_count) SUM(frees, free_count) SUM(hits, hit_count) SUM(live_blocks, live_count) \
    SUM(requested_bytes, requested_bytes) SUM(live_bytes, live_bytes) SUM(reserved_bytes, reserved_bytes) \
    PEAK(peak_requested_bytes, peak_requested_bytes) PEAK(peak_live_bytes, peak_live_bytes) \
    PEAK(peak_reserved_bytes, peak_reserved_bytes) SUM(driver_calls, driver_call_count) \
    SUM(events, event_count) SUM(waits, wait_count) SUM(grows, grow_count) SUM(trims, trim_count) \
    SUM(failed, oom_count) SUM(refused_frees, misuse_count) SUM(bound_bytes, bound_bytes)
/* clang-format on */
#define FLW_SUMMARY_NOT(name, field) /* of the other kind */

enum flw_summary_end {
    FLW_SUMMARY_EXITED,  /* exit, or the end of main */
    FLW_SUMMARY_LEFT,    /* _exit */
    FLW_SUMMARY_KILLED,  /* or replaced by exec; activity since the last post is missing */
    FLW_SUMMARY_RUNS_ON, /* still running after the command of `fallow run` ended */
    FLW_SUMMARY_END_COUNT
};

/* No pointers: another process reads it. */
struct flw_summary {
    enum flw_mode mode;
    enum flw_summary_end end;
    int process;
    char program[FLW_SUMMARY_NAME_BYTES];
    uint64_t dlsym_count, proc_address_count, linked_count; /* how the hooks were reached */
    uint32_t pool_count;
    fallow_stats pools[FLW_SUMMARY_POOLS];
    fallow_stats sum; /* of all pools; peaks: the largest sum over pools that lived at the same
                          time */
    bool is_trace;
    struct flw_tracer_counts trace; /* of mode trace */
    struct flw_poison_counts poison;
    uint64_t bypasses[FLW_BYPASS_COUNT];
    uint64_t foreign_frees, double_frees, retries, retries_served, contexts_ended;
};

/* Before a process ends by _exit: wait, for a tenth of a second at most, until the last counts are
 * posted. Safe in a signal handler. */
void flw_summary_post_last(void);

/* Write the summary to the place in the setting `stats`: to standard error for "-", otherwise to a
 * file. The file's name includes the process id unless `ours`. Failures are logged in one line. */
void flw_summary_write(const struct flw_summary *summary, const char *place, bool ours);

/* Print one line, without a newline. */
void flw_summary_print_line(const struct flw_summary *summary, char *out, size_t room);

/* False: it could not be written whole; errno has the reason. */
bool flw_summary_print_json(const struct flw_summary *summary, int fd);

#endif
