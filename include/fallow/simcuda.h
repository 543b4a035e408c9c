/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Controls of libfallow-simcuda.so, the simulated CUDA driver.
 *
 * The library exports the CUDA driver's own entry points (see src/driver/entry_points.h) and the
 * functions below. Everything is reached by dlopen and dlsym; nothing links it. A world starts with
 * the defaults of flw_sim_config at the first call; flw_sim_reset makes a new one.
 *
 * The environment's FALLOW_SIMCUDA names profiles of drivers that programs meet, to be played by every
 * world: a list of names with commas between them, as flw_sim_play takes it. With a name that is not
 * known a line on stderr says which are, and cuInit answers CUDA_ERROR_INVALID_VALUE. A program with a
 * privilege takes nothing from there.
 *
 * Everything on it is simulated: no figure taken on it is a GPU's.
 */
#ifndef FALLOW_SIMCUDA_H
#define FALLOW_SIMCUDA_H

#include <stddef.h>
#include <stdint.h>

#include "fallow/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/** When does given work complete? */
typedef enum flw_sim_schedule {
    FLW_SIM_RANDOM =
        0, /**< a seeded scheduler lets operations complete in any order that CUDA allows */
    FLW_SIM_CLOCK = 1, /**< an operation completes lag_ns of virtual time after it was given, in
                          stream order. flw_sim_advance moves the clock, and so does a host that asks for
                          one event or stream on and on (from the 33rd time in a row, with no other
                          call, no work and no advance in between). O(1) an operation */
    FLW_SIM_HELD = 2   /**< only flw_sim_step and synchronising calls complete anything */
} flw_sim_schedule;

/** Single rules of the hostile default that can be switched off, for bisecting only. */
enum {
    FLW_SIM_MILD_HANDLE_REUSE = 1u << 0,  /**< do not hand destroyed handles out again at once */
    FLW_SIM_MILD_ADDRESS_REUSE = 1u << 1, /**< nor released addresses */
    FLW_SIM_MILD_QUEUE_DEPTH = 1u << 2,   /**< no blocking after 1,024 operations */
    FLW_SIM_MILD_GARBAGE = 1u << 3,       /**< new memory is zero, not garbage */
    FLW_SIM_MILD_OVERLAP = 1u << 4,       /**< programmatic serialisation does not overlap */
    FLW_SIM_MILD_STICKY = 1u << 5         /**< device errors do not stick */
};

/** What driver calls are assumed to cost (flw_sim_ledger.modelled_host_ns). */
typedef enum flw_sim_profile {
    FLW_SIM_TYPICAL = 0,
    FLW_SIM_FAST = 1,
    FLW_SIM_DEAR = 2
} flw_sim_profile;

/** A world. Zero is the default for every field but struct_size. */
typedef struct flw_sim_config {
    size_t struct_size;        /**< set by flw_sim_config_init */
    uint64_t device_bytes;     /**< 0 = 80 GiB */
    int device_count;          /**< 0 = 1 */
    int driver_version;        /**< 0 = 13000 */
    uint64_t seed;             /**< of all that is drawn */
    flw_sim_schedule schedule; /**< when work is done */
    flw_sim_profile profile;   /**< what calls cost */
    uint64_t lag_ns;           /**< FLW_SIM_CLOCK */
    uint8_t
        backed; /**< 1: memory has contents (a memfd for each exported handle); 0: addresses only */
    uint8_t check;          /**< 1: the rule checker watches every access */
    uint8_t without_vmm;    /**< 1: the device lacks virtual memory management */
    uint8_t without_pools;  /**< 1: the device lacks stream-ordered pools */
    uint8_t without_ids;    /**< 1: cuCtxGetId and cuStreamGetId are absent (NOT_SUPPORTED) */
    uint8_t without_fabric; /**< 1: no fabric handles */
    uint8_t
        lonely_device; /**< 1: the last of several devices reaches no other, and none reaches it */
    uint8_t
        without_rdma; /**< 1: no network adapter may reach the device's memory, and no file stands
                             for it (dma-buf) */
    uint32_t mild;    /**< FLW_SIM_MILD_ bits */
    uint32_t queue_depth; /**< 0 = 1,024 */
    uint8_t
        wants_context; /**< 1: what gives, takes or asks about memory or work answers INVALID_CONTEXT
                             where none is current, also where cuda.h asks for none */
    uint64_t reserve_most_bytes; /**< largest range that cuMemAddressReserve gives; 0 = any */
    uint64_t reserve_all_bytes;  /**< the most that all ranges may be together; 0 = no limit */
    int reserve_error; /**< CUresult of a refused reservation; 0 = CUDA_ERROR_OUT_OF_MEMORY */
} flw_sim_config;

