/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the analysis: all figures of a report of one trace, measured and ready to be printed or drawn. Only
 * flw_analysis_collect fills an analysis (collect.h); text, JSON, CSV and page are printed from the analysis.
 * Does not: format numbers, or use files.
 *
 * An *op* is one step of the replayed program (a number below op_count), including the allocation of blocks that were
 * live at the start. Columns divide the ops into at most FLW_ANALYSIS_COLUMNS stretches, the same for every policy, so
 * pictures of different policies line up.
 *
 * INVARIANTS (flw_analysis_is_valid recomputes them)
 *   1. columns.first_op ascends from 0 to op_count; if has_times, columns.time_ns never falls.
 *   2. In every column low <= high; of the known series requested.high <= block.high <= reserved.high.
 *   3. The maximum over requested and over reserved is the peak in the result, and belongs to the column of its op.
 *   4. Rectangles name blocks that exist, begin before they end, and are sorted by block.
 *      Lanes ascend by address and do not overlap.
 *   5. In every frame segments and blocks ascend by address, segments do not overlap and add up to at most
 *      reserved_bytes; the largest hole is at most reserved minus requested bytes.
 *   6. The categories of a kind add up to the program's peak at the peak; the bands of a kind add up to no more in any
 *      column.
 *   7. In each hole column, the sizes add up to at most the peak reserved bytes, and the largest hole belongs to the
 *      highest bin that is not empty.
 *   8. At each moment, the owners and the rest add up to all bytes and blocks. Of the survivors, the stretches add up
 *      to all too, and an owner's stretches to the owner.
 */
#ifndef FLW_TOOL_REPORT_ANALYSIS_H
#define FLW_TOOL_REPORT_ANALYSIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "policies/plan.h"
#include "policies/run.h"

#define FLW_ANALYSIS_COLUMNS      2000
#define FLW_ANALYSIS_HOLE_COLUMNS 256
#define FLW_ANALYSIS_RECTANGLES   20000
#define FLW_ANALYSIS_LANES        1024
#define FLW_ANALYSIS_LANE_COLUMNS 333
#define FLW_ANALYSIS_CATEGORIES   13 /* the largest twelve, and the rest */
#define FLW_ANALYSIS_BANDS        16 /* of a chart over time; the last is the rest */
#define FLW_ANALYSIS_SIZE_BINS    48 /* bin i: sizes in (2^(i-1), 2^i] bytes */
#define FLW_ANALYSIS_LIFE_BINS    32 /* bin i: lifetimes in [2^i, 2^(i+1)) ops */
#define FLW_ANALYSIS_LATENCIES    256
#define FLW_ANALYSIS_MARKS        1000 /* the first */
#define FLW_ANALYSIS_OWNERS       200  /* of a moment: the largest ones */
#define FLW_ANALYSIS_STRETCHES    10   /* parts of the recording */
#define FLW_ANALYSIS_NAME_BYTES   64
#define FLW_UNKNOWN               UINT64_MAX

struct flw_analysis_range { /* within one column */
    uint64_t low, high;
};

struct flw_analysis_columns {
    size_t count;
    uint64_t *first_op; /* count + 1 */
    uint64_t *time_ns;  /* count + 1, at first_op; NULL: no times */
};

/* A range of addresses that the policy has from the driver. The ranges may add up to less than the reserved bytes: a
 * handle without a mapping has no address. */
struct flw_analysis_segment {
    uint64_t address, bytes;
    uint16_t stream; /* UINT16_MAX: any stream */
    bool is_mapped;  /* a mapped part of a range of the recorded allocator */
};

struct flw_analysis_block {
    uint64_t address, requested_bytes, block_bytes;
    uint32_t block; /* number in the trace */
    uint16_t stream;
    bool is_pending; /* freed, not yet reusable */
};

