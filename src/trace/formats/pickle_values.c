/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the kept values of a pickle.
 * Does not: read pickles (pickle.c).
 *
 * A container is a node of 8 bytes. The values of a dict are the number of the *shape* (words, kinds and widths, each
 * shape stored once) and the bytes of the values. A dict that is a frame is only the frame's number, a list of frames
 * only the number of the stack.
 */
#include <endian.h>
#include <string.h>

#include "base/bits.h"
#include "trace/formats/pickle.h"
#include "trace/trace/largearray.h"

#define NUMBER_BYTES 10          /* of 7 bits each, at most */
#define WIDTH_SHIFT  4           /* in a shape: width above kind + 1 */
#define STACK_BIT    0x80000000u /* of a node: a frame or a stack, not a dict's bytes or a list */

struct flw_pickle_node {
    uint32_t offset;
    uint32_t link; /* dict: offset of the bytes; list: 1 + number; 0: empty so far */
};

/* ---- keeping ---- */

bool flw_pickle_add_node(struct flw_pickle *pickle, uint32_t kind, uint64_t offset,
                         struct flw_pickle_value *out_value)
{
    if (pickle->node_count >= UINT32_MAX / 2 ||
        !FLW_LARGEARRAY_FITS(pickle->nodes, pickle->node_count, pickle->node_room)) {
        return false;
    }
    pickle->nodes[pickle->node_count] = (struct flw_pickle_node){(uint32_t)offset, 0};
    *out_value = (struct flw_pickle_value){pickle->node_count++, kind};
    return true;
}

/* Make an empty list a stack if all items are frames. Returns false if memory runs out. */
static bool make_stack(struct flw_pickle *pickle, struct flw_pickle_node *node,
                       const struct flw_pickle_value *items, size_t item_count)
{
    uint32_t frames[FLW_STACK_DEPTH_MOST], stack;
    size_t count = flw_min(item_count, FLW_STACK_DEPTH_MOST);
    for (size_t i = 0; i < count; i++) {
        uint32_t link = items[i].kind == FLW_PICKLE_DICT ? pickle->nodes[items[i].bits].link : 0;
        if (link < STACK_BIT) {
            return true;
        }
        frames[i] = link & ~STACK_BIT;
    }
    if (!flw_stacks_add(&pickle->stacks, frames, count, &stack)) {
        return false;
    }
    node->link = STACK_BIT | stack;
    return true;
}

static bool is_kept(const struct flw_pickle *pickle, struct flw_pickle_value item)
{
    return item.kind == FLW_PICKLE_LIST ||
           (item.kind == FLW_PICKLE_DICT && pickle->nodes[item.bits].link != 0);
}

/* Append a chunk of the items that are kept. */
static void append_chunk(struct flw_pickle *pickle, struct flw_pickle_list *list,
                         const struct flw_pickle_value *items, size_t count)
{
    uint32_t chunk = (uint32_t)pickle->item_count, kept = 0;
    uint32_t *out = &pickle->items[chunk];
    for (size_t i = 0; i < count; i++) {
        if (is_kept(pickle, items[i])) {
            out[2 + kept++] = (uint32_t)(items[i].bits << 1 | (items[i].kind == FLW_PICKLE_LIST));
        }
    }
    list->has_left_out |= kept < count;
    if (kept == 0) {
        return;
    }
    out[0] = 0;
    out[1] = kept;
    pickle->item_count += 2 + kept;
    *(list->first == 0 ? &list->first : &pickle->items[list->last]) = chunk;
    list->last = chunk;
    list->count += kept;
}

static const char *extend_list(struct flw_pickle *pickle, struct flw_pickle_node *node,
                               const struct flw_pickle_value *items, size_t count)
{
    if (count > 0 && node->link == 0 && !make_stack(pickle, node, items, count)) {
        return FLW_PICKLE_NO_MEMORY;
    }
    if (count == 0 || node->link >= STACK_BIT) {
        return NULL;
    }
    size_t need = pickle->item_count + 2 + count;
    if (need > UINT32_MAX || !FLW_LARGEARRAY_HOLDS(pickle->items, need, pickle->item_room) ||
        !FLW_LARGEARRAY_FITS(pickle->lists, pickle->list_count, pickle->list_room)) {
        return FLW_PICKLE_NO_MEMORY;
    }
    if (node->link == 0) {
        pickle->lists[pickle->list_count++] = (struct flw_pickle_list){0};
        node->link = (uint32_t)pickle->list_count;
    }
    append_chunk(pickle, &pickle->lists[node->link - 1], items, count);
    return NULL;
}

