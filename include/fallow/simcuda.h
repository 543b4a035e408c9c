/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Controls of libfallow-simcuda.so, the simulated CUDA driver.
 *
 * The library exports the CUDA driver's entry points (see src/driver/entry_points.h) and the functions
 * below. Programs reach them by dlopen and dlsym; nothing links the library. The first call creates a
 * world with the defaults of flw_sim_config; flw_sim_reset creates a new one.
 *
 * The environment variable FALLOW_SIMCUDA lists profiles of real drivers that every world imitates, and
 * settings, separated by commas, as for flw_sim_play. For an unknown name cuInit returns
 * CUDA_ERROR_INVALID_VALUE, and a line on stderr lists the known names. A privileged program ignores the
 * variable.
 *
 * Everything on the device is simulated: no figure measured on it is a GPU's.
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

/** When submitted work completes. */
typedef enum flw_sim_schedule {
    /** A seeded scheduler completes operations in any order that CUDA permits. */
    FLW_SIM_RANDOM = 0,
    /** An operation completes lag_ns of virtual time after it was submitted, in stream order.
     *  flw_sim_advance moves the clock. So does a host that polls one event or stream: from the 33rd
     *  query in a row, without another call, new work or an advance in between. O(1) per operation. */
    FLW_SIM_CLOCK = 1,
    /** Only flw_sim_step and synchronising calls complete work. */
    FLW_SIM_HELD = 2
} flw_sim_schedule;

/** Rules of the hostile default that can be switched off one by one, for bisecting only. */
enum {
    FLW_SIM_MILD_HANDLE_REUSE = 1u << 0,  /**< do not reuse handles of destroyed objects at once */
    FLW_SIM_MILD_ADDRESS_REUSE = 1u << 1, /**< do not reuse released addresses at once */
    FLW_SIM_MILD_QUEUE_DEPTH = 1u << 2,   /**< do not block after 1,024 operations */
    FLW_SIM_MILD_GARBAGE = 1u << 3,       /**< new memory holds zeros instead of garbage */
    FLW_SIM_MILD_OVERLAP = 1u << 4, /**< launches with programmatic serialisation do not overlap */
    FLW_SIM_MILD_STICKY = 1u << 5   /**< device errors do not persist */
};

/** Assumed cost of driver calls (flw_sim_ledger.modelled_host_ns). */
typedef enum flw_sim_profile {
    FLW_SIM_TYPICAL = 0,
    FLW_SIM_FAST = 1,
    FLW_SIM_DEAR = 2
} flw_sim_profile;

/** Settings of a world. 0 selects the default of every field except struct_size. */
typedef struct flw_sim_config {
    size_t struct_size;        /**< set by flw_sim_config_init */
    uint64_t device_bytes;     /**< 0 = 80 GiB */
    int device_count;          /**< 0 = 1 */
    int driver_version;        /**< 0 = 13000 */
    uint64_t seed;             /**< of all random numbers */
    flw_sim_schedule schedule; /**< when work completes */
    flw_sim_profile profile;   /**< cost of calls */
    uint64_t lag_ns;           /**< FLW_SIM_CLOCK: duration of an operation */
    /** 1: memory has contents (with a memfd per exported handle); 0: addresses only. */
    uint8_t backed;
    uint8_t check;          /**< 1: the rule checker checks every access */
    uint8_t without_vmm;    /**< 1: no virtual memory management */
    uint8_t without_pools;  /**< 1: no stream-ordered pools */
    uint8_t without_ids;    /**< 1: cuCtxGetId and cuStreamGetId return NOT_SUPPORTED */
    uint8_t without_fabric; /**< 1: no fabric handles */
    uint8_t lonely_device;  /**< 1: the last device and the other devices are no peers */
    uint8_t without_rdma;   /**< 1: no RDMA to the device's memory, and no dma-buf descriptors */
    uint32_t mild;          /**< FLW_SIM_MILD_ bits */
    uint32_t queue_depth;   /**< 0 = 1,024 */
    /** 1: calls about memory or work return INVALID_CONTEXT if no context is current, even where
     *  cuda.h does not require one. */
    uint8_t wants_context;
    uint64_t reserve_most_bytes; /**< largest range that cuMemAddressReserve reserves; 0 = any */
    uint64_t reserve_all_bytes;  /**< most that all ranges together may have; 0 = no limit */
    int reserve_error; /**< CUresult of a refused reservation; 0 = CUDA_ERROR_OUT_OF_MEMORY */
} flw_sim_config;

/** Bits of flw_sim_range.flags. EARLY: the operation was launched with programmatic serialisation and
 *  accesses the range before its dependency wait, so it may overlap with the previous operation on its
 *  stream. */