/* The heap at one moment, after that moment's op. A hole is a part of a segment without live blocks. */
struct flw_analysis_frame {
    char name
        [FLW_ANALYSIS_NAME_BYTES]; /* "peak reserved", "peak live", "out of memory", "first failure", "end" */
    uint64_t op, time_ns;
    /* block_bytes: FLW_UNKNOWN if the policy does not report rounding. */
    uint64_t requested_bytes, block_bytes, reserved_bytes, largest_hole_bytes, hole_count;
    uint64_t hole_bytes; /* all holes together */
    struct flw_analysis_segment
        *segments; /* by address; at most FLW_ANALYSIS_RECTANGLES, the first */
    size_t segment_count, left_out_segment_count;
    struct flw_analysis_block
        *blocks; /* by address; at most FLW_ANALYSIS_RECTANGLES, the largest */
    size_t block_count, left_out_count;
};

/* A block's life in address space (pictures of address over time). */
struct flw_analysis_rectangle {
    uint64_t address, bytes;
    uint64_t begin_op, end_op; /* end_op = op_count: never freed */
    uint32_t block;
    uint16_t stream;
};

/* Blocks without a rectangle of their own in a range of addresses: how much of the range these blocks take in each part
 * of the ops, in bytes times ops. */
struct flw_analysis_lane {
    uint64_t begin, end; /* range of their addresses */
    double *byte_ops;    /* FLW_ANALYSIS_LANE_COLUMNS, of op_count / so many */
};

/* The holes at one moment. */
struct flw_analysis_holes {
    uint64_t bytes[FLW_ANALYSIS_SIZE_BINS]; /* by size of the hole */
    uint64_t total_bytes, largest_bytes, count;
    double square_sum;
    uint64_t largest_request; /* of a hole column: in that column */
};

/* Counted driver calls, which allocate, free or order memory (direct, by handles, from the stream-ordered pool): key,
 * entry point. */
#define FLW_ANALYSIS_CALLS(X)           \
    X("alloc", "cuMemAlloc_v2")         \
    X("free", "cuMemFree_v2")           \
    X("create", "cuMemCreate")          \
    X("map", "cuMemMap")                \
    X("unmap", "cuMemUnmap")            \
    X("release", "cuMemRelease")        \
    X("alloc_async", "cuMemAllocAsync") \
    X("free_async", "cuMemFreeAsync")   \
    X("event_query", "cuEventQuery")
#define FLW_ANALYSIS_CALL_COUNT 9

struct flw_analysis_policy {
    const struct flw_run_result *result;
    char label[FLW_ANALYSIS_NAME_BYTES]; /* label in tables */
    bool has_series;
    struct flw_analysis_range *requested, *block,
        *reserved; /* columns.count; NULL unknown (block: no rounding reported) */
    /* The peaks of the series: the first op that reaches each. For reserved: of the ops at the peak, the first with the
     * highest need. `at_peak`: after the op of the reserved peak. Each peak is FLW_UNKNOWN if the series is unknown. */
    uint64_t end_reserved_bytes, reserved_at_peak_requested_bytes, block_at_peak_bytes;
    uint64_t requested_at_peak_bytes, peak_block_bytes;
    uint64_t peak_reserved_op, peak_requested_op;
    bool has_calls; /* counted by a device */
    uint64_t calls[FLW_ANALYSIS_CALL_COUNT];
    double
        mean_ratio; /* reserved over requested, each summed over the clock from the first event; 0 unknown */
    double fragmentation;         /* at peak reserved: 1 - largest hole / free; 0 nothing free */
    double pytorch_fragmentation; /* at peak reserved: sum(hole^2) / reserved^2 */
    /* FLW_UNKNOWN: no failure; for holes also: no addresses. */
    uint64_t first_failure_op, first_failure_bytes, first_failure_largest_hole_bytes;
    uint64_t first_failure_hole_bytes; /* all holes together */
    uint32_t latency_count;            /* quantiles of one operation, ascending; 0: not timed */
    float latency_ns[FLW_ANALYSIS_LATENCIES];

    /* Hole column h covers the ops up to (h + 1) * op_count / hole_column_count, measured after the last of these
     * ops. */
    size_t hole_column_count; /* at most FLW_ANALYSIS_HOLE_COLUMNS; 0: no addresses */
    struct flw_analysis_holes *holes;

