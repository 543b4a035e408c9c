/* SPDX-License-Identifier: Apache-2.0 */
#include "report/packing.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/check.h"

#include "common/tool_host.h"

/* Looks at placed blocks, of both orders together: the same answer on every machine. */
#define MOST_STEPS (UINT64_C(1) << 28)

/* A block: a rectangle of ops and addresses. */
struct item {
    uint64_t address, size_bytes;
    uint64_t begin_op, end_op;
};

struct packing {
    struct item *items;  /* in the order of placing */
    struct item *placed; /* by address */
    size_t count, placed_count;
    uint64_t step_count;
};

static uint64_t weight_of(const struct item *item)
{
    uint64_t weight = 0;
    bool overflows =
        __builtin_mul_overflow(item->size_bytes, item->end_op - item->begin_op, &weight);
    return overflows ? UINT64_MAX : weight;
}

/* Falling by `x`; of equals, the first to live. */
static int compare(uint64_t x, uint64_t y, const struct item *a, const struct item *b)
{
    int falling = (x < y) - (x > y);
    return falling != 0 ? falling : (a->begin_op > b->begin_op) - (a->begin_op < b->begin_op);
}

static int compare_sizes(const void *a, const void *b)
{
    return compare(((const struct item *)a)->size_bytes, ((const struct item *)b)->size_bytes, a,
                   b);
}

static int compare_weights(const void *a, const void *b)
{
    return compare(weight_of(a), weight_of(b), a, b);
}

/* The lowest address where the item meets none that lives when it does. */
static uint64_t find_address(struct packing *packing, const struct item *item)
{
    uint64_t address = 0;
    size_t i = 0;
    for (; i < packing->placed_count; i++) {
        const struct item *other = &packing->placed[i];
        bool meets = other->begin_op < item->end_op && item->begin_op < other->end_op;
        if (!meets) {
            continue;
        }
        if (other->address >= address + item->size_bytes) {
            break;
        }
        address = flw_max(address, other->address + other->size_bytes);
    }
    packing->step_count += i;
    return address;
}

static void place(struct packing *packing, struct item item)
{
    size_t low = 0;
    size_t high = packing->placed_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (packing->placed[middle].address <= item.address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    memmove(&packing->placed[low + 1], &packing->placed[low],
            (packing->placed_count - low) * sizeof item);
    packing->placed[low] = item;
    packing->placed_count++;
}

#define CHECKED_COUNT 4096 /* blocks that the check below goes through: it is quadratic */

/* No two that live together share a byte. */
static bool is_packed(const struct packing *packing)
{
    size_t count = flw_min(packing->placed_count, CHECKED_COUNT);
    for (size_t i = 0; i < count; i++) {
        const struct item *a = &packing->placed[i];
        for (size_t j = i + 1; j < count; j++) {
            const struct item *b = &packing->placed[j];
            bool shares_bytes = b->address < a->address + a->size_bytes; /* b is not below a */
            if (shares_bytes && a->begin_op < b->end_op && b->begin_op < a->end_op) {
                return false;
            }
        }
    }
    return true;
}

/* UINT64_MAX: too many steps. */
static uint64_t pack(struct packing *packing)
{
    uint64_t top = 0;
    packing->placed_count = 0;
    for (size_t i = 0; i < packing->count; i++) {
        struct item *item = &packing->items[i];
        item->address = find_address(packing, item);
        if (packing->step_count > MOST_STEPS) {
            return UINT64_MAX;
        }
        place(packing, *item);
        top = flw_max(top, item->address + item->size_bytes);
    }
    FLW_ASSERT_VALID(is_packed(packing));
    return top;
}

/* False: the sizes add up to more than addresses can say. */
static bool list_items(const struct flw_program *program, const uint64_t *end_ops,
                       struct packing *packing)
{
    uint64_t total_bytes = 0;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct flw_op *op = &program->ops[i];
        if (op->kind == FLW_OP_ALLOC) {
            if (__builtin_add_overflow(total_bytes, op->size_bytes, &total_bytes)) {
                return false;
            }
            packing->items[packing->count++] = (struct item){
                .size_bytes = op->size_bytes, .begin_op = i, .end_op = end_ops[op->block]};
        }
    }
    return true;
}

uint64_t flw_packing_measure(const struct flw_program *program, const uint64_t *end_ops)
{
    struct packing packing = {.items = flw_host_alloc(program->block_count, sizeof *packing.items),
                              .placed =
                                  flw_host_alloc(program->block_count, sizeof *packing.placed)};
    uint64_t bytes = UINT64_MAX;
    if (list_items(program, end_ops, &packing)) {
        qsort(packing.items, packing.count, sizeof *packing.items, compare_sizes);
        uint64_t by_size = pack(&packing);
        qsort(packing.items, packing.count, sizeof *packing.items, compare_weights);
        bytes = flw_min(by_size, pack(&packing));
    }
    flw_host_free(packing.items);
    flw_host_free(packing.placed);
    return bytes;
}