/** flw_sim_range.flags: the operation was launched with programmatic serialisation and touches the
 * range before its dependency wait, so it may overlap with the operation before it on its own
 * stream. */
enum {
    FLW_SIM_RANGE_EARLY = 1u << 0
};

/** A range that an operation reads or writes. */
typedef struct flw_sim_range {
    uint64_t address;  /**< of the first byte */
    uint64_t bytes;    /**< 0: nothing is touched */
    uint32_t is_write; /**< 1: written, 0: read */
    uint32_t flags;    /**< FLW_SIM_RANGE_ bits */
} flw_sim_range;

/** The ledger: every byte that the device has given, whatever the caller believes. */
typedef struct flw_sim_ledger {
    size_t struct_size;              /**< set by flw_sim_ledger_init */
    uint64_t given_bytes;            /**< cuMemAlloc, cuMemCreate, driver pools */
    uint64_t peak_given_bytes;       /**< the most that given_bytes was */
    uint64_t pinned_bytes;           /**< cuMemHostAlloc and what is registered */
    uint64_t reserved_address_bytes; /**< cuMemAddressReserve */
    uint64_t allocation_count;       /**< alive, as all counts to graph_count */
    uint64_t handle_count;           /**< cuMemCreate */
    uint64_t mapping_count;          /**< cuMemMap */
    uint64_t stream_count;           /**< that were created */
    uint64_t event_count;            /**< cuEventCreate */
    uint64_t context_count;          /**< primary ones too */
    uint64_t graph_count;            /**< and graphs made executable */
    uint64_t call_count;             /**< all driver calls since the reset */
    uint64_t modelled_host_ns;       /**< what they would have cost, by the latency profile */
    uint64_t clock_ns;               /**< the virtual clock */
    uint64_t stream_wait_ns;    /**< FLW_SIM_CLOCK: time that cuStreamWaitEvent added to streams */
    uint64_t violation_count;   /**< found by the rule checker */
    uint64_t total_given_bytes; /**< ever given; less given_bytes: what came back */
    uint64_t
        host_wait_count;   /**< FLW_SIM_CLOCK: calls in which the host stopped until work was done,
                                     and runs of questions that did; what was done already stops none */
    uint64_t host_wait_ns; /**< FLW_SIM_CLOCK: how long it did */
} flw_sim_ledger;

/** Where a stretch of given memory comes from. */
typedef enum flw_sim_extent_kind {
    FLW_SIM_EXTENT_ALLOCATION = 0, /**< one cuMemAlloc */
    FLW_SIM_EXTENT_MAPPED = 1,     /**< mappings of one reservation that lie side by side, as one */
    FLW_SIM_EXTENT_POOLED = 2      /**< a chunk of a driver pool */
} flw_sim_extent_kind;

/** A stretch of addresses with memory behind it. */
typedef struct flw_sim_extent {
    uint64_t address; /**< of the first byte */
    uint64_t bytes;   /**< what the ledger counts; mapped twice, it is listed twice */
    uint32_t kind;    /**< flw_sim_extent_kind */
    uint32_t reserved;
} flw_sim_extent;

/* Types of the functions, for dlsym. Thread safe unless said otherwise. */

/** A new world; NULL = defaults. Every handle of the old one is dead. No call may be under way. */
typedef void (*flw_sim_reset_function)(const flw_sim_config *config); /* flw_sim_reset */
/** Play the drivers of these profiles in the worlds that begin from now on, in place of those played so
 * far; NULL or "": none. The list has commas between its names; what a name stands for is in
 * src/simcuda/README.md.
 *
 *   refusing[:CALL[\@N][=ERROR]]  CALL answers ERROR (NOT_PERMITTED) from its N-th call (1) of a world on;
 *                                without CALL the calls that reserve, create, map and give access do
 *   no-fabric[\@N]                handles for fabric are not permitted, from the N-th on
 *   vgpu                         neither virtual memory management nor managed memory, IPC, RDMA
 *   old                          12.0: later entry points, attributes and handles are not there
 *   slow                         creating and unmapping take 3 ms of the virtual clock and of
 *                                modelled_host_ns, and wait for the device's work
 *   host-pageable                devices read all that the process has mapped
 *   contents                     memory keeps written data, and begins as zeros, in worlds that no program
 *                                configured: for programs that take this driver for a real driver
 *
 * Returns 1; or 0, and nothing is changed: then `message` (NULL: not wanted) is a sentence of at
 * most `bytes`, its end included. What dlsym finds under `old` changes at once. */
