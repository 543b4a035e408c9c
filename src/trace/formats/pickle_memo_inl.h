/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pickle machine's memo, 8 B per entry. Inline, because most opcodes of a snapshot fetch from the memo.
 * Does not: interpret opcodes.
 */
#ifndef FLW_TRACE_FORMATS_PICKLE_MEMO_INL_H
#define FLW_TRACE_FORMATS_PICKLE_MEMO_INL_H

#include "trace/formats/pickle_inl.h"
#include "trace/trace/largearray.h"

/* A memo entry: kind + 1 above the bits, or WIDE + kind above the number of a pair that holds them. */
#define FLW_MEMO_SHIFT 60
#define FLW_MEMO_WIDE  (FLW_PICKLE_LIST + 2)
_Static_assert(FLW_MEMO_WIDE + FLW_PICKLE_NEGATIVE < 16, "four bits say the kind");

static inline bool flw_memo_pack(struct flw_machine *m, struct flw_pickle_value value,
                                 uint64_t *out)
{
    uint64_t kind = (uint64_t)value.kind + 1;
    uint64_t bits = value.bits;
    if (FLW_UNLIKELY(bits >> FLW_MEMO_SHIFT != 0)) { /* only numbers are that large */
        struct flw_intern_pair wide = {bits, 0};
        kind = FLW_MEMO_WIDE + (uint64_t)value.kind;
        if (!flw_intern_add_pair(flw_harvest_intern(m->kept), wide, &bits)) {
            return false;
        }
    }
    *out = kind << FLW_MEMO_SHIFT | bits;
    return true;
}

static inline struct flw_pickle_value flw_memo_unpack(struct flw_machine *m, uint64_t entry)
{
    uint32_t kind = (uint32_t)(entry >> FLW_MEMO_SHIFT);
    uint64_t bits = entry & ((UINT64_C(1) << FLW_MEMO_SHIFT) - 1);
    if (FLW_UNLIKELY(kind >= FLW_MEMO_WIDE)) {
        return (struct flw_pickle_value){flw_harvest_intern(m->kept)->pairs[bits].first,
                                         kind - FLW_MEMO_WIDE};
    }
    return (struct flw_pickle_value){bits, kind - 1};
}

/* Store the topmost value, which stays, at the index. */
static inline bool flw_memo_put(struct flw_machine *m, uint64_t index)
{
    uint64_t entry;
    if (!flw_machine_need(m, 1)) {
        return false;
    }
    if (index >= m->opcode_offset) {
        return flw_machine_fail(m, "the memo index is larger than the bytes read");
    }
    if (!FLW_LARGEARRAY_FITS(m->memo, (size_t)index, m->memo_room)) {
        return flw_machine_fail_memory(m);
    }
    if (!flw_memo_pack(m, m->stack[m->depth - 1], &entry)) {
        return flw_machine_fail_memory(m);
    }
    m->memo[index] = entry;
    return true;
}

/* Push the value at the index that follows. The operand is the size of the index. */
static inline bool flw_memo_get(struct flw_machine *m)
{
    uint64_t index;
    if (!flw_machine_take_number(m, m->operand, &index)) {
        return false;
    }
    if (FLW_UNLIKELY(index >= m->memo_room || m->memo[index] == 0)) {
        return flw_machine_fail(m, "nothing was put at that memo index");
    }
    return flw_machine_push(m, flw_memo_unpack(m, m->memo[index]));
}

#endif