enum {
    FLW_SIM_RANGE_EARLY = 1u << 0
};

/** A range that an operation reads or writes. */
typedef struct flw_sim_range {
    uint64_t address;  /**< of the first byte */
    uint64_t bytes;    /**< 0: no access */
    uint32_t is_write; /**< 1: a write, 0: a read */
    uint32_t flags;    /**< FLW_SIM_RANGE_ bits */
} flw_sim_range;

/** The device's own account of memory, objects and calls, independent of the caller's statistics. */
typedef struct flw_sim_ledger {
    size_t struct_size;              /**< set by flw_sim_ledger_init */
    uint64_t given_bytes;            /**< cuMemAlloc, cuMemCreate, driver pools */
    uint64_t peak_given_bytes;       /**< maximum of given_bytes */
    uint64_t pinned_bytes;           /**< cuMemHostAlloc and registered memory */
    uint64_t reserved_address_bytes; /**< cuMemAddressReserve */
    uint64_t allocation_count;  /**< existing allocations; so are all counts down to graph_count */
    uint64_t handle_count;      /**< cuMemCreate */
    uint64_t mapping_count;     /**< cuMemMap */
    uint64_t stream_count;      /**< cuStreamCreate */
    uint64_t event_count;       /**< cuEventCreate */
    uint64_t context_count;     /**< including primary contexts */
    uint64_t graph_count;       /**< including executable graphs */
    uint64_t call_count;        /**< all driver calls since the reset */
    uint64_t modelled_host_ns;  /**< their cost by the latency profile */
    uint64_t clock_ns;          /**< the virtual clock */
    uint64_t stream_wait_ns;    /**< FLW_SIM_CLOCK: time that cuStreamWaitEvent added to streams */
    uint64_t violation_count;   /**< found by the rule checker */
    uint64_t total_given_bytes; /**< sum of all allocations; minus given_bytes: released */
    /** FLW_SIM_CLOCK: calls in which the host waited for work that was not complete, and sequences of
     *  queries that waited. */
    uint64_t host_wait_count;
    uint64_t host_wait_ns; /**< FLW_SIM_CLOCK: duration of these waits */
} flw_sim_ledger;

/** Origin of an extent. */
typedef enum flw_sim_extent_kind {
    FLW_SIM_EXTENT_ALLOCATION = 0, /**< one cuMemAlloc */
    FLW_SIM_EXTENT_MAPPED = 1,     /**< adjacent mappings of one reservation, as one */
    FLW_SIM_EXTENT_POOLED = 2      /**< a chunk of a driver pool */
} flw_sim_extent_kind;

/** A range of addresses with memory. */
typedef struct flw_sim_extent {
    uint64_t address; /**< of the first byte */
    uint64_t bytes;   /**< as in the ledger; memory mapped twice is listed twice */
    uint32_t kind;    /**< flw_sim_extent_kind */
    uint32_t reserved;
} flw_sim_extent;

/* Types of the functions, for dlsym. Thread-safe unless stated otherwise. */

/** Create a new world; NULL = defaults. All handles of the old world become invalid. No call may be
 *  under way. */
typedef void (*flw_sim_reset_function)(const flw_sim_config *config); /* flw_sim_reset */
/** Imitate these drivers in all later worlds, instead of those set before; NULL or "": none. Names are
 *  separated by commas; src/simcuda/README.md describes them.
 *
 *   refusing[:CALL[\@N][=ERROR]]  CALL returns ERROR (default NOT_PERMITTED) from its N-th call (default 1)
 *                                of a world on; without CALL, the calls that reserve, create, map and
 *                                set access
 *   no-fabric[\@N]                handles for fabric are not permitted, from the N-th on
 *   vgpu                         neither virtual memory management nor managed memory, IPC, RDMA
 *   old                          12.0: without later entry points, attributes and handles
 *   slow                         create and unmap take 3 ms of the virtual clock and of modelled_host_ns, and
 *                                wait for the device's work
 *   host-pageable                devices can read all memory that the process has mapped
 *
 * In worlds that no program configured:
 *   contents, no-contents        memory keeps written data and starts with zeros, or has no contents. Default:
 *                                contents if the library was loaded as libcuda.so.1, otherwise no-contents
 *   devices=N, size=BYTES        number of devices; memory of each (K, M, G, T: powers of 1,024)
 *   check                        the rule checker checks every access and prints its report to stderr when
 *                                the process ends
 *
 * Returns 1. For an unknown name returns 0, changes nothing and writes a message of at most `bytes`,
 * terminator included (`message` may be NULL). dlsym reflects `old` at once. */
