/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Arenas: the scratch memory of a step, borrowed once and reused dirty.
 *
 * A *layout* is a set of named regions, each with a size, an alignment, an init class and a lifetime
 * in phases; regions that are never alive together share bytes. An *arena* serves one *lease* of a layout at
 * a time: all regions or none. Steps that run in turn share one, whatever their layouts; steps that run at
 * once, as two micro-batches, have one each. It keeps the largest block it ever needed, so that in steady
 * state a lease costs no driver call, no pool call and no host allocation. Where the pool maps handles that
 * block grows in place: addresses up to the device's size are set aside for it, and more memory is mapped
 * behind its end.
 *
 *     fallow_layout_create(regions, count, &layout);       once
 *     fallow_arena_create(pool, &config, &arena);          once
 *     for each step:
 *         fallow_lease_begin(arena, layout, stream, &lease);
 *         ... fallow_lease_region_at(lease, i) ... work on `stream` ...
 *         fallow_lease_end(lease, stream);
 *
 * CONTENTS     scratch regions are dirty: they hold what the last step, or another layout, left there.
 *              What must hold a value is written by the kernel module that owns it (FALLOW_INIT_
 *              classes say which). *Persistent* regions (FALLOW_REGION_PERSISTENT) lie apart, keep
 *              address and contents from one lease to the next and from layout to layout, found by
 *              name, and are initialised by the arena as their class says when they are first used,
 *              and again after fallow_arena_lose_contents. A layout that has more of one than before
 *              moves it: it is initialised anew.
 * ORDER        a lease comes after the last one on the device, whatever the streams. Tell the pool
 *              before a stream is destroyed (fallow_stream_retire): then its handle may be another
 *              stream's, and the arena still knows what it was given.
 * THREADS      an arena may be used from any thread; one lease at a time, a second begin is BUSY, or
 *              waits for its turn (fallow_lease_begin_within).
 * ERRORS       a call that fails has changed nothing that the caller sees; fallow_arena_last_error
 *              says what and why. INVALID_POOL: the pool is gone. DEVICE_LOST as the pool's calls. A
 *              handle of an arena that was destroyed, or of a lease that has ended, is INVALID_ARGUMENT: it
 *              is compared, never followed, and no later arena or lease has it.
 */
#ifndef FALLOW_ARENA_H
#define FALLOW_ARENA_H

#include "fallow/fallow.h"
#include "fallow/init_class.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Regions and where they lie; unchanging once made. */
typedef struct fallow_layout fallow_layout;
/** Scratch and persistent memory of one user at a time, on a pool. */
typedef struct fallow_arena fallow_arena;
/** All regions of a layout, borrowed from an arena. */
typedef struct fallow_lease fallow_lease;

/* ---- layout */

/** Bits of fallow_region.flags. */
enum {
    FALLOW_REGION_PERSISTENT =
        1u << 0 /**< keeps address and contents between leases; its phases are
                                            not looked at */
};

/** One region of a layout. Zero is the default of every field but name and size_bytes. */
typedef struct fallow_region {
    const char *name;       /**< unique in its layout, at most 63 bytes; copied */
    size_t size_bytes;      /**< 0 (scratch only: a rank without tokens) or more */
    size_t align_bytes;     /**< a power of two to 2 MiB; 0 = 256 */
    fallow_init_class init; /**< what its bytes must be before they are read */
    uint32_t first_phase;   /**< alive from this one on; 0 to 65,535 */
    uint32_t last_phase;    /**< to the end of this one; 0 to 65,535 */
    uint32_t flags;         /**< FALLOW_REGION_ bits */
    int64_t init_value; /**< persistent regions: what each element holds at first (COUNTER, ZERO and
                             LEADING_ZERO: 0); ONCE with init_step: element i holds value + i step */
    int64_t init_step;  /**< ONCE: see init_value; else 0 */
    uint32_t element_bytes; /**< 1, 2, 4 or 8; 0 = 4 */
    uint32_t reserved_0;
} fallow_region;

