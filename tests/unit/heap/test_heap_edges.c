/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the proof that a heap works in unusual surroundings: no host memory, driver addresses at
 * any offset or outside the tables, handles as small as a unit. */
#include "test_heap_bed.h"

#define LIMIT (256 * FLW_MIB)

static struct heap_bed bed;

/* ---- sources */

#define ODD_BYTES 4096u

/* Addresses that are aligned for no unit. */
static CUresult odd_acquire(struct flw_source *source, uint64_t bytes, uint64_t *out_address)
{
    CUdeviceptr address = 0;
    CUresult result = source->driver->cuMemAlloc_v2(&address, bytes + 2 * FLW_MIB);
    *out_address = address + ODD_BYTES;
    return result;
}

static CUresult odd_give_back(struct flw_source *source, uint64_t address)
{
    return source->driver->cuMemFree_v2(address - ODD_BYTES);
}

static unsigned far_count;

static CUresult far_acquire(struct flw_source *source, uint64_t bytes, uint64_t *out_address)
{
    (void)source;
    far_count++;
    *out_address = (1ull << 47) - (far_count % 2 == 0 ? 0 : bytes - FLW_UNIT_BYTES);
    return CUDA_SUCCESS;
}

static CUresult far_give_back(struct flw_source *source, uint64_t address)
{
    (void)source;
    assert_true(address >= 1ull << 46);
    far_count += 1000;
    return CUDA_SUCCESS;
}

/* Address space and handles without memory: any granularity works. */
static CUresult airy_reserve(struct flw_source *source, uint64_t bytes, uint64_t align_bytes,
                             uint64_t *out_base)
{
    (void)source;
    *out_base = flw_align_up(1ull << 44, flw_max(bytes, align_bytes));
    return CUDA_SUCCESS;
}

static CUresult airy_stretch(struct flw_source *source, uint64_t address, uint64_t bytes)
{
    (void)source;
    assert_true(address != 0 && bytes != 0);
    return CUDA_SUCCESS;
}

static CUresult airy_create(struct flw_source *source, uint64_t bytes, uint32_t *kinds,
                            uint64_t *out_handle)
{
    static uint64_t last;
    (void)source;
    (void)kinds;
    assert_true(bytes % FLW_UNIT_BYTES == 0);
    *out_handle = ++last;
    return CUDA_SUCCESS;
}

static CUresult airy_release(struct flw_source *source, uint64_t handle)
{
    (void)source;
    assert_true(handle != 0);
    return CUDA_SUCCESS;
}

static CUresult airy_map(struct flw_source *source, uint64_t address, uint64_t bytes,
                         uint64_t handle)
{
    assert_true(handle != 0);
    return airy_stretch(source, address, bytes);
}

static uint64_t granularity;

static CUresult this_granularity(size_t *out_bytes, const CUmemAllocationProp *prop,
                                 CUmemAllocationGranularity_flags option)
{
    (void)prop;
    (void)option;
    *out_bytes = granularity;
    return CUDA_SUCCESS;
}

static const struct flw_source_ops odd_source = {
    .name = "odd", .acquire = odd_acquire, .release_segment = odd_give_back};
static const struct flw_source_ops far_source = {
    .name = "far", .acquire = far_acquire, .release_segment = far_give_back};
static const struct flw_source_ops airy_source = {.name = "airy",
                                                  .remaps = true,
                                                  .reserve = airy_reserve,
                                                  .unreserve = airy_stretch,
                                                  .create = airy_create,
                                                  .release = airy_release,
                                                  .map = airy_map,
                                                  .unmap = airy_stretch,
                                                  .set_access = airy_stretch};

/* Begin a bed with another source for the heap. */
static void begin_with(const struct flw_source_ops *source)
{
    bed_begin(&bed, BED_SEGMENTS, LIMIT);
    flw_heap_finish(&bed.heap, false);
    struct flw_heap_config config = {.driver = &bed.sim.cu,
                                     .context = bed.context,
                                     .source = source,
                                     .device_bytes = LIMIT,
                                     .limit_bytes = LIMIT};
    assert_int_equal(flw_heap_init(&bed.heap, &config), FALLOW_OK);
}

static void check_heap(void)
{
    flw_lock_acquire(&bed.heap.lock);
    const char *broken = flw_heap_broken_invariant(&bed.heap);
    flw_lock_release(&bed.heap.lock);
    if (broken != NULL) {
        fail_msg("%s", broken);
    }
    assert_false(flw_heap_is_lost(&bed.heap));
}

