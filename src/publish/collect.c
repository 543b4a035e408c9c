/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the walk over a pool's domains, caches and spans.
 */
#include "publish/collect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fallow/arena.h"
#include "pool/extensions/recording.h"

#define SLOTS_A_LOCK 4096 /* processed before other threads get the heap's lock */

_Static_assert(FLW_STATS_PAGE_STAGES == FLW_STAGE_COUNT, "a stage, a number");
_Static_assert(FLW_STATS_PAGE_CLASSES == FLW_CLASS_COUNT + 1, "the classes, and runs");

/* ---- rows: one for each stream number; 0 is for memory of no single stream */

static struct flw_stats_page_stream *row_of(struct flw_collector *collector,
                                            const struct flw_heap *heap, uint64_t stream_number)
{
    uint32_t number = (uint32_t)(stream_number >> FLW_STREAM_NUMBER_SHIFT);
    if (collector->row_of[number] == 0) {
        struct flw_stats_page_stream *row = &collector->rows[collector->row_count];
        collector->number_of[collector->row_count] = number;
        collector->row_of[number] = ++collector->row_count;
        *row = (struct flw_stats_page_stream){
            .kind = number == 0 ? FLW_STATS_PAGE_SHARED : FLW_STATS_PAGE_GONE,
            .id = flw_stream_ids_find(&heap->stream_ids, stream_number)};
    }
    return &collector->rows[collector->row_of[number] - 1];
}

static void forget_rows(struct flw_collector *collector)
{
    for (uint32_t i = 0; i < collector->row_count; i++) {
        collector->row_of[collector->number_of[i]] = 0;
    }
    collector->row_count = 0;
}

/* ---- domains */

/* Heap lock held. */
static uint64_t batch_bytes(const struct flw_domain *domain)
{
    uint64_t bytes = 0;
    for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
        const struct flw_batch *batch = domain->batches[c].head;
        for (; batch != NULL; batch = batch->next) {
            bytes += batch->count * flw_class_bytes(c);
        }
    }
    return bytes;
}

/* Heap lock held. */
static void add_domain(struct flw_collector *collector, const struct flw_heap *heap,
                       const struct flw_domain *domain)
{
    uint64_t run_bytes = flw_domain_run_bytes(domain);
    struct flw_stats_page_stream *row =
        row_of(collector, heap, domain->index == FLW_UNOWNED ? 0 : domain->stream_number);
    collector->free_run_bytes += run_bytes;
    if (domain->capture != 0) {
        row->captured_bytes += domain->captured_bytes + run_bytes;
        return;
    }
    row->free_bytes += run_bytes + batch_bytes(domain);
    if (domain->ops == &flw_order_stream && domain->is_known) {
        row->kind = FLW_STATS_PAGE_STREAM;
        row->handle = (uint64_t)(uintptr_t)domain->stream;
    }
    for (const struct flw_fence *fence = domain->oldest; fence != NULL; fence = fence->next) {
        row->fence_count++;
    }
}

static void add_domains(struct flw_collector *collector, struct flw_heap *heap)
{
    bool is_end = false;
    for (uint32_t i = 0; !is_end; i++) {
        flw_lock_acquire(&heap->lock);
        is_end = i >= heap->domain_end;
        if (!is_end && (heap->domains[i]->ops != NULL || i == FLW_UNOWNED)) {
            add_domain(collector, heap, heap->domains[i]);
        }
        flw_lock_release(&heap->lock);
    }
}

/* ---- caches */

static FLW_SNAPSHOT uint64_t read_word(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static FLW_SNAPSHOT void add_cache(struct flw_collector *collector, struct flw_tcache *cache,
                                   struct flw_stats_page_stream *row)
{
    uint64_t allocs = read_word(&cache->run_pops), misses = read_word(&cache->misses);
    uint64_t cached = read_word(&cache->run_bytes);
    collector->classes[FLW_CLASS_COUNT].cached_bytes += cached;
    for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
        struct flw_bin *bin = flw_tcache_bin(cache, c);
        uint64_t bytes = read_word(&bin->count) * flw_class_bytes(c);
        allocs += read_word(&bin->pops);
        collector->classes[c].cached_bytes += bytes;
        cached += bytes;
    }
    row->alloc_count += allocs;
    row->hit_count += allocs > misses ? allocs - misses : 0;
    row->cached_bytes += cached;
    row->cache_count++;
}

