/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the search, the orders and the restarts. Does not: use clocks or chance where the work is
 * fixed: the generator starts at a constant, and all arithmetic is on integers.
 */
#include "arena/plan_search.h"

#include <stdlib.h>
#include <string.h>

#include "arena/plan_graph.h"
#include "base/bits.h"
#include "base/clock.h"
#include "base/random.h"

/* Places tried beyond one an item before a try is given up: long enough to mend a mistake, short enough
 * to take many orders. */
#define TRY_SPARE_PLACES 150

/* The fixed amount of work, in looks at a neighbour or a member: 45 million take about 0.1 s. */
#define FIXED_LOOKS_MAX        (UINT64_C(45) * 1000 * 1000)
#define FIXED_LOOKS_LEAST      (UINT64_C(50) * 1000)
#define FIXED_LOOKS_PER_TRIPLE 6

#define CLOCK_INTERVAL_PLACES 64
#define BLAME                 1024 /* of one failure; older blame fades by a tenth per try */
#define FRACTION_BITS         10
#define NOT_BARRED            UINT64_MAX
#define WAS_PLACED            UINT64_MAX

struct change {
    uint64_t offset; /* previous value, or WAS_PLACED: the item was placed */
    uint32_t item;
};

/* Beside each other because they are read together, millions of times. */
struct spot {
    uint64_t offset;
    uint64_t open_bytes; /* size rounded up to align_bytes; 0: placed */
};

struct candidate {
    uint64_t barred; /* previous bar[item] */
    uint32_t item;
};

/* INVARIANTS. While a try runs, open[t] is the number of unplaced members of section t; offset[i] of an
 * unplaced i is the least multiple of the alignment above every placed neighbour, of a placed one the
 * place; changes[] undoes the try, newest last. bar[i] is an offset at which i
 * was tried in vain for the present surroundings. rank and by_rank are inverse permutations. */
struct search {
    struct flw_plan_graph graph;
    const struct flw_plan_item *items;
    uint64_t align_bytes; /* the least of all items: every offset is a multiple */
    uint64_t limit_bytes;
    struct spot *spot;
    uint64_t *bar, *blame; /* blame is of sections */
    uint32_t *open, *rank, *by_rank;
    unsigned char *is_touched; /* of sections; false outside place */
    struct flw_plan_key *keys;
    struct change *changes;
    size_t change_count;
    struct candidate *candidates;
    size_t candidate_count;
    uint64_t looks, looks_max, deadline_ns;
    uint64_t places, try_places_max;
    bool is_cut_off; /* this try ended without an answer */
    bool is_over;    /* so did the search */
    uint64_t chance;
};

struct span {
    uint32_t first, last; /* sections, inclusive */
};

/* ---- one try ---- */

static void blame_sections(struct search *s, uint32_t item)
{
    uint32_t first = s->graph.first[item], last = s->graph.last[item];
    for (uint32_t t = first; t <= last; t++) {
        s->blame[t] += BLAME / (last - first + 1);
    }
}

static uint64_t round_up(const struct search *s, uint64_t bytes)
{
    return flw_align_up(bytes, s->align_bytes);
}

/* Return the largest padding of an unplaced member: the padding of the topmost member is not needed. */
static uint64_t widest_pad(const struct search *s, const uint16_t *member, uint32_t count)
{
    uint64_t pad_bytes = 0;
    for (uint32_t k = 0; k < count; k++) {
        uint64_t open_bytes = s->spot[member[k]].open_bytes;
        if (open_bytes != 0) {
            pad_bytes = flw_max(pad_bytes, open_bytes - s->items[member[k]].bytes);
        }
    }
    return pad_bytes;
}

/* True if the unplaced members of a section, each at or above the least offset, may end below the limit. Stack the
 * members by least offset, lowest first, with rounded sizes. A gap that no member can fill any more counts as lost. A
 * placed member is below all others and adds nothing. */
