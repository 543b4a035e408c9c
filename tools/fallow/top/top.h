/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shared part of `fallow top`: a look at one process, and its output formats.
 */
#ifndef FLW_TOOL_TOP_H
#define FLW_TOOL_TOP_H

#include <stdbool.h>
#include <stdio.h>

#include "publish/board.h"
#include "publish/bulletin.h"

#define FLW_TOP_MESSAGE_BYTES 768
#define FLW_TOP_LABEL_BYTES   24

/* One process at one moment: the bulletins of all copies of the library in it. */
struct flw_top_look {
    pid_t process;
    char name[16];       /* printable */
    uint64_t clock_ns;   /* of the first bulletin */
    uint64_t pool_total; /* all pools */
    uint32_t pool_count; /* pools in the bulletins */
    struct flw_bulletin bulletins[FLW_BOARD_COPIES];
    bool has_bulletin[FLW_BOARD_COPIES];
};

/* Look at a process. Returns false if there is nothing to show: nothing is held, and the message is one line with the
 * reason; *out_ended (may be NULL) is true if the process has ended. */
bool flw_top_take(struct flw_top_look *look, const char *directory, pid_t process,
                  char message[FLW_TOP_MESSAGE_BYTES], bool *out_ended);
void flw_top_drop(struct flw_top_look *look);

/* Return pool `index` of pool_count, and its label: its number, after "copy." for copies other than the first. */
const struct flw_bulletin_pool *flw_top_pool(const struct flw_top_look *look, uint32_t index,
                                             char label[FLW_TOP_LABEL_BYTES]);
/* Return the pool with that label in an earlier look, or NULL. */
const struct flw_bulletin_pool *flw_top_find(const struct flw_top_look *look, const char *label);

/* Return the name of a kind: "stream", "gone", "shared", "rest". */
const char *flw_top_kind(uint64_t kind);

/* The owners of a pool's live memory, largest first, if the pool is recorded with call stacks. */
#define FLW_TOP_OWNER_BYTES 96
#define FLW_TOP_OWNERS      (FLW_BULLETIN_HOLDERS + 2)

struct flw_top_owner {
    char name
        [FLW_TOP_OWNER_BYTES]; /* printable: "step (train.py:12)", an operator, or a name for the rest */
    uint64_t bytes, count; /* requested bytes; blocks */
};

/* List the owners; frames are classified as in the report (common/frame.h). At the end are the memory for which the
 * board had no room, and the memory without call stacks. Returns their number; 0: no call stacks are recorded. */
uint32_t flw_top_list_owners(const struct flw_bulletin_pool *pool,
                             struct flw_top_owner owners[FLW_TOP_OWNERS]);

/* All processes that show pools to this user, ordered by number. */
struct flw_top_list {
    pid_t *processes;
    size_t count, capacity;
    uint32_t other_count; /* boards of other users */
};
bool flw_top_list_take(struct flw_top_list *list, const char *directory);
void flw_top_list_drop(struct flw_top_list *list);

/* ---- forms */

/* Print one JSON object without an end of line. */
void flw_top_print_json(const struct flw_top_look *look, FILE *out);

/* Print all processes in the Prometheus text exposition format 0.0.4: the samples of a metric are consecutive. */
void flw_top_print_prometheus(const struct flw_top_look *looks, size_t count, FILE *out);

/* ---- text */

enum flw_top_style {
    FLW_TOP_PLAIN,
    FLW_TOP_TITLE,
    FLW_TOP_HEADING,
    FLW_TOP_ALARM
};

#define FLW_TOP_LINE_BYTES 512

/* Receives lines of text, each cut to the width. */
struct flw_top_page {
    uint32_t width; /* columns */
    void (*put)(struct flw_top_page *page, enum flw_top_style style, const char *line);
};

/* The order of processes, pools, streams and classes: the largest first, or by number. */
enum flw_top_sort {
    FLW_TOP_BY_NUMBER,
    FLW_TOP_BY_RESERVED,
    FLW_TOP_BY_LIVE,
    FLW_TOP_BY_CACHED,
    FLW_TOP_BY_HITS,
    FLW_TOP_SORTS
};

/* Return "number", "reserved", "live", "cached" or "hits". */
const char *flw_top_sort_name(enum flw_top_sort sort);

/* Write one process and each of its pools in full. `before` (or NULL): an earlier look, for rates. */
void flw_top_write_process(struct flw_top_page *page, const struct flw_top_look *look,
                           const struct flw_top_look *before, enum flw_top_sort sort);
/* Write a line for each process, in the order of `order`. */
void flw_top_write_list(struct flw_top_page *page, const struct flw_top_look *looks,
                        const uint32_t *order, uint32_t count);
/* Fill `order` with the indices of the looks. */
void flw_top_order_looks(const struct flw_top_look *looks, uint32_t count, enum flw_top_sort sort,
                         uint32_t *order);

/* ---- watching */

#define FLW_TOP_PROCESSES 256

struct flw_top_settings {
    const char *directory;
    pid_t processes[FLW_TOP_PROCESSES]; /* named on the command line */
    size_t process_count;               /* 0: all processes that show pools */
    enum flw_top_sort sort;
    uint64_t interval_ns;
};

/* Looks at several processes, taken at about one moment. */
struct flw_top_looks {
    struct flw_top_look *looks;
    size_t count;
    uint32_t other_count; /* processes of other users */
    char note
        [FLW_TOP_MESSAGE_BYTES]; /* reason for leaving out a process that was not named; "": none */
};

/* Look at the processes of the settings. A process that has ended is left out. Returns false if none is left: the
 * message (of FLW_TOP_MESSAGE_BYTES) is one line with the reason, and *out_ended is true if all named processes have
 * ended. */
bool flw_top_looks_take(struct flw_top_looks *all, const struct flw_top_settings *settings,
                        char *message, bool *out_ended);
void flw_top_looks_drop(struct flw_top_looks *all);
/* Return the look at a process, or NULL. */
const struct flw_top_look *flw_top_looks_find(const struct flw_top_looks *all, pid_t process);

/* Show the processes in the whole terminal until q, an interrupt, or the end of all that were named. Returns an
 * exit status, or -1 if the terminal cannot be controlled (or this build lacks ncurses): nothing was written. */
int flw_top_watch_screen(const struct flw_top_settings *settings);

#endif
