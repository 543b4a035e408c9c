/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the parts of `fallow top`: snapshots of processes, and their output formats.
 */
#ifndef FLW_TOOL_TOP_H
#define FLW_TOOL_TOP_H

#include <stdbool.h>
#include <stdio.h>

#include "publish/stats_file.h"
#include "publish/stats_page.h"

#define FLW_TOP_MESSAGE_BYTES 768
#define FLW_TOP_PROCESSES     256 /* most processes on the command line */

/* The order of processes, pools, streams and classes: the largest first, or by number. */
enum flw_top_sort {
    FLW_TOP_BY_NUMBER,
    FLW_TOP_BY_RESERVED,
    FLW_TOP_BY_LIVE,
    FLW_TOP_BY_CACHED,
    FLW_TOP_BY_HITS,
    FLW_TOP_SORTS
};

extern const char *const flw_top_sort_names[FLW_TOP_SORTS];

struct flw_top_settings {
    const char *directory;
    pid_t processes[FLW_TOP_PROCESSES]; /* named on the command line */
    size_t process_count;               /* 0: all processes that publish pools */
    enum flw_top_sort sort;
    uint64_t interval_ns;
};

/* ---- snapshot.c */

struct flw_top_pool {
    char label
        [24]; /* number of the pool, after "copy." for copies of the library other than the first */
    const struct flw_stats_page_pool *stats_page;
};

/* One process at one moment. Its texts are printable, and the names of drivers are complete. */
struct flw_top_snapshot {
    pid_t process;
    char name[16];
    uint64_t clock_ns;   /* of the first stats page */
    uint64_t pool_total; /* all pools */
    uint32_t pool_count; /* pools in the stats pages */
    struct flw_top_pool *pools;
    struct flw_stats_page
        stats_pages[FLW_STATS_FILE_COPIES]; /* without pools: the process has no such copy */
};

/* Looks at several processes, taken at about the same moment. */
struct flw_top_snapshots {
    struct flw_top_snapshot *snapshots;
    size_t count;
    uint32_t other_count;             /* boards of other users */
    char note[FLW_TOP_MESSAGE_BYTES]; /* why an unnamed process is left out; "": none is */
};

/* Look at the processes of the settings: *before becomes the former *now. A process that has ended is left out. Returns
 * false if none is left: nothing changes, the message (of FLW_TOP_MESSAGE_BYTES) is one line with the reason, and
 * *out_ended is true if all named processes have ended. */
bool flw_top_snapshots_next(struct flw_top_snapshots *now, struct flw_top_snapshots *before,
                            const struct flw_top_settings *settings, char *message,
                            bool *out_ended);
void flw_top_snapshots_drop(struct flw_top_snapshots *all);
/* Return the snapshot of a process, or NULL. */
const struct flw_top_snapshot *flw_top_snapshots_find(const struct flw_top_snapshots *all,
                                                      pid_t process);

/* An owner of a pool's live memory, if the pool is recorded with call stacks. */
#define FLW_TOP_OWNERS (FLW_STATS_PAGE_HOLDERS + 2)

struct flw_top_owner {
    char name[96];         /* "step (train.py:12)", an operator, or a name for the rest */
    uint64_t bytes, count; /* requested bytes; blocks */
};

/* List the owners, largest first; frames are classified as in the report (common/frame.h). At the end are the memory
 * for which the board had no room, and the memory without call stacks. Returns their number, 0 without call stacks. */
uint32_t flw_top_list_owners(const struct flw_stats_page_pool *pool,
                             struct flw_top_owner owners[FLW_TOP_OWNERS]);

/* ---- forms.c */

/* Print one JSON object without an end of line. */
void flw_top_print_json(const struct flw_top_snapshot *snapshot, FILE *out);

/* Print all processes in the Prometheus text exposition format 0.0.4: the samples of a metric are consecutive. */
void flw_top_print_prometheus(const struct flw_top_snapshots *all, FILE *out);

/* ---- view.c */

enum flw_top_style {
    FLW_TOP_PLAIN,
    FLW_TOP_TITLE,
    FLW_TOP_HEADING,
    FLW_TOP_ALARM
};

/* Lines of text, each cut to the width. */
struct flw_top_page {
    FILE *out;
    uint32_t width;  /* columns */
    bool has_styles; /* each line begins with the style, as a byte above ' ' */
};

void flw_top_add_line(struct flw_top_page *page, enum flw_top_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Write one process and all pools of the process in full. `before` (or NULL): an earlier snapshot, for rates. */
void flw_top_write_process(struct flw_top_page *page, const struct flw_top_snapshot *snapshot,
                           const struct flw_top_snapshot *before, enum flw_top_sort sort);
/* Write a line for each process. */
void flw_top_write_list(struct flw_top_page *page, const struct flw_top_snapshots *all,
                        enum flw_top_sort sort);
/* Return the process `step` places behind `process` in that list, or behind the first if `process` has ended. */
pid_t flw_top_choose(const struct flw_top_snapshots *all, enum flw_top_sort sort, pid_t process,
                     size_t step);

/* ---- screen.c */

/* Show the processes in the whole terminal until q, an interrupt, or the end of all that were named. Returns an
 * exit status, or -1 if the terminal cannot be controlled (or this build lacks ncurses): nothing was written. */
int flw_top_watch_screen(const struct flw_top_settings *settings);

#endif