static bool section_fits(struct search *s, uint32_t section)
{
    uint16_t *member = s->graph.member + s->graph.member_begin[section];
    uint32_t count = s->graph.member_begin[section + 1] - s->graph.member_begin[section];
    uint64_t highest = 0, bytes = 0;
    s->looks += count;
    for (uint32_t k = 0; k < count; k++) {
        highest = flw_max(highest, s->spot[member[k]].offset);
        bytes += s->spot[member[k]].open_bytes;
    }
    if (highest + bytes <= s->limit_bytes) {
        return true;
    }
    /* By insertion and in place: little has changed since the last time. */
    uint64_t top = 0;
    s->looks += count;
    for (uint32_t k = 0; k < count; k++) {
        uint16_t item = member[k];
        uint64_t offset = s->spot[item].offset;
        uint32_t at = k;
        for (; at > 0 && s->spot[member[at - 1]].offset > offset; at--) {
            member[at] = member[at - 1];
        }
        member[at] = item;
    }
    for (uint32_t k = 0; k < count; k++) {
        top = flw_max(top, s->spot[member[k]].offset) + s->spot[member[k]].open_bytes;
    }
    return top <= s->limit_bytes || (top < s->limit_bytes + s->align_bytes &&
                                     top - widest_pad(s, member, count) <= s->limit_bytes);
}

/* Lift the unplaced neighbours of a placed item above it and mark their sections. */
static bool lift_neighbours(struct search *s, uint32_t item, struct span *touched)
{
    uint64_t end_bytes = s->spot[item].offset + s->items[item].bytes;
    uint32_t begin = s->graph.neighbour_begin[item], end = s->graph.neighbour_begin[item + 1];
    s->looks += end - begin;
    for (uint32_t k = begin; k < end; k++) {
        uint32_t other = s->graph.neighbour[k];
        if (s->spot[other].open_bytes == 0 || s->spot[other].offset >= end_bytes) {
            continue;
        }
        uint64_t lifted = flw_align_up(end_bytes, s->items[other].align_bytes);
        s->changes[s->change_count++] = (struct change){s->spot[other].offset, other};
        s->spot[other].offset = lifted;
        if (lifted + s->items[other].bytes > s->limit_bytes) {
            blame_sections(s, other);
            return false;
        }
        uint32_t first = s->graph.first[other], last = s->graph.last[other];
        touched->first = first < touched->first ? first : touched->first;
        touched->last = last > touched->last ? last : touched->last;
        memset(s->is_touched + first, 1, last - first + 1);
    }
    return true;
}

/* False: with this item at the place the rest cannot fit. `retract` undoes it either way. */
static bool place(struct search *s, uint32_t item)
{
    struct span touched = {s->graph.first[item], s->graph.last[item]};
    s->changes[s->change_count++] = (struct change){WAS_PLACED, item};
    s->spot[item].open_bytes = 0;
    for (uint32_t t = touched.first; t <= touched.last; t++) {
        s->open[t]--;
    }
    bool fits = lift_neighbours(s, item, &touched);
    for (uint32_t t = touched.first; fits && t <= touched.last; t++) {
        if (s->is_touched[t] && !section_fits(s, t)) {
            s->blame[t] += BLAME;
            fits = false;
        }
    }
    memset(s->is_touched + touched.first, 0, touched.last - touched.first + 1);
    return fits;
}

static void retract(struct search *s, size_t change_count)
{
    while (s->change_count > change_count) {
        struct change *change = &s->changes[--s->change_count];
        uint32_t item = change->item;
        if (change->offset != WAS_PLACED) {
            s->spot[item].offset = change->offset;
            continue;
        }
        s->spot[item].open_bytes = round_up(s, s->items[item].bytes);
        for (uint32_t t = s->graph.first[item]; t <= s->graph.last[item]; t++) {
            s->open[t]++;
        }
    }
}

/* Whether a comes before b: lower, or as low and of higher rank. */
static bool is_before(const struct search *s, uint32_t a, uint32_t b)
{
    return s->spot[a].offset != s->spot[b].offset ? s->spot[a].offset < s->spot[b].offset
                                                  : s->rank[a] < s->rank[b];
}