/* Make the dict a frame if it is one. Returns false if memory runs out. */
static bool make_frame(struct flw_pickle *pickle, struct flw_pickle_node *node,
                       const struct flw_pickle_dict *dict)
{
    const uint64_t keys =
        UINT64_C(1) << WORD_NAME | UINT64_C(1) << WORD_FILENAME | UINT64_C(1) << WORD_LINE;
    if (dict->words != keys || dict->values[WORD_LINE].kind != FLW_PICKLE_UNSIGNED) {
        return true;
    }
    const char *function = flw_pickle_text(pickle, dict->values[WORD_NAME]);
    const char *file = flw_pickle_text(pickle, dict->values[WORD_FILENAME]);
    uint32_t line = (uint32_t)flw_min(dict->values[WORD_LINE].bits, UINT32_MAX), frame;
    if (function == NULL || file == NULL) {
        return true;
    }
    if (!flw_stacks_add_frame(&pickle->stacks, function, file, line, &frame)) {
        return false;
    }
    node->link = STACK_BIT | frame;
    return true;
}

static unsigned width_of(uint64_t bits)
{
    return bits == 0 ? 0 : (71 - (unsigned)__builtin_clzll(bits)) / 8;
}

/* Find the number of a shape, usually that of the previous dict. */
static bool find_shape(struct flw_pickle *pickle, const char *shape, size_t bytes)
{
    if (memcmp(pickle->shape, shape, bytes + 1) == 0) {
        return true;
    }
    if (!flw_intern_add_text(&pickle->shapes, shape, bytes, &pickle->shape_number)) {
        return false;
    }
    memcpy(pickle->shape, shape, bytes + 1);
    return true;
}

/* Store the values of a dict, which has at least one. */
static bool store_dict(struct flw_pickle *pickle, struct flw_pickle_node *node,
                       const struct flw_pickle_dict *dict)
{
    char shape[2 * WORD_COUNT + 1];
    unsigned char packed[WORD_COUNT * sizeof(uint64_t)];
    size_t shape_bytes = 0, packed_bytes = 0;
    for (uint64_t left = dict->words; left != 0; left &= left - 1) {
        unsigned word = (unsigned)__builtin_ctzll(left);
        unsigned width = width_of(dict->values[word].bits);
        uint64_t bits = htole64(dict->values[word].bits);
        shape[shape_bytes++] = (char)(word + 1);
        shape[shape_bytes++] = (char)(width << WIDTH_SHIFT | (dict->values[word].kind + 1));
        memcpy(packed + packed_bytes, &bits, sizeof bits);
        packed_bytes += width;
    }
    shape[shape_bytes] = '\0';
    size_t need = pickle->byte_count + NUMBER_BYTES + packed_bytes + sizeof(uint64_t);
    if (!find_shape(pickle, shape, shape_bytes) || need >= STACK_BIT ||
        !FLW_LARGEARRAY_HOLDS(pickle->bytes, need, pickle->byte_room)) {
        return false;
    }
    node->link = (uint32_t)pickle->byte_count;
    unsigned char *at = pickle->bytes + pickle->byte_count;
    uint64_t number = pickle->shape_number;
    for (; number >= 0x80; number >>= 7) {
        *at++ = (unsigned char)(number | 0x80);
    }
    *at++ = (unsigned char)number;
    memcpy(at, packed, packed_bytes);
    pickle->byte_count = (size_t)(at - pickle->bytes) + packed_bytes;
    return true;
}

static const char *extend_dict(struct flw_pickle *pickle, struct flw_pickle_value container,
                               const struct flw_pickle_value *pairs, size_t count)
{
    struct flw_pickle_node *node = &pickle->nodes[container.bits];
    struct flw_pickle_dict dict;
    uint64_t added = 0;
    flw_pickle_open(pickle, container, &dict);
    for (size_t i = 0; i < count; i += 2) {
        if (pairs[i].kind == FLW_PICKLE_WORD && pairs[i + 1].kind != FLW_PICKLE_ABSENT) {
            added |= UINT64_C(1) << pairs[i].bits;
            dict.values[pairs[i].bits] = pairs[i + 1];
        }
    }
    if ((added & dict.words) != 0) {
        return "the dict repeats its keys";
    }
    dict.words |= added;
    if (added == 0 || node->link >= STACK_BIT) {
        return NULL;
    }
    return make_frame(pickle, node, &dict) &&
                   (node->link >= STACK_BIT || store_dict(pickle, node, &dict))
               ? NULL
               : FLW_PICKLE_NO_MEMORY;
}

