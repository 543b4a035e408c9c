/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the parts of `fallow top` share: a look at one process, and its forms.
 */
#ifndef FLW_TOOL_TOP_H
#define FLW_TOOL_TOP_H

#include <stdbool.h>
#include <stdio.h>

#include "publish/board.h"
#include "publish/bulletin.h"

#define FLW_TOP_MESSAGE_BYTES 768
#define FLW_TOP_LABEL_BYTES   24

/* One process at one moment: the bulletins of all copies of the library in it, side by side. */
struct flw_top_look {
    pid_t process;
    char name[16];       /* printable */
    uint64_t clock_ns;   /* of the first bulletin */
    uint64_t pool_total; /* pools there are */
    uint32_t pool_count; /* pools told of */
    struct flw_bulletin bulletins[FLW_BOARD_COPIES];
    bool has_bulletin[FLW_BOARD_COPIES];
};

/* Look at a process. False: the message is one line that says why there is nothing to see; *out_ended,
 * where not NULL: because it is gone. Nothing is held. */
bool flw_top_take(struct flw_top_look *look, const char *directory, pid_t process,
                  char message[FLW_TOP_MESSAGE_BYTES], bool *out_ended);
void flw_top_drop(struct flw_top_look *look);

/* Pool `index` of pool_count, and how it is called: its number, after "copy." where it is not the
 * first copy's. */
const struct flw_bulletin_pool *flw_top_pool(const struct flw_top_look *look, uint32_t index,
                                             char label[FLW_TOP_LABEL_BYTES]);
/* The pool of that name in an earlier look; NULL: it was not there. */
const struct flw_bulletin_pool *flw_top_find(const struct flw_top_look *look, const char *label);

/* "stream", "gone", "shared", "rest". */
const char *flw_top_kind(uint64_t kind);

/* Whose the live memory of a pool is, the most first, where it is recorded with call stacks. */
#define FLW_TOP_OWNER_BYTES 96
#define FLW_TOP_OWNERS      (FLW_BULLETIN_HOLDERS + 2)

struct flw_top_owner {
    char name
        [FLW_TOP_OWNER_BYTES]; /* printable: "step (train.py:12)", an operator, what has no name */
    uint64_t bytes, count;     /* as asked; blocks */
};

/* Each frame's kind as the report has it (common/frame.h). What the board has no room for, and what has no call stack,
 * are owners too, at the end. Returns how many; 0: no call stacks are on record. */
uint32_t flw_top_list_owners(const struct flw_bulletin_pool *pool,
                             struct flw_top_owner owners[FLW_TOP_OWNERS]);

/* Every process that shows pools to this user: by number. False: the directory cannot be read. */
struct flw_top_list {
    pid_t *processes;
    size_t count, capacity;
    uint32_t other_count; /* boards of other users */
};
bool flw_top_list_take(struct flw_top_list *list, const char *directory);
void flw_top_list_drop(struct flw_top_list *list);

/* ---- forms */

/* One JSON object, no line end. */
void flw_top_print_json(const struct flw_top_look *look, FILE *out);

/* Prometheus text exposition format 0.0.4, all processes together: a metric's samples follow each
 * other. */
void flw_top_print_prometheus(const struct flw_top_look *looks, size_t count, FILE *out);

/* A page of text, as wide and as high as there is room. */
enum flw_top_style {
    FLW_TOP_PLAIN,
    FLW_TOP_TITLE,
    FLW_TOP_HEADING,
    FLW_TOP_ALARM
};

#define FLW_TOP_LINE_BYTES 512
#define FLW_TOP_LINES      256

struct flw_top_page {
    uint32_t width, height; /* height 0: no limit but FLW_TOP_LINES */
    uint32_t line_count;
    uint32_t most_skip; /* rows of its tables that may be scrolled past */
    char lines[FLW_TOP_LINES][FLW_TOP_LINE_BYTES];
    enum flw_top_style styles[FLW_TOP_LINES];
};

/* The order of processes, pools, streams and classes: the most first; by number as they come. */
enum flw_top_sort {
    FLW_TOP_BY_NUMBER,
    FLW_TOP_BY_RESERVED,
    FLW_TOP_BY_LIVE,
    FLW_TOP_BY_CACHED,
    FLW_TOP_BY_HITS,
    FLW_TOP_SORTS
};

/* "number", "reserved", "live", "cached", "hits". */
const char *flw_top_sort_name(enum flw_top_sort sort);

struct flw_top_history;

/* How a screen is looked at. */
struct flw_top_view {
    enum flw_top_sort sort;
    uint32_t pool;   /* index of the one shown in full */
    uint32_t skip;   /* rows of the tables that are scrolled past */
    uint32_t chosen; /* index of a process in the list */
    bool is_ascii;
    bool shows_owners; /* in the place of streams and classes */
    const struct flw_top_history *history;
    uint64_t second;  /* now, as the history counts */
    const char *note; /* one line to be told in the list; NULL: none */
};

/* Indices in the order of the view. */
void flw_top_order_pools(const struct flw_top_look *look, enum flw_top_sort sort, uint32_t *order);
void flw_top_order_looks(const struct flw_top_look *looks, uint32_t count, enum flw_top_sort sort,
                         uint32_t *order);

/* Each begins the page anew. `before` (or NULL): an earlier look, for what happened since.
 *
 * The screens: what fits of the process, one pool in full; processes, a line each; the keys. For paper: the
 * process and its pools a line each, and each pool in full. */
void flw_top_fill_screen(struct flw_top_page *page, const struct flw_top_look *look,
                         const struct flw_top_look *before, const struct flw_top_view *view);
void flw_top_fill_processes(struct flw_top_page *page, const struct flw_top_look *looks,
                            uint32_t count, const struct flw_top_view *view);
void flw_top_fill_help(struct flw_top_page *page);
void flw_top_fill_overview(struct flw_top_page *page, const struct flw_top_look *look);
void flw_top_fill_pool(struct flw_top_page *page, const struct flw_top_look *look,
                       const struct flw_top_look *before, uint32_t pool);
/* One line a process: number, name, pools, what they hold. */
void flw_top_fill_list_heading(struct flw_top_page *page);
void flw_top_fill_list_line(struct flw_top_page *page, const struct flw_top_look *look);

/* ---- the terminal (screen.c) */

struct flw_top_watch {
    const char *directory;
    const pid_t *processes;
    size_t process_count; /* 0: all that show pools */
    enum flw_top_sort sort;
    uint64_t interval_ns;
};

/* Until q, an interrupt, or the end of all the processes that were named. Exit status. */
int flw_top_watch_screen(const struct flw_top_watch *watch);

#endif
