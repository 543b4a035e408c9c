/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Arenas: the scratch memory of a step, borrowed once and reused dirty.
 *
 * A *layout* is a set of named regions, each with a size, an alignment, an init class and a lifetime
 * in phases; regions that are never alive together share bytes. An *arena* serves one *lease* of a layout at
 * a time: all regions or none. Steps that run in turn share an arena, even with different layouts; steps that
 * run at once, such as two micro-batches, need an arena each. An arena keeps the largest block that a lease
 * ever needed, so a lease in steady state costs no driver call, no pool call and no host allocation. If the
 * pool maps handles, that block grows in place: the arena reserves addresses up to the device's size and maps
 * more memory at the block's end.
 *
 *     fallow_layout_create(regions, count, &layout);       once
 *     fallow_arena_create(pool, &config, &arena);          once
 *     for each step:
 *         fallow_lease_begin(arena, layout, stream, &lease);
 *         ... fallow_lease_region_at(lease, i) ... work on `stream` ...
 *         fallow_lease_end(lease, stream);
 *
 * CONTENTS     Scratch regions are dirty: they hold bytes of the last step, or of another layout. The kernel
 *              module that owns a region initialises any byte that must hold a value (FALLOW_INIT_ classes).
 *              *Persistent* regions (FALLOW_REGION_PERSISTENT) are found by name in each layout, and keep
 *              address and contents between leases. The arena initialises a persistent region by its class
 *              when a lease first uses the region, and again after the contents were lost: by
 *              fallow_arena_lose_contents, by fallow_arena_trim, by a sleep that did not save them, or because
 *              a layout needs the region larger or with a larger alignment, which moves the region.
 * ORDER        Each lease is ordered after the previous one on the device, even on another stream. Call
 *              fallow_stream_retire before a stream is destroyed: leases then stay ordered after the
 *              stream's work, even if the driver reuses the handle for another stream.
 * THREADS      Any thread may use an arena. Only one lease is open at a time: a second begin fails with
 *              BUSY, or waits for its turn (fallow_lease_begin_within).
 * ERRORS       A failed call has changed nothing that the caller can see; fallow_arena_last_error describes
 *              the failure. INVALID_POOL: the pool was destroyed. DEVICE_LOST: as for the pool's calls.
 *              INVALID_ARGUMENT: the arena was destroyed, or the lease has ended. Such a handle is compared,
 *              never dereferenced, and no later arena or lease has an equal handle.
 */
#ifndef FALLOW_ARENA_H
#define FALLOW_ARENA_H

#include "fallow/fallow.h"
#include "fallow/init_class.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Regions and their offsets; immutable except for the name. */
typedef struct fallow_layout fallow_layout;
/** Scratch and persistent memory from a pool, for one user at a time. */
typedef struct fallow_arena fallow_arena;
/** All regions of a layout, borrowed from an arena. */
typedef struct fallow_lease fallow_lease;

/* ---- layout */

/** Bits of fallow_region.flags. */
enum {
    FALLOW_REGION_PERSISTENT =
        1u << 0 /**< keeps address and contents between leases; phases are ignored */
};

/** One region of a layout. Zero is the default of every field but name and size_bytes. */
typedef struct fallow_region {
    const char *name;       /**< unique in its layout, at most 63 bytes; copied */
    size_t size_bytes;      /**< 0 (scratch only: a rank without tokens) or more */
    size_t align_bytes;     /**< a power of two to 2 MiB; 0 = 256 */
    fallow_init_class init; /**< required contents before the first read */
    uint32_t first_phase;   /**< alive from this phase on; 0 to 65,535 */
    uint32_t last_phase;    /**< to the end of this phase; 0 to 65,535 */
    uint32_t flags;         /**< FALLOW_REGION_ bits */
    int64_t init_value; /**< persistent regions: initial value of each element (COUNTER, ZERO and
                             LEADING_ZERO: 0); ONCE with init_step: element i holds value + i * step */
    int64_t init_step;  /**< ONCE: see init_value; else 0 */
    uint32_t element_bytes; /**< 1, 2, 4 or 8; 0 = 4 */
    uint32_t reserved_0;
} fallow_region;

