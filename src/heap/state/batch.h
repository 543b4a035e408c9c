/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the batch, some free slots of one class that left a thread cache together and share a
 * point, and the list of batches of one class. Does not: record the owner of a list.
 * Synchronization: the heap lock. */
#ifndef FLW_HEAP_STATE_BATCH_H
#define FLW_HEAP_STATE_BATCH_H

#include "memory/span.h"

#define FLW_BATCH_SLOTS 64

/* A batch changes owners as a whole: putting or taking one reads no word of a slot, since these
 * words are in another core's cache. Slabs count the slots of a batch, and join the point, only
 * when a caller searches for empty slabs; until then the batch is *uncounted* and in the heap's
 * list of those. */
struct flw_batch {
    struct flw_batch *next, *prev; /* head of a list: newest number */
    struct flw_batch *uncounted_next, *uncounted_prev;
    uint64_t seq;    /* of `domain` */
    uint32_t domain; /* the owner; in a list of unowned batches the previous owner, whose point
                         is complete */
    uint32_t count;
    uint32_t class_index;
    bool is_counted;
    struct flw_slot *slots[FLW_BATCH_SLOTS];
};

struct flw_batch_list {
    struct flw_batch *head, *tail;
};

static inline void flw_batch_push(struct flw_batch_list *list, struct flw_batch *batch)
{
    batch->prev = NULL;
    batch->next = list->head;
    *(list->head != NULL ? &list->head->prev : &list->tail) = batch;
    list->head = batch;
}

static inline void flw_batch_remove(struct flw_batch_list *list, struct flw_batch *batch)
{
    *(batch->prev != NULL ? &batch->prev->next : &list->head) = batch->next;
    *(batch->next != NULL ? &batch->next->prev : &list->tail) = batch->prev;
}

#endif