static void add_caches(struct flw_collector *collector, struct flw_pool *pool)
{
    flw_lock_acquire(&pool->lock);
    for (struct flw_tcache *cache = pool->caches; cache != NULL; cache = cache->next) {
        add_cache(collector, cache, row_of(collector, &pool->heap, cache->domain->stream_number));
    }
    flw_lock_release(&pool->lock);
}

/* ---- spans */

static void add_slot(struct flw_collector *collector, const struct flw_heap *heap,
                     const struct flw_slot *slot, struct flw_stats_page_class *class,
                     uint64_t bytes)
{
    uint64_t state = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE) & FLW_SLOT_STATE_MASK;
    if (state == FLW_SLOT_FREE) {
        return;
    }
    if (state == FLW_SLOT_HELD) {
        class->deferred_bytes += bytes;
        return;
    }
    uint64_t allocation = __atomic_load_n(&slot->allocation, __ATOMIC_RELAXED);
    struct flw_stats_page_stream *row = row_of(collector, heap, allocation);
    class->live_count++;
    class->live_bytes += bytes;
    class->requested_bytes += flw_allocation_bytes(allocation);
    row->live_count++;
    row->live_bytes += bytes;
    row->requested_bytes += flw_allocation_bytes(allocation);
}

/* Returns how many slots were processed. Heap lock held. */
static uint32_t add_slab(struct flw_collector *collector, const struct flw_heap *heap,
                         const struct flw_span *slab)
{
    const struct flw_slab_part *part = &slab->u.slab;
    if (part->run == NULL || part->run->u.run.slab != slab) {
        return 1; /* serves none */
    }
    struct flw_stats_page_class *class = &collector->classes[part->class_index];
    uint64_t slot_bytes = flw_class_bytes(part->class_index);
    class->reserved_bytes += flw_run_bytes(part->run);
    for (uint32_t i = 0; i < part->carved_count; i++) {
        add_slot(collector, heap, flw_span_slot(&heap->map, slab, i), class, slot_bytes);
    }
    return 1 + part->carved_count;
}

/* Heap lock held. */
static void add_run(struct flw_collector *collector, const struct flw_heap *heap,
                    const struct flw_span *run)
{
    struct flw_stats_page_class *class = &collector->classes[FLW_CLASS_COUNT];
    if (run->u.run.state == FLW_RUN_DEFERRED) {
        class->reserved_bytes += flw_run_bytes(run);
        class->deferred_bytes += flw_run_bytes(run);
    } else if (run->u.run.state == FLW_RUN_LIVE && run->u.run.slab == NULL) {
        class->reserved_bytes += flw_run_bytes(run);
        add_slot(collector, heap, flw_span_slot(&heap->map, run, 0), class, flw_run_bytes(run));
    }
}

/* Spans never move, so the lock may be released between two of them. */
static void add_spans(struct flw_collector *collector, struct flw_heap *heap)
{
    struct flw_span *span = NULL;
    do {
        flw_lock_acquire(&heap->lock);
        for (uint32_t slots = 0; slots < SLOTS_A_LOCK;) {
            span = flw_page_map_next_span(&heap->map, span);
            if (span == NULL) {
                break;
            }
            if (span->kind == FLW_SPAN_SLAB) {
                slots += add_slab(collector, heap, span);
            } else {
                add_run(collector, heap, span);
                slots++;
            }
        }
        flw_lock_release(&heap->lock);
    } while (span != NULL);
}

/* ---- composing the stats page */

static void copy_stats(const fallow_stats *stats, uint64_t *value)
{
#define FROM_STATS(name)            value[FLW_VALUE_##name] = stats->name;
#define FROM_POOL(name)             /* copy_rest */
#define X(name, source, kind, help) FROM_##source(name)
    FLW_STATS_PAGE_VALUES(X)
#undef X
#undef FROM_POOL
#undef FROM_STATS
}

