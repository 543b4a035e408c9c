/* SPDX-License-Identifier: Apache-2.0 */
#include "host/pages.h"

#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "base/check.h"

#define MOST_CHUNKS  (1u << 16)
#define EXACT_PAGES  32u /* one bin per length up to here, four per doubling above */
#define LOOKS_AT     64u /* runs of a bin compared for the best fit, at least */
#define BITMAP_WORDS 3u

bool flw_pages_init(struct flw_pages *pages)
{
    *pages = (struct flw_pages){0};
    if (!flw_meta_reserve(&pages->chunk_meta, MOST_CHUNKS * sizeof(struct flw_chunk))) {
        return false;
    }
    if (!flw_meta_reserve(&pages->order_meta, MOST_CHUNKS * sizeof(struct flw_chunk *)) ||
        !flw_meta_open(&pages->order_meta)) {
        flw_meta_release(&pages->order_meta);
        flw_meta_release(&pages->chunk_meta);
        return false;
    }
    pages->chunks = (struct flw_chunk **)(void *)pages->order_meta.base;
    pages->chunk_capacity = MOST_CHUNKS;
    return true;
}

void flw_pages_finish(struct flw_pages *pages)
{
    for (uint32_t i = 0; i < pages->chunk_count; i++) {
        struct flw_chunk *chunk = pages->chunks[i];
        munmap(chunk->runs, chunk->page_count * sizeof *chunk->runs);
    }
    flw_meta_release(&pages->order_meta);
    flw_meta_release(&pages->chunk_meta);
    *pages = (struct flw_pages){0};
}

uint64_t flw_pages_table_bytes(const struct flw_pages *pages)
{
    uint64_t bytes = pages->chunk_meta.used_bytes + pages->chunk_count * sizeof *pages->chunks;
    for (uint32_t i = 0; i < pages->chunk_count; i++) {
        bytes += pages->chunks[i]->page_count * sizeof(struct flw_page_run);
    }
    return bytes;
}

/* ---- bins */

static unsigned bin_of(uint32_t page_count)
{
    if (page_count < EXACT_PAGES) {
        return page_count;
    }
    unsigned log2 = flw_log2_floor(page_count);
    return EXACT_PAGES + 4 * (log2 - 5) + ((page_count >> (log2 - 2)) & 3);
}

static void insert_run(struct flw_pages *pages, struct flw_chunk *chunk, uint32_t first,
                       uint32_t page_count)
{
    struct flw_page_run *run = &chunk->runs[first];
    unsigned bin = bin_of(page_count);
    struct flw_page_run **head = &pages->bins[chunk->kind][bin];
    run->next = *head;
    run->prev = NULL;
    run->chunk = chunk;
    run->page_count = page_count;
    chunk->runs[first + page_count - 1].count_back = page_count;
    if (*head != NULL) {
        (*head)->prev = run;
    }
    *head = run;
    pages->occupied[chunk->kind][bin / 64] |= 1ull << bin % 64;
    chunk->free_pages += page_count;
    pages->free_bytes += page_count * FLW_HOST_PAGE;
}

static void remove_run(struct flw_pages *pages, struct flw_page_run *run)
{
    struct flw_chunk *chunk = run->chunk;
    unsigned bin = bin_of(run->page_count);
    *(run->prev != NULL ? &run->prev->next : &pages->bins[chunk->kind][bin]) = run->next;
    if (run->next != NULL) {
        run->next->prev = run->prev;
    }
    if (pages->bins[chunk->kind][bin] == NULL) {
        pages->occupied[chunk->kind][bin / 64] &= ~(1ull << bin % 64);
    }
    chunk->free_pages -= run->page_count;
    pages->free_bytes -= run->page_count * FLW_HOST_PAGE;
    run[run->page_count - 1].count_back = 0;
    run->page_count = 0;
}

/* Return the first non-empty bin from `bin` on; FLW_PAGE_BINS: none. */
static unsigned next_bin(const struct flw_pages *pages, enum flw_page_kind kind, unsigned bin)
{
    for (unsigned word = bin / 64; word < BITMAP_WORDS; word++) {
        uint64_t bits = pages->occupied[kind][word];
        bits &= word == bin / 64 ? ~0ull << bin % 64 : ~0ull;
        if (bits != 0) {
            return word * 64 + flw_lowest_bit(bits);
        }
    }
    return FLW_PAGE_BINS;
}

/* Return the smallest run that fits; among several, one in the chunk with the least free, so that
 * the others become idle. Continues past runs that are slightly too short, which may fill the bin. */