/* ---- host memory */

struct shortage {
    struct flw_span *spare;
    uint64_t spans, objects;
};

/* There are `headers` more of runs, and no other object that was not there before. */
static struct shortage begin_shortage(unsigned headers)
{
    struct flw_page_map *map = &bed.heap.map;
    for (unsigned i = 0; i < headers; i++) { /* (one that nobody has yet) */
        struct flw_span *run = flw_page_map_extend_runs(map);
        assert_non_null(run);
        flw_page_map_drop_run(map, run);
    }
    struct shortage shortage = {.spans = map->span_meta.reserved_bytes,
                                .objects = bed.heap.objects.meta.reserved_bytes};
    struct flw_span **last = &map->unused_runs;
    for (unsigned i = 0; i < headers; i++) {
        last = &(*last)->next_unused;
    }
    shortage.spare = *last;
    *last = NULL;
    map->span_meta.reserved_bytes = map->span_meta.used_bytes;
    bed.heap.objects.meta.reserved_bytes = bed.heap.objects.meta.used_bytes;
    return shortage;
}

static void end_shortage(struct shortage shortage)
{
    struct flw_span **last = &bed.heap.map.unused_runs;
    while (*last != NULL) {
        last = &(*last)->next_unused;
    }
    *last = shortage.spare;
    bed.heap.map.span_meta.reserved_bytes = shortage.spans;
    bed.heap.objects.meta.reserved_bytes = shortage.objects;
}

/* Make free runs of 100, 100 and 40 units that begin and end inside handles, with live ones in
 * between. */
static void fill_with_holes(struct flw_domain *domain, struct flw_span *live[2])
{
    static const uint32_t units[] = {100, 8, 100, 8, 40};
    struct flw_span *runs[5], *all = bed_obtain(&bed, domain, 256);
    bed_put(&bed, bed.heap.domains[FLW_UNOWNED], all);
    for (unsigned i = 0; i < 5; i++) {
        runs[i] = bed_take(&bed, domain, units[i]);
        assert_non_null(runs[i]);
    }
    for (unsigned i = 0; i < 5; i += 2) {
        bed_put(&bed, bed.heap.domains[FLW_UNOWNED], runs[i]);
    }
    live[0] = runs[1];
    live[1] = runs[3];
}

TEST(idle_memory_that_cannot_be_cut_stays_as_it_is)
{
    struct flw_span *live[2], *aligned;
    bed_begin(&bed, BED_VMM, LIMIT);
    struct flw_domain *domain = bed_domain(&bed, &flw_order_stream, bed.stream);
    fill_with_holes(domain, live);
    for (unsigned headers = 0; headers < 2; headers++) {
        struct shortage shortage = begin_shortage(headers);
        flw_lock_acquire(&bed.heap.lock);
        aligned = flw_heap_take_run(&bed.heap, domain, 16, 32); /* two cuts */
        flw_lock_release(&bed.heap.lock);
        assert_null(aligned);
        bed_check(&bed);
        uint64_t moved = flw_heap_unmap_idle(&bed.heap, UINT64_MAX, false);
        assert_true(headers == 0 ? moved == 0 : moved <= 2 * bed.heap.source.granularity_bytes);
        end_shortage(shortage);
        bed_check(&bed);
    }
    assert_true(flw_heap_unmap_idle(&bed.heap, UINT64_MAX, false) > 0);
    bed_put(&bed, domain, live[0]);
    bed_put(&bed, domain, live[1]);
    bed_check(&bed);
    bed_end(&bed);
}

/* A free run of four handles of 4 MiB, of which the driver keeps the second mapped. */
static void unmap_all_but_one(struct flw_domain *domain)
{
    struct flw_span *run = NULL;
    struct flw_grow_request request = {.domain = domain,
                                       .unit_count = 256,
                                       .align_units = 1,
                                       .budget_bytes = LIMIT,
                                       .handle_bytes = 4 * FLW_MIB};
    (void)bed_domain(&bed, &flw_order_stream, CU_STREAM_LEGACY); /* another that shares */
    assert_int_equal(flw_heap_grow(&bed.heap, &request, &run), FALLOW_OK);
    bed_put(&bed, bed.heap.domains[FLW_UNOWNED], run);
    atomic_store(&bed.heap.source.unmaps_singly, true);
    assert_int_equal((bed.sim.fail)("cuMemUnmap", 2, CUDA_ERROR_UNKNOWN, 0), 1);
}

