/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the bytes of the kept part of a pickle.
 * Does not: keep values that are not needed.
 */
#include "trace/formats/harvest.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "trace/trace/largearray.h"

#define NUMBER_BYTES 10 /* of 7 bits each, at most */
#define PLACE_BYTES  4
#define PAIRS_MAX    (FLW_PICKLE_WORDS_MAX + 1)
#define CHUNK_BYTES  (PLACE_BYTES + NUMBER_BYTES) /* most bytes of a chunk's head */
#define WIDTH_SHIFT  4                            /* in a shape: width above kind + 1 */
#define ITEM_IS_LIST 1 /* in a step to a list's item; the step is above these bits */
#define ITEM_IS_BACK 2
#define ALL_LEFT_OUT UINT32_MAX  /* a list without kept items */
#define STACK_BIT    0x80000000u /* fewer lists than this fit a file of 4 GiB, and fewer stacks */
#define FRAME_KEY    FLW_PICKLE_WORDS_MAX /* key of the only pair of a dict that is a frame */

struct node {
    uint32_t offset;
    /* dict: chunk; list: 1 + index in lists, STACK_BIT and a stack, or ALL_LEFT_OUT; 0: empty so far */
    uint32_t first;
};

struct list {
    uint32_t first, last; /* chunks */
    uint32_t count;       /* entries kept */
    bool has_left_out;    /* other items were not kept */
};

struct flw_harvest {
    const struct flw_pickle_vocabulary *vocabulary;
    struct flw_stacks stacks;
    struct node *nodes;
    size_t node_count, node_room;
    struct list *lists;
    size_t list_count, list_room;
    unsigned char *bytes; /* 8 bytes beyond the used ones are readable */
    size_t byte_count, byte_room;
    struct flw_intern intern;
    struct flw_intern shapes; /* 2 bytes a pair: key + 1; width and kind + 1 */
    char shape[2 * PAIRS_MAX + 1];
    uint64_t shape_number; /* of `shape`, the last shape */
};

/* ---- bytes ---- */

static bool reserve_bytes(struct flw_harvest *harvest, size_t bytes)
{
    size_t need = harvest->byte_count + bytes + sizeof(uint64_t);
    return FLW_LIKELY(need <= harvest->byte_room) ||
           (need <= UINT32_MAX && FLW_LARGEARRAY_HOLDS(harvest->bytes, need, harvest->byte_room));
}

/* Put functions, which require room. */
static void put_place(struct flw_harvest *harvest, uint32_t place)
{
    memcpy(harvest->bytes + harvest->byte_count, &place, PLACE_BYTES);
    harvest->byte_count += PLACE_BYTES;
}

static void put_number(struct flw_harvest *harvest, uint64_t number)
{
    unsigned char *at = harvest->bytes + harvest->byte_count;
    for (; number >= 0x80; number >>= 7) {
        *at++ = (unsigned char)(number | 0x80);
    }
    *at++ = (unsigned char)number;
    harvest->byte_count = (size_t)(at - harvest->bytes);
}

static uint32_t place_at(const struct flw_harvest *harvest, uint64_t at)
{
    uint32_t place;
    memcpy(&place, harvest->bytes + at, PLACE_BYTES);
    return place;
}

static uint64_t take_number(const struct flw_harvest *harvest, uint64_t *at)
{
    uint64_t number = 0;
    unsigned shift = 0;
    unsigned char byte;
    do {
        byte = harvest->bytes[(*at)++];
        number |= (uint64_t)(byte & 0x7F) << shift;
        shift += 7;
    } while (byte >= 0x80);
    return number;
}

static uint64_t bits_at(const struct flw_harvest *harvest, uint64_t at, unsigned width)
{
    uint64_t bits;
    if (width == 0) {
        return 0;
    }
    memcpy(&bits, harvest->bytes + at, sizeof(bits));
    return le64toh(bits) & ~UINT64_C(0) >> (64 - 8 * width);
}

/* ---- shapes ---- */

static unsigned width_of(uint64_t bits)
{
    return bits == 0 ? 0 : (71 - (unsigned)__builtin_clzll(bits)) / 8;
}

static unsigned shape_kind(const char *pair)
{
    return ((unsigned)pair[1] & 15) - 1;
}

static unsigned shape_width(const char *pair)
{
    return (unsigned)(unsigned char)pair[1] >> WIDTH_SHIFT;
}