static struct flw_page_run *best_run(const struct flw_pages *pages, enum flw_page_kind kind,
                                     uint32_t page_count, uint64_t most_pages)
{
    struct flw_page_run *best = NULL;
    unsigned looked = 0;
    unsigned last = most_pages > UINT32_MAX ? FLW_PAGE_BINS - 1 : bin_of((uint32_t)most_pages);
    for (unsigned bin = bin_of(page_count); best == NULL || looked < LOOKS_AT; bin++) {
        bin = next_bin(pages, kind, bin);
        if (bin > last) {
            break; /* none, or all further ones are too long */
        }
        struct flw_page_run *run = pages->bins[kind][bin];
        for (; run != NULL && (best == NULL || looked < LOOKS_AT); run = run->next, looked++) {
            bool fits = run->page_count >= page_count && run->page_count <= most_pages;
            if (fits && (best == NULL || run->page_count < best->page_count ||
                         (run->page_count == best->page_count &&
                          run->chunk->free_pages < best->chunk->free_pages))) {
                best = run;
            }
        }
    }
    return best;
}

/* ---- runs */

void *flw_pages_take(struct flw_pages *pages, uint64_t bytes, enum flw_page_kind kind,
                     uint64_t most_bytes)
{
    uint64_t wanted = flw_div_up(bytes, FLW_HOST_PAGE);
    if (wanted == 0 || wanted > UINT32_MAX) {
        return NULL;
    }
    uint32_t page_count = (uint32_t)wanted;
    struct flw_page_run *run = best_run(pages, kind, page_count, most_bytes / FLW_HOST_PAGE);
    if (run == NULL) {
        return NULL;
    }
    struct flw_chunk *chunk = run->chunk;
    uint32_t first = (uint32_t)(run - chunk->runs), rest = run->page_count - page_count;
    remove_run(pages, run);
    if (rest > 0) {
        insert_run(pages, chunk, first + page_count, rest);
    }
    return chunk->base + first * FLW_HOST_PAGE;
}

void *flw_pages_take_any(struct flw_pages *pages, uint64_t bytes)
{
    void *base = NULL;
    for (unsigned kind = 0; base == NULL && kind < FLW_PAGE_KINDS; kind++) {
        base = flw_pages_take(pages, bytes, (enum flw_page_kind)kind, UINT64_MAX);
    }
    return base;
}

void flw_pages_put(struct flw_pages *pages, void *address, uint64_t bytes)
{
    struct flw_chunk *chunk = flw_pages_chunk_at(pages, address);
    FLW_ASSERT(chunk != NULL);
    if (chunk == NULL) {
        return;
    }
    uint32_t first = (uint32_t)(((unsigned char *)address - chunk->base) / FLW_HOST_PAGE);
    uint32_t page_count = (uint32_t)flw_div_up(bytes, FLW_HOST_PAGE);
    FLW_ASSERT(page_count > 0 && first + page_count <= chunk->page_count);
    if (first + page_count < chunk->page_count) {
        struct flw_page_run *after = &chunk->runs[first + page_count];
        if (after->page_count > 0) {
            page_count += after->page_count;
            remove_run(pages, after);
        }
    }
    if (first > 0 && chunk->runs[first - 1].count_back > 0) {
        uint32_t before = chunk->runs[first - 1].count_back;
        first -= before;
        page_count += before;
        remove_run(pages, &chunk->runs[first]);
    }
    insert_run(pages, chunk, first, page_count);
}

/* ---- chunks */

