/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: memory: allocations, reservations, physical handles and mappings, the ledger, pinned host
 * memory, driver pools, and where an address leads.
 * Does not: order work.
 * Synchronization: the world's lock.
 */
#ifndef FLW_SIMCUDA_STORAGE_H
#define FLW_SIMCUDA_STORAGE_H

#include "simcuda/order.h"

/* Memory of a device: of a handle, or of one allocation. */
struct flw_physical {
    struct flw_physical *next, *previous; /* of the world */
    struct flw_device *device;
    uint64_t bytes, ledger_bytes; /* ledger_bytes 0: imported, another process pays */
    uint64_t id;
    unsigned char *content;               /* backed memory only */
    unsigned char *shadow;                /* backed and checked: one byte a byte */
    int file;                             /* memfd of an exportable handle, else -1 */
    CUmemGenericAllocationHandle handle;  /* 0: released, alive by its mappings */
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
    struct flw_tree_node node; /* the whole range, padding included */
    enum flw_region_kind kind;
    uint64_t bytes; /* as asked for */
    struct flw_context *context;
    struct flw_device *device;
    struct flw_physical *physical;
    struct flw_memory_pool *pool;
    void *host;
    unsigned flags;
    bool is_synchronous; /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: kept, not acted on */
    bool is_registered;  /* host is the caller's and stays mapped */
    bool is_freed;       /* by cuMemFreeAsync: it goes when `freed` is found done */
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
/* Recomputes every account from what is alive. */
bool flw_ledger_is_valid(void);
struct flw_region *flw_region_find(uint64_t address);
struct flw_region *flw_region_add(enum flw_region_kind kind, uint64_t begin, uint64_t end);
/* A region at a new address with memory of its own; NULL with the error to answer. */
struct flw_region *flw_region_give(enum flw_region_kind kind, struct flw_device *device,
                                   uint64_t bytes, uint64_t align_bytes, CUresult *error);
void flw_region_remove(struct flw_region *region);
/* cuMemFreeAsync of what cuMemAlloc gave. */
CUresult flw_memory_free_in_order(struct flw_stream *stream, uint64_t address);
/* Drop what was freed so and is done. */
void flw_memory_collect(void);
void flw_memory_end_context(struct flw_context *context);
void flw_memory_finish_all(void);

/* physical.c */
struct flw_physical *flw_physical_make(struct flw_device *device, uint64_t bytes, CUresult *error);
/* It has a file, which another process can map. False: the host has none to give. */
bool flw_physical_open(struct flw_physical *physical);
void flw_physical_free(struct flw_physical *physical);
void flw_physical_drop_if_unused(struct flw_physical *physical);

/* vmm.c */
struct flw_mapping *flw_mapping_find(uint64_t address);
void flw_vmm_finish_all(void);

/* mempool.c */
bool flw_pool_owns(uint64_t address);
CUresult flw_pool_free_now(uint64_t address);
void flw_pool_free_of_graph(uint64_t address);
/* The pool block at an address: its range; false: none is allocated there. */
bool flw_pool_block_at(uint64_t address, uint64_t *begin, uint64_t *end);
void flw_pool_host_waited(void);
void flw_pool_finish_all(void);

/* Does anything of this driver's lie here? The first byte is looked at; the checker sees the rest. */
bool flw_storage_is_known(uint64_t address);
/* Or of the process, where the device reads that. */
bool flw_storage_is_readable(uint64_t address);

/* Contents of one stretch of [address, +bytes): at most `*bytes`, shortened to what lies together.
 * NULL: nothing is there. On memory without contents NULL too. */
unsigned char *flw_storage_content(uint64_t address, uint64_t *bytes, unsigned char **shadow);
/* The same for a reader, which some devices let read the process's own memory. */
const unsigned char *flw_storage_to_read(uint64_t address, uint64_t *bytes);

/* All of it, up to the first stretch that has no contents. False: there was one. */
bool flw_storage_read(void *to, uint64_t from, uint64_t bytes);
/* The same; what is written is marked in the shadow. */
void flw_storage_write(uint64_t to, const void *from, uint64_t bytes, unsigned char mark);

#endif