/* From an item down to one whose neighbours all lie as high or higher. */
static uint32_t descend(struct search *s, uint32_t item)
{
    for (;;) {
        uint32_t best = item;
        uint32_t begin = s->graph.neighbour_begin[item], end = s->graph.neighbour_begin[item + 1];
        s->looks += end - begin;
        for (uint32_t k = begin; k < end; k++) {
            uint32_t other = s->graph.neighbour[k];
            if (s->spot[other].open_bytes != 0 && is_before(s, other, best)) {
                best = other;
            }
        }
        if (s->spot[best].offset == s->spot[item].offset) {
            return best;
        }
        item = best;
    }
}

/* True where some neighbour would fit below the item: a plan with that gap is never needed. */
static bool leaves_gap(struct search *s, uint32_t item)
{
    uint32_t begin = s->graph.neighbour_begin[item], end = s->graph.neighbour_begin[item + 1];
    for (uint32_t k = begin; k < end; k++) {
        uint32_t other = s->graph.neighbour[k];
        if (s->spot[other].open_bytes != 0 &&
            s->spot[other].offset + s->spot[other].open_bytes <= s->spot[item].offset) {
            s->looks += k - begin;
            return true;
        }
    }
    s->looks += end - begin;
    return false;
}

static void add_candidate(struct search *s, uint32_t item, size_t begin)
{
    if (s->bar[item] == s->spot[item].offset || leaves_gap(s, item)) {
        return;
    }
    size_t at = s->candidate_count++;
    for (; at > begin && is_before(s, item, s->candidates[at - 1].item); at--) {
        s->candidates[at] = s->candidates[at - 1];
    }
    s->candidates[at] = (struct candidate){0, item};
}

/* Either the lowest item lies at the place or a neighbour that reaches into that place does: those, in
 * the order in which they are tried. */
static void gather_candidates(struct search *s, uint32_t lowest)
{
    size_t begin = s->candidate_count;
    uint64_t top = s->spot[lowest].offset + s->items[lowest].bytes;
    uint32_t first = s->graph.neighbour_begin[lowest], end = s->graph.neighbour_begin[lowest + 1];
    add_candidate(s, lowest, begin);
    s->looks += end - first;
    for (uint32_t k = first; k < end; k++) {
        uint32_t other = s->graph.neighbour[k];
        if (s->spot[other].open_bytes != 0 && s->spot[other].offset < top) {
            add_candidate(s, other, begin);
        }
    }
}

static bool may_go_on(struct search *s)
{
    s->places++;
    if (s->looks > s->looks_max || (s->deadline_ns != 0 && s->places % CLOCK_INTERVAL_PLACES == 0 &&
                                    flw_clock_fine_ns() >= s->deadline_ns)) {
        s->is_over = true;
    }
    s->is_cut_off = s->is_over || s->places > s->try_places_max;
    return !s->is_cut_off;
}

static bool place_rest(struct search *s, struct span span, uint32_t position);

/* Place every unplaced item of the span's sections. Those before `position` in rank are placed. */
static bool place_all(struct search *s, struct span span, uint32_t position)
{
    for (;; position++) {
        uint32_t item = s->by_rank[position];
        if (s->spot[item].open_bytes != 0 && s->graph.first[item] >= span.first &&
            s->graph.last[item] <= span.last) {
            break;
        }
    }
    size_t begin = s->candidate_count;
    gather_candidates(s, descend(s, s->by_rank[position]));
    size_t end = s->candidate_count, at = begin;
    bool is_found = false;
    for (; at < end && may_go_on(s); at++) {
        struct candidate *tried = &s->candidates[at];
        size_t change_count = s->change_count;
        is_found = place(s, tried->item) && place_rest(s, span, position);
        if (is_found) {
            break;
        }
        retract(s, change_count);
        /* The siblings need not try it again while nothing has changed for it. */
        tried->barred = s->bar[tried->item];
        s->bar[tried->item] = s->spot[tried->item].offset;
        if (s->is_cut_off) {
            at++;
            break;
        }
    }
    while (at-- > begin) {
        s->bar[s->candidates[at].item] = s->candidates[at].barred;
    }
    s->candidate_count = begin;
    return is_found;
}

/* Sections without unplaced items part the span into questions that have nothing to do with each
 * other: if one has no answer, no other answer to those before it helps. */
