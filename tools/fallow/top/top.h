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

/* ---- text */

enum flw_top_style {
    FLW_TOP_PLAIN,
    FLW_TOP_TITLE,
    FLW_TOP_HEADING,
    FLW_TOP_ALARM
};

#define FLW_TOP_LINE_BYTES 512

/* Where lines of text are written, each cut to the width. */
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

/* "number", "reserved", "live", "cached", "hits". */
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
    size_t process_count;               /* 0: all that show pools */
    enum flw_top_sort sort;
    uint64_t interval_ns;
};

/* Looks at several processes at about one moment. */
struct flw_top_looks {
    struct flw_top_look *looks;
    size_t count;
    uint32_t other_count; /* processes of other users */
    char
        note[FLW_TOP_MESSAGE_BYTES]; /* why a process that was not named is left out; "": none is */
};

/* Look at the processes of the settings. A process that has ended is left out. False: the message (of
 * FLW_TOP_MESSAGE_BYTES) is one line that says why, and *out_ended whether all that were named have ended. */
bool flw_top_looks_take(struct flw_top_looks *all, const struct flw_top_settings *settings,
                        char *message, bool *out_ended);
void flw_top_looks_drop(struct flw_top_looks *all);
/* The look at a process; NULL: none was taken. */
const struct flw_top_look *flw_top_looks_find(const struct flw_top_looks *all, pid_t process);

/* Show the processes in the whole terminal until q, an interrupt, or the end of all that were named. Returns an
 * exit status, or -1 if the terminal cannot be controlled (or this build lacks ncurses): nothing was written. */
int flw_top_watch_screen(const struct flw_top_settings *settings);

#endif
