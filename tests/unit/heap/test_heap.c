/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the proof that one heap serves every pair of an order domain and a page source: random
 * programs keep the invariants and the ledger, no memory is allocated twice, a limit holds, and
 * everything is released. Does not: use the public API (memory.script does). */
#include "test_heap_bed.h"

#define LIMIT (64 * FLW_MIB)
#define LIVE  96

static struct heap_bed bed;

struct block {
    struct flw_span *run; /* or a slot */
    struct flw_slot *slot;
    uint64_t address, bytes;
    unsigned class_index;
};

struct program {
    struct flw_domain *domain;
    struct block blocks[LIVE];
    struct flw_growable growable; /* a block grown in place */
    uint64_t grown_address, refused, grown_count, cut_count;
};

static struct program program;

static void check_disjoint(const struct block *block)
{
    for (unsigned i = 0; i < LIVE; i++) {
        const struct block *other = &program.blocks[i];
        if (other != block && other->bytes != 0 && block->address < other->address + other->bytes &&
            other->address < block->address + block->bytes) {
            fail_msg("0x%llx is allocated twice", (unsigned long long)block->address);
        }
    }
    const struct flw_span *grown = program.growable.block;
    if (grown != NULL &&
        block->address < flw_run_address(&bed.heap, grown) + flw_run_bytes(grown) &&
        flw_run_address(&bed.heap, grown) < block->address + block->bytes) {
        fail_msg("0x%llx is allocated twice", (unsigned long long)block->address);
    }
}

static void allocate_run(struct block *block)
{
    uint32_t units = 17 + (uint32_t)(flw_test_random(&bed.seed) % 60);
    struct flw_span *run = bed_take(&bed, program.domain, units);
    if (run == NULL && bed_grow(&bed, program.domain, units, &run) != FALLOW_OK) {
        program.refused++;
        return;
    }
    *block = (struct block){
        .run = run, .address = flw_run_address(&bed.heap, run), .bytes = flw_run_bytes(run)};
}

static void give_slot(struct block *block)
{
    unsigned class_index = 1 + (unsigned)(flw_test_random(&bed.seed) % 6) * 12;
    struct flw_slot *slot = NULL;
    flw_lock_acquire(&bed.heap.lock);
    uint32_t count = flw_heap_take_slots(&bed.heap, program.domain, class_index, 1, &slot);
    flw_lock_release(&bed.heap.lock);
    if (count == 0) {
        uint32_t units = flw_class_slab_units(class_index);
        struct flw_span *run = bed_take(&bed, program.domain, units);
        if (run == NULL && bed_grow(&bed, program.domain, units, &run) != FALLOW_OK) {
            program.refused++;
            return;
        }
        flw_lock_acquire(&bed.heap.lock);
        assert_true(flw_heap_adopt_slab(&bed.heap, program.domain, class_index, run));
        count = flw_heap_take_slots(&bed.heap, program.domain, class_index, 1, &slot);
        flw_lock_release(&bed.heap.lock);
    }
    assert_int_equal(count, 1);
    assert_true((slot->word & FLW_SLOT_STATE_MASK) == FLW_SLOT_FREE);
    *block = (struct block){.slot = slot,
                            .address = slot->word,
                            .bytes = flw_class_bytes(class_index),
                            .class_index = class_index};
}

static void take_back(struct block *block)
{
    flw_lock_acquire(&bed.heap.lock);
    if (block->run != NULL) {
        flw_heap_put_run(&bed.heap, program.domain, block->run);
    } else {
        flw_heap_put_slots(&bed.heap, program.domain, block->class_index, &block->slot, 1);
    }
    flw_lock_release(&bed.heap.lock);
    *block = (struct block){0};
}

