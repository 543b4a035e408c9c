/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Share memory between processes and devices.
 *
 * A block allocated with FALLOW_REQUEST_EXPORT_FD or _FABRIC fills a physical handle of its own.
 * fallow_export returns a share that can be sent to another process: a file descriptor over a UNIX
 * socket (SCM_RIGHTS), or the 64 bytes of a fabric handle over any channel. The other process passes
 * the share to fallow_import of one of its pools and gets an address of the same memory.
 *
 * CAVEATS
 *  - The processes order their work themselves; nothing here makes one wait for the other.
 *  - A block may be freed while importers use it: the memory is released when the last importer calls
 *    fallow_unimport. The pool never reuses an exported handle. It releases the handle once the freed
 *    block's work is complete, in that free or in a later call (a free of an exported block, a poll,
 *    a trim or a growth).
 *  - Imported memory counts towards no limit and no `reserved_bytes`; the exporter's pool counts it.
 *  - A sleeping pool keeps its exported handles, because importers may be using them.
 */
#ifndef FALLOW_SHARE_H
#define FALLOW_SHARE_H

#include "fallow/fallow.h"

#ifdef __cplusplus
extern "C" {
#endif

/** An exported block. All fields are valid in any process, except the descriptor. */
typedef struct fallow_share {
    size_t struct_size;       /**< set by fallow_share_init */
    uint32_t type;            /**< FALLOW_HANDLE_FD or FALLOW_HANDLE_FABRIC */
    int32_t descriptor;       /**< FD: open in the exporting process; otherwise -1 */
    uint64_t handle_bytes;    /**< of the physical handle, which is imported as a whole */
    uint64_t offset_bytes;    /**< of the block in the handle */
    uint64_t size_bytes;      /**< of the block, as requested */
    unsigned char fabric[64]; /**< FABRIC */
} fallow_share;

/** Fill with defaults and set struct_size. */
FALLOW_API void fallow_share_init_sized(fallow_share *share, size_t struct_size);
/** The same with this header's size of the struct. */
static inline void fallow_share_init(fallow_share *share)
{
    fallow_share_init_sized(share, sizeof *share);
}

/**
 * Export a live block, so that another process can import it.
 *
 * Ownership   the caller closes out_share->descriptor; importers need it only until they have imported.
 *             Clear FD_CLOEXEC before an exec that must keep the descriptor: drivers may set the flag.
 *             The caller still owns the block and frees it as any other.
 * Errors      NOT_SUPPORTED (page source other than handles, or a type that is not in the pool's
 *             `handle_types`), INVALID_POINTER (no live block begins there), INVALID_ARGUMENT
 *             (unknown type; a block that shares its handle with others, or was allocated inside a
 *             capture), ASLEEP, DEVICE_LOST, DRIVER, OUT_OF_HOST_MEMORY. The log has the reason.
 * Cost        driver calls.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_export(fallow_pool *pool, const void *ptr,
                                                        uint32_t type, fallow_share *out_share);

/**
 * Map a block that another process, or this one, has exported.
 *
 * Contents    the exporter's.
 * Ordering    usable by work on the pool's device and its peers that is submitted after the call.
 * Ownership   *out_ptr is valid until fallow_unimport or the end of the pool; fallow_free refuses it.
 *             The caller still owns the descriptor and may close it.
 * Errors      INVALID_ARGUMENT (not a valid share), NOT_SUPPORTED, OUT_OF_MEMORY (also if the driver
 *             reserves no range as large as the exporter's handle), OUT_OF_HOST_MEMORY, DEVICE_LOST,
 *             DRIVER (the driver does not recognise the memory). A failed import leaves nothing
 *             behind.
 * Cost        driver calls, an address range of its own.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_import(fallow_pool *pool,
                                                        const fallow_share *share, void **out_ptr);

/**
 * Unmap a block that fallow_import returned. Waits for all work of the pool's context; work of peers
 * must be complete. If the driver refuses to unmap, a later poll tries again. NULL returns OK.
 *
 * Errors      INVALID_POINTER, CAPTURING (the wait would end a capture; README.md, "Captures that a
 *             call meets", lists which), DRIVER (the driver refuses to wait): nothing changed.
 *             DEVICE_LOST if the device is lost in this call; after an earlier loss the call returns
 *             OK and does nothing, as a free does.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_unimport(fallow_pool *pool, void *ptr);

/**
 * Allow another device to access all of the pool's memory, present and future. Devices named in
 * `peer_devices` are allowed from the start; at most 16 at a time.
 *
 * Errors      NOT_FOUND (no such device), INVALID_ARGUMENT (the pool's own device; a 17th device),
 *             NOT_SUPPORTED (the device cannot access the pool's device; or segments, which peers
 *             access by cuCtxEnablePeerAccess), BUSY (called from a callback of a sleep, or during a
 *             sleep), DRIVER, DEVICE_LOST. The call changes all memory or none. If the driver refuses
 *             to undo a partial change, the log reports it: call again.
 * Cost        a driver call for each range of mapped memory. Waits for allocations under way;
 *             allocations that need the driver wait for this call. Must not be called from on_oom.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_allow_peer(fallow_pool *pool, int device);
/** Undo fallow_pool_allow_peer. The device's work on the memory must be complete. Errors as there. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_deny_peer(fallow_pool *pool, int device);

#ifdef __cplusplus
}
#endif

#endif