    struct flw_analysis_frame *frames; /* in the order of the names above */
    size_t frame_count;
    struct flw_analysis_rectangle
        *rectangles; /* at most FLW_ANALYSIS_RECTANGLES: largest size * lifetime */
    size_t rectangle_count, left_out_count; /* left_out_count: blocks in lanes */
    struct flw_analysis_lane *lanes;        /* by address; at most FLW_ANALYSIS_LANES */
    size_t lane_count;
};

struct flw_analysis_spread { /* quantiles of some blocks */
    uint64_t count, p50, p90, p99, max;
};

/* Live requested bytes by kind of owner: the twelve largest at the peak, and "other". */
struct flw_analysis_category {
    char name[FLW_ANALYSIS_NAME_BYTES];
    uint64_t requested_bytes;                   /* of all the owner's blocks, in the whole trace */
    struct flw_analysis_spread sizes, life_ops; /* lives: of the blocks that were freed */
    uint64_t at_peak_bytes, at_peak_count;
};

/* Live requested bytes over time of an owner that is large at some time, or of "other". */
struct flw_analysis_band {
    char name[FLW_ANALYSIS_NAME_BYTES];
    uint64_t most_bytes; /* most held at any time; of "other": by the largest owner in it */
    uint64_t
        *held_bytes; /* columns.count: at the moment of the column with the largest sum of bands */
};

enum flw_analysis_kind {
    FLW_ANALYSIS_BY_OWNER, /* by code (owner.h); no categories if the trace has no stacks */
    FLW_ANALYSIS_BY_STREAM,
    FLW_ANALYSIS_BY_SIZE,
    FLW_ANALYSIS_BY_TAG,  /* no categories if the trace has no tags */
    FLW_ANALYSIS_BY_POOL, /* no categories if the trace has no private pools */
    FLW_ANALYSIS_KIND_COUNT
};

struct flw_analysis_mark { /* a phase of the recording */
    char name[FLW_ANALYSIS_NAME_BYTES];
    uint64_t begin_op, end_op; /* equal: a moment */
};

struct flw_analysis_owner {
    char name[FLW_ANALYSIS_NAME_BYTES];
    uint64_t bytes, count; /* of the owner's blocks, as requested */
};

struct flw_analysis_left { /* of one owner, by the stretch of the requests */
    uint64_t bytes[FLW_ANALYSIS_STRETCHES], counts[FLW_ANALYSIS_STRETCHES];
};

/* The owners of the live blocks at one moment. */
struct flw_analysis_holding {
    uint64_t bytes, count;             /* of all, as requested */
    struct flw_analysis_owner *owners; /* the largest first; at most FLW_ANALYSIS_OWNERS */
    struct flw_analysis_left *left;    /* by owner; of the survivors only, else NULL */
    size_t owner_count;
    uint64_t rest_bytes, rest_count; /* of the owners beyond FLW_ANALYSIS_OWNERS */
};

enum flw_analysis_moment {
    FLW_ANALYSIS_AT_PEAK, /* of requested bytes */
    FLW_ANALYSIS_AT_OOM,  /* the recording's first; empty if none */
    FLW_ANALYSIS_AT_END,
    FLW_ANALYSIS_SURVIVORS, /* at the end, without the blocks of the start */
    FLW_ANALYSIS_MOMENT_COUNT
};

/* A part of the recording: some steps if any are marked, else a tenth of the operations. */
struct flw_analysis_stretch {
    char name[FLW_ANALYSIS_NAME_BYTES]; /* "step 3", "steps 5 to 8", "after step 8", "tenth 1" */
    uint64_t end_op;
    uint64_t left_bytes, left_count; /* requested in this part and live at the end */
};

/* The outcome of the failed request in a replay of another policy. */
enum flw_analysis_outcome {
    FLW_ANALYSIS_SERVED,
    FLW_ANALYSIS_REFUSED,
    FLW_ANALYSIS_REFUSED_BEFORE, /* an earlier request of the program failed, so this one proves nothing */
    FLW_ANALYSIS_NOT_ASKED /* the available memory is unknown, or the policy could not run */
};

