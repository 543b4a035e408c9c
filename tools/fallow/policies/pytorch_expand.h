/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the expandable segments of the model of PyTorch's allocator: where a request that no free
 * block fits is put, which granules get memory for it, and which lose it. Does not: choose among
 * free blocks, or split.
 */
#ifndef FLW_TOOL_PYTORCH_EXPAND_H
#define FLW_TOOL_PYTORCH_EXPAND_H

#include "policies/pytorch_model.h"

struct flw_pytorch_expand {
    struct flw_segheap *heap;
    const struct flw_pytorch_source *source;
    uint64_t address_room_bytes;
    uint16_t first_private; /* segments of streams from this number on are left alone by release */
};

/* A block of at least `size_bytes`, free and in no list: at the lowest addresses of the stream where
 * free and unmapped blocks have room, mapped as far as it must be. NULL: out of memory; what was
 * mapped stays. */
struct flw_segheap_block *flw_pytorch_expand_for(const struct flw_pytorch_expand *expand,
                                                 uint8_t pool, uint64_t size_bytes,
                                                 uint16_t stream);

/* Unmap every granule without a live byte; drop segments of which nothing is left. */
void flw_pytorch_expand_release(const struct flw_pytorch_expand *expand);

/* All memory and addresses back, whatever is live. */
void flw_pytorch_expand_finish(const struct flw_pytorch_expand *expand);

#endif