TEST(what_is_not_unmapped_of_a_stretch_stays_as_it_was)
{
    bed_begin(&bed, BED_VMM, LIMIT);
    struct flw_domain *domain = bed_domain(&bed, &flw_order_stream, bed.stream);
    unmap_all_but_one(domain);
    assert_true(flw_heap_unmap_idle(&bed.heap, 16 * FLW_MIB, false) == 12 * FLW_MIB);
    bed_check(&bed);
    assert_true(bed.heap.idle_bytes == 12 * FLW_MIB);
    struct flw_span *rest = bed_take(&bed, domain, 64); /* refused before */
    assert_non_null(rest);
    bed_put(&bed, domain, rest);
    bed_end(&bed);
}

TEST(a_stretch_that_cannot_be_divided_stays_set_aside)
{
    bed_begin(&bed, BED_VMM, LIMIT);
    struct flw_domain *domain = bed_domain(&bed, &flw_order_stream, bed.stream);
    unmap_all_but_one(domain);
    struct shortage shortage = begin_shortage(0);
    assert_true(flw_heap_unmap_idle(&bed.heap, 16 * FLW_MIB, false) == 12 * FLW_MIB);
    end_shortage(shortage);
    bed_check(&bed);
    assert_true(bed.heap.idle_bytes == 12 * FLW_MIB); /* these serve elsewhere */
    assert_null(bed_take(&bed, domain, 64));
    bed_end(&bed);
}

TEST(a_segment_without_host_memory_leaves_nothing_behind)
{
    struct flw_span *run = NULL;
    bed_begin(&bed, BED_SEGMENTS, LIMIT);
    struct flw_domain *domain = bed_domain(&bed, &flw_order_stream, bed.stream);
    run = bed_obtain(&bed, domain, 20);
    bed_put(&bed, bed.heap.domains[FLW_UNOWNED], run);
    assert_true(flw_heap_release_idle(&bed.heap, 0, UINT64_MAX) >
                0); /* one segment is unused now */
    uint64_t objects = bed.heap.objects.meta.used_bytes;
    for (unsigned i = 0; i < 8; i++) {
        struct shortage shortage = begin_shortage(i % 2);
        assert_int_equal(bed_grow(&bed, domain, 20, &run), FALLOW_OUT_OF_HOST_MEMORY);
        end_shortage(shortage);
        assert_true(atomic_load(&bed.heap.reserved_bytes) == 0);
        bed_check(&bed);
    }
    uint64_t spans = bed.heap.map.span_meta.used_bytes;
    run = bed_obtain(&bed, domain, 20);
    assert_true(bed.heap.objects.meta.used_bytes == objects);
    assert_true(bed.heap.map.span_meta.used_bytes == spans);
    bed_put(&bed, domain, run);
    bed_check(&bed);
    bed_end(&bed);
}

/* A growth that uses the end of a free run on the left, with fewer and fewer headers for cuts. */
TEST(a_growth_without_host_memory_is_aligned_or_refused)
{
    unsigned refused = 0;
    for (unsigned headers = 0; headers < 5; headers++) {
        struct flw_span *run = NULL;
        bed_begin(&bed, BED_VMM, LIMIT);
        struct flw_domain *domain = bed_domain(&bed, &flw_order_stream, bed.stream);
        bed_put(&bed, bed.heap.domains[FLW_UNOWNED], bed_obtain(&bed, domain, 96));
        (void)flw_heap_release_idle(&bed.heap, 0,
                                    UINT64_MAX); /* some handles' objects are unused now */
        struct flw_span *first = bed_obtain(&bed, domain, 12);
        struct flw_grow_request request = {
            .domain = domain, .unit_count = 40, .align_units = 16, .budget_bytes = LIMIT};
        struct shortage shortage = begin_shortage(headers);
        fallow_status status = flw_heap_grow(&bed.heap, &request, &run);
        end_shortage(shortage);
        bed_check(&bed);
        if (status == FALLOW_OK) {
            assert_true(flw_run_address(&bed.heap, run) % (16 * FLW_UNIT_BYTES) == 0);
            assert_true(run->u.run.unit_count >= 40);
            bed_put(&bed, domain, run);
        } else {
            assert_int_equal(status, FALLOW_OUT_OF_HOST_MEMORY);
            assert_null(run);
            refused++;
        }
        bed_put(&bed, domain, first);
        bed_check(&bed);
        bed_end(&bed);
    }
    assert_true(refused > 0 && refused < 5);
}