/* Find the number of a shape, usually that of the previous chunk. */
static bool find_shape(struct flw_harvest *harvest, const char *shape, size_t bytes)
{
    if (memcmp(harvest->shape, shape, bytes + 1) == 0 && harvest->shapes.text_bytes > 0) {
        return true;
    }
    if (!flw_intern_add_text(&harvest->shapes, shape, bytes, &harvest->shape_number)) {
        return false;
    }
    memcpy(harvest->shape, shape, bytes + 1);
    return true;
}

/* Return the chunk's shape and set *at to the first value. */
static const char *take_shape(const struct flw_harvest *harvest, uint32_t chunk, uint64_t *at)
{
    *at = (uint64_t)chunk + PLACE_BYTES;
    return flw_intern_text(&harvest->shapes, take_number(harvest, at));
}

/* ---- keeping ---- */

struct flw_harvest *flw_harvest_create(const struct flw_pickle_vocabulary *vocabulary)
{
    struct flw_harvest *harvest = calloc(1, sizeof(*harvest));
    if (harvest != NULL && !reserve_bytes(harvest, 1)) {
        free(harvest);
        return NULL;
    }
    if (harvest != NULL) {
        harvest->byte_count = 1; /* 0 is no chunk */
        harvest->vocabulary = vocabulary;
    }
    return harvest;
}

bool flw_harvest_add_node(struct flw_harvest *harvest, enum flw_pickle_kind kind, uint64_t offset,
                          struct flw_pickle_value *out_value)
{
    if (!FLW_LARGEARRAY_FITS(harvest->nodes, harvest->node_count, harvest->node_room)) {
        return false;
    }
    harvest->nodes[harvest->node_count] = (struct node){(uint32_t)offset, 0};
    *out_value = (struct flw_pickle_value){harvest->node_count++, (uint32_t)kind};
    return true;
}

static bool is_kept_item(const struct flw_harvest *harvest, struct flw_pickle_value item)
{
    return (item.kind == FLW_PICKLE_DICT && harvest->nodes[item.bits].first != 0) ||
           item.kind == FLW_PICKLE_LIST;
}

/* Return the list's record, made if there is none. NULL: no memory. */
static struct list *list_of(struct flw_harvest *harvest, struct node *node)
{
    if (node->first == 0 || node->first == ALL_LEFT_OUT) {
        if (!FLW_LARGEARRAY_FITS(harvest->lists, harvest->list_count, harvest->list_room)) {
            return NULL;
        }
        harvest->lists[harvest->list_count++] = (struct list){.has_left_out = node->first != 0};
        node->first = (uint32_t)harvest->list_count;
    }
    return &harvest->lists[node->first - 1];
}

/* Record that a chunk was left out. */
static void leave_out(struct flw_harvest *harvest, struct node *node)
{
    if (node->first == 0 || node->first == ALL_LEFT_OUT) {
        node->first = ALL_LEFT_OUT;
    } else {
        harvest->lists[node->first - 1].has_left_out = true;
    }
}

static void put_items(struct flw_harvest *harvest, const struct flw_pickle_value *items,
                      size_t item_count)
{
    uint64_t before = 0;
    for (size_t i = 0; i < item_count; i++) {
        if (is_kept_item(harvest, items[i])) {
            bool is_back = items[i].bits < before;
            uint64_t step = is_back ? before - items[i].bits : items[i].bits - before;
            put_number(harvest, step << 2 | (is_back ? ITEM_IS_BACK : 0) |
                                    (items[i].kind == FLW_PICKLE_LIST ? ITEM_IS_LIST : 0));
            before = items[i].bits;
        }
    }
}

static bool is_stack(const struct node *node)
{
    return node->first >= STACK_BIT && node->first != ALL_LEFT_OUT;
}

/* Get the number of the frame that the item is, from the only pair of the first chunk. Returns false if the item is no
 * frame. */
static bool get_frame(const struct flw_harvest *harvest, struct flw_pickle_value item,
                      uint32_t *out_frame)
{
    uint32_t chunk = item.kind == FLW_PICKLE_DICT ? harvest->nodes[item.bits].first : 0;
    if (chunk == 0) {
        return false;
    }
    uint64_t at;
    const char *pair = take_shape(harvest, chunk, &at);
    *out_frame = (uint32_t)bits_at(harvest, at, shape_width(pair));
    return *pair == FRAME_KEY + 1;
}