/**
 * Create a layout: give each scratch region an offset that is a multiple of its alignment, such that no two
 * regions alive in the same phase overlap. Each persistent region gets a block of its own. An empty region has
 * an address too, but no byte to use.
 *
 * Errors      INVALID_ARGUMENT (a name that is NULL, empty, too long or not unique; a persistent region
 *             without a size; an invalid alignment, class, flag or element size; a persistent size that
 *             is not a multiple of the element size; last_phase before first_phase; more than 65,535
 *             regions; a sum beyond 2^62), OUT_OF_HOST_MEMORY.
 * Threads     a layout is immutable; several arenas may use one at once.
 * Cost        host only; some microseconds for ten regions, some tens for forty with lifetimes in
 *             phases. If no placement reaches the bound that alignment allows (regions of different
 *             alignments), the search continues: about 1 ms for forty regions, 0.1 s for 450 and more.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_layout_create(const fallow_region *regions,
                                                               size_t count,
                                                               fallow_layout **out_layout);

/** The same as fallow_layout_create, but search up to effort_ns for a smaller placement. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_layout_create_within(const fallow_region *regions,
                                                                      size_t count,
                                                                      uint64_t effort_ns,
                                                                      fallow_layout **out_layout);
/** Destroy the layout. An open lease can still use the layout until the lease ends, and an arena keeps the
 *  host memory until a lease of another layout. NULL is allowed. */
FALLOW_API void fallow_layout_destroy(fallow_layout *layout);

/** Set the layout's name for messages and reports: 1 to 63 bytes, copied. A new layout is "unnamed"; ready
 *  layouts (layouts.h) have the names of their paths. Set the name before another thread or a lease uses the
 *  layout. Errors: INVALID_ARGUMENT. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_layout_set_name(fallow_layout *layout,
                                                                 const char *name);
/** Return the name, valid until the layout is renamed or destroyed; NULL for a NULL layout. */
FALLOW_API const char *fallow_layout_name(const fallow_layout *layout);

/** Return the bytes of the scratch block. */
FALLOW_API size_t fallow_layout_bytes(const fallow_layout *layout);
/** Return the most bytes alive in any one phase, without padding: no placement is smaller. */
FALLOW_API size_t fallow_layout_lower_bound(const fallow_layout *layout);
/** Return the bytes of the persistent regions. */
FALLOW_API size_t fallow_layout_persistent_bytes(const fallow_layout *layout);
/** Return the number of regions, persistent ones included. */
FALLOW_API size_t fallow_layout_region_count(const fallow_layout *layout);
/** Return region `index` as given, with defaults for alignment and element filled in, and its offset in the
 *  scratch block (0 for a persistent region). The name is valid as long as the layout. Either output may be
 *  NULL. INVALID_ARGUMENT: no such region. */
FALLOW_API fallow_status fallow_layout_region(const fallow_layout *layout, size_t index,
                                              fallow_region *out_region, size_t *out_offset);
/** Return the index of the region with this name, or SIZE_MAX. Costs a hash of the name and a comparison, for
 *  any number of regions. */
FALLOW_API size_t fallow_layout_find(const fallow_layout *layout, const char *name);

/* ---- arena */

/** Bits of fallow_arena_config.checks, for tests and debugging. If any bit is set, each lease makes driver
 *  calls and waits for its stream at both ends. Leases inside captures are not checked. On a simulated device
 *  with `check` and `backed` (simcuda.h) each bit also makes two kinds of access a violation that names region
 *  and arena: a read of bytes that this lease has not written, and any use of scratch after the end of its
 *  lease, except by a guarded graph. Causes are a graph launched without fallow_lease_guard, or a stream not
 *  joined before fallow_lease_end. Findings are logged at level error and kept for fallow_arena_last_error, at
 *  the latest by the next lease, guard or release of the memory. */
