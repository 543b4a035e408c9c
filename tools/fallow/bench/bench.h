/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the harness of `fallow bench` that all shapes share: options, the table of functions that a loop calls, the bed
 * (device, streams, pool), the random steps of a loop, and the report.
 * Does not: assert a time anywhere. The bench measures; the reader judges.
 *
 * Every loop calls through struct flw_bench_policy, so `null` (an empty shared library, linked as libfallow is) and
 * `loop` (the empty adapter) cost what the loop and the calls cost. A run does exactly `--count` timed operations and
 * otherwise the same work, whatever the count: under callgrind (Ir(count 2) - Ir(count 1)) / (count 2 - count 1) is
 * the number of instructions per operation.
 */
#ifndef FLW_TOOL_BENCH_H
#define FLW_TOOL_BENCH_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "bench/null.h"
#include "common/machine.h"
#include "common/tool_host.h"
#include "driver/driver.h"
#include "fallow/simcuda.h"
#include "fallow/trace.h"

#define FLW_BENCH_MESSAGE_BYTES 320

enum flw_bench_sizes {
    FLW_BENCH_SIZE_ONE,   /* size_bytes */
    FLW_BENCH_SIZE_SMALL, /* 512 B to 32 KiB */
    FLW_BENCH_SIZE_MIXED, /* 512 B to 64 MiB, 19 sizes */
    FLW_BENCH_SIZE_LOG    /* log-uniform, 512 B to 64 MiB */
};

/* The values of an option of a sweep. */
#define FLW_BENCH_LIST_MAX 16
struct flw_bench_list {
    uint64_t values[FLW_BENCH_LIST_MAX];
    size_t count;
};

struct flw_bench_options {
    const char *shape;
    const struct flw_bench_policy *policy;
    enum flw_bench_sizes sizes;
    size_t size_bytes; /* FLW_BENCH_SIZE_ONE */
    const char *size_name;
    uint64_t count; /* timed operations, all batches together */
    uint64_t warm_count;
    uint64_t live_count;
    size_t stream_count; /* of a list the most */
    size_t thread_count;
    uint64_t seed;
    bool is_sweep; /* streams: each of the lists' combinations */
    struct flw_bench_list stream_list, size_list, beside_list;
    uint64_t lag_pairs;    /* of a sweep: work on a block is done so many pairs later; 0: none */
    const char *part;      /* holes: the request that is timed, "hole" or "larger"; else both */
    bool is_random_switch; /* streams: a random stream per pair, else round-robin */
    bool is_sized;         /* fallow_free_sized */
    bool has_percentiles;
    bool is_json;
    bool is_lockstep;            /* handoff: the two threads by turns */
    const char *record;          /* a trace file, or "ring": the flight recorder. NULL: none */
    int device;                  /* ordinal, or -1: simulated */
    const flw_sim_config *world; /* of the simulated device; NULL: one without work */
    const char *only;            /* kernels: a module. NULL: all */
};

/* ---- policy */

struct flw_bench;

struct flw_bench_policy {
    const char *name;
    bool needs_device;
#define X(name, library, parameters, arguments) fallow_status(*name) parameters;
    FLW_BENCH_CALLS(X)
#undef X
    bool has_pool; /* a pool of libfallow; else the bench is the pool */
};

/* Return the policy "fallow", "null" or "loop", or NULL for any other name. */
const struct flw_bench_policy *flw_bench_policy_find(const char *name);

/* ---- bench: the bed and the report of a run */

#define FLW_BENCH_COLUMNS 12

struct flw_bench_column {
    const char *key, *head;
    double unit;      /* a table has values in this */
    bool is_optional; /* JSON omits unknown values, instead of null */
};

/* For a table X(name, key, head, unit, is_optional): an enumerator, and the column. */
#define FLW_BENCH_NAME(name, ...)   name,
#define FLW_BENCH_COLUMN(name, ...) {__VA_ARGS__},

/* A row of a sweep, or a case of a kernel; a value that is not finite is unknown. */
struct flw_bench_row {
    double values[FLW_BENCH_COLUMNS];
    const void *module, *of; /* of a case */
    char name[64];           /* of a case */
    bool is_failed;
    char note[FLW_BENCH_MESSAGE_BYTES]; /* of a case: goal and sizes, or the failure */
};

struct flw_json_writer;

struct flw_bench {
    const struct flw_bench_options *options;
    char message[FLW_BENCH_MESSAGE_BYTES]; /* one line with the reason of a failure, or "" */

    struct flw_driver *driver; /* NULL: the policy needs none */
    struct flw_driver opened;  /* the target of `driver` */
    CUdevice device;
    CUcontext context; /* current in the thread that opened the bed */
    bool is_simulated; /* true also for a simulated driver under the real driver's name */
    bool is_absent;    /* there is no such device, or no kernels for the device */
    char device_name[128];
    fallow_stream *streams;
    size_t stream_count;
    void *pool;
    fallow_recorder *recorder;      /* NULL: nothing is recorded */
    struct fallow_kernels *kernels; /* of the shape `kernels` */
    uint64_t reported_count;        /* violations that the rule checker had found before */