/* Make a list of frames a stack, innermost first; *out_is_stack: true for such a list. Returns false if memory runs
 * out. */
static bool make_stack(struct flw_harvest *harvest, struct node *node,
                       const struct flw_pickle_value *items, size_t item_count, bool *out_is_stack)
{
    uint32_t frames[FLW_STACK_DEPTH_MOST], stack = 0;
    size_t count = flw_min(item_count, FLW_STACK_DEPTH_MOST);
    bool are_frames = harvest->vocabulary->frame != NULL && node->first == 0 && count > 0;
    for (size_t i = 0; are_frames && i < count; i++) {
        are_frames = get_frame(harvest, items[i], &frames[i]);
    }
    *out_is_stack = are_frames;
    if (are_frames && !flw_stacks_add(&harvest->stacks, frames, count, &stack)) {
        return false;
    }
    node->first = are_frames ? STACK_BIT | stack : node->first;
    return true;
}

static bool extend_list(struct flw_harvest *harvest, struct node *node,
                        const struct flw_pickle_value *items, size_t item_count)
{
    bool is_made;
    if (is_stack(node)) {
        return true;
    }
    if (!make_stack(harvest, node, items, item_count, &is_made) || is_made) {
        return is_made;
    }
    uint32_t count = 0;
    for (size_t i = 0; i < item_count; i++) {
        count += is_kept_item(harvest, items[i]);
    }
    if (count == 0 && item_count == 0) {
        return true;
    }
    if (count == 0) {
        leave_out(harvest, node);
        return true;
    }
    struct list *list = reserve_bytes(harvest, CHUNK_BYTES + (size_t)count * NUMBER_BYTES)
                            ? list_of(harvest, node)
                            : NULL;
    if (list == NULL) {
        return false;
    }
    uint32_t chunk = (uint32_t)harvest->byte_count;
    put_place(harvest, 0);
    put_number(harvest, count);
    put_items(harvest, items, item_count);
    if (list->first == 0) {
        list->first = chunk;
    } else {
        memcpy(harvest->bytes + list->last, &chunk, PLACE_BYTES);
    }
    list->last = chunk;
    list->count += count;
    list->has_left_out |= count < item_count;
    return true;
}

static bool is_of_use(const struct flw_pickle_value *pair)
{
    return pair[0].kind == FLW_PICKLE_WORD && pair[1].kind != FLW_PICKLE_ABSENT;
}

static void put_value(struct flw_harvest *harvest, uint64_t bits, unsigned width)
{
    bits = htole64(bits);
    memcpy(harvest->bytes + harvest->byte_count, &bits, sizeof(bits));
    harvest->byte_count += width;
}

/* Return the offset at which the last chunk of a dict refers to the next: at most as many steps as there are words. */
static uint64_t end_of_chain(const struct flw_harvest *harvest, uint32_t first)
{
    uint64_t at = first;
    for (uint32_t next = first; next != 0; next = place_at(harvest, at)) {
        at = next;
    }
    return at;
}

/* Return the value of a key if the dict has exactly the three pairs of a frame, in any order. */
static const struct flw_pickle_value *value_under(const struct flw_pickle_value *const *pairs,
                                                  uint32_t word)
{
    for (unsigned i = 0; i < 3; i++) {
        if (pairs[i][0].bits == word) {
            return &pairs[i][1];
        }
    }
    return NULL;
}

static bool is_text(const struct flw_pickle_value *value)
{
    return value != NULL && (value->kind == FLW_PICKLE_TEXT || value->kind == FLW_PICKLE_WORD);
}

static bool is_frame(const struct flw_harvest *harvest, const struct flw_pickle_value *const *pairs,
                     size_t count)
{
    const struct flw_pickle_frame_words *words = harvest->vocabulary->frame;
    if (words == NULL || count != 3) {
        return false;
    }
    const struct flw_pickle_value *line = value_under(pairs, words->line);
    return line != NULL && line->kind == FLW_PICKLE_UNSIGNED &&
           is_text(value_under(pairs, words->function)) && is_text(value_under(pairs, words->file));
}

static const char *text_of(const struct flw_harvest *harvest, const struct flw_pickle_value *value)
{
    return value->kind == FLW_PICKLE_WORD ? harvest->vocabulary->words[value->bits]
                                          : flw_intern_text(&harvest->intern, value->bits);
}