static void grow_in_place(uint32_t pages)
{
    struct flw_growable *growable = &program.growable;
    uint64_t page = bed.heap.source.granularity_bytes, bytes = pages * page;
    if (growable->tail == NULL && growable->block == NULL) {
        (void)flw_growable_reserve(&bed.heap, LIMIT, bytes, growable);
        program.grown_address =
            growable->tail != NULL ? flw_run_address(&bed.heap, growable->tail) : 0;
        assert_true(program.grown_address % page == 0);
    }
    struct flw_grow_request request = {.domain = program.domain,
                                       .unit_count = (uint32_t)(bytes >> FLW_UNIT_LOG2),
                                       .align_units = 1,
                                       .budget_bytes = LIMIT,
                                       .growable = growable};
    uint64_t before = growable->block != NULL ? flw_run_bytes(growable->block) : 0;
    struct flw_span *run = NULL;
    (void)flw_heap_unmap_for(&bed.heap, &request);
    fallow_status status = flw_heap_grow(&bed.heap, &request, &run);
    assert_true(status != FALLOW_OK || run == growable->block);
    uint64_t after = growable->block != NULL ? flw_run_bytes(growable->block) : 0;
    assert_true(status == FALLOW_OK ? after >= before + bytes : after == before);
    program.grown_count += status == FALLOW_OK;
}

/* Grow, cut or free the growable block at random, sometimes with a failing driver. The address must not change. */
static void change_growable(uint64_t r)
{
    struct flw_growable *growable = &program.growable;
    struct flw_span *block = growable->block;
    if (r % 3 == 0) {
        (void)(bed.sim.fail)(NULL, 1 + (r >> 8) % 8,
                             r % 2 == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN, 0);
    }
    if (r >> 16 & 1) {
        grow_in_place(1 + (uint32_t)(r >> 24) % 4);
    } else if (block != NULL && (r >> 17 & 7) != 0) {
        uint64_t before = flw_run_bytes(block), keep = 1 + (r >> 24) % before;
        uint64_t done = flw_growable_cut(&bed.heap, growable, keep);
        assert_true(flw_run_bytes(block) == before - done && flw_run_bytes(block) >= keep);
        program.cut_count += done > 0;
    } else {
        flw_growable_end(&bed.heap, growable);
        if (block != NULL) {
            bed_put(&bed, program.domain, block);
        }
    }
    (void)(bed.sim.fail)(NULL, 0, 0, 0);
    block = growable->block;
    assert_true(block == NULL || flw_run_address(&bed.heap, block) == program.grown_address);
    assert_true(block == NULL || growable->tail == NULL || block->u.run.right == growable->tail);
    for (unsigned i = 0; i < LIVE && block != NULL; i++) {
        if (program.blocks[i].bytes != 0) {
            check_disjoint(&program.blocks[i]);
        }
    }
}

static void step(unsigned n)
{
    uint64_t r = flw_test_random(&bed.seed);
    struct block *block = &program.blocks[(r >> 8) % LIVE];
    if (block->bytes != 0) {
        take_back(block);
    } else {
        (r >> 40) % 2 == 0 ? allocate_run(block) : give_slot(block);
        check_disjoint(block);
        assert_true(block->address % 512 == 0);
    }
    if (n % 8 == 3 && bed.source == BED_VMM) {
        change_growable(flw_test_random(&bed.seed));
    }
    switch (n % 64) {
    case 7:
        bed_give_work(&bed);
        break;
    case 23:
        assert_int_equal(flw_domain_fence(&bed.heap, program.domain), FALLOW_OK);
        break;
    case 39:
        bed_finish_work(&bed);
        (void)flw_heap_poll(&bed.heap);
        break;
    case 55:
        flw_lock_acquire(&bed.heap.lock);
        (void)flw_heap_reclaim_slabs(&bed.heap);
        flw_lock_release(&bed.heap.lock);
        if (r % 4 == 0) {
            (void)flw_heap_release_idle(&bed.heap, LIMIT / 8, UINT64_MAX);
        }
        break;
    default:
        break;
    }
    if (n % 16 == 0) {
        bed_check(&bed);
        assert_true(bed_given_bytes(&bed) <= LIMIT);
    }
}