typedef int (*flw_sim_play_function)(const char *names, char *message,
                                     size_t bytes); /* flw_sim_play */
/** Return the profiles of the present world as they were set; "" if none. Valid until the next world. */
typedef const char *(*flw_sim_played_function)(void); /* flw_sim_played */
/** Move the virtual clock (FLW_SIM_CLOCK). */
typedef void (*flw_sim_advance_function)(uint64_t ns); /* flw_sim_advance */
/** Complete up to n operations; return the number completed. */
typedef uint64_t (*flw_sim_step_function)(uint64_t n); /* flw_sim_step */
/** Submit an operation that accesses ranges, a cheap substitute for a kernel. Returns a CUresult. */
typedef int (*flw_sim_touch_function)(struct CUstream_st *stream, const flw_sim_range *ranges,
                                      size_t count); /* flw_sim_touch */
/** Read the ledger of a device. */
typedef void (*flw_sim_ledger_function)(int device, flw_sim_ledger *out); /* flw_sim_get_ledger */
/** List the device's memory by address: the first `capacity` extents. Returns the number of all extents.
 *  Handles without a mapping are in the ledger only. */
typedef size_t (*flw_sim_extents_function)(int device, flw_sim_extent *out,
                                           size_t capacity); /* flw_sim_get_extents */
/** Make the n-th call (1 = the next) of an entry point fail with `error`, a CUresult; entry NULL: the n-th
 *  call of any. n 0 clears all. Returns 0 for an unknown name.
 *  - sticky 0: once
 *  - sticky 1: and every later call of the context, which is broken
 *  - sticky 2: and every later call of the entry point, until cleared */
typedef int (*flw_sim_fail_function)(const char *entry, uint64_t n, int error,
                                     int sticky); /* flw_sim_fail */
/** Return the number of calls of an entry point since the reset; NULL: of all entry points. Names of
 *  libcuda that are not simulated count too. */
typedef uint64_t (*flw_sim_calls_function)(const char *entry); /* flw_sim_call_count */
/** Return a description of the i-th violation, with operations, streams, ranges and the broken rule; NULL
 *  if there is none. */
typedef const char *(*flw_sim_violation_function)(uint64_t i); /* flw_sim_violation */
/** Set the name of a range for reports, such as "region 'lse' of arena 'decode'"; NULL removes it. */
typedef void (*flw_sim_name_function)(uint64_t address, uint64_t bytes,
                                      const char *name); /* flw_sim_name */
/** Mark [address, +bytes) as unwritten: loading it is a violation (checked worlds). */
typedef void (*flw_sim_forget_function)(uint64_t address, uint64_t bytes); /* flw_sim_forget */

/** Forbid access to [address, +bytes) until flw_sim_forget: a load, store, copy or memset of any byte is a
 *  violation. For red zones; checked, backed worlds only. */
typedef void (*flw_sim_forbid_function)(uint64_t address, uint64_t bytes); /* flw_sim_forbid */

/** A launch, passed to the kernel's twin. */
typedef struct flw_sim_launch flw_sim_launch;
/** C twin of a kernel. Accesses device memory only through flw_sim_load and flw_sim_store. */
typedef void (*flw_sim_twin)(flw_sim_launch *launch, void **parameters);
/** Register the twin of a kernel. The name is copied; flw_sim_reset keeps registrations. */
typedef void (*flw_sim_register_function)(const char *kernel_name,
                                          flw_sim_twin twin); /* flw_sim_register */
/** Declare the sizes of a kernel's parameters in bytes, so that launches copy the parameters and run later,
 *  in stream order. Without a declaration a launch waits for its stream, runs inside the call, and cannot
 *  be captured. Returns 0 for an unknown kernel. */
typedef int (*flw_sim_parameters_function)(const char *kernel_name, size_t count,
                                           const size_t *bytes); /* flw_sim_parameters */
/** Return grid x, y, z, block x, y, z and shared bytes of the launch. */
typedef void (*flw_sim_dimensions_function)(const flw_sim_launch *launch,
                                            unsigned out[7]); /* flw_sim_dimensions */
/** Read device memory inside a twin. `argument` names the kernel's argument in reports. */
typedef void (*flw_sim_load_function)(flw_sim_launch *launch, const char *argument, void *to,
                                      uint64_t from, size_t bytes); /* flw_sim_load */
/** Write device memory inside a twin. */
typedef void (*flw_sim_store_function)(flw_sim_launch *launch, const char *argument, uint64_t to,
                                       const void *from, size_t bytes); /* flw_sim_store */

#ifdef __cplusplus
}
#endif

#endif