/* Add the pair that represents a frame. */
static bool add_frame(struct flw_harvest *harvest, const struct flw_pickle_value *const *pairs,
                      struct flw_pickle_value out_pair[2])
{
    const struct flw_pickle_frame_words *words = harvest->vocabulary->frame;
    uint64_t line = value_under(pairs, words->line)->bits;
    uint32_t frame;
    bool has_memory = flw_stacks_add_frame(&harvest->stacks,
                                           text_of(harvest, value_under(pairs, words->function)),
                                           text_of(harvest, value_under(pairs, words->file)),
                                           (uint32_t)flw_min(line, UINT32_MAX), &frame);
    out_pair[0] = (struct flw_pickle_value){FRAME_KEY, FLW_PICKLE_WORD};
    out_pair[1] = (struct flw_pickle_value){frame, FLW_PICKLE_UNSIGNED};
    return has_memory;
}

static bool extend_dict(struct flw_harvest *harvest, struct node *node,
                        const struct flw_pickle_value *values, size_t value_count)
{
    char shape[2 * PAIRS_MAX + 1];
    const struct flw_pickle_value *pairs[PAIRS_MAX];
    size_t count = 0;
    bool are_texts = true;
    for (size_t i = 0; i < value_count && count < PAIRS_MAX; i += 2) {
        if (is_of_use(&values[i])) {
            are_texts &= values[i + 1].kind == FLW_PICKLE_TEXT;
            shape[2 * count] = (char)(values[i].bits + 1);
            shape[2 * count + 1] =
                (char)(width_of(values[i + 1].bits) << WIDTH_SHIFT | (values[i + 1].kind + 1));
            pairs[count++] = &values[i];
        }
    }
    bool is_unused = value_count > 2 && node->first == 0 && are_texts && count < PAIRS_MAX;
    if (count == 0 || is_unused) {
        return true;
    }
    struct flw_pickle_value frame[2];
    if (is_frame(harvest, pairs, count) && node->first == 0) {
        if (!add_frame(harvest, pairs, frame)) {
            return false;
        }
        pairs[0] = frame;
        count = 1;
        shape[0] = FRAME_KEY + 1;
        shape[1] = (char)(width_of(frame[1].bits) << WIDTH_SHIFT | (frame[1].kind + 1));
    }
    shape[2 * count] = '\0';
    if (!find_shape(harvest, shape, 2 * count) ||
        !reserve_bytes(harvest, CHUNK_BYTES + count * sizeof(uint64_t))) {
        return false;
    }
    uint32_t chunk = (uint32_t)harvest->byte_count;
    put_place(harvest, 0);
    put_number(harvest, harvest->shape_number);
    for (size_t i = 0; i < count; i++) {
        put_value(harvest, pairs[i][1].bits, shape_width(&shape[2 * i]));
    }
    if (node->first == 0) {
        node->first = chunk;
    } else {
        memcpy(harvest->bytes + end_of_chain(harvest, node->first), &chunk, PLACE_BYTES);
    }
    return true;
}

bool flw_harvest_extend(struct flw_harvest *harvest, struct flw_pickle_value container,
                        const struct flw_pickle_value *values, size_t value_count)
{
    struct node *node = &harvest->nodes[container.bits];
    return container.kind == FLW_PICKLE_LIST ? extend_list(harvest, node, values, value_count)
                                             : extend_dict(harvest, node, values, value_count);
}

void flw_harvest_destroy(struct flw_harvest *harvest)
{
    if (harvest != NULL) {
        flw_largearray_free(harvest->nodes, harvest->node_room, sizeof(*harvest->nodes));
        flw_largearray_free(harvest->lists, harvest->list_room, sizeof(*harvest->lists));
        flw_largearray_free(harvest->bytes, harvest->byte_room, 1);
        flw_intern_finish(&harvest->intern);
        flw_intern_finish(&harvest->shapes);
        flw_stacks_finish(&harvest->stacks);
        free(harvest);
    }
}

/* ---- asking ---- */

void flw_harvest_open(const struct flw_harvest *harvest, struct flw_pickle_value dict,
                      struct flw_harvest_dict *out)
{
    uint32_t chunk = dict.kind == FLW_PICKLE_DICT ? harvest->nodes[dict.bits].first : 0;
    out->dict = dict;
    out->words = 0;
    for (; chunk != 0; chunk = place_at(harvest, chunk)) {
        uint64_t at;
        const char *pair = take_shape(harvest, chunk, &at);
        if (*pair == FRAME_KEY + 1) { /* the only pair, and no word */
            continue;
        }
        for (; *pair != '\0'; pair += 2) {
            unsigned word = (unsigned)*pair - 1, width = shape_width(pair);
            out->words |= UINT64_C(1) << word;
            out->values[word] =
                (struct flw_pickle_value){bits_at(harvest, at, width), shape_kind(pair)};
            at += width;
        }
    }
}