static void copy_rest(struct flw_pool *pool, uint64_t *value)
{
    const struct flw_heap *heap = &pool->heap;
    uint64_t climb = atomic_load_explicit(&pool->climbs.last, memory_order_relaxed);
    value[FLW_VALUE_number] = flw_handle_place(pool->handle);
    value[FLW_VALUE_device] = (uint64_t)pool->config.device;
    value[FLW_VALUE_limit_bytes] = heap->limit_bytes;
    value[FLW_VALUE_device_bytes] = pool->device_bytes;
    value[FLW_VALUE_unmapped_bytes] = atomic_load(&heap->idle_bytes);
    value[FLW_VALUE_thread_cache_count] = atomic_load(&pool->cache_count);
    value[FLW_VALUE_capture_count] = atomic_load(&pool->open_captures);
    value[FLW_VALUE_query_count] = atomic_load(&heap->count.queries);
    value[FLW_VALUE_stream_wait_count] = atomic_load(&heap->count.stream_waits);
    value[FLW_VALUE_is_lost] = flw_heap_is_lost(heap);
    value[FLW_VALUE_is_recorded] = atomic_load(&pool->recorder) != NULL;
    value[FLW_VALUE_last_climb_stage] = climb & 255;
    value[FLW_VALUE_last_climb_bytes] = climb >> 8;
    value[FLW_VALUE_has_context_order] = flw_pool_has_epochs(pool);
}

static uint64_t free_bytes_of(const struct flw_stats_page_class *class)
{
    uint64_t used = class->live_bytes + class->cached_bytes + class->deferred_bytes;
    return class->reserved_bytes > used ? class->reserved_bytes - used : 0;
}

static void copy_classes(struct flw_collector *collector, struct flw_stats_page_pool *out)
{
    uint64_t free_bytes = collector->free_run_bytes;
    out->class_count = 0;
    for (unsigned c = 0; c < FLW_STATS_PAGE_CLASSES; c++) {
        struct flw_stats_page_class *class = &collector->classes[c];
        if (class->reserved_bytes != 0) {
            class->size_bytes = c < FLW_CLASS_COUNT ? flw_class_bytes(c) : 0;
            out->classes[out->class_count++] = *class;
            free_bytes += free_bytes_of(class);
        }
    }
    out->value[FLW_VALUE_free_bytes] = free_bytes;
}

static uint64_t held_bytes(const struct flw_stats_page_stream *row)
{
    return row->live_bytes + row->cached_bytes + row->free_bytes + row->captured_bytes;
}

static bool comes_before(const struct flw_stats_page_stream *a,
                         const struct flw_stats_page_stream *b)
{
    uint64_t first = held_bytes(a), second = held_bytes(b);
    return first != second ? first > second : a->id < b->id;
}

/* Move the first `most` of the order to the front. */
static void select_rows(struct flw_stats_page_stream *rows, uint32_t count, uint32_t most)
{
    for (uint32_t i = 0; i < most; i++) {
        uint32_t first = i;
        for (uint32_t j = i + 1; j < count; j++) {
            first = comes_before(&rows[j], &rows[first]) ? j : first;
        }
        struct flw_stats_page_stream moved = rows[i];
        rows[i] = rows[first];
        rows[first] = moved;
    }
}

static void add_row(struct flw_stats_page_stream *sum, const struct flw_stats_page_stream *row)
{
    sum->live_count += row->live_count;
    sum->live_bytes += row->live_bytes;
    sum->requested_bytes += row->requested_bytes;
    sum->cached_bytes += row->cached_bytes;
    sum->free_bytes += row->free_bytes;
    sum->captured_bytes += row->captured_bytes;
    sum->alloc_count += row->alloc_count;
    sum->hit_count += row->hit_count;
    sum->cache_count += row->cache_count;
    sum->fence_count += row->fence_count;
}

static void copy_rows(struct flw_collector *collector, struct flw_stats_page_pool *out)
{
    struct flw_stats_page_stream rest = {.kind = FLW_STATS_PAGE_REST};
    uint32_t count = 0;
    for (uint32_t i = 0; i < collector->row_count; i++) { /* streams without any memory left */
        const struct flw_stats_page_stream *row = &collector->rows[i];
        if (row->kind == FLW_STATS_PAGE_STREAM || held_bytes(row) != 0 || row->fence_count != 0) {
            collector->rows[count++] = *row;
        }
    }
    out->stream_count = (uint32_t)flw_min(count, FLW_STATS_PAGE_STREAMS);
    select_rows(collector->rows, count, out->stream_count);
    memcpy(out->streams, collector->rows, out->stream_count * sizeof *collector->rows);
    for (uint32_t i = out->stream_count; i < count; i++) {
        add_row(&rest, &collector->rows[i]);
        rest.id++;
    }
    if (count > out->stream_count) {
        out->streams[out->stream_count++] = rest;
    }
}

/* ---- call stacks */

/* Add a line. False: no room. */
static bool add_line(char *frames, size_t *used, const char *text)
{
    size_t bytes = strlen(text);
    if (bytes + 2 > FLW_STATS_PAGE_FRAMES_BYTES - *used) {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        frames[*used + i] = (char)(text[i] == '\n' ? ' ' : text[i]);
    }
    frames[*used + bytes] = '\n';
    *used += bytes + 1;
    return true;
}

