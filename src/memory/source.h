/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: page sources, the ways in which a pool gets memory. Every function is driver calls and
 * nothing else: no lock is held, no state kept. What a source gave is known to the heap, which
 * alone decides. Segments need the pool's context to be current, remapping none.
 *
 * A source that *remaps* has address space and physical handles apart (CUDA virtual memory
 * management); one that does not gives and takes whole *segments*.
 *
 * To add one: fill a flw_source_ops; the heap above stays as it is.
 */
#ifndef FLW_MEMORY_SOURCE_H
#define FLW_MEMORY_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/section.h"

struct flw_source;

/* What a handle can be asked to carry: FALLOW_HANDLE_ bits, and that network adapters may register it. */
#define FLW_HANDLE_RDMA (1u << 2)

/* What was asked for and the driver refused, each with the call that did. */
enum flw_refusal_kind {
    FLW_REFUSED_FABRIC,
    FLW_REFUSED_FD,
    FLW_REFUSED_RDMA,
    FLW_REFUSED_HANDLES, /* of any kind: memory comes in segments */
    FLW_REFUSED_COUNT
};

struct flw_refusal {
    const char *_Atomic call; /* NULL: not refused */
    _Atomic int answer;
};

struct flw_source_ops {
    const char *name;
    bool remaps;
    /* remaps: an address range, aligned to a power of two (0: as a mapping needs it), and its end. */
    CUresult (*reserve)(struct flw_source *source, uint64_t bytes, uint64_t align_bytes,
                        uint64_t *out_base);
    CUresult (*unreserve)(struct flw_source *source, uint64_t base, uint64_t bytes);
    /* *kinds: what it is to carry; what it does, where the driver refused a kind that was not
     * named. */
    CUresult (*create)(struct flw_source *source, uint64_t bytes, uint32_t *kinds,
                       uint64_t *out_handle);
    CUresult (*release)(struct flw_source *source, uint64_t handle);
    CUresult (*map)(struct flw_source *source, uint64_t address, uint64_t bytes, uint64_t handle);
    CUresult (*unmap)(struct flw_source *source, uint64_t address, uint64_t bytes);
    CUresult (*set_access)(struct flw_source *source, uint64_t address, uint64_t bytes);
    /* Of one device that is not its own, whether it is among access_devices or not. */
    CUresult (*set_peer)(struct flw_source *source, uint64_t address, uint64_t bytes, int device,
                         bool is_allowed);
    /* else: segments. */
    CUresult (*acquire)(struct flw_source *source, uint64_t bytes, uint64_t *out_address);
    CUresult (*release_segment)(struct flw_source *source, uint64_t address);
};

#define FLW_SOURCE_DEVICES 17 /* its own and peers */

struct flw_source {
    const struct flw_source_ops *ops;
    const struct flw_driver *driver;
    CUcontext context; /* the pool's; handles and mappings are of the device, not of it */
    int device;
    uint64_t granularity_bytes; /* of handles or segments; a multiple of the unit */
    int access_devices[FLW_SOURCE_DEVICES];
    uint32_t access_count;
    /* What new handles carry. It falls where the driver refuses, from asked_kinds on, and never below
     * named_kinds, which the caller has insisted on. */
    _Atomic uint32_t kinds;
    uint32_t asked_kinds, named_kinds;
    struct flw_refusal refusals[FLW_REFUSED_COUNT];
    /* A grain of the probe that the driver would not take back, 0: none; mapped at the probe's address? */
    uint64_t left_handle;
    bool is_left_mapped, is_left_busy; /* busy: a copy may be on its way to it */
    _Atomic uint64_t *call_count;
    _Atomic bool refuses_all;   /* of late the driver refused a handle of whatever kinds */
    _Atomic bool unmaps_singly; /* the driver was seen to refuse several mappings at once */
};

extern const struct flw_source_ops flw_source_vmm;  /* cuMemCreate and friends */
extern const struct flw_source_ops flw_source_slab; /* cuMemAlloc */

/* Unmap `count` whole mappings that lie side by side from `address` on, in one call, or where the driver does
 * not take that, one after another. *out_done: how many, from the first. Not CUDA_SUCCESS: the driver refused
 * the next one, and was not asked for those behind it. */
CUresult flw_source_unmap_all(struct flw_source *source, uint64_t address, const uint64_t bytes[],
                              uint32_t count, uint32_t *out_done);

/* Fill asked_kinds, kinds and granularity_bytes by what the device says of itself; *out_can: it can
 * remap. An answer that says neither yes nor no (a broken context, say) is returned. */
CUresult flw_source_vmm_ask(struct flw_source *source, bool *out_can);

/* Settle kinds by doing: one grain, mapped at `address` in a reservation, written, read and
 * released, for kinds ever fewer until all of it works. *out_can false: it never did; refusals says
 * why. A device without memory for the grain is believed. An answer of a broken context is
 * returned. */
CUresult flw_source_vmm_probe(struct flw_source *source, uint64_t address, bool *out_can);

/* The call failed; device, context and pool are well. */
bool flw_source_is_refused(CUresult result);
/* SUCCESS: it is noted that the call refused handles of every kind. Else the answer of a broken context. */
CUresult flw_source_refuse(struct flw_source *source, CUresult answer, const char *call);

#endif