/**
 * Place regions: each gets an offset, a multiple of its alignment, such that no two that are alive in
 * one phase overlap. The same routine counts the bytes and carves them. Persistent regions have a
 * block each. An empty region has an address like any other, of bytes that it must not use.
 *
 * Errors      INVALID_ARGUMENT (a NULL, empty, long or doubled name, a persistent region
 *             without a size, a bad alignment, class,
 *             flag or element, a persistent size that is no multiple of its elements, last_phase
 *             before first_phase, more than 65,535 regions, a sum beyond 2^62), OUT_OF_HOST_MEMORY.
 * Threads     a layout is immutable and may serve several arenas at once.
 * Cost        host only; some microseconds for ten regions, some tens for forty with lifetimes in
 *             phases. If no placement reaches the bound that alignment allows (regions of different
 *             alignments), the search goes on: about 1 ms for forty regions, 0.1 s for 450 and more.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_layout_create(const fallow_region *regions,
                                                               size_t count,
                                                               fallow_layout **out_layout);

/** The same, searching for up to effort_ns for a smaller placement. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_layout_create_within(const fallow_region *regions,
                                                                      size_t count,
                                                                      uint64_t effort_ns,
                                                                      fallow_layout **out_layout);
/** An open lease keeps the layout until its end, and the arena the host memory until a lease of another
 *  layout. NULL is allowed. */
FALLOW_API void fallow_layout_destroy(fallow_layout *layout);

/** Give a layout the name that messages and reports call it by: 1 to 63 bytes, copied. A new layout is
 *  "unnamed"; ready layouts (layouts.h) have the names of their paths. Set it before another thread or a
 *  lease uses the layout. Errors: INVALID_ARGUMENT. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_layout_set_name(fallow_layout *layout,
                                                                 const char *name);
/** The name, valid as long as the layout and its name; NULL for a NULL layout. */
FALLOW_API const char *fallow_layout_name(const fallow_layout *layout);

/** Bytes of the scratch block. */
FALLOW_API size_t fallow_layout_bytes(const fallow_layout *layout);
/** The most bytes alive in any one phase, without padding: no placement is smaller. */
FALLOW_API size_t fallow_layout_lower_bound(const fallow_layout *layout);
/** Bytes of the persistent regions. */
FALLOW_API size_t fallow_layout_persistent_bytes(const fallow_layout *layout);
/** How many regions it has, persistent ones included. */
FALLOW_API size_t fallow_layout_region_count(const fallow_layout *layout);
/** Region i as it was given (alignment and element filled in; the name lives as long as the layout) and
 *  its offset in the scratch block, 0 for a persistent one. Either may be NULL. INVALID_ARGUMENT: no
 *  such region. */
FALLOW_API fallow_status fallow_layout_region(const fallow_layout *layout, size_t index,
                                              fallow_region *out_region, size_t *out_offset);
/** The index of a region, or SIZE_MAX. Costs a hash of the name and a comparison, however many regions. */
FALLOW_API size_t fallow_layout_find(const fallow_layout *layout, const char *name);

/* ---- arena */

/** Bits of fallow_arena_config.checks: for tests and debugging. Each lease then takes driver calls and
 *  waits for its stream at both ends; leases in captures are not checked. On a simulated device with `check`
 *  and `backed` (simcuda.h) any of them makes a read of what was not written in this lease, and any use of scratch after the end of its
 *  lease but by a graph that was guarded, a violation that names region and arena: a graph launched
 *  without fallow_lease_guard, a stream that was not joined before fallow_lease_end. Findings go to the
 *  log at level error and to fallow_arena_last_error, at the latest with the next lease, guard or release
 *  of the memory. */