static bool add_frame(char *frames, size_t *used, const struct flw_callframe *frame)
{
    char line[12];
    size_t before = *used;
    snprintf(line, sizeof line, "%" PRIu32, frame->line);
    if (!add_line(frames, used, frame->function) || !add_line(frames, used, frame->file) ||
        !add_line(frames, used, line)) {
        memset(frames + before, 0, FLW_STATS_PAGE_FRAMES_BYTES - before);
        *used = before;
        return false;
    }
    return true;
}

static void add_frames(struct flw_callstacks *all, uint32_t number, char *frames)
{
    struct flw_callstack stack = flw_callstacks_get(all, number);
    size_t used = 0;
    bool fits = true;
    for (int is_native = 0; is_native < 2; is_native++) {
        for (size_t i = 0; fits && i < stack.frame_count; i++) {
            struct flw_callframe frame = flw_callstacks_frame(all, stack.frames[i]);
            bool is_in_module = strstr(frame.file, "+0x") != NULL;
            fits = is_in_module != (is_native == 1) || add_frame(frames, &used, &frame);
        }
    }
}

static void copy_holders(struct flw_pool *pool, struct flw_stats_page_pool *out)
{
    struct flw_trace_file_holder holders[FLW_STATS_PAGE_HOLDERS], rest;
    out->holder_count =
        (uint32_t)flw_recording_list_holders(pool, holders, FLW_STATS_PAGE_HOLDERS, &rest);
    for (uint32_t i = 0; i < out->holder_count; i++) {
        out->holders[i] = (struct flw_stats_page_holder){
            .stack_count = 1, .live_count = holders[i].count, .requested_bytes = holders[i].bytes};
        add_frames(flw_callstacks_shared(), holders[i].stack, out->holders[i].frames);
    }
    if (rest.count > 0) {
        out->holders[out->holder_count++] = (struct flw_stats_page_holder){
            .stack_count = rest.stack, .live_count = rest.count, .requested_bytes = rest.bytes};
    }
}

static void add_arena(void *context, const fallow_arena_stats *stats)
{
    struct flw_stats_page_pool *out = context;
    out->value[FLW_VALUE_arena_count]++;
    out->value[FLW_VALUE_arena_bytes] += stats->scratch_bytes + stats->persistent_bytes;
    if (out->arena_count < FLW_STATS_PAGE_ARENAS) {
        struct flw_stats_page_arena *arena = &out->arenas[out->arena_count++];
        *arena = (struct flw_stats_page_arena){.scratch_bytes = stats->scratch_bytes,
                                               .persistent_bytes = stats->persistent_bytes,
                                               .lease_count = stats->lease_count,
                                               .capture_count = stats->capture_count,
                                               .is_leased = stats->is_leased,
                                               .is_locked = stats->is_locked};
        snprintf(arena->name, sizeof arena->name, "%s", stats->name);
    }
}

static void copy_arenas(struct flw_pool *pool, struct flw_stats_page_pool *out)
{
    out->value[FLW_VALUE_arena_count] = out->value[FLW_VALUE_arena_bytes] = 0;
    out->arena_count = 0;
    fallow_pool_visit_arenas((fallow_pool *)(uintptr_t)pool->handle, add_arena, out);
}

void flw_collect_pool(struct flw_collector *collector, struct flw_pool *pool,
                      struct flw_stats_page_pool *out_pool)
{
    fallow_stats stats;
    memset(collector->classes, 0, sizeof collector->classes);
    collector->free_run_bytes = 0;
    flw_pool_read_stats(pool, &stats);
    copy_stats(&stats, out_pool->value);
    copy_rest(pool, out_pool->value);
    memcpy(out_pool->driver, pool->driver_name, sizeof out_pool->driver);
    for (unsigned i = 0; i < FLW_STAGE_COUNT; i++) {
        out_pool->stage_count[i] = atomic_load(&pool->climbs.count[i]);
        out_pool->stage_ns[i] = atomic_load(&pool->climbs.ns[i]);
    }
    add_domains(collector, &pool->heap);
    add_caches(collector, pool);
    add_spans(collector, &pool->heap);
    copy_classes(collector, out_pool);
    copy_rows(collector, out_pool);
    copy_holders(pool, out_pool);
    copy_arenas(pool, out_pool);
    forget_rows(collector);
}