enum {
    FALLOW_ARENA_CHECK_POISON = 1u << 0,    /**< fill scratch at begin and at end, with 0xff and
                                                 0x7f in turn, lease by lease: 0xff alone would
                                                 miss bugs, since it is a legal -1 */
    FALLOW_ARENA_CHECK_RED_ZONES = 1u << 1, /**< place 256 B behind each region and compare them at
                                                 end; no two regions share bytes then, so the arena
                                                 is larger */
    FALLOW_ARENA_CHECK_WRITTEN = 1u << 2    /**< at end, if the previous lease had the same layout,
                                                 count the bytes that still hold the poison of both
                                                 leases, in regions with a class that demands every
                                                 byte to be written (all but PREFIX), as far as both
                                                 leases used the region (fallow_lease_set_used). A
                                                 write to one region hides a missing write to
                                                 another region that shares the bytes. At the next
                                                 lease or guard, on any device, report bytes written
                                                 since the end */
};

/** Settings of an arena. Zero is the default for every field but struct_size. */
typedef struct fallow_arena_config {
    size_t struct_size;   /**< set by fallow_arena_config_init */
    const char *name;     /**< for messages, at most 63 bytes; NULL = "arena" */
    uint32_t tag;         /**< of the blocks in the pool, scratch included: a sleep that saves this
                                  tag (sleep.h) copies scratch to the host, too */
    uint32_t checks;      /**< FALLOW_ARENA_CHECK_ bits */
    size_t scratch_bytes; /**< least size of the first scratch block, which the first lease
                                  allocates; fallow_arena_lock allows as much */
    fallow_log_function log; /**< receives damage and refusals; NULL = silent */
    void *log_context;       /**< for log */
    uint8_t
        asks_captures; /**< 1: begin and end of a lease, and each guard, query whether the stream is
                                  being captured (one driver call), for programs that capture
                                  without fallow_capture_begin. A lease in such a capture fails
                                  with CAPTURING */
    uint8_t reserved_0[7]; /**< 0 */
} fallow_arena_config;

/** Fill with defaults, recording the caller's size of the struct. */
FALLOW_API void fallow_arena_config_init_sized(fallow_arena_config *config, size_t struct_size);
/** The same with the size of the struct in this header. */
static inline void fallow_arena_config_init(fallow_arena_config *config)
{
    fallow_arena_config_init_sized(config, sizeof *config);
}

/** Create an arena on a pool, which must outlive the arena. Takes no device memory yet. NULL config:
 *  defaults. Errors: INVALID_ARGUMENT (unknown check bits), INVALID_POOL, VERSION (struct_size),
 *  OUT_OF_HOST_MEMORY (a process has at most 4,096 arenas at a time), NOT_SUPPORTED (a pool in context
 *  order; or checks on a device without memory contents, such as a simulated device without `backed`: see
 *  the pool's log), and those of a driver call. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arena_create(fallow_pool *pool,
                                                              const fallow_arena_config *config,
                                                              fallow_arena **out_arena);
/** Destroy the arena. The pool reuses the blocks after the last lease and, if captures have leased, after all
 *  work queued by now on the streams where those captures began; do not launch their graphs any more. If a
 *  lease is open, the arena is destroyed when the lease ends; only the lease's handle is valid until then. No
 *  other call on the arena may be in progress, and no retirement of one of those streams. NULL is allowed. */
FALLOW_API void fallow_arena_destroy(fallow_arena *arena);

/** Set how many bytes the arena may hold, scratch and persistent regions together. 0: as many as the arena
 *  holds now, at least config.scratch_bytes of scratch. SIZE_MAX: no budget (the default). A lease that would
 *  need more fails with OVER_BUDGET, and fallow_arena_last_error names the layout, its largest region, the bytes and
 *  the budget. A lease that needs no new memory succeeds even above the budget, and trimmed memory may be
 *  allocated again. BUSY while leased. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arena_set_budget(fallow_arena *arena,
                                                                  size_t bytes);
/** Call fallow_arena_set_budget(arena, 0), after warm-up. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arena_lock(fallow_arena *arena);
/** Call fallow_arena_set_budget(arena, SIZE_MAX). */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arena_unlock(fallow_arena *arena);