enum {
    FALLOW_ARENA_CHECK_POISON = 1u << 0,    /**< scratch is filled at begin and at end with 0xff or,
                                                 every other lease, 0x7f: never one pattern, since
                                                 0xff is a legal -1 */
    FALLOW_ARENA_CHECK_RED_ZONES = 1u << 1, /**< 256 B behind each region, compared at end; no two
                                                 regions share bytes then, so the arena is larger */
    FALLOW_ARENA_CHECK_WRITTEN = 1u << 2 /**< at end: of regions whose class demands that they are
                                                 fully written (all but PREFIX), the bytes that still
                                                 hold the poison of this lease and of the one before,
                                                 of the same layout, are counted, as far as both used
                                                 the region (fallow_lease_set_used). Where regions
                                                 share bytes one may have written for another. At the
                                                 next lease or guard: what was written since the end,
                                                 on any device */
};

/** Settings of an arena. Zero is the default for every field but struct_size. */
typedef struct fallow_arena_config {
    size_t struct_size;   /**< set by fallow_arena_config_init */
    const char *name;     /**< for messages, at most 63 bytes; NULL = "arena" */
    uint32_t tag;         /**< of its blocks in the pool, scratch included: a sleep that saves this
                                  tag (sleep.h) copies scratch to the host, too */
    uint32_t checks;      /**< FALLOW_ARENA_CHECK_ bits */
    size_t scratch_bytes; /**< the first scratch block, taken by the first lease, is at least
                                  this large; fallow_arena_lock allows as much */
    fallow_log_function log; /**< damage and refusals; NULL = silent */
    void *log_context;       /**< for log */
    uint8_t
        asks_captures; /**< 1: each lease, its end and each guard query whether the stream is being
                                  captured, one driver call: for programs that capture without
                                  fallow_capture_begin. A lease in such a capture is CAPTURING */
    uint8_t reserved_0[7]; /**< 0 */
} fallow_arena_config;

/** Fill with defaults, recording the caller's size of the struct. */
FALLOW_API void fallow_arena_config_init_sized(fallow_arena_config *config, size_t struct_size);
/** The same with the size that this header knows. */
static inline void fallow_arena_config_init(fallow_arena_config *config)
{
    fallow_arena_config_init_sized(config, sizeof *config);
}

/** Make an arena on a pool, which must outlive it; it takes no device memory yet. NULL config:
 *  defaults. Errors: INVALID_ARGUMENT (unknown check bits), INVALID_POOL, VERSION (struct_size),
 *  OUT_OF_HOST_MEMORY (a process has at most 4,096 arenas at a time), NOT_SUPPORTED (a pool in context
 *  order; checks where memory has no contents, as the simulated device's without `backed`: the pool's log
 *  says so), and those of a driver call. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arena_create(fallow_pool *pool,
                                                              const fallow_arena_config *config,
                                                              fallow_arena **out_arena);
/** Gives its blocks back, after the last lease and, where captures leased, after all that the streams
 *  they began on have been given by now: their graphs are not launched any more. With a lease open that
 *  happens at its end; the lease's handle is good until then. No other call may be under way, nor a
 *  retirement of one of those streams. NULL is allowed. */
FALLOW_API void fallow_arena_destroy(fallow_arena *arena);

/** Set how many bytes the arena may hold, scratch and persistent regions together; 0: as many as it holds now,
 *  SIZE_MAX: no budget, as at first. A lease for which it would have to hold more is OVER_BUDGET, and
 *  fallow_arena_last_error names the layout, its largest region, the bytes and the budget. What the arena holds already
 *  is leased all the same, and what is trimmed may come back. BUSY while leased. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arena_set_budget(fallow_arena *arena,
                                                                  size_t bytes);
/** After warm-up: fallow_arena_set_budget(arena, 0). */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arena_lock(fallow_arena *arena);
/** fallow_arena_set_budget(arena, SIZE_MAX). */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arena_unlock(fallow_arena *arena);

