/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: page sources, the ways in which a pool gets memory. The functions only make driver calls,
 * without a lock or a state. The heap records the memory and makes all decisions. Segments need
 * the pool's context to be current; remapping needs none.
 *
 * A source that *remaps* has separate addresses and physical handles (CUDA virtual memory
 * management). The other one acquires and releases whole *segments*.
 *
 * To add one: fill a flw_source_ops; the heap stays as it is. */
#ifndef FLW_MEMORY_SOURCE_H
#define FLW_MEMORY_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/section.h"

struct flw_source;

/* Properties of a handle: FALLOW_HANDLE_ bits, and registration by network adapters. */
#define FLW_HANDLE_RDMA (1u << 2)

/* Refused requests, each with the refused call. */
enum flw_refusal_kind {
    FLW_REFUSED_FABRIC,
    FLW_REFUSED_FD,
    FLW_REFUSED_RDMA,
    FLW_REFUSED_HANDLES, /* handles of any kind: memory is in segments */
    FLW_REFUSED_COUNT
};

struct flw_refusal {
    const char *_Atomic call; /* NULL: not refused */
    _Atomic int answer;
};

struct flw_source_ops {
    const char *name;
    bool remaps;
    /* Reserve a range aligned to a power of two (0: as mappings need); release a range. */
    CUresult (*reserve)(struct flw_source *source, uint64_t bytes, uint64_t align_bytes,
                        uint64_t *out_base);
    CUresult (*unreserve)(struct flw_source *source, uint64_t base, uint64_t bytes);
    /* *kinds: requested kinds; on return without unnamed kinds that the driver refused. */
    CUresult (*create)(struct flw_source *source, uint64_t bytes, uint32_t *kinds,
                       uint64_t *out_handle);
    CUresult (*release)(struct flw_source *source, uint64_t handle);
    CUresult (*map)(struct flw_source *source, uint64_t address, uint64_t bytes, uint64_t handle);
    CUresult (*unmap)(struct flw_source *source, uint64_t address, uint64_t bytes);
    CUresult (*set_access)(struct flw_source *source, uint64_t address, uint64_t bytes);
    /* Set the access of one other device, which may or may not be in access_devices. */
    CUresult (*set_peer)(struct flw_source *source, uint64_t address, uint64_t bytes, int device,
                         bool is_allowed);
    /* for segments */
    CUresult (*acquire)(struct flw_source *source, uint64_t bytes, uint64_t *out_address);
    CUresult (*release_segment)(struct flw_source *source, uint64_t address);
};

#define FLW_SOURCE_DEVICES 17 /* the pool's device and peers */

struct flw_source {
    const struct flw_source_ops *ops;
    const struct flw_driver *driver;
    CUcontext context; /* the pool's; handles and mappings belong to the device instead */
    int device;
    uint64_t granularity_bytes; /* of handles or segments; a multiple of the unit */
    int access_devices[FLW_SOURCE_DEVICES];
    uint32_t access_count;
    /* Kinds of new handles. Starts as asked_kinds, loses kinds that the driver refuses, and always
     * includes named_kinds, which the caller requires. */
    _Atomic uint32_t kinds;
    uint32_t asked_kinds, named_kinds;
    struct flw_refusal refusals[FLW_REFUSED_COUNT];
    /* Grain of the probe that the driver did not release; 0: none. */
    uint64_t left_handle;
    bool is_left_mapped, is_left_busy; /* the grain's state; busy: a copy may be under way */
    _Atomic uint64_t *call_count;
    _Atomic bool refuses_all;   /* the driver recently refused handles of every kind */
    _Atomic bool unmaps_singly; /* the driver refused to unmap several mappings at once */
};

extern const struct flw_source_ops flw_source_vmm;  /* cuMemCreate and friends */
extern const struct flw_source_ops flw_source_slab; /* cuMemAlloc */

/* Unmap `count` adjacent mappings from `address` on, in one call, or one by one if the driver
 * refuses that. *out_done is the number unmapped, from the first. On an error the next one was
 * refused and the rest was not tried. */
CUresult flw_source_unmap_all(struct flw_source *source, uint64_t address, const uint64_t bytes[],
                              uint32_t count, uint32_t *out_done);

/* Set asked_kinds, kinds and granularity_bytes from the device's attributes; *out_can: the device
 * can remap. Returns results that mean neither yes nor no, such as that of a broken context. */
CUresult flw_source_vmm_ask(struct flw_source *source, bool *out_can);

/* Test the kinds: one grain, mapped at `address` of a reservation, is written, read and released,
 * with ever fewer kinds until everything works. *out_can is false if nothing worked; refusals has
 * the reason. If the device has no memory for the grain, the attributes count. Returns the result
 * of a broken context. */
CUresult flw_source_vmm_probe(struct flw_source *source, uint64_t address, bool *out_can);

/* True if the call failed and device, context and pool are intact. */
bool flw_source_is_refused(CUresult result);
/* Record that the call refused handles of every kind. Returns SUCCESS, or the result of a broken
 * context. */
CUresult flw_source_refuse(struct flw_source *source, CUresult answer, const char *call);

#endif