/** Return the arena's memory to the pool; the next lease allocates again. Contents of returned persistent
 *  regions are lost. If graphs hold the addresses (captures not released), the call returns only the part of
 *  scratch that no graph uses, if scratch grows in place, after a wait on the host for the last leases; persistent
 *  regions stay, and the call fails with BUSY. BUSY while leased, too. CAPTURING: work that uses the memory cannot
 *  be waited for while a capture is open; nothing was returned. The stream of the last end must not be retired
 *  during the call. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arena_trim(fallow_arena *arena);

/** Called for each persistent region that must be initialised, at first or again. `stream` is that of the lease
 *  or guard that needs the values; `region` has the largest size that any layout gave the region. Return 0 if
 *  the callback has queued the initialisation on `stream`; otherwise the arena initialises the region by its
 *  class. Must not call into the arena. */
typedef int (*fallow_wake_function)(void *context, const fallow_region *region, void *address,
                                    fallow_stream stream);
/** Set the function that initialises persistent regions; NULL: none. BUSY while leased. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arena_on_wake(fallow_arena *arena,
                                                               fallow_wake_function wake,
                                                               void *context);
/** Declare the contents of all persistent regions lost, for example after a sleep and wake, or after an aborted
 *  step that left counters. The regions keep their addresses. The next lease initialises those of its layout
 *  again, the next fallow_lease_guard those of all layouts. BUSY while leased. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arena_lose_contents(fallow_arena *arena);

/** Statistics of an arena. Exact while no call on the arena is in progress. */
typedef struct fallow_arena_stats {
    size_t struct_size;        /**< set by fallow_arena_stats_init */
    uint64_t scratch_bytes;    /**< held */
    uint64_t persistent_bytes; /**< held */
    uint64_t lease_count;      /**< leases begun */
    uint64_t grow_count;       /**< times that scratch was allocated or grew */
    uint64_t wait_count;       /**< waits on the device between streams: one event each */
    uint64_t init_count;       /**< persistent regions initialised */
    uint64_t refuse_count;     /**< calls refused */
    uint64_t damage_count;     /**< red zones found written, late writes, violations that name the
                                    arena */
    uint64_t unwritten_count;  /**< bytes that two leases should have written and did not */
    uint64_t generation;       /**< changes of the scratch block's address */
    uint8_t is_locked;         /**< 1: the arena has a budget */
    uint8_t is_leased;         /**< 1: a lease is open */
    uint8_t is_pinned;         /**< 1: capture_count is not 0 */
    uint8_t reserved_0[5];
    uint64_t capture_count; /**< captures that have leased and were not seen released */
    uint32_t tag;           /**< of the blocks in the pool */
    uint32_t reserved_1;    /**< 0 */
    char name[64];          /**< the config's */
} fallow_arena_stats;

/** Fill with defaults, recording the caller's size of the struct. */
FALLOW_API void fallow_arena_stats_init_sized(fallow_arena_stats *stats, size_t struct_size);
/** The same with the size of the struct in this header. */
static inline void fallow_arena_stats_init(fallow_arena_stats *stats)
{
    fallow_arena_stats_init_sized(stats, sizeof *stats);
}
/** Copy the statistics; cheap. Errors: INVALID_ARGUMENT (struct_size). */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arena_get_stats(fallow_arena *arena,
                                                                 fallow_arena_stats *out_stats);
/** Called with the statistics of one arena, which are valid during the call. */
typedef void (*fallow_arena_visitor)(void *context, const fallow_arena_stats *stats);
/** Call `visit` for each arena of a pool, in no particular order. An arena that is created or destroyed
 *  meanwhile may be left out. `visit` must not destroy an arena. Errors: INVALID_POOL, INVALID_ARGUMENT (visit
 *  NULL). Any thread; holds no lock. */
FALLOW_API fallow_status fallow_pool_visit_arenas(fallow_pool *pool, fallow_arena_visitor visit,
                                                  void *context);
/** Copy the last refusal or finding, as a sentence; "" if there was none. Truncated to text_bytes, always
 *  terminated. */
FALLOW_API void fallow_arena_last_error(fallow_arena *arena, char *out_text, size_t text_bytes);

/* ---- lease */