/** Give the blocks back to the pool; the next lease takes new ones. While captures hold the addresses: scratch that
 *  grows in place keeps what their graphs use, and the memory beyond that is unmapped, after a wait on the host for the
 *  leases that used it; persistent regions stay; BUSY tells that graphs hold the rest. BUSY while leased, too. CAPTURING:
 *  what uses the memory cannot be waited for beside a capture, and nothing was given back. Contents of persistent
 *  regions that go are lost. The stream of the last end may not be retired meanwhile. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arena_trim(fallow_arena *arena);

/** Called for each persistent region that must be made to hold its values, at first and again, on the
 *  stream of the lease that found it so; region: the largest that any layout had of it. Returns 0 if it
 *  has given the stream what does so; else the arena does what its class says. Must not call into the
 *  arena. */
typedef int (*fallow_wake_function)(void *context, const fallow_region *region, void *address,
                                    fallow_stream stream);
/** Have `wake` called from now on; NULL: none. BUSY while leased. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arena_on_wake(fallow_arena *arena,
                                                               fallow_wake_function wake,
                                                               void *context);
/** The contents of persistent regions are gone (sleep and wake, an aborted step that left counters):
 *  the next lease initialises those of its layout again, addresses kept; with graphs captured, the next
 *  fallow_lease_guard all of them. BUSY while leased. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arena_lose_contents(fallow_arena *arena);

/** Exact while no call on the arena is under way. */
typedef struct fallow_arena_stats {
    size_t struct_size;        /**< set by fallow_arena_stats_init */
    uint64_t scratch_bytes;    /**< held */
    uint64_t persistent_bytes; /**< held */
    uint64_t lease_count;      /**< begun */
    uint64_t grow_count;       /**< times that scratch was taken from the pool or grew */
    uint64_t wait_count;       /**< waits on the device between streams: one event each */
    uint64_t init_count;       /**< persistent regions initialised */
    uint64_t refuse_count;     /**< calls refused */
    uint64_t damage_count;     /**< red zones found written, late writes, violations that name it */
    uint64_t unwritten_count;  /**< bytes that a lease should have written and did not */
    uint64_t generation;       /**< of the scratch block: counts its changes of address */
    uint8_t is_locked;         /**< 1: it has a budget */
    uint8_t is_leased;         /**< 1: a lease is open */
    uint8_t is_pinned;         /**< 1: a capture has leased, which is not released */
    uint8_t reserved_0[5];
    uint64_t capture_count; /**< captures that have leased, not released as far as known */
    uint32_t tag;           /**< of its blocks in the pool */
    uint32_t reserved_1;    /**< 0 */
    char name[64];          /**< the config's */
} fallow_arena_stats;

/** Fill with defaults, recording the caller's size of the struct. */
FALLOW_API void fallow_arena_stats_init_sized(fallow_arena_stats *stats, size_t struct_size);
/** The same with the size that this header knows. */
static inline void fallow_arena_stats_init(fallow_arena_stats *stats)
{
    fallow_arena_stats_init_sized(stats, sizeof *stats);
}
/** Cheap: a copy of counters. Errors: INVALID_ARGUMENT (struct_size). */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arena_get_stats(fallow_arena *arena,
                                                                 fallow_arena_stats *out_stats);
/** Called with the statistics of one arena, which are valid during the call. */
typedef void (*fallow_arena_visitor)(void *context, const fallow_arena_stats *stats);
/** Call `visit` for each arena of a pool, in no particular order; of arenas that are made or destroyed
 *  meanwhile maybe. `visit` must not destroy an arena. Errors: INVALID_POOL, INVALID_ARGUMENT (visit NULL).
 *  Any thread; holds no lock. */
FALLOW_API fallow_status fallow_pool_visit_arenas(fallow_pool *pool, fallow_arena_visitor visit,
                                                  void *context);
/** The last refusal or finding in a sentence; "" if none. Copied, cut, terminated. */
FALLOW_API void fallow_arena_last_error(fallow_arena *arena, char *out_text, size_t text_bytes);