    struct {
        char key[40];
        double value;
    } * values;
    size_t value_count, value_capacity;
    const struct flw_bench_column *columns; /* of rows */
    size_t column_count;
    struct flw_bench_row *rows; /* flw_host_free; NULL: none */
    size_t row_count, row_capacity;
    char note[160]; /* of all rows */
    /* Of cases: writes the name and sizes. NULL: rows of a sweep. */
    void (*print_case)(const struct flw_bench_row *row, struct flw_json_writer *out);
    uint64_t failure_count;
};

/* Open the bed of the bench's options. Returns false, with the message and is_absent set, if that fails: nothing stays
 * open. */
bool flw_bench_open(struct flw_bench *bench);
void flw_bench_close(struct flw_bench *bench);

/* Replace the pool by a new one. The caller waits for work of the old one. Returns false, with the message, if that
 * fails. */
bool flw_bench_renew_pool(struct flw_bench *bench);

/* Return the pool's statistics, with UINT64_MAX in all members if the policy has no pool. */
fallow_stats flw_bench_usage(const struct flw_bench *bench);

/* End the recording. Returns false if the file is incomplete. The message is set then, and if events were lost. */
bool flw_bench_stop_recording(struct flw_bench *bench);

/* Look up a function of the driver's library; NULL if the library has none of that name. */
void flw_bench_find(const struct flw_bench *bench, const char *name, void *out_function);

/* Set the message. Returns false. */
bool flw_bench_fail(struct flw_bench *bench, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Return true if the call succeeded; else set the message. */
bool flw_bench_check(struct flw_bench *bench, CUresult result, const char *call);
#define FLW_BENCH_CALL(bench, call, ...)                                                \
    flw_bench_check(bench,                                                              \
                    (bench)->driver->call == NULL ? CUDA_ERROR_NOT_FOUND                \
                                                  : (bench)->driver->call(__VA_ARGS__), \
                    #call)

/* Add a figure, or a row. */
void flw_bench_add(struct flw_bench *bench, const char *key, double value);
struct flw_bench_row *flw_bench_add_row(struct flw_bench *bench);
void flw_bench_print(const struct flw_bench *bench);

/* ---- loops */

/* One operation of a replacing loop, drawn before the clock runs. */
struct flw_bench_step {
    uint64_t size_bytes;
    uint32_t slot;
    uint32_t stream;
};

/* Draw a size of the options' distribution. */
uint64_t flw_bench_size_draw(const struct flw_bench_options *options, uint64_t *state);

struct flw_bench_range {
    uint64_t begin, end; /* operations */
};

/* Everything that a loop uses. */
struct flw_bench_loop {
    const struct flw_bench_policy *policy;
    void *pool;
    fallow_stream stream;
    const fallow_stream *streams;
    fallow_stream user; /* deferred: uses on this stream are announced */
    struct flw_bench_step
        *steps; /* mask + 1, a power of two, followed round as long as a loop lasts */
    uint64_t mask;
    void **slots;
    size_t size_bytes;
    flw_sim_touch_function touch; /* worked: the device's work and clock */
    flw_sim_advance_function advance;
};

/* Prepare a loop on the bed's pool and streams: empty slots, and random steps through the slots. `options` may differ
 * from the bench's. */
struct flw_bench_loop flw_bench_loop_open(const struct flw_bench *bench,
                                          const struct flw_bench_options *options,
                                          uint64_t slot_count, uint64_t seed);
void flw_bench_loop_close(struct flw_bench_loop *loop);

/* Each returns the number of failed calls. */
typedef uint64_t flw_bench_run(const struct flw_bench_loop *loop, struct flw_bench_range range);
flw_bench_run flw_bench_run_pair, flw_bench_run_pair_drawn, flw_bench_run_pair_sized,
    flw_bench_run_replace, flw_bench_run_streams, flw_bench_run_worked, flw_bench_run_deferred;

/* flw_bench_run_deferred polls after so many operations. */
#define FLW_BENCH_POLL_EVERY 64

/* Free the blocks in slots[0..count). Returns the number of failed calls. */
uint64_t flw_bench_drain(const struct flw_bench_loop *loop, uint64_t count);

/* Time `count` operations in a few batches, add the number of failed calls to the bench's. Returns the
 * median of nanoseconds per operation; sets *out_least, unless NULL. */
double flw_bench_time(struct flw_bench *bench, const struct flw_bench_loop *loop,
                      flw_bench_run *run, uint64_t count, uint64_t (*clock_ns)(void),
                      double *out_least);

/* Run the warm operations, time the others, and add <prefix>ns_per_op and <prefix>ns_per_op_min. Returns the first. */
double flw_bench_measure(struct flw_bench *bench, const struct flw_bench_loop *loop,
                         flw_bench_run *run, uint64_t warm_count, uint64_t count,
                         const char *prefix);

/* ---- shapes */

/* Measure and fill the report. Returns false, with the message, if the set-up failed. */
typedef bool flw_bench_shape(struct flw_bench *bench);
flw_bench_shape flw_bench_pair, flw_bench_replace, flw_bench_holes, flw_bench_deferred,
    flw_bench_streams, flw_bench_threads, flw_bench_handoff, flw_bench_lease, flw_bench_pinned,
    flw_bench_kernels;

/* The command line of `kernels`, and a simulated device with memory contents and checked accesses. */
extern const struct flw_options flw_bench_kernel_command;
extern const flw_sim_config flw_bench_kernel_world;

int flw_command_bench(int argc, char **argv);

#endif