struct flw_analysis_answer {
    char name[FLW_POLICY_NAME_BYTES], label[FLW_POLICY_NAME_BYTES]; /* the policy's */
    enum flw_analysis_outcome outcome;
    uint64_t smallest_limit_bytes; /* that serves the whole program; FLW_UNKNOWN */
};

#define FLW_ANALYSIS_OOM_SETTINGS 3 /* of PyTorch's allocator, replayed beside the policies */
#define FLW_ANALYSIS_ANSWERS      (FLW_PLAN_POLICIES + FLW_ANALYSIS_OOM_SETTINGS)

/* The recording's first out-of-memory, of `count`. The policies' own runs do not contain the failed request; oom.c
 * replays the program up to that request with each policy. */
struct flw_analysis_oom {
    uint64_t count;       /* 0: none; the other members are unset */
    uint64_t event;       /* number of the failed event, from 1 */
    uint64_t op;          /* ops before the event */
    uint64_t asked_bytes; /* by the failed request */
    uint64_t live_bytes;  /* requested and not freed */
    uint64_t free_bytes;  /* free on the device; FLW_UNKNOWN */
    uint64_t
        idle_bytes; /* reserved, without blocks in use, pending blocks and rounding; FLW_UNKNOWN */
    uint64_t pending_bytes, pending_count; /* freed but not yet reusable: used on other streams */
    uint64_t largest_hole_bytes;           /* of idle_bytes; FLW_UNKNOWN */
    char owner[FLW_ANALYSIS_NAME_BYTES];   /* of the failed request (owner.h); "" if unknown */
    /* The memory of the policies: reserved plus free on the device, or the limit of the command line; FLW_UNKNOWN. */
    uint64_t limit_bytes;
    bool is_limit_given, is_searched; /* the latter: smallest limits were looked for */
    struct flw_analysis_answer answers[FLW_ANALYSIS_ANSWERS];
    size_t answer_count;
};

#define FLW_ANALYSIS_DEVICES 16

/* A device of the recording other than the analysis's. */
struct flw_analysis_device {
    int device;
    uint64_t event_count, peak_requested_bytes;
    uint64_t peak_reserved_bytes;           /* FLW_UNKNOWN */
    uint64_t oom_event;                     /* first failure, from 1; 0: none */
    uint64_t asked_bytes;                   /* by the failed request */
    char text[3 * FLW_ANALYSIS_NAME_BYTES]; /* the line of the report */
};

struct flw_analysis_devices {
    struct flw_analysis_device list[FLW_ANALYSIS_DEVICES];
    size_t count;
};

#define FLW_ANALYSIS_ADVICE_BYTES  512
#define FLW_ANALYSIS_SETTING_BYTES 256

/* Advice from the replays. */
struct flw_analysis_advice {
    char text[FLW_ANALYSIS_ADVICE_BYTES];     /* one sentence */
    char setting[FLW_ANALYSIS_SETTING_BYTES]; /* text to type; "": none */
    uint64_t saved_bytes; /* of the reserved or available bytes; FLW_UNKNOWN if nothing is saved */
};

struct flw_owners;

struct flw_analysis {
    struct flw_trace *trace; /* owned, like the program */
    struct flw_program *program;
    char title[FLW_ANALYSIS_NAME_BYTES]; /* the file's name without the folder */
    char of_devices
        [2 *
         FLW_ANALYSIS_NAME_BYTES]; /* "device 1 of 0 1 2; ..."; "" if the recording has one device */
    struct flw_analysis_devices others;
    bool is_other; /* the analysis of a device that is not shown */
    /* The recording has no history: the analysis shows the heap at one moment, `recorded` is the only policy, and there
     * are no comparisons. */
    bool is_state;
    bool is_overwritten; /* the oldest events are not in the recording */
    /* The part of the recorded peak that was reserved before the recording began and that nothing in the recording
     * used. A replayed policy cannot hold that part, so comparisons exclude that part. */
    uint64_t unused_bytes;
    uint64_t pending_bytes, pending_count; /* at the end: freed, not yet reusable */
    bool is_share_unknown; /* the unused part is unknown: segments have no addresses */
    uint64_t lag_units, limit_bytes;
    bool is_by_time; /* the lag's unit is ns; else ops */
    uint64_t op_count;
    uint64_t packed_bytes;       /* packing.h; FLW_UNKNOWN: too many blocks */
    uint64_t without_wait_bytes; /* flw_bound_without_wait */
    uint64_t initial_op_count;   /* of these, allocations of the initial blocks */
    uint64_t peak_op;            /* op of the requested peak when nothing fails */
    bool has_times;

