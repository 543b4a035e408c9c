/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: memory: allocations, reservations, physical handles and mappings, the ledger, pinned host
 * memory, driver pools, and the lookup of addresses.
 * Does not: order work.
 * Synchronization: the world's lock. */
#ifndef FLW_SIMCUDA_STORAGE_H
#define FLW_SIMCUDA_STORAGE_H

#include "simcuda/order.h"

/* Contents in host memory. A sparse one stores a step of 64 KiB that holds one repeated value as
 * that value: memory that was never written and a large fill use no host memory. */
struct flw_bytes {
    unsigned char *at; /* NULL: no contents */
    uint64_t bytes;
    uint64_t *step; /* NULL: not sparse. Per step 0: zeros; STEP_STORED: as `at`; otherwise the
                       value of 4 bytes << 32 | STEP_FILLED. at[] holds zeros in all but STORED */
};

/* Memory of a device: of a handle, or of one allocation. */
struct flw_physical {
    struct flw_physical *next, *previous; /* of the world */
    struct flw_device *device;
    uint64_t bytes, ledger_bytes; /* ledger_bytes 0: imported, counted by another process */
    uint64_t id;
    struct flw_bytes content;             /* backed memory only */
    struct flw_bytes shadow;              /* backed and checked: one byte per byte */
    int file;                             /* memfd of an exportable handle, otherwise -1 */
    CUmemGenericAllocationHandle handle;  /* 0: released, kept by the mappings */
    uint64_t handle_count, mapping_count; /* INVARIANT freed when both are 0 */
    CUmemAllocationProp properties;
};

enum flw_region_kind {
    FLW_REGION_ALLOCATION,  /* cuMemAlloc */
    FLW_REGION_MANAGED,     /* cuMemAllocManaged: real host memory */
    FLW_REGION_HOST,        /* cuMemHostAlloc; the caller's own, registered */
    FLW_REGION_RESERVATION, /* cuMemAddressReserve */
    FLW_REGION_POOLED       /* a chunk of a driver pool */
};

struct flw_region {
    struct flw_tree_node node; /* the whole range, including padding */
    enum flw_region_kind kind;
    uint64_t bytes; /* as requested */
    struct flw_context *context;
    struct flw_device *device;
    struct flw_physical *physical;
    struct flw_memory_pool *pool;
    void *host;
    unsigned flags;
    bool is_synchronous; /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: stored, without effect */
    bool is_registered;  /* host is the caller's and stays mapped */
    bool is_freed;       /* by cuMemFreeAsync: released when `freed` is found complete */
    struct flw_position freed;
    struct flw_region *next_freed; /* of the world's list */
};

struct flw_mapping {
    struct flw_tree_node node;
    struct flw_physical *physical;
    unsigned char access[FLW_DEVICE_MAX]; /* CUmemAccess_flags */
};

/* memory.c */
CUresult flw_ledger_give(struct flw_device *device, uint64_t bytes);
void flw_ledger_take_back(struct flw_device *device, uint64_t bytes);
/* Recompute every account from the live objects. */
bool flw_ledger_is_valid(void);
struct flw_region *flw_region_find(uint64_t address);
struct flw_region *flw_region_add(enum flw_region_kind kind, uint64_t begin, uint64_t end);
/* Return a region at a new address with memory of its own; NULL with the error to return. */
struct flw_region *flw_region_give(enum flw_region_kind kind, struct flw_device *device,
                                   uint64_t bytes, uint64_t align_bytes, CUresult *error);
void flw_region_remove(struct flw_region *region);
/* cuMemFreeAsync of cuMemAlloc memory. */
CUresult flw_memory_free_in_order(struct flw_stream *stream, uint64_t address);
/* Release memory that was freed this way and is complete. */
void flw_memory_collect(void);
void flw_memory_end_context(struct flw_context *context);
void flw_memory_finish_all(void);

/* physical.c */
struct flw_physical *flw_physical_make(struct flw_device *device, uint64_t bytes, CUresult *error);
/* Create a file for the memory, which another process can map. False: the host has none. */
bool flw_physical_open(struct flw_physical *physical);
void flw_physical_free(struct flw_physical *physical);
/* Make `bytes` zeros. Sparse in a world whose new memory holds zeros. False: the host has none. */
bool flw_bytes_make(struct flw_bytes *bytes, uint64_t size);
void flw_bytes_end(struct flw_bytes *bytes);
/* Return the bytes from `offset` on, all stored, for a writer. */
unsigned char *flw_bytes_write(struct flw_bytes *bytes, uint64_t offset, uint64_t size);
/* Return bytes from `offset` on for a reader, at most `*size`, shortened to one step if that step is
 * not stored; valid until the next call. */
const unsigned char *flw_bytes_read(const struct flw_bytes *bytes, uint64_t offset, uint64_t *size);
/* True if flw_bytes_read returned this for a step of one value. */
bool flw_bytes_is_uniform(const unsigned char *read);
/* Repeat a value of 1, 2 or 4 bytes; the offset is aligned to it. */
void flw_bytes_fill(struct flw_bytes *bytes, uint64_t offset, uint64_t size, uint32_t value,
                    unsigned value_bytes);
/* Write the `size` bytes that flw_bytes_read returned. */
void flw_bytes_put(struct flw_bytes *bytes, uint64_t offset, const unsigned char *read,
                   uint64_t size);
void flw_physical_drop_if_unused(struct flw_physical *physical);

/* vmm.c */
struct flw_mapping *flw_mapping_find(uint64_t address);
void flw_vmm_finish_all(void);

/* mempool.c */
bool flw_pool_owns(uint64_t address);
CUresult flw_pool_free_now(uint64_t address);
void flw_pool_free_of_graph(uint64_t address);
/* Return the range of the pool block at an address; false: none is allocated there. */
bool flw_pool_block_at(uint64_t address, uint64_t *begin, uint64_t *end);
void flw_pool_host_waited(void);
void flw_pool_finish_all(void);

/* True if memory of this driver is at the address. Only the first byte is checked; the checker
 * checks the rest. */
bool flw_storage_is_known(uint64_t address);
/* True if the address is pinned or managed memory. */
bool flw_storage_is_host(uint64_t address);
/* Also memory of the process that the device can read. */
bool flw_storage_is_readable(uint64_t address);

/* A contiguous part of memory with contents. */
struct flw_part {
    unsigned char *host;           /* host memory at that address, or NULL */
    struct flw_physical *physical; /* otherwise this memory's bytes from `offset` on */
    uint64_t offset, bytes;
};
/* Find the part that begins at the address, at most `bytes` long. False: no memory there, or memory
 * without contents. */
bool flw_storage_part(uint64_t address, uint64_t bytes, struct flw_part *part);
/* Return contents of the part for a reader and its length, at most `*bytes`; NULL as above. Some
 * devices can also read the process's own memory. */
const unsigned char *flw_storage_to_read(uint64_t address, uint64_t *bytes);

/* Read the range, up to the first part without contents. False: there was one. */
bool flw_storage_read(void *to, uint64_t from, uint64_t bytes);
/* Write the range, and mark the written bytes in the shadow. */
void flw_storage_write(uint64_t to, const void *from, uint64_t bytes, unsigned char mark);
void flw_storage_fill(uint64_t to, uint64_t bytes, uint32_t value, unsigned value_bytes,
                      unsigned char mark);
/* Copy the range without its shadow. */
void flw_storage_copy(uint64_t to, uint64_t from, uint64_t bytes);

#endif
