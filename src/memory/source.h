/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: page sources, the ways in which a pool gets memory. Every function is driver calls and
 * nothing else: no lock is held, no state kept. What a source gave is known to the heap, which
 * alone decides.
 *
 * A source that *remaps* has address space and physical handles apart (CUDA virtual memory
 * management); one that does not gives and takes whole *segments*.
 *
 * To add one: fill a flw_source_ops; the heap above stays as it is.
 */
#ifndef FLW_MEMORY_SOURCE_H
#define FLW_MEMORY_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/driver.h"

struct flw_source;

struct flw_source_ops {
    const char *name;
    bool remaps;
    /* remaps: an address range, aligned to a power of two (0: as a mapping needs it), and its end. */
    CUresult (*reserve)(struct flw_source *source, uint64_t bytes, uint64_t align_bytes,
                        uint64_t *out_base);
    CUresult (*unreserve)(struct flw_source *source, uint64_t base, uint64_t bytes);
    CUresult (*create)(struct flw_source *source, uint64_t bytes, uint32_t handle_types,
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
    CUresult (*give_back)(struct flw_source *source, uint64_t address);
};

#define FLW_SOURCE_DEVICES 17 /* its own and peers */

struct flw_source {
    const struct flw_source_ops *ops;
    const struct flw_driver *driver;
    int device;
    uint64_t granularity_bytes; /* of handles or segments; a multiple of the unit */
    int access_devices[FLW_SOURCE_DEVICES];
    uint32_t access_count;
    uint32_t handle_types; /* FALLOW_HANDLE_ bits every handle carries */
    _Atomic uint64_t *call_count;
};

extern const struct flw_source_ops flw_source_vmm;  /* cuMemCreate and friends */
extern const struct flw_source_ops flw_source_slab; /* cuMemAlloc */

/* *out_can: the driver and device can remap; fills granularity_bytes then. An answer that says
 * neither yes nor no (a broken context, say) is returned. */
CUresult flw_source_vmm_probe(struct flw_source *source, bool *out_can);

#endif
