/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the device of a replay, simulated or a GPU: the driver table, a stream for each stream of the trace, their work;
 * on the simulated device a fresh world for each policy, its clock and ledger. One device at a time, because a process
 * has one simulated world.
 * Does not: decide what is allocated.
 */
#ifndef FLW_TOOL_DEVICE_H
#define FLW_TOOL_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/driver.h"

#include "fallow/simcuda.h"

#define FLW_DEVICE_SIM (-1)

/* Settings of a world. */
struct flw_device_world {
    uint64_t device_bytes; /* simulated device only */
    uint64_t lag_units;    /* 0: no device work */
    size_t stream_count;
    bool crosses_streams; /* flw_device_order will be called */
    bool checks;          /* simulated device only: the rule checker */
};

/* Kinds of driver calls that an account has. */
enum flw_device_call_kind {
    FLW_DEVICE_RECORDS,
    FLW_DEVICE_STREAM_WAITS,
    FLW_DEVICE_FRAMES,
    FLW_DEVICE_QUESTIONS,
    FLW_DEVICE_QUERIES,
    FLW_DEVICE_SYNCS,
    FLW_DEVICE_CALL_KINDS
};

struct flw_device {
    struct flw_driver driver;
    int ordinal; /* FLW_DEVICE_SIM or a GPU's */
    bool is_sim;
    bool has_work;  /* operations are put on the streams */
    bool has_clock; /* the virtual clock is moved */
    CUcontext context;
    CUstream *streams;
    CUevent *order_events; /* a stream, where streams are crossed */
    size_t stream_count;
    /* Effects of flw_device_order, which are calls of the program, not of the policy. */
    uint64_t order_call_ns; /* cost of a call by the latency profile */
    _Atomic uint64_t order_count, order_wait_units;
    flw_sim_ledger first; /* after setting up */
    uint64_t first_calls[FLW_DEVICE_CALL_KINDS];
    uint64_t device_bytes;
    char name[96];
    flw_sim_reset_function reset;
    flw_sim_advance_function advance;
    flw_sim_touch_function touch;
    flw_sim_ledger_function get_ledger;
    flw_sim_extents_function get_extents;
    flw_sim_calls_function call_count;
    flw_sim_violation_function violation;
};

/* Counts of the simulated device at the end of a policy's run. */
struct flw_device_account {
    uint64_t peak_reserved_bytes;
    uint64_t reserved_bytes;
    uint64_t given_bytes, returned_bytes; /* in total */
    uint64_t driver_call_count;           /* without queries (fallow_stats.question_count) */
    uint64_t
        frame_call_count; /* of these, calls around others: contexts, capture modes, queries of captures */
    uint64_t modelled_ns;
    uint64_t event_count;
    uint64_t query_count;       /* of events and streams */
    uint64_t stream_wait_count; /* waits of a stream for another ... */
    uint64_t stream_wait_units; /* ... and the delay of their work */
    uint64_t
        host_wait_count; /* calls in which the host waited for work, such as a free of cuMemAlloc's memory */
    uint64_t host_wait_units;
    uint64_t sync_call_count; /* of events, streams and contexts, also without a wait */
    uint64_t violation_count;
};

/* Open a device. Returns false with a message of one line (FLW_DRIVER_MESSAGE_BYTES). */
bool flw_device_open(struct flw_device *device, int ordinal, char *message);
void flw_device_close(struct flw_device *device);

/* Begin a fresh world (simulated) or make streams (GPU). The context becomes current in the calling thread. */
bool flw_device_begin(struct flw_device *device, const struct flw_device_world *world,
                      char *message);
void flw_device_end(struct flw_device *device);

/* Count the host's waits from now on: waits of a policy that tries the device at its start are not for a request. */
void flw_device_start_waits(struct flw_device *device);

/* Make the context current in another thread. */
bool flw_device_enter(const struct flw_device *device);

/* Enqueue an operation that writes or reads the block: all of it (simulated), or a small part (GPU, always a write). */
bool flw_device_put_work(const struct flw_device *device, uint16_t stream, uint64_t address,
                         uint64_t size_bytes, bool is_write);

/* Let the stream `after` wait for all work of `before`, as a program does before it uses a block on another stream. One
 * thread at a time for each stream `after`. */
bool flw_device_order(struct flw_device *device, uint16_t before, uint16_t after);

/* Return the memory of a cuMemAlloc of `bytes` on the simulated device, and of a block of its stream-ordered pool; 0 on a
 * GPU, where they are unknown. */
uint64_t flw_device_allocation_bytes(const struct flw_device *device, uint64_t bytes);
uint64_t flw_device_pool_block_bytes(const struct flw_device *device, uint64_t bytes);

/* Wait until nothing is pending. */
bool flw_device_finish_work(const struct flw_device *device);

/* Leave out the calls since the account, which the program made and not the policy. */
void flw_device_leave_out(struct flw_device *device, const struct flw_device_account *since);

void flw_device_get_account(const struct flw_device *device, struct flw_device_account *out);

/* Write "CALL failed with CUDA_ERROR_... on NAME". */
void flw_device_say(const struct flw_device *device, const char *call, CUresult result,
                    char *message);

#endif