/* Take back, complete and release everything while the heap still exists. */
static void give_everything_back(void)
{
    for (unsigned i = 0; i < LIVE; i++) {
        if (program.blocks[i].bytes != 0) {
            take_back(&program.blocks[i]);
        }
    }
    struct flw_span *grown = program.growable.block;
    flw_growable_end(&bed.heap, &program.growable);
    if (grown != NULL) {
        bed_put(&bed, program.domain, grown);
    }
    bed_finish_work(&bed);
    flw_lock_acquire(&bed.heap.lock);
    for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
        flw_heap_carve_rest(&bed.heap, program.domain, c);
    }
    (void)flw_heap_reclaim_slabs(&bed.heap);
    flw_lock_release(&bed.heap.lock);
    assert_int_equal(flw_heap_sync_context(&bed.heap), FALLOW_OK);
    flw_lock_acquire(&bed.heap.lock);
    (void)flw_heap_reclaim_slabs(&bed.heap);
    flw_lock_release(&bed.heap.lock);
    (void)flw_heap_release_idle(&bed.heap, 0, UINT64_MAX);
    bed_check(&bed);
    assert_true(atomic_load(&bed.heap.reserved_bytes) == 0);
    assert_true(bed_given_bytes(&bed) == 0);
}

static void run_program(enum heap_bed_source source, const struct flw_order_ops *ops)
{
    bed_begin(&bed, source, LIMIT);
    program = (struct program){0};
    program.domain = bed_domain(&bed, ops, ops == &flw_order_stream ? bed.stream : NULL);
    for (unsigned n = 0; n < 6000; n++) {
        step(n);
    }
    print_message(
        "%s over %s: %llu grows, %llu events, %llu refusals at the limit, %llu growths in "
        "place, %llu cuts\n",
        ops->name, bed.heap.source.ops->name,
        (unsigned long long)atomic_load(&bed.heap.count.grows),
        (unsigned long long)atomic_load(&bed.heap.count.events),
        (unsigned long long)program.refused, (unsigned long long)program.grown_count,
        (unsigned long long)program.cut_count);
    assert_true((program.grown_count > 0 && program.cut_count > 0) || source != BED_VMM);
    give_everything_back();
    bed_end(&bed);
}

TEST(every_domain_works_over_every_source)
{
    for (unsigned source = 0; source < BED_SOURCES; source++) {
        run_program((enum heap_bed_source)source, &flw_order_stream);
        run_program((enum heap_bed_source)source, &flw_order_context);
    }
}

/* With few addresses, 1.5 times the limit, the heap takes back addresses that are set aside for growth. */
TEST(few_addresses_serve_as_well)
{
    bed.address_bytes = 96 * FLW_MIB;
    run_program(BED_VMM, &flw_order_stream);
    run_program(BED_VMM, &flw_order_context);
    bed.address_bytes = 0;
}

/* Three runs of 16 MiB side by side, of four handles each; the outer two are free and complete. The middle one. */
static struct flw_span *free_beside_one(struct flw_domain *domain)
{
    struct flw_span *runs[3];
    struct flw_grow_request request = {.domain = domain,
                                       .unit_count = 256,
                                       .align_units = 1,
                                       .budget_bytes = bed.heap.limit_bytes,
                                       .handle_bytes = 4 * FLW_MIB};
    (void)bed_domain(&bed, &flw_order_stream, CU_STREAM_LEGACY); /* another that shares */
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(flw_heap_grow(&bed.heap, &request, &runs[i]), FALLOW_OK);
    }
    bed_put(&bed, domain, runs[0]);
    bed_put(&bed, domain, runs[2]);
    assert_int_equal(flw_domain_fence(&bed.heap, domain), FALLOW_OK);
    bed_finish_work(&bed);
    assert_true(flw_heap_poll(&bed.heap));
    return runs[1];
}