const char *flw_pickle_extend(struct flw_pickle *pickle, struct flw_pickle_value container,
                              const struct flw_pickle_value *values, size_t count)
{
    return container.kind == FLW_PICKLE_LIST
               ? extend_list(pickle, &pickle->nodes[container.bits], values, count)
               : extend_dict(pickle, container, values, count);
}

void flw_pickle_finish(struct flw_pickle *pickle)
{
    flw_largearray_free(pickle->nodes, pickle->node_room, sizeof *pickle->nodes);
    flw_largearray_free(pickle->lists, pickle->list_room, sizeof *pickle->lists);
    flw_largearray_free(pickle->items, pickle->item_room, sizeof *pickle->items);
    flw_largearray_free(pickle->bytes, pickle->byte_room, 1);
    flw_intern_finish(&pickle->texts);
    flw_intern_finish(&pickle->pairs);
    flw_intern_finish(&pickle->shapes);
    flw_stacks_finish(&pickle->stacks);
    *pickle = (struct flw_pickle){0};
}

/* ---- reading back ---- */

/* Return the link of a container's node if the container is of this kind; else, or if empty, 0. */
static uint32_t link_of(const struct flw_pickle *pickle, struct flw_pickle_value value,
                        enum flw_pickle_kind kind)
{
    return value.kind == kind ? pickle->nodes[value.bits].link : 0;
}

void flw_pickle_open(const struct flw_pickle *pickle, struct flw_pickle_value dict,
                     struct flw_pickle_dict *out)
{
    uint32_t link = link_of(pickle, dict, FLW_PICKLE_DICT);
    out->of = dict;
    out->words = 0;
    if (link == 0 || link >= STACK_BIT) {
        return;
    }
    const unsigned char *at = pickle->bytes + link;
    uint64_t number = 0;
    for (unsigned shift = 0;; shift += 7) {
        number |= (uint64_t)(*at & 0x7F) << shift;
        if (*at++ < 0x80) {
            break;
        }
    }
    for (const char *pair = flw_intern_text(&pickle->shapes, (uint32_t)number); *pair != '\0';
         pair += 2) {
        unsigned word = (unsigned)*pair - 1, width = (unsigned char)pair[1] >> WIDTH_SHIFT;
        uint64_t bits;
        memcpy(&bits, at, sizeof bits);
        bits = width == 0 ? 0 : le64toh(bits) & ~UINT64_C(0) >> (64 - 8 * width);
        out->words |= UINT64_C(1) << word;
        out->values[word] = (struct flw_pickle_value){bits, ((unsigned)pair[1] & 15) - 1};
        at += width;
    }
}

uint32_t flw_pickle_stack(const struct flw_pickle *pickle, struct flw_pickle_value list)
{
    uint32_t link = link_of(pickle, list, FLW_PICKLE_LIST);
    return link >= STACK_BIT ? link & ~STACK_BIT : 0;
}

const struct flw_pickle_list *flw_pickle_list(const struct flw_pickle *pickle,
                                              struct flw_pickle_value list)
{
    static const struct flw_pickle_list empty;
    uint32_t link = link_of(pickle, list, FLW_PICKLE_LIST);
    return link != 0 && link < STACK_BIT ? &pickle->lists[link - 1] : &empty;
}

uint64_t flw_pickle_offset(const struct flw_pickle *pickle, struct flw_pickle_value container)
{
    bool is_container = container.kind == FLW_PICKLE_DICT || container.kind == FLW_PICKLE_LIST;
    return is_container ? pickle->nodes[container.bits].offset : 0;
}

bool flw_pickle_next(const struct flw_pickle *pickle, struct flw_pickle_cursor *cursor,
                     struct flw_pickle_value *out_item)
{
    if (cursor->left == 0) {
        if (cursor->next == 0) {
            return false;
        }
        const uint32_t *chunk = &pickle->items[cursor->next];
        *cursor = (struct flw_pickle_cursor){chunk[0], cursor->next + 2, chunk[1]};
    }
    uint32_t item = pickle->items[cursor->at++];
    cursor->left--;
    *out_item = (struct flw_pickle_value){item >> 1, item & 1 ? FLW_PICKLE_LIST : FLW_PICKLE_DICT};
    return true;
}