/**
 * Borrow all regions of a layout for work queued on `stream` from now on.
 *
 * Ordering    The lease is ordered after the end of the previous one. On the same stream that costs nothing; on
 *             another stream about 15 driver calls: one event, one device wait, and queries that identify the
 *             stream and avoid captures. On CU_STREAM_PER_THREAD, and on pools with streams_may_die, each end
 *             of a lease records an event. On such pools the host waits before memory returns to the pool.
 * Ownership   The arena owns *out_lease; end the lease with fallow_lease_end and do not free the handle.
 * Errors      Those of fallow_alloc, DRIVER, and:
 *             BUSY: the arena is leased or in another call, or memory would move while graphs hold its address.
 *             OVER_BUDGET: see fallow_arena_set_budget.
 *             OUT_OF_MEMORY: from the pool. The arena is unchanged, or empty if its old block was freed and
 *             could not be allocated again.
 *             INVALID_ARGUMENT: another layout gives a persistent region other initial values.
 *             CAPTURING, in four cases:
 *              1. The lease needs growth or initialisation inside a capture; the message names the bytes to
 *                 allocate before.
 *              2. `stream` is in an unannounced capture, if that is detected.
 *              3. `stream` is the legacy stream while a blocking stream is being captured.
 *              4. Work of an earlier lease can be neither recorded nor awaited: the stream of the last end is in
 *                 a capture that was announced late or not at all, or a stream was destroyed without
 *                 fallow_stream_retire while any stream of the context is being captured. The arena then leaves
 *                 its memory to that work and gets other memory, and the lease succeeds, unless graphs hold
 *                 the addresses, the arena has persistent regions, or the pool has no memory left.
 * Capture     In a capture announced by fallow_capture_begin the arena must already hold enough memory, and
 *             values in its persistent regions. The capture pins the arena: until fallow_capture_release its
 *             memory keeps its addresses. Leases outside of captures succeed meanwhile if no memory must move
 *             for them: where scratch cannot grow in place, lease the largest layout before the capture. Inside
 *             one capture leases are ordered; for launches of graphs see fallow_lease_guard.
 *             An unannounced capture is detected in three cases:
 *              1. On the default pools, between fallow_torch_begin_allocate_to_pool and its end: the capture
 *                 pins the arena.
 *              2. After fallow_context_capture_begin, or with asks_captures: CAPTURING.
 *              3. If the lease is on another stream than the previous one, or needs growth: CAPTURING.
 * Cost        Steady state (layout and stream of the previous lease): at most 250 instructions for begin and
 *             end together; no driver call, no pool call, no host allocation. Another layout on the same
 *             stream, if nothing must be allocated or initialised: no driver call either. A new layout with
 *             persistent regions: one search by name for each of these.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_lease_begin(fallow_arena *arena,
                                                             const fallow_layout *layout,
                                                             fallow_stream stream,
                                                             fallow_lease **out_lease);
/** The same for an arena that several threads share. If a lease is open, or another thread is inside a call,
 *  sleep up to wait_ms until it is this begin's turn, then fail with BUSY. UINT32_MAX: no limit; 0: the same as
 *  fallow_lease_begin. Waiting begins are served in the order of their calls; while any waits, every other call
 *  that claims the arena fails with BUSY. The wait is on the host and holds no lock. A thread that waits for
 *  its own lease sleeps until the limit. If BUSY has another reason, the call returns at once. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_lease_begin_within(fallow_arena *arena,
                                                                    const fallow_layout *layout,
                                                                    fallow_stream stream,
                                                                    uint32_t wait_ms,
                                                                    fallow_lease **out_lease);
/** Make each of several arenas (the lanes of micro-batches) hold the memory that a lease of the layout needs,
 *  or none of them. Order, errors, capture behaviour and cost are those of a lease on `stream` and its end, for
 *  each arena. If an arena fails, all scratch blocks get their previous size again, except one that cannot be
 *  returned while a capture is open; new persistent regions stay. fallow_arena_last_error of the failing arena
 *  gives the reason. BUSY: an arena is leased, is in a call, or is listed twice. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arenas_reserve(fallow_arena *const *arenas,
                                                                size_t count,
                                                                const fallow_layout *layout,
                                                                fallow_stream stream);
/** Return the address of a region by name (fallow_layout_find); NULL: no such region, or the lease has ended. */
FALLOW_API void *fallow_lease_region(const fallow_lease *lease, const char *name);
/** The same by index in the layout, in O(1). */
FALLOW_API void *fallow_lease_region_at(const fallow_lease *lease, size_t index);
/** Limit FALLOW_ARENA_CHECK_WRITTEN to the first `bytes` of region `index` until the lease ends, for a step
 *  smaller than its layout. O(1); no effect without checks. INVALID_ARGUMENT: the lease has ended, no such
 *  region, or `bytes` exceeds its size. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_lease_set_used(fallow_lease *lease, size_t index,
                                                                size_t bytes);
/** Passed to fallow_lease_end: the stream that the lease began on. */
#define FALLOW_LEASE_STREAM ((fallow_stream)-1)
/** End the lease. Later leases are ordered after all work queued on `stream` so far. That work must include, or be
 *  ordered after, every use of the regions, also through exports (fallow_lease_export). A lease begun inside a
 *  capture may end inside or after that capture. INVALID_ARGUMENT: the lease has ended already. The lease stays
 *  open after INVALID_STREAM, and after CAPTURING: `stream` is in a capture that the lease was not begun in.
 *  FALLOW_LEASE_STREAM is never refused. If that stream has entered a capture or was destroyed, later leases are
 *  ordered after the work queued there before, which must then include every use. DEVICE_LOST is never returned:
 *  on a lost device leases end, but nothing can be allocated any more. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_lease_end(fallow_lease *lease,
                                                           fallow_stream stream);

/** Prepare the launch on `stream` of a graph captured from this arena: order the launch after the previous lease
 *  or guarded launch, and initialise persistent regions that have lost their contents. The next lease or guard is
 *  ordered after the launch. Between this call and the launch, no thread may begin a lease outside of captures
 *  or guard another launch. Costs no driver call on the stream of the previous lease or guard; otherwise those
 *  of fallow_lease_begin on another stream. BUSY while leased. CAPTURING: `stream` is being captured, or a
 *  capture prevents the ordering as in fallow_lease_begin. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_lease_guard(fallow_arena *arena,
                                                             fallow_stream stream);

struct DLManagedTensorVersioned;
/** Return a DLPack 1.0 tensor over one region. The tensor holds an address and keeps nothing alive: once the
 *  lease has ended, the next lease uses the memory (FALLOW_ARENA_CHECK_ bits detect such use). The deleter may
 *  be called at any time, from any thread, even if arena and pool are destroyed. `data` is the address of the
 *  first element and the tensor's own byte_offset is 0, since some consumers ignore byte_offset. dtype codes are
 *  those of DLPack 1.1 (0 int, 1 uint, 2 float, 4 bfloat, 10 float8_e4m3fn, ...); an element of code 17,
 *  float4_e2m1fn, is a pair in a byte. At most 8 dimensions. Strides are in elements and not negative; NULL:
 *  row-major. The consumer must order its work after the begin of the lease on its stream, and before the end
 *  of the lease on the stream given to fallow_lease_end. INVALID_ARGUMENT: the tensor exceeds the region or is not
 *  aligned to its elements. INVALID_POOL: the pool was destroyed. OUT_OF_HOST_MEMORY. */
FALLOW_API FALLOW_NODISCARD fallow_status
fallow_lease_export(fallow_lease *lease, size_t index, const int64_t *shape, const int64_t *strides,
                    int dimensions, uint8_t dtype_code, uint8_t dtype_bits, uint64_t byte_offset,
                    struct DLManagedTensorVersioned **out_tensor);

struct DLManagedTensor;
/** Convert to the tensor struct from before DLPack 1.0, for older consumers. The result owns `tensor` and its
 *  deleter calls that of `tensor`. Returns NULL if host memory runs out or `tensor` is NULL; the caller then
 *  still owns `tensor`. */
FALLOW_API FALLOW_NODISCARD struct DLManagedTensor *
fallow_export_unversioned(struct DLManagedTensorVersioned *tensor);

#ifdef __cplusplus
}
#endif

#endif
