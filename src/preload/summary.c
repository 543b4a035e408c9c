/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: gathering the summary at the end of the process, and where it goes: FILE, complete or not at all,
 * or a line to standard error. A file that cannot be written is one line, too.
 * Does not: say anything for a process that never reached a hook.
 */
#include "preload/summary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/pool.h"
#include "preload/homes.h"
#include "preload/life.h"
#include "preload/reach.h"
#include "preload/runplace.h"
#include "preload/say.h"
#include "preload/settings.h"

#define LINE_BYTES 900

static bool is_forked; /* its parent has the file's name */
static struct flw_summary
    summary; /* pools that have ended, then everything; guarded by homes.c, which ends one at a time */

static void add_stats(const fallow_stats *from)
{
    fallow_stats stats = *from, *sum = &summary.sum;
    if (summary.pool_count < FLW_SUMMARY_POOLS) {
        summary.pools[summary.pool_count] = stats;
    }
    summary.pool_count++;
#define ADD(name, field) sum->field += stats.field;
    FLW_SUMMARY_FIELDS(ADD, FLW_SUMMARY_NOT)
#undef ADD
}

static void add_peaks(struct flw_pool *pool, void *context)
{
    fallow_stats stats, *now = context;
    fallow_stats_init(&stats);
    flw_pool_read_stats(pool, &stats);
#define ADD(name, field) now->field += stats.field;
    FLW_SUMMARY_FIELDS(FLW_SUMMARY_NOT, ADD)
#undef ADD
}

/* A pool that is about to end counts with those beside it, and not with those that come after it. */
static void raise_peaks(void)
{
    fallow_stats now, *sum = &summary.sum;
    fallow_stats_init(&now);
    flw_pool_table_each(add_peaks, &now);
#define RAISE(name, field) sum->field = flw_max(sum->field, now.field);
    FLW_SUMMARY_FIELDS(FLW_SUMMARY_NOT, RAISE)
#undef RAISE
}

static void add_pool(struct flw_pool *pool, void *context)
{
    fallow_stats stats;
    (void)context;
    fallow_stats_init(&stats);
    flw_pool_read_stats(pool, &stats);
    add_stats(&stats);
}

/* What it had allocated went with its context. */
static void add_ended(struct flw_pool *pool)
{
    fallow_stats stats;
    raise_peaks(); /* it is among the pools still */
    fallow_stats_init(&stats);
    flw_pool_read_stats(pool, &stats);
    stats.live_count = 0;
    stats.live_bytes = 0;
    stats.reserved_bytes = 0;
    add_stats(&stats);
}

static uint64_t read_count(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void gather(void)
{
    static const char *const modes[] = {"off", "trace", "cache", "strict", "audit"};
    summary.mode = modes[flw_settings.mode];
    summary.program = program_invocation_short_name;
    summary.dlsym_count = flw_reach.dlsym_count;
    summary.proc_address_count = flw_reach.proc_address_count;
    summary.linked_count = flw_reach.export_count;
    summary.is_trace = flw_settings.mode == FLW_MODE_TRACE;
    flw_pool_table_each(add_pool, NULL);
    raise_peaks();
    flw_tracer_sum(&summary.trace);
    flw_poison_sum(&summary.poison);
    summary.foreign_frees = read_count(&flw_home_counts.foreign_frees);
    summary.double_frees = read_count(&flw_home_counts.double_frees);
    summary.retries = read_count(&flw_home_counts.retries);
    summary.retries_served = read_count(&flw_home_counts.retries_served);
    summary.contexts_ended = read_count(&flw_home_counts.contexts_ended);
}

/* ---- where it goes */

/* With the process's number in it where another process has the name. False: too long. */
static bool name_file(char *out)
{
    bool is_ours = !is_forked && flw_runpage_claim(flw_runplace_page(), FLW_RUNPAGE_STATS);
    return flw_tracer_compose_name(flw_settings.stats_file, is_ours, out);
}

/* A pipe or a device is written to as it is. */
static bool is_written_in_place(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && !S_ISREG(facts.st_mode);
}

static bool write_file(const char *path)
{
    char beside[FLW_TRACER_PATH_BYTES + 16];
    bool is_in_place = is_written_in_place(path);
    snprintf(beside, sizeof beside, "%s%s", path, is_in_place ? "" : ".new");
    int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return false;
    }
    bool is_written = flw_summary_print_json(&summary, fd);
    int error = errno;
    if (close(fd) != 0 && is_written) {
        is_written = false;
        error = errno;
    }
    if (is_written && !is_in_place && rename(beside, path) != 0) {
        is_written = false;
        error = errno;
    }
    if (!is_written && !is_in_place) {
        (void)unlink(beside);
    }
    errno = error;
    return is_written;
}

static void end(void)
{
    char path[FLW_TRACER_PATH_BYTES], line[LINE_BYTES];
    if (flw_settings.stats_file[0] == '\0' || flw_settings.mode == FLW_MODE_OFF ||
        flw_life_state() == FLW_LIFE_DEAD || !flw_reach_is_reached()) {
        return;
    }
    flw_tracer_finish(); /* so that its last errors count */
    gather();
    if (strcmp(flw_settings.stats_file, "-") == 0) {
        flw_summary_print_line(&summary, line, sizeof line);
        flw_say("%s", line);
    } else if (!name_file(path)) {
        flw_say("cannot write statistics: the file's name is too long");
    } else if (!write_file(path)) {
        flw_say("cannot write statistics to %s: %s", path, strerror(errno));
    }
}

static void note_fork(void)
{
    is_forked = true;
}

static void start(void)
{
    flw_homes_on_end = add_ended;
}

const struct flw_part flw_part_summary = {.start = start, .child = note_fork, .end = end};