typedef int (*flw_sim_play_function)(const char *names, char *message,
                                     size_t bytes); /* flw_sim_play */
/** The names as given that the present world plays; "": none. Valid until the next one begins. */
typedef const char *(*flw_sim_played_function)(void); /* flw_sim_played */
/** Move the virtual clock (FLW_SIM_CLOCK). */
typedef void (*flw_sim_advance_function)(uint64_t ns); /* flw_sim_advance */
/** Let the scheduler complete up to n operations; returns how many there were. */
typedef uint64_t (*flw_sim_step_function)(uint64_t n); /* flw_sim_step */
/** Give an operation that touches ranges to a stream: the cheap stand-in for a kernel. CUresult. */
typedef int (*flw_sim_touch_function)(struct CUstream_st *stream, const flw_sim_range *ranges,
                                      size_t count); /* flw_sim_touch */
/** The ledger of a device. */
typedef void (*flw_sim_ledger_function)(int device, flw_sim_ledger *out); /* flw_sim_get_ledger */
/** The device's memory by address: the first `capacity` stretches; returns how many there are.
 * Handles without a mapping are in the ledger only. */
typedef size_t (*flw_sim_extents_function)(int device, flw_sim_extent *out,
                                           size_t capacity); /* flw_sim_get_extents */
/** The n-th call (1 = next) of an entry point fails with `error` (a CUresult), once; sticky 1: and
 * every call of the context after it, which is broken; 2: and every later call that is meant, until
 * it is cleared: a driver that refuses. entry NULL: the n-th call of any. n 0 clears all. 0 if
 * unknown name. */
typedef int (*flw_sim_fail_function)(const char *entry, uint64_t n, int error,
                                     int sticky); /* flw_sim_fail */
/** How often an entry point was called since the reset; NULL: all of them. */
typedef uint64_t (*flw_sim_calls_function)(const char *entry); /* flw_sim_call_count */
/** The i-th violation's sentence, or NULL. It names operations, streams, ranges and the broken
 * rule. */
typedef const char *(*flw_sim_violation_function)(uint64_t i); /* flw_sim_violation */
/** Name a range for reports ("region 'lse' of arena 'decode'"); NULL removes. */
typedef void (*flw_sim_name_function)(uint64_t address, uint64_t bytes,
                                      const char *name); /* flw_sim_name */
/** Forget that [address, +bytes) was written: what a load of it finds is a violation (checked
 * mode). */
typedef void (*flw_sim_forget_function)(uint64_t address, uint64_t bytes); /* flw_sim_forget */

/** Forbid [address, +bytes): a load, store, copy or memset of any byte of it is a violation until
 * it is forgotten (flw_sim_forget). For red zones; checked, backed worlds only. */
typedef void (*flw_sim_forbid_function)(uint64_t address, uint64_t bytes); /* flw_sim_forbid */

/** One launch, for its twin. */
typedef struct flw_sim_launch flw_sim_launch;
/** The C twin of a kernel. It touches device memory only through load and store. */
typedef void (*flw_sim_twin)(flw_sim_launch *launch, void **parameters);
/** Registrations survive flw_sim_reset. The name is copied. */
typedef void (*flw_sim_register_function)(const char *kernel_name,
                                          flw_sim_twin twin); /* flw_sim_register */
/** Say what the kernel's parameters are, in bytes each, so that launches copy them and run later,
 * in stream order. Without it a launch waits for its stream and runs inside the call, and cannot be
 *  captured. 0: no such kernel. */
typedef int (*flw_sim_parameters_function)(const char *kernel_name, size_t count,
                                           const size_t *bytes); /* flw_sim_parameters */
/** grid x, y, z, block x, y, z, shared bytes of the launch. */
typedef void (*flw_sim_dimensions_function)(const flw_sim_launch *launch,
                                            unsigned out[7]); /* flw_sim_dimensions */
/** Read device memory inside a twin. `argument` names the kernel's argument in reports. */
typedef void (*flw_sim_load_function)(flw_sim_launch *launch, const char *argument, void *to,
                                      uint64_t from, size_t bytes); /* flw_sim_load */
/** Write it. */
typedef void (*flw_sim_store_function)(flw_sim_launch *launch, const char *argument, uint64_t to,
                                       const void *from, size_t bytes); /* flw_sim_store */

#ifdef __cplusplus
}
#endif

#endif