TEST(handles_side_by_side_are_unmapped_as_one_stretch)
{
    bed_begin(&bed, BED_VMM, LIMIT);
    struct flw_domain *domain = bed_domain(&bed, &flw_order_stream, bed.stream);
    struct flw_span *live = free_beside_one(domain);
    uint64_t calls = (bed.sim.call_count)("cuMemUnmap");
    assert_true(flw_heap_unmap_idle(&bed.heap, 12 * FLW_MIB, false) == 12 * FLW_MIB);
    bed_check(&bed);
    assert_int_equal((bed.sim.call_count)("cuMemUnmap") - calls, 1);
    struct flw_span *whole = bed_take(&bed, domain, 256); /* the other run gave nothing */
    assert_non_null(whole);
    bed_put(&bed, domain, whole);
    bed_put(&bed, domain, live);
    bed_end(&bed);
}

TEST(a_growth_has_no_more_unmapped_than_it_lacks)
{
    bed_begin(&bed, BED_VMM, LIMIT);
    struct flw_domain *domain = bed_domain(&bed, &flw_order_stream, bed.stream);
    struct flw_span *live = free_beside_one(domain), *run = NULL;
    uint64_t reserved = atomic_load(&bed.heap.reserved_bytes);
    struct flw_grow_request request = {.domain = domain,
                                       .unit_count = 384, /* half as much again as the free runs */
                                       .align_units = 1,
                                       .budget_bytes = reserved};
    assert_true(flw_heap_unmap_for(&bed.heap, &request) == 8 * FLW_MIB);
    bed_check(&bed);
    assert_true(flw_heap_unmap_for(&bed.heap, &request) == 0); /* enough idles */
    assert_int_equal(flw_heap_grow(&bed.heap, &request, &run), FALLOW_OK);
    assert_true(atomic_load(&bed.heap.reserved_bytes) == reserved);
    assert_true(run->u.run.left == live); /* the run after that one was reserved for it */
    bed_check(&bed);
    bed_put(&bed, domain, run);
    bed_put(&bed, domain, live);
    bed_end(&bed);
}

TEST(a_slab_grows_with_what_its_class_holds)
{
    static struct flw_domain domain;
    static const struct flw_heap heap; /* little is in slabs */
    for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
        uint32_t smallest = flw_class_slab_units(c);
        for (uint64_t held = 1; held <= 1u << 24; held *= 2) {
            domain.slab_count[c] = UINT32_MAX;
            domain.slab_units[c] = (uint32_t)held;
            uint64_t usual = (uint64_t)smallest << flw_heap_slab_step(&heap, &domain, c, 0);
            uint64_t most = (uint64_t)smallest << flw_heap_slab_step(&heap, &domain, c, UINT64_MAX);
            uint64_t slots = (most * FLW_UNIT_BYTES) / flw_class_bytes(c);
            assert_true(usual <= FLW_SLAB_MAX_UNITS);
            assert_true(most == usual || most <= held / 256);
            assert_true(most == usual || slots <= FLW_SLAB_MANY_SLOTS);
            assert_true(held < 1u << 22 || slots > FLW_SLAB_MANY_SLOTS / 2 ||
                        most == (uint64_t)smallest << (FLW_SLAB_STEPS - 1));
            uint64_t bounded = (uint64_t)smallest << flw_heap_slab_step(&heap, &domain, c, 100);
            assert_true(bounded <= 100);
        }
        domain.slab_count[c] = 0;
        domain.slab_units[c] = 0;
        assert_int_equal(flw_heap_slab_step(&heap, &domain, c, UINT64_MAX), 0);
    }
}

int main(void)
{
    bed.seed = flw_test_seed("unit.heap");
    if (!flw_sim_open(&bed.sim)) {
        return 1;
    }
    return _cmocka_run_group_tests("tests", flw_tests()->rows, flw_tests()->count, NULL, NULL);
}