struct flw_chunk *flw_pages_new_chunk(struct flw_pages *pages, uint64_t bytes,
                                      enum flw_page_kind kind)
{
    uint64_t page_count = flw_div_up(bytes, FLW_HOST_PAGE);
    struct flw_chunk *chunk = pages->unused_chunks;
    if (page_count > UINT32_MAX) {
        return NULL;
    }
    if (chunk != NULL) {
        pages->unused_chunks = chunk->next_unused;
    } else {
        chunk = flw_meta_extend(&pages->chunk_meta, sizeof *chunk, 16);
        if (chunk == NULL) {
            return NULL;
        }
    }
    /* Written only at the begin and end of free runs: most of it never appears. */
    void *runs = mmap(NULL, page_count * sizeof(struct flw_page_run), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *chunk = (struct flw_chunk){.kind = kind, .page_count = (uint32_t)page_count};
    if (runs == MAP_FAILED) {
        chunk->next_unused = pages->unused_chunks;
        pages->unused_chunks = chunk;
        return NULL;
    }
    chunk->runs = runs;
    return chunk;
}

void flw_pages_drop_chunk(struct flw_pages *pages, struct flw_chunk *chunk)
{
    munmap(chunk->runs, chunk->page_count * sizeof *chunk->runs);
    *chunk = (struct flw_chunk){.next_unused = pages->unused_chunks};
    pages->unused_chunks = chunk;
}

/* Return the place of the first chunk that begins after an address. */
static uint32_t place_after(const struct flw_pages *pages, const void *address)
{
    uint32_t low = 0, high = pages->chunk_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((uintptr_t)pages->chunks[middle]->base <= (uintptr_t)address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void flw_pages_publish(struct flw_pages *pages, struct flw_chunk *chunk)
{
    /* There are as many records as places, so there is a place. */
    FLW_ASSERT(pages->chunk_count < pages->chunk_capacity);
    uint32_t place = place_after(pages, chunk->base);
    memmove(&pages->chunks[place + 1], &pages->chunks[place],
            (pages->chunk_count - place) * sizeof *pages->chunks);
    pages->chunks[place] = chunk;
    pages->chunk_count++;
    pages->all_bytes += flw_chunk_bytes(chunk);
    insert_run(pages, chunk, 0, chunk->page_count);
}

void flw_pages_withdraw(struct flw_pages *pages, struct flw_chunk *chunk)
{
    FLW_ASSERT(chunk->free_pages == chunk->page_count);
    uint32_t place = place_after(pages, chunk->base) - 1;
    remove_run(pages, &chunk->runs[0]);
    memmove(&pages->chunks[place], &pages->chunks[place + 1],
            (pages->chunk_count - place - 1) * sizeof *pages->chunks);
    pages->chunk_count--;
    pages->all_bytes -= flw_chunk_bytes(chunk);
}

struct flw_chunk *flw_pages_idle_chunk(const struct flw_pages *pages)
{
    struct flw_chunk *largest = NULL;
    for (uint32_t i = 0; i < pages->chunk_count; i++) {
        struct flw_chunk *chunk = pages->chunks[i];
        if (chunk->free_pages == chunk->page_count &&
            (largest == NULL || chunk->page_count > largest->page_count)) {
            largest = chunk;
        }
    }
    return largest;
}

struct flw_chunk *flw_pages_chunk_at(const struct flw_pages *pages, const void *address)
{
    uint32_t place = place_after(pages, address);
    if (place == 0) {
        return NULL;
    }
    struct flw_chunk *chunk = pages->chunks[place - 1];
    return (uintptr_t)address - (uintptr_t)chunk->base < flw_chunk_bytes(chunk) ? chunk : NULL;
}

/* ---- invariants */

static const char *broken_chunk(const struct flw_pages *pages, const struct flw_chunk *chunk,
                                uint64_t *run_count)
{
    uint64_t free_pages = 0;
    bool was_free = false;
    for (uint32_t page = 0; page < chunk->page_count;) {
        const struct flw_page_run *run = &chunk->runs[page];
        if (run->page_count == 0) {
            if (run->count_back != 0) {
                return "a page that is in no free run ends one";
            }
            was_free = false;
            page++;
            continue;
        }
        if (was_free) {
            return "two free runs touch";
        }
        if (run->page_count > chunk->page_count - page || run->chunk != chunk ||
            run[run->page_count - 1].count_back != run->page_count) {
            return "the ends of a free run do not agree";
        }
        const struct flw_page_run *listed = pages->bins[chunk->kind][bin_of(run->page_count)];
        while (listed != NULL && listed != run) {
            listed = listed->next;
        }
        if (listed == NULL) {
            return "a free run is not in its bin";
        }
        free_pages += run->page_count;
        ++*run_count;
        was_free = true;
        page += run->page_count;
    }
    return free_pages != chunk->free_pages ? "a chunk's free pages are miscounted" : NULL;
}

const char *flw_pages_broken_invariant(const struct flw_pages *pages)
{
    const char *broken = NULL;
    uint64_t all_bytes = 0, free_bytes = 0, run_count = 0, listed_count = 0;
    for (uint32_t i = 0; broken == NULL && i < pages->chunk_count; i++) {
        if (i > 0 && pages->chunks[i]->base <=
                         pages->chunks[i - 1]->base + flw_chunk_bytes(pages->chunks[i - 1]) - 1) {
            return "chunks overlap, or are out of order";
        }
        broken = broken_chunk(pages, pages->chunks[i], &run_count);
        all_bytes += flw_chunk_bytes(pages->chunks[i]);
        free_bytes += pages->chunks[i]->free_pages * FLW_HOST_PAGE;
    }
    for (unsigned kind = 0; kind < FLW_PAGE_KINDS; kind++) {
        for (unsigned bin = 0; bin < FLW_PAGE_BINS; bin++) {
            bool is_marked = pages->occupied[kind][bin / 64] >> bin % 64 & 1;
            if (broken == NULL && is_marked != (pages->bins[kind][bin] != NULL)) {
                return "a bin and its bit do not agree";
            }
            for (const struct flw_page_run *run = pages->bins[kind][bin]; run != NULL;
                 run = run->next) {
                listed_count++;
            }
        }
    }
    if (broken == NULL && run_count != listed_count) {
        broken = "a bin lists a run that is not free";
    }
    if (broken == NULL && (all_bytes != pages->all_bytes || free_bytes != pages->free_bytes)) {
        broken = "the bytes of chunks, or the free bytes, are miscounted";
    }
    return broken;
}