/* ---- lease */

/**
 * Borrow all regions of a layout for work given to `stream` from now on.
 *
 * Ordering    after the last lease's end. On the same stream that costs nothing; on another some 15
 *             driver calls: one event, one device wait, and the queries that identify the stream and avoid
 *             captures. On CU_STREAM_PER_THREAD, and on pools with streams_may_die, each end records. On such pools the
 *             host first waits before memory returns to the pool.
 * Ownership   *out_lease is the arena's until fallow_lease_end; do not free it.
 * Errors      those of fallow_alloc, DRIVER, and:
 *             BUSY: it is leased, or memory would move whose address graphs hold.
 *             OVER_BUDGET: see fallow_arena_set_budget.
 *             OUT_OF_MEMORY: the pool's. The arena stays as it was, or is empty if its old block did not
 *             come back.
 *             INVALID_ARGUMENT: a persistent region holds other values in another layout.
 *             CAPTURING: 1. growth or initialisation inside a capture; the message names the bytes to take
 *             before it. 2. `stream` is captured unannounced, as far as that is found. 3. `stream` is the
 *             legacy stream while a blocking stream is being captured. 4. Work of an earlier lease can be
 *             neither recorded nor awaited: the stream of the last end is in a capture that was announced
 *             late or not at all, or a stream was destroyed without fallow_stream_retire while any stream
 *             of the context is being captured. In case 4 the arena leaves its memory to that work and gets
 *             other memory instead, unless graphs hold its addresses, it has persistent regions, or the
 *             pool has none.
 * Capture     on a stream announced by fallow_capture_begin the arena must hold enough already, and
 *             values in its persistent regions. Until fallow_capture_release the arena is then pinned:
 *             what it has keeps its address. Leases outside of captures go on beside the graphs, if
 *             nothing must move for them: where scratch cannot grow in place, lease the largest layout
 *             before the capture. Inside one capture leases are ordered; graphs are launched in stream
 *             order: see fallow_lease_guard.
 *             An unannounced capture is found by the default pools between
 *             fallow_torch_begin_allocate_to_pool and its end (the lease is pinned), after
 *             fallow_context_capture_begin and with asks_captures (CAPTURING); else only if the lease
 *             is on another stream than the last one, or growth is needed.
 * Cost        steady state (the layout and stream of the last lease): at most 250 instructions with the
 *             end of it; no driver call, no pool call, no host allocation. Another layout on that
 *             stream, for which nothing is taken or initialised: no driver call either. If it has
 *             persistent regions and is new: a look at each of them, by name.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_lease_begin(fallow_arena *arena,
                                                             const fallow_layout *layout,
                                                             fallow_stream stream,
                                                             fallow_lease **out_lease);
/** The same for an arena that other threads use: if a lease is open, or another thread is inside a call,
 *  sleep until it is this begin's turn, at most wait_ms, then BUSY. UINT32_MAX: without limit; 0: as
 *  fallow_lease_begin. Waiting begins are served in the order in which they came; until none is left
 *  every other call that claims the arena is BUSY. The wait is the host's and holds no lock; a thread that
 *  waits for its own lease sleeps until the limit. BUSY for other reasons is not waited for. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_lease_begin_within(fallow_arena *arena,
                                                                    const fallow_layout *layout,
                                                                    fallow_stream stream,
                                                                    uint32_t wait_ms,
                                                                    fallow_lease **out_lease);
/** Have each of several arenas (the lanes of micro-batches) hold what a lease of the layout needs, all or
 *  none: order, errors, capture behaviour and cost are those of a lease on `stream` and its end, arena by
 *  arena. On an error all scratch blocks have their size of before, but for one that cannot be given back
 *  beside a capture; persistent regions that were taken stay.
 *  fallow_arena_last_error of the arena that refused says why. BUSY: one is leased, is in a call, or is
 *  listed twice. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_arenas_reserve(fallow_arena *const *arenas,
                                                                size_t count,
                                                                const fallow_layout *layout,
                                                                fallow_stream stream);
/** The address of a region by name (fallow_layout_find); NULL: no such region, or the lease has ended. */
FALLOW_API void *fallow_lease_region(const fallow_lease *lease, const char *name);
/** The same by index in the layout, in O(1). */
FALLOW_API void *fallow_lease_region_at(const fallow_lease *lease, size_t index);
/** A step smaller than its layout: of region `index` this lease uses the first `bytes`, and the check
 *  WRITTEN judges no more. Until the lease ends, in O(1); without checks it does nothing.
 *  INVALID_ARGUMENT: the lease has ended, no such region, or more bytes than it has. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_lease_set_used(fallow_lease *lease, size_t index,
                                                                size_t bytes);
/** For fallow_lease_end: the stream that the lease began on. */
#define FALLOW_LEASE_STREAM ((fallow_stream)-1)
/** Release everything, in the order of `stream`'s present end, which comes after every use, that of exports
 *  (fallow_lease_export) too. INVALID_ARGUMENT: it has ended already. The lease stays open after
 *  INVALID_STREAM, and after CAPTURING: it was begun outside of the capture that `stream` is in. One begun
 *  inside a capture may end inside or after it. FALLOW_LEASE_STREAM is never refused: if that stream has
 *  entered a capture or is destroyed, its work outside of captures until then is the order, which must have been
 *  all the use. DEVICE_LOST never: on a lost device leases end, and nothing more is allocated. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_lease_end(fallow_lease *lease,
                                                           fallow_stream stream);

/** A graph captured from this arena is about to be launched on `stream`: orders it after the launch, or
 *  the lease, before it, and initialises persistent regions whose contents were lost. The next lease
 *  or guard comes after it. Until the launch is given no thread may begin a lease outside of captures, or
 *  guard another launch. On the same stream as the last one, no driver call; else those of
 *  fallow_lease_begin on another stream.
 *  BUSY while leased. CAPTURING: `stream` is being
 *  captured, or a capture stands in the way as in fallow_lease_begin. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_lease_guard(fallow_arena *arena,
                                                             fallow_stream stream);

struct DLManagedTensorVersioned;
/** A DLPack 1.0 tensor over one region. It has an address and holds nothing open: after the end of the lease
 *  that memory is the next lease's (FALLOW_ARENA_CHECK_ bits find such uses). Its deleter may be called at any
 *  time, from any thread, also when arena and pool are gone. `data` is the address of the first element, and
 *  the tensor's own byte_offset 0, since not all consumers read that. dtype codes as in DLPack 1.1 (0 int, 1 uint,
 *  2 float, 4 bfloat, 10 float8_e4m3fn, ...); an element of code 17, float4_e2m1fn, is a pair in a byte. At most
 *  8 dimensions; strides in elements, not negative, NULL: row-major. The consumer
 *  orders its work after `stream` of the lease, and before the end of the stream that fallow_lease_end gets.
 *  INVALID_ARGUMENT: the tensor leaves the region or is not aligned to its elements. INVALID_POOL. */
FALLOW_API FALLOW_NODISCARD fallow_status
fallow_lease_export(fallow_lease *lease, size_t index, const int64_t *shape, const int64_t *strides,
                    int dimensions, uint8_t dtype_code, uint8_t dtype_bits, uint64_t byte_offset,
                    struct DLManagedTensorVersioned **out_tensor);

struct DLManagedTensor;
/** The same tensor in the form before DLPack 1.0, for consumers that know no other. It takes `tensor`
 *  over: its deleter calls the other's. NULL: no host memory, `tensor` stays the caller's. */
FALLOW_API FALLOW_NODISCARD struct DLManagedTensor *
fallow_export_unversioned(struct DLManagedTensorVersioned *tensor);

#ifdef __cplusplus
}
#endif

#endif
