/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the parts of `fallow bench kernels` share: a case (a module at a size), the call that is
 * made of it, the bed it runs on.
 * Does not: know a module; bench_kernels_<group>.c have the cases, in one table each.
 *
 * A case says its sizes once, at full size. A call of it is made in one of three ways: shapes alone,
 * for the query, which needs no device; at full size with memory, on a GPU; at most as large as each
 * size's small limit with memory, on the simulated device.
 */
#ifndef FLW_TOOL_BENCH_KERNELS_H
#define FLW_TOOL_BENCH_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/device.h"
#include "fallow/fallow.h"
#include "fallow/kernels.h"

#define FLW_KERNEL_SIZES        8
#define FLW_KERNEL_PARAMS_BYTES 512
#define FLW_KERNEL_BUFFERS      64

struct flw_kernel_call;

struct flw_kernel_case {
    const char *module;
    const char *variant; /* unique in the module: a model, a mode */
    void (*make)(struct flw_kernel_call *call);
    fallow_status (*query)(const void *params, fallow_workspace_need *out_need);
    fallow_status (*launch)(fallow_kernels *kernels, const void *params, fallow_stream stream);
    int64_t sizes[FLW_KERNEL_SIZES]; /* full, in the order in which `make` takes them */
    double goal_us;    /* at most, inside a graph; 0: a copy of as many bytes is timed beside it */
    double goal_share; /* at least, of the speed of that copy; 0: none is set */
    unsigned launch_goal; /* 0: none is set; what the query says is held all the same */
};

/* The adapters `query_<operation>` and `launch_<operation>` of a module. */
#define FLW_KERNEL_ADAPT(group, operation)                                                      \
    static fallow_status query_##operation(const void *params, fallow_workspace_need *out_need) \
    {                                                                                           \
        return fallow_##group##_##operation##_query(params, out_need);                          \
    }                                                                                           \
    static fallow_status launch_##operation(fallow_kernels *kernels, const void *params,        \
                                            fallow_stream stream)                               \
    {                                                                                           \
        return fallow_##group##_##operation(kernels, params, stream);                           \
    }

/* The first five members of a row; FLW_KERNEL_MADE where the operation has several makers. */
#define FLW_KERNEL_MADE(operation, maker, variant) \
#operation, variant, maker, query_##operation, launch_##operation
#define FLW_KERNEL_ROW(operation, variant) FLW_KERNEL_MADE(operation, make_##operation, variant)

/* A table ends with a row whose module is NULL. */
extern const struct flw_kernel_case flw_kernel_cases_attention[];
extern const struct flw_kernel_case flw_kernel_cases_mla[];
extern const struct flw_kernel_case flw_kernel_cases_moe[];
extern const struct flw_kernel_case flw_kernel_cases_pages[];
extern const struct flw_kernel_case flw_kernel_cases_debug[];

/* All tables, NULL behind the last. */
extern const struct flw_kernel_case *const flw_kernel_tables[];

/* Goals of a row: of the copy's speed, for what moves large buffers; of a launch in a graph, for what
 * moves little; of the number of launches. */
#define FLW_KERNEL_COPY  .goal_share = 0.85
#define FLW_KERNEL_QUICK .goal_us = 3
#define FLW_KERNEL_ONCE  .launch_goal = 1

/* ---- a bed: device, pool, stream, loaded kernels */

struct flw_kernel_bed {
    struct flw_bench_device device;
    CUstream stream;
    fallow_pool *pool;
    fallow_kernels *kernels;
    uint64_t violations_told; /* by the rule checker, of calls before */
};

/* device -1: simulated, in a world whose memory has contents and whose every access is checked. False:
 * message says what failed; *out_is_absent says that there is no such device or no kernel for it. */
bool flw_kernel_bed_open(struct flw_kernel_bed *bed, int device, char *message,
                         bool *out_is_absent);
void flw_kernel_bed_close(struct flw_kernel_bed *bed);

/* Wait for the stream. False: message says what the device, or the rule checker since the last time,
 * found. */
bool flw_kernel_bed_settle(struct flw_kernel_bed *bed, char *message);

/* ---- a call */

enum flw_kernel_scale {
    FLW_KERNEL_SHAPES, /* full size, no memory: pointers are not NULL, and are not followed */
    FLW_KERNEL_FULL,
    FLW_KERNEL_SMALL
};

struct flw_kernel_size {
    const char *name;
    int64_t value;
};

struct flw_kernel_call {
    const struct flw_kernel_case *of;
    struct flw_kernel_bed *bed; /* NULL: FLW_KERNEL_SHAPES */
    enum flw_kernel_scale scale;
    struct flw_kernel_size sizes[FLW_KERNEL_SIZES];
    size_t size_count;
    void *buffers[FLW_KERNEL_BUFFERS];
    size_t buffer_count;
    _Alignas(16) unsigned char params[FLW_KERNEL_PARAMS_BYTES];
    bool is_broken; /* message says by what */
    char *message;  /* FLW_BENCH_MESSAGE_BYTES, the caller's */
};

bool flw_kernel_call_make(struct flw_kernel_call *call, const struct flw_kernel_case *of,
                          struct flw_kernel_bed *bed, enum flw_kernel_scale scale, char *message);
void flw_kernel_call_finish(struct flw_kernel_call *call);

/* For `make`. The case's next size, on the simulated device `most_simulated` at most. */
int64_t flw_kernel_size(struct flw_kernel_call *call, const char *name, int64_t most_simulated);
/* Zeroed, with its size in the first field. */
void *flw_kernel_params(struct flw_kernel_call *call, size_t bytes);
/* Memory as it comes, for outputs. */
void *flw_kernel_output(struct flw_kernel_call *call, int64_t bytes);
/* Memory of one word over and over: FLW_KERNEL_ONES_BF16 and the like. */
void *flw_kernel_filled(struct flw_kernel_call *call, int64_t bytes, uint32_t word);
/* count int32, each value(its index, with). */
typedef int64_t (*flw_kernel_value)(int64_t index, const int64_t *with);
int32_t *flw_kernel_integers(struct flw_kernel_call *call, int64_t count, flw_kernel_value value,
                             const int64_t *with);

#define FLW_KERNEL_ONES_BF16 0x3f803f80u
#define FLW_KERNEL_ONES_F32  0x3f800000u
#define FLW_KERNEL_ONES_E4M3 0x38383838u

int64_t flw_kernel_same(int64_t index, const int64_t *with);      /* with[0] */
int64_t flw_kernel_multiples(int64_t index, const int64_t *with); /* index * with[0] */
int64_t flw_kernel_shuffle(int64_t index,
                           const int64_t *with); /* permutes [0, with[0]), a power of 2 */
int64_t flw_kernel_scatter(int64_t index, const int64_t *with); /* random in [0, with[0]) */
/* Of each token with[1] different experts below with[0]. */
int64_t flw_kernel_choice(int64_t index, const int64_t *with);
int64_t flw_kernel_logits(int64_t index, const int64_t *with); /* two BF16, 0.5 to 2, either sign */

/* ---- time, by events around graphs of many launches */

struct flw_kernel_time {
    double us;      /* of one launch, the median of several replays */
    double copy_us; /* of a copy that moves as many bytes, half read, half written; 0: not taken */
    bool has_copy;
};

/* On the simulated device the graphs are captured and replayed and no time is taken. */
bool flw_kernel_time(struct flw_kernel_call *call, const fallow_workspace_need *need,
                     struct flw_kernel_time *out_time);

int flw_command_bench_kernels(int argc, char **argv);

#endif