static bool place_rest(struct search *s, struct span span, uint32_t position)
{
    for (uint32_t t = span.first; t <= span.last; t++) {
        if (s->open[t] == 0) {
            continue;
        }
        struct span part = {t, t};
        while (part.last < span.last && s->open[part.last + 1] != 0) {
            part.last++;
        }
        if (!place_all(s, part, position)) {
            return false;
        }
        t = part.last;
    }
    return true;
}

/* ---- orders ---- */

/* Below `count`. */
static uint64_t draw(struct search *s, uint64_t count)
{
    return flw_random_next(&s->chance) % count;
}

/* log2 with FRACTION_BITS of fraction, straight between powers of two; x > 0. */
static int64_t log2_of(uint64_t x)
{
    unsigned whole = flw_log2_floor(x);
    uint64_t rest = x ^ (UINT64_C(1) << whole);
    uint64_t fraction =
        whole >= FRACTION_BITS ? rest >> (whole - FRACTION_BITS) : rest << (FRACTION_BITS - whole);
    return (int64_t)(((uint64_t)whole << FRACTION_BITS) | fraction);
}

/* Weights of the properties for a rank, in 1/1024. */
struct taste {
    int64_t sections, bytes, phases, crowd, blame;
    uint64_t noise;
};

static struct taste draw_taste(struct search *s)
{
    struct taste taste = {.noise = 443};
    taste.sections = (int64_t)draw(s, 2048) - 300;
    taste.bytes = (int64_t)draw(s, 1638) - 300;
    taste.phases = (int64_t)draw(s, 1024);
    taste.crowd = (int64_t)draw(s, 6144);
    taste.crowd *= (int64_t)draw(s, 2);
    taste.blame = (int64_t)draw(s, 4096);
    return taste;
}

static void sum_sections(struct search *s, uint64_t *load)
{
    memset(load, 0, s->graph.section_count * sizeof(*load));
    for (uint32_t i = 0; i < s->graph.item_count; i++) {
        for (uint32_t t = s->graph.first[i]; t <= s->graph.last[i]; t++) {
            load[t] += s->items[i].bytes;
        }
    }
}

/* Rank all items for the next try. bar[] is free then and holds the sections' loads. */
static void rank_items(struct search *s)
{
    struct taste taste = draw_taste(s);
    uint64_t *load = s->bar, blame_max = 0;
    sum_sections(s, load);
    for (uint32_t t = 0; t < s->graph.section_count; t++) {
        s->blame[t] -= s->blame[t] / 10;
        blame_max = flw_max(blame_max, s->blame[t]);
    }
    for (uint32_t i = 0; i < s->graph.item_count; i++) {
        const struct flw_plan_item *item = &s->items[i];
        uint64_t crowd = 0, blame = 0;
        for (uint32_t t = s->graph.first[i]; t <= s->graph.last[i]; t++) {
            crowd = flw_max(crowd, load[t]);
            blame = flw_max(blame, s->blame[t]);
        }
        int64_t phases = (int64_t)item->last_phase - item->first_phase + 1;
        int64_t weight = taste.sections * log2_of(s->graph.last[i] - s->graph.first[i] + 1) +
                         taste.bytes * log2_of(item->bytes) +
                         taste.phases * log2_of((uint64_t)phases) + taste.crowd * log2_of(crowd) +
                         taste.blame * log2_of(blame + blame_max / 64 + 1) +
                         (int64_t)(draw(s, taste.noise) << FRACTION_BITS);
        /* Heaviest first; the weight is within 2^36 of 0. */
        s->keys[i] = (struct flw_plan_key){(UINT64_C(1) << 40) - (uint64_t)weight, i};
    }
    flw_plan_sort(s->keys, s->graph.item_count);
    for (uint32_t r = 0; r < s->graph.item_count; r++) {
        s->by_rank[r] = s->keys[r].item;
        s->rank[s->keys[r].item] = r;
    }
}

/* ---- restarts ---- */