uint32_t flw_harvest_stack(const struct flw_harvest *harvest, struct flw_pickle_value list)
{
    const struct node *node = list.kind == FLW_PICKLE_LIST ? &harvest->nodes[list.bits] : NULL;
    return node != NULL && is_stack(node) ? node->first & ~STACK_BIT : 0;
}

struct flw_stacks *flw_harvest_stacks(struct flw_harvest *harvest)
{
    return &harvest->stacks;
}

struct flw_stacks flw_harvest_take_stacks(struct flw_harvest *harvest)
{
    struct flw_stacks stacks = harvest->stacks;
    harvest->stacks = (struct flw_stacks){0};
    return stacks;
}

struct flw_intern *flw_harvest_intern(struct flw_harvest *harvest)
{
    return &harvest->intern;
}

const struct flw_intern *flw_harvest_interned(const struct flw_harvest *harvest)
{
    return &harvest->intern;
}

uint64_t flw_harvest_offset(const struct flw_harvest *harvest, struct flw_pickle_value container)
{
    if (container.kind != FLW_PICKLE_DICT && container.kind != FLW_PICKLE_LIST) {
        return 0;
    }
    return harvest->nodes[container.bits].offset;
}

static uint32_t count_pairs(const struct flw_harvest *harvest, uint32_t chunk)
{
    uint32_t count = 0;
    for (; chunk != 0; chunk = place_at(harvest, chunk)) {
        uint64_t at;
        count += (uint32_t)strlen(take_shape(harvest, chunk, &at)) / 2;
    }
    return count;
}

uint32_t flw_harvest_count(const struct flw_harvest *harvest, struct flw_pickle_value container)
{
    if (container.kind != FLW_PICKLE_DICT && container.kind != FLW_PICKLE_LIST) {
        return 0;
    }
    uint32_t first = harvest->nodes[container.bits].first;
    if (container.kind == FLW_PICKLE_DICT) {
        return count_pairs(harvest, first);
    }
    return first != 0 && first < STACK_BIT ? harvest->lists[first - 1].count : 0;
}

bool flw_harvest_has_left_out(const struct flw_harvest *harvest, struct flw_pickle_value list)
{
    uint32_t first = list.kind == FLW_PICKLE_LIST ? harvest->nodes[list.bits].first : 0;
    return first == ALL_LEFT_OUT ||
           (first != 0 && first < STACK_BIT && harvest->lists[first - 1].has_left_out);
}

static struct flw_harvest_cursor chunk_cursor(const struct flw_harvest *harvest, uint32_t chunk)
{
    struct flw_harvest_cursor cursor = {.chunk = chunk};
    if (chunk != 0) {
        cursor.at = (uint64_t)chunk + PLACE_BYTES;
        cursor.left = (uint32_t)take_number(harvest, &cursor.at);
    }
    return cursor;
}

struct flw_harvest_cursor flw_harvest_first(const struct flw_harvest *harvest,
                                            struct flw_pickle_value list)
{
    uint32_t first = list.kind == FLW_PICKLE_LIST ? harvest->nodes[list.bits].first : 0;
    bool is_kept = first != 0 && first < STACK_BIT;
    return chunk_cursor(harvest, is_kept ? harvest->lists[first - 1].first : 0);
}

bool flw_harvest_next(const struct flw_harvest *harvest, struct flw_harvest_cursor *cursor,
                      struct flw_pickle_value *out_value)
{
    if (cursor->chunk != 0 && cursor->left == 0) {
        *cursor = chunk_cursor(harvest, place_at(harvest, cursor->chunk));
    }
    if (cursor->chunk == 0) {
        return false;
    }
    uint64_t item = take_number(harvest, &cursor->at);
    cursor->node += (item & ITEM_IS_BACK) != 0 ? ~(item >> 2) + 1 : item >> 2;
    cursor->left--;
    *out_value = (struct flw_pickle_value){
        cursor->node, (item & ITEM_IS_LIST) != 0 ? FLW_PICKLE_LIST : FLW_PICKLE_DICT};
    return true;
}