    struct flw_life *lives; /* by block */
    uint32_t *selected;     /* blocks to draw as rectangles, in ascending order */
    size_t selected_count, unselected_count;
    struct flw_analysis_columns columns;
    struct flw_analysis_policy *policies;
    size_t policy_count;
    struct flw_run_result *results; /* the policies' results point to these */

    struct flw_analysis_category categories[FLW_ANALYSIS_KIND_COUNT][FLW_ANALYSIS_CATEGORIES];
    size_t category_count[FLW_ANALYSIS_KIND_COUNT];
    struct flw_analysis_band bands[FLW_ANALYSIS_KIND_COUNT][FLW_ANALYSIS_BANDS];
    size_t band_count[FLW_ANALYSIS_KIND_COUNT];

    uint64_t size_count[FLW_ANALYSIS_SIZE_BINS],
        size_bytes[FLW_ANALYSIS_SIZE_BINS]; /* as requested */
    uint64_t life_count[FLW_ANALYSIS_LIFE_BINS];
    uint32_t size_life[FLW_ANALYSIS_SIZE_BINS][FLW_ANALYSIS_LIFE_BINS]; /* blocks */
    uint64_t temporary_count; /* blocks freed by the very next op */
    uint64_t distinct_size_count;

    struct flw_analysis_oom oom;
    char *owner_rule;          /* as a sentence (owner.h) */
    bool has_code;             /* owners are code; else sizes */
    struct flw_owners *owners; /* the owner of each record's memory (owner.h); NULL: freed */
    struct flw_analysis_holding holdings[FLW_ANALYSIS_MOMENT_COUNT];
    struct flw_analysis_stretch
        stretches[FLW_ANALYSIS_STRETCHES]; /* in order; the last ends at op_count */
    size_t stretch_count;
    struct flw_analysis_mark *marks;
    size_t mark_count;
    /* The policies that the verdict compares: the present one and the best one (verdict.c); NULL. */
    const struct flw_analysis_policy *reference, *best;
    char headline
        [512]; /* figures of the recording: the peak or the failed request, and the largest owners */
    char verdict[256]; /* one sentence that compares both policies */
    struct flw_analysis_advice advice;
    char pools_note[FLW_PLAN_NOTE_BYTES]; /* flw_plan_say_pools */
};

struct flw_owner_rule;

/* Arguments of flw_analysis_collect (collect.c). */
struct flw_analysis_setup {
    const struct flw_run_setup
        *run; /* simulated device, the analysis's trace and program, lag, limit */
    const struct flw_policy *const *policies;
    size_t policy_count; /* 0: no replay, and no use of the device */
    const struct flw_owner_rule *rule;
    bool is_by_time;         /* the program's clock is in ns */
    bool are_policies_named; /* by the user: try no others */
    /* Called now and then with the share done, 0 to 1. May be NULL. */
    void (*on_progress)(void *context, double share);
    void *context;
};

/* Fill an analysis, of which only trace and program are set. Runs every policy twice: once for times and the ops of the peaks, once to measure. The same setup
 * without times gives the same analysis. Returns false if that fails: message (FLW_RUN_MESSAGE_BYTES) is one line. Memory: bounded by the constants above, plus 50 bytes per block during the run. */
bool flw_analysis_collect(const struct flw_analysis_setup *setup, struct flw_analysis *analysis,
                          char *message);

void flw_analysis_finish(struct flw_analysis *analysis);

/* Free the parts that only pictures and rows of blocks need: series, rectangles, lanes, holes, the contents of frames,
 * owners, and the arrays of trace and program. Numbers and counts stay, for JSON and tables. */
