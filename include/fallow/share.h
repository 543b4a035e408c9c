/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Memory that several processes or devices use.
 *
 * A block that was asked for with FALLOW_REQUEST_EXPORT_FD or _FABRIC has a physical handle for
 * itself. fallow_export makes something of it that can be sent: a file descriptor over a UNIX
 * socket (SCM_RIGHTS), 64 bytes of a fabric handle any way. The other process gives it to
 * fallow_import of a pool of its own and gets an address where the same bytes are.
 *
 * CAVEATS
 *  - Order between the processes is theirs: nothing here makes one wait for the other's work.
 *  - A block may be freed while importers still have it. What they have stays: the memory goes when
 *    the last of them has unimported it. The pool never reuses an exported handle; it gives it
 *    back to the driver as soon as the freed block's work is complete, in that free or in a later
 *    call (a free of an exported block, poll, trim, a growth).
 *  - What is imported counts for no limit and in no `reserved_bytes`: it is the exporter's.
 *  - A pool that sleeps keeps its exported handles: importers may be using them.
 */
#ifndef FALLOW_SHARE_H
#define FALLOW_SHARE_H

#include "fallow/fallow.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What travels. Plain bytes, but for the descriptor, which is a number of one process. */
typedef struct fallow_share {
    size_t struct_size;       /**< set by fallow_share_init */
    uint32_t type;            /**< FALLOW_HANDLE_FD or FALLOW_HANDLE_FABRIC */
    int32_t descriptor;       /**< FD: open in this process; else -1 */
    uint64_t handle_bytes;    /**< the physical handle, all of which is imported */
    uint64_t offset_bytes;    /**< of the block in it */
    uint64_t size_bytes;      /**< of the block, as asked for */
    unsigned char fabric[64]; /**< FABRIC */
} fallow_share;

/** Fill with defaults, recording the caller's size of the struct. */
FALLOW_API void fallow_share_init_sized(fallow_share *share, size_t struct_size);
/** The same with the size that this header knows. */
static inline void fallow_share_init(fallow_share *share)
{
    fallow_share_init_sized(share, sizeof *share);
}

/**
 * Make something of a live block that another process can import.
 *
 * Ownership   the caller closes out_share->descriptor; importers need the descriptor until they have imported.
 *             Clear FD_CLOEXEC before an exec that must keep the descriptor: drivers may set the flag.
 *             The block stays the caller's, to be freed as any other.
 * Errors      NOT_SUPPORTED (no virtual memory management, or a type that is not among the pool's
 *             `handle_types`), INVALID_POINTER (no live block begins there), INVALID_ARGUMENT
 *             (unknown type; a block that shares its handle with others, or was allocated inside a
 *             capture), ASLEEP, DEVICE_LOST, DRIVER, OUT_OF_HOST_MEMORY. The log says which.
 * Cost        driver calls.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_export(fallow_pool *pool, const void *ptr,
                                                        uint32_t type, fallow_share *out_share);

/**
 * Map what another process, or this one, has exported.
 *
 * Contents    the exporter's.
 * Ordering    usable by any work of the pool's device and its peers that is given after the call.
 * Ownership   *out_ptr until fallow_unimport, or the end of the pool. fallow_free refuses it. The
 *             descriptor stays the caller's, who may close it.
 * Errors      INVALID_ARGUMENT (not a valid share), NOT_SUPPORTED, OUT_OF_MEMORY (also if
 *             the driver reserves no range as large as the exporter's handle), OUT_OF_HOST_MEMORY, DEVICE_LOST,
 *             DRIVER (the driver does not recognise the memory).
 *             Nothing is left behind.
 * Cost        driver calls, an address range of its own.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_import(fallow_pool *pool,
                                                        const fallow_share *share, void **out_ptr);

/** Give up what fallow_import gave. Waits for all work of the pool's context; work of peers must be
 *  complete. What the driver refuses to unmap then is tried again by a poll. Errors: INVALID_POINTER,
 *  CAPTURING (the wait would break a capture; README.md, "Captures that a call meets", lists the captures that it
 *  ends), DRIVER (the driver refuses to wait); nothing changed then.
 *  DEVICE_LOST (the device was lost in this call; of one that was lost before, OK, and nothing is done,
 *  as a free does). NULL is OK. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_unimport(fallow_pool *pool, void *ptr);

/**
 * Let another device read and write all of the pool's memory, what it has and what comes; or no
 * more. Devices named in `peer_devices` are allowed from the start; 16 at a time.
 *
 * Ordering    deny: the peer's work on the memory must be complete.
 * Errors      NOT_FOUND (no such device), INVALID_ARGUMENT (the pool's own; one more than 16),
 *             NOT_SUPPORTED (it cannot reach the pool's device, or no virtual memory management: what
 *             cuMemAlloc gave is reached by cuCtxEnablePeerAccess), BUSY (called from a callback of a
 *             sleep, or beside one), DRIVER, DEVICE_LOST. All of it changes or nothing; where the
 *             driver refuses the way back too, the log says so: call again.
 * Cost        a driver call for each stretch of mapped memory. Waits for allocations under way;
 *             those that need the driver wait meanwhile. Not from on_oom.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_allow_peer(fallow_pool *pool, int device);
/** See fallow_pool_allow_peer. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_deny_peer(fallow_pool *pool, int device);

#ifdef __cplusplus
}
#endif

#endif