/* ---- addresses */

TEST(a_segment_at_any_address_serves_no_more_than_it_is)
{
    struct flw_span *runs[12];
    begin_with(&odd_source);
    struct flw_domain *domain = bed_domain(&bed, &flw_order_stream, bed.stream);
    for (unsigned i = 0; i < 12; i++) {
        struct flw_grow_request request = {.domain = domain,
                                           .unit_count = 32 * (1 + i % 3),
                                           .align_units = i % 4 == 3 ? 16 : 1,
                                           .budget_bytes = LIMIT};
        fallow_status status = flw_heap_grow(&bed.heap, &request, &runs[i]);
        assert_int_equal(status,
                         i == 0 ? FALLOW_OUT_OF_MEMORY : FALLOW_OK); /* remembers the refusal */
        if (i == 0) {
            continue;
        }
        uint64_t address = flw_run_address(&bed.heap, runs[i]),
                 end = address + flw_run_bytes(runs[i]);
        const struct flw_segment *segment = bed.heap.segments.newest;
        assert_int_equal(runs[i]->u.run.unit_count, request.unit_count);
        assert_true(address >= segment->address && address % (request.align_units << 16) == 0);
        assert_true(end <= (uint64_t)(segment->begin_unit + segment->unit_count) << FLW_UNIT_LOG2);
        check_heap();
    }
    for (unsigned i = 1; i < 12; i++) {
        bed_put(&bed, bed.heap.domains[FLW_UNOWNED], runs[i]);
    }
    check_heap();
    assert_true(flw_heap_release_idle(&bed.heap, 0, UINT64_MAX) > 0);
    assert_true(atomic_load(&bed.heap.reserved_bytes) == 0);
    bed_end(&bed);
}

TEST(a_segment_beyond_the_tables_goes_back)
{
    struct flw_span *run = NULL;
    begin_with(&far_source);
    struct flw_domain *domain = bed_domain(&bed, &flw_order_stream, bed.stream);
    far_count = 0;
    for (unsigned i = 0; i < 2; i++) { /* the end alone, then all of it */
        assert_int_equal(bed_grow(&bed, domain, 32, &run), FALLOW_OUT_OF_MEMORY);
        assert_true(run == NULL && atomic_load(&bed.heap.reserved_bytes) == 0);
        check_heap();
    }
    assert_int_equal(far_count, 2002);
    bed_end(&bed);
}

/* ---- releasing */

/* ---- handles of a unit and more: slabs and runs begin and end anywhere in a cell */

#define BLOCKS 400

struct block {
    struct flw_span *run; /* or a slot */
    struct flw_slot *slot;
    unsigned class_index;
};

static struct block blocks[BLOCKS];
static struct flw_domain *owner;

static struct flw_span *obtain(uint32_t units, uint32_t align_units)
{
    struct flw_grow_request request = {
        .domain = owner, .unit_count = units, .align_units = align_units, .budget_bytes = LIMIT};
    flw_lock_acquire(&bed.heap.lock);
    struct flw_span *run = flw_heap_take_run(&bed.heap, owner, units, align_units);
    flw_lock_release(&bed.heap.lock);
    if (run == NULL) {
        (void)flw_heap_grow(&bed.heap, &request, &run);
    }
    return run;
}

static void allocate(struct block *block)
{
    uint64_t r = flw_test_random(&bed.seed);
    block->class_index = (unsigned)(r % (FLW_CLASS_COUNT + 24));
    if (block->class_index >= FLW_CLASS_COUNT) {
        uint32_t align_units = r % 5 == 0 ? 1u << (r >> 20) % 6 : 1;
        uint32_t units = FLW_CELL_UNITS + (uint32_t)(r >> 8) % 30;
        block->run = obtain(units, align_units);
        assert_true(block->run == NULL ||
                    (block->run->u.run.unit_count == units &&
                     flw_run_address(&bed.heap, block->run) % (align_units << 16) == 0));
        return;
    }
    for (unsigned i = 0; i < 2 && block->slot == NULL; i++) {
        flw_lock_acquire(&bed.heap.lock);
        (void)flw_heap_take_slots(&bed.heap, owner, block->class_index, 1, &block->slot);
        flw_lock_release(&bed.heap.lock);
        struct flw_span *run =
            block->slot == NULL ? obtain(flw_class_slab_units(block->class_index), 1) : NULL;
        if (run != NULL) {
            flw_lock_acquire(&bed.heap.lock);
            assert_true(flw_heap_adopt_slab(&bed.heap, owner, block->class_index, run));
            flw_lock_release(&bed.heap.lock);
        }
    }
}