void flw_analysis_shrink(struct flw_analysis *analysis);

/* Free these parts of one policy, and the frames. */
void flw_analysis_drop(struct flw_analysis_policy *policy);

bool flw_analysis_is_valid(const struct flw_analysis *analysis);

/* Return the column of an op. */
static inline size_t flw_analysis_column(const struct flw_analysis_columns *columns, uint64_t op)
{
    size_t low = 0;
    size_t high = columns->count; /* first_op[low] <= op < first_op[high] */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (columns->first_op[middle] <= op) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Return one past the last op of hole column `h` of `count`. */
uint64_t flw_analysis_hole_end(const struct flw_analysis *analysis, size_t count, size_t h);

/* Add up the live blocks at a moment. keys[block] is the index in bytes and counts. */
void flw_analysis_tally(const struct flw_analysis *analysis, enum flw_analysis_moment moment,
                        const uint32_t *keys, uint64_t *bytes, uint64_t *counts);

/* Return the frame of that name, or NULL. */
static inline const struct flw_analysis_frame *
flw_analysis_frame(const struct flw_analysis_policy *policy, const char *name)
{
    for (size_t i = 0; i < policy->frame_count; i++) {
        if (strcmp(policy->frames[i].name, name) == 0) {
            return &policy->frames[i];
        }
    }
    return NULL;
}

/* Return the peak of a policy for comparisons. Requires a peak other than FLW_UNKNOWN. */
static inline uint64_t flw_analysis_held(const struct flw_analysis *analysis,
                                         const struct flw_analysis_policy *policy)
{
    uint64_t bytes = policy->result->statistics.peak_reserved_bytes;
    bool is_recorded = strcmp(policy->result->policy->name, "recorded") == 0;
    return is_recorded ? bytes - analysis->unused_bytes : bytes;
}

/* Return the policy of that name, or NULL. */
static inline const struct flw_analysis_policy *
flw_analysis_find(const struct flw_analysis *analysis, const char *name)
{
    for (size_t i = 0; i < analysis->policy_count; i++) {
        if (strcmp(analysis->policies[i].result->policy->name, name) == 0) {
            return &analysis->policies[i];
        }
    }
    return NULL;
}

/* Return the analysis's counterpart of policy number `place` of another analysis, or NULL. It usually has the same number. */
static inline const struct flw_analysis_policy *
flw_analysis_match(const struct flw_analysis *analysis, const struct flw_analysis *other,
                   size_t place)
{
    const char *name = other->policies[place].result->policy->name;
    bool is_there = place < analysis->policy_count &&
                    strcmp(analysis->policies[place].result->policy->name, name) == 0;
    return is_there ? &analysis->policies[place] : flw_analysis_find(analysis, name);
}

/* Return the analysis with the most policies; tables use its list. */
static inline const struct flw_analysis *flw_analysis_widest(const struct flw_analysis *analyses,
                                                             size_t count)
{
    const struct flw_analysis *widest = &analyses[0];
    for (size_t i = 1; i < count; i++) {
        widest = analyses[i].policy_count > widest->policy_count ? &analyses[i] : widest;
    }
    return widest;
}

/* Return reserved over requested at their peaks; 0 if unknown. */
static inline double flw_analysis_ratio(const struct flw_analysis_policy *policy)
{
    const struct flw_run_result *result = policy->result;
    bool is_known = result->statistics.peak_reserved_bytes != FLW_NOT_APPLICABLE &&
                    result->peak_requested_bytes != FLW_NOT_APPLICABLE &&
                    result->peak_requested_bytes != 0;
    return is_known ? (double)result->statistics.peak_reserved_bytes /
                          (double)result->peak_requested_bytes
                    : 0;
}

/* Return whole - part, or FLW_UNKNOWN if either is. */
static inline uint64_t flw_analysis_subtract(uint64_t whole, uint64_t part)
{
    return whole == FLW_UNKNOWN || part == FLW_UNKNOWN ? FLW_UNKNOWN : whole - part;
}

#endif
