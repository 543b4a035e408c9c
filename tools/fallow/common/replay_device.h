/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the device that a replay runs on, simulated or a GPU: its driver table, one stream per
 * stream of the trace, the work put on them, and on the simulated device a fresh world per policy,
 * its clock and its ledger. Does not: decide what is allocated. One device at a time: a simulated
 * world is the process's.
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

/* What a world is made with. */
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
    /* What flw_device_order did: the program's own calls, never the policy's. */
    uint64_t order_call_ns; /* what one costs by the latency profile */
    _Atomic uint64_t order_count, order_wait_units;
    flw_sim_ledger first; /* when setting up was done */
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

/* What the device itself knows at the end of a policy's run; simulated device only. */
struct flw_device_account {
    uint64_t peak_reserved_bytes;
    uint64_t reserved_bytes;
    uint64_t given_bytes, returned_bytes; /* in all */
    uint64_t driver_call_count;           /* without queries (fallow_stats.question_count) */
    uint64_t
        frame_call_count; /* of these, what only frames others: contexts, capture modes, questions
                                  for captures */
    uint64_t modelled_ns;
    uint64_t event_count;
    uint64_t query_count;       /* of events and streams */
    uint64_t stream_wait_count; /* streams that were told to wait for another ... */
    uint64_t stream_wait_units; /* ... and how much later their work is done for it */
    uint64_t host_wait_count; /* calls in which the host stopped until work was done, whatever their
                                   name: a free of cuMemAlloc's memory is one too */
    uint64_t host_wait_units;
    uint64_t sync_call_count; /* of events, streams and contexts, also where all was done */
    uint64_t violation_count;
};

/* False: message is one line (FLW_DRIVER_MESSAGE_BYTES). */
bool flw_device_open(struct flw_device *device, int ordinal, char *message);
void flw_device_close(struct flw_device *device);

/* A fresh world (simulated) or streams (GPU). The context is current in the calling thread. */
bool flw_device_begin(struct flw_device *device, const struct flw_device_world *world,
                      char *message);
void flw_device_end(struct flw_device *device);

/* The host's waits count from here on: a policy that tries the device out as it is made waits for that,
 * and not for a request. */
void flw_device_start_waits(struct flw_device *device);

/* Make the context current in another thread. */
bool flw_device_enter(const struct flw_device *device);

/* One operation in the stream's queue that writes or reads the block: all of it (simulated), a
 * small part (GPU, always a write). */
bool flw_device_put_work(const struct flw_device *device, uint16_t stream, uint64_t address,
                         uint64_t size_bytes, bool is_write);

/* What a program does before it uses a block on another stream: `after` waits for all that `before`
 * has been given. One thread a stream `after`. */
bool flw_device_order(struct flw_device *device, uint16_t before, uint16_t after);

/* What a cuMemAlloc of `bytes` takes of the simulated device, and a block of its stream-ordered
 * pool; 0 on a GPU, whose driver does not say. */
uint64_t flw_device_allocation_bytes(const struct flw_device *device, uint64_t bytes);
uint64_t flw_device_pool_block_bytes(const struct flw_device *device, uint64_t bytes);

/* Wait until nothing is pending. */
bool flw_device_finish_work(const struct flw_device *device);

/* What was called since the account is the program's own asking, and no policy's. */
void flw_device_leave_out(struct flw_device *device, const struct flw_device_account *since);

void flw_device_get_account(const struct flw_device *device, struct flw_device_account *out);

/* Room for one line: "cuMemAlloc_v2 failed with CUDA_ERROR_...: advice". */
void flw_device_say(const struct flw_device *device, const char *call, CUresult result,
                    char *message);

#endif