static void take_back(struct block *block)
{
    flw_lock_acquire(&bed.heap.lock);
    if (block->run != NULL) {
        flw_heap_put_run(&bed.heap, owner, block->run);
    } else if (block->slot != NULL) {
        flw_heap_put_slots(&bed.heap, owner, block->class_index, &block->slot, 1);
    }
    flw_lock_release(&bed.heap.lock);
    *block = (struct block){0};
}

static const struct flw_slot *slot_at(uint64_t address)
{
    const struct flw_page_map *map = &bed.heap.map;
    uint64_t offset = flw_page_map_offset(map, address);
    return flw_page_map_slot_at(map, flw_page_map_span_at(map, offset), offset);
}

/* Check that each block is found at the start, and that neighbouring pointers find none. */
static void check_found(const struct block *block)
{
    const struct flw_slot *slot =
        block->run != NULL ? flw_span_slot(&bed.heap.map, block->run, 0) : block->slot;
    if (slot == NULL) {
        return;
    }
    uint64_t address = flw_slot_address(slot);
    assert_ptr_equal(slot_at(address), slot);
    for (uint64_t near = 1; near <= FLW_SLOT_LIVE; near++) {
        assert_true(slot_at(address - near)->word != address - near + FLW_SLOT_LIVE);
        assert_true(slot_at(address + near)->word != address + near + FLW_SLOT_LIVE);
    }
}

static void alloc_and_free(unsigned steps)
{
    for (unsigned n = 0; n < steps; n++) {
        uint64_t r = flw_test_random(&bed.seed);
        struct block *block = &blocks[r % BLOCKS];
        block->run != NULL || block->slot != NULL ? take_back(block) : allocate(block);
        if (n % 500 == 499) {
            flw_lock_acquire(&bed.heap.lock);
            (void)flw_heap_reclaim_slabs(&bed.heap);
            flw_lock_release(&bed.heap.lock);
            assert_int_equal(flw_heap_sync_context(&bed.heap), FALLOW_OK);
            (void)flw_heap_release_idle(&bed.heap, (r >> 20) % LIMIT, UINT64_MAX);
        }
        for (unsigned i = 0; n % 50 == 49 && i < BLOCKS; i++) {
            check_found(&blocks[i]);
        }
        if (n % 100 == 99) {
            check_heap();
        }
    }
}

TEST(every_block_is_found_whatever_a_cell_holds)
{
    const struct flw_driver driver = bed.sim.cu;
    for (granularity = FLW_UNIT_BYTES; granularity <= 8 * FLW_MIB; granularity *= 2) {
        bed.sim.cu = driver;
        bed_begin(&bed, BED_VMM, LIMIT);
        flw_heap_finish(&bed.heap, false);
        bed.sim.cu.cuMemGetAllocationGranularity = this_granularity;
        struct flw_heap_config config = {.driver = &bed.sim.cu,
                                         .context = bed.context,
                                         .source = &airy_source,
                                         .device_bytes = LIMIT,
                                         .limit_bytes = LIMIT};
        assert_int_equal(flw_heap_init(&bed.heap, &config), FALLOW_OK);
        assert_true(bed.heap.page_units == granularity / FLW_UNIT_BYTES);
        owner = bed_domain(&bed, &flw_order_stream, bed.stream);
        alloc_and_free(granularity == FLW_UNIT_BYTES ? 12000 : 3000);
        for (unsigned i = 0; i < BLOCKS; i++) {
            take_back(&blocks[i]);
        }
        check_heap();
        bed_end(&bed);
    }
    bed.sim.cu = driver;
}

static int begin(void **state)
{
    bed.seed = flw_test_seed("unit.heap_edges");
    return flw_sim_open(&bed.sim) ? 0 : -1;
}

static int end(void **state)
{
    flw_sim_close(&bed.sim);
    return 0;
}

int main(void)
{
    return _cmocka_run_group_tests("tests", flw_tests()->rows, flw_tests()->count, begin, end);
}