/* Try one order. True: offset[] is a plan within the limit. */
static bool try_order(struct search *s, uint64_t limit_bytes)
{
    uint32_t count = s->graph.item_count;
    rank_items(s);
    s->limit_bytes = limit_bytes;
    s->try_places_max = count + TRY_SPARE_PLACES;
    s->places = 0;
    s->change_count = 0;
    s->candidate_count = 0;
    s->is_cut_off = false;
    for (uint32_t i = 0; i < count; i++) {
        s->spot[i] = (struct spot){0, round_up(s, s->items[i].bytes)};
        s->bar[i] = NOT_BARRED;
    }
    for (uint32_t t = 0; t < s->graph.section_count; t++) {
        s->open[t] = s->graph.member_begin[t + 1] - s->graph.member_begin[t];
        s->looks += s->open[t];
    }
    s->looks += 16 * (uint64_t)count;
    return place_rest(s, (struct span){0, s->graph.section_count - 1}, 0);
}

static uint64_t take_plan(const struct search *s, struct flw_plan_item *items)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->graph.item_count; i++) {
        items[i].offset = s->spot[i].offset;
        bytes = flw_max(bytes, s->spot[i].offset + items[i].bytes);
    }
    return bytes;
}

/* Run tries, each with a limit closer to the bound: by a half of the gap, a quarter, a half, an eighth and so on,
 * down to a single byte. Large steps save many tries, small steps succeed. If only padding is left to save, try the
 * whole gap instead of a half. */
static void run_tries(struct search *s, struct flw_plan_item *items, uint64_t lower_bytes,
                      uint64_t *bytes)
{
    for (uint64_t failures = 0; *bytes > lower_bytes && !s->is_over; failures++) {
        uint64_t gap_bytes = *bytes - 1 - lower_bytes;
        uint64_t step_bytes = gap_bytes < s->align_bytes && failures % 2 == 0
                                  ? gap_bytes
                                  : gap_bytes >> (1 + flw_lowest_bit(failures + 1));
        if (try_order(s, *bytes - 1 - step_bytes)) {
            *bytes = take_plan(s, items);
            failures = UINT64_MAX; /* from the first again */
        }
    }
}

static bool allocate(struct search *s)
{
    size_t count = s->graph.item_count, sections = s->graph.section_count;
    size_t pairs = s->graph.neighbour_begin[count] + count;
    size_t longest = flw_max(count, sections); /* bar[] holds sections' loads too */
    s->spot = calloc(count, sizeof(*s->spot));
    s->bar = calloc(longest + sections, sizeof(*s->bar));
    s->open = calloc(sections + 2 * count, sizeof(*s->open));
    s->is_touched = calloc(sections, 1);
    s->keys = calloc(count, sizeof(*s->keys));
    s->changes = malloc(pairs * sizeof(*s->changes));
    s->candidates = malloc(pairs * sizeof(*s->candidates));
    if (s->spot == NULL || s->bar == NULL || s->open == NULL || s->is_touched == NULL ||
        s->keys == NULL || s->changes == NULL || s->candidates == NULL) {
        return false;
    }
    s->blame = s->bar + longest;
    s->rank = s->open + sections;
    s->by_rank = s->rank + count;
    return true;
}

bool flw_plan_search_improve(struct flw_plan_item *items, size_t count, struct flw_plan_goal goal,
                             uint64_t *bytes)
{
    struct search s = {.items = items,
                       .deadline_ns = goal.deadline_ns,
                       .looks_max = UINT64_MAX,
                       .align_bytes = UINT64_MAX};
    if (!flw_plan_graph_create(&s.graph, items, count)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        s.align_bytes = flw_min(s.align_bytes, items[i].align_bytes);
    }
    bool is_done = allocate(&s);
    if (is_done) {
        if (goal.deadline_ns == 0) {
            uint64_t triples = (uint64_t)count * count * count;
            s.looks_max =
                flw_min(FIXED_LOOKS_LEAST + FIXED_LOOKS_PER_TRIPLE * triples, FIXED_LOOKS_MAX);
        }
        run_tries(&s, items, goal.lower_bytes, bytes);
    }
    free(s.spot);
    free(s.bar);
    free(s.open);
    free(s.is_touched);
    free(s.keys);
    free(s.changes);
    free(s.candidates);
    flw_plan_graph_destroy(&s.graph);
    return is_done;
}
