/* SPDX-License-Identifier: Apache-2.0
 *
 * abi.cpp: fallow.hpp frees each object once and in order, throws the documented exceptions, and allocates no host
 * memory on a hit.
 */
#include <fallow/fallow.hpp>

#include <cstring>
#include <type_traits>
#include <utility>

#include "cpp_bed.hpp"

static_assert(!std::is_copy_constructible_v<fallow::buffer> &&
              !std::is_copy_constructible_v<fallow::pool>);
static_assert(std::is_nothrow_move_constructible_v<fallow::buffer> &&
              std::is_nothrow_move_assignable_v<fallow::buffer>);
static_assert(sizeof(fallow::buffer) == 3 * sizeof(void *) &&
              sizeof(fallow::arena) == sizeof(void *));

static std::size_t host_allocations;

void *operator new(std::size_t size)
{
    host_allocations++;
    return std::malloc(size);
}

void operator delete(void *block) noexcept
{
    std::free(block);
}

void operator delete(void *block, std::size_t) noexcept
{
    std::free(block);
}

static fallow_stream const legacy = nullptr, per_thread = reinterpret_cast<fallow_stream>(2);

static void test_buffers()
{
    fallow::pool pool = make_pool();
    void *first = fallow::buffer(pool.get(), 4096, legacy).get();
    host_allocations = 0;
    fallow::buffer block(pool.get(), 4096, legacy);
    EXPECT(block.get() == first && host_allocations == 0); // a hit
    fallow::buffer moved = std::move(block);
    EXPECT(!block && moved.data<char>() == first && live_count(pool) == 1);
    moved = fallow::buffer(pool.get(), 8192, legacy);
    EXPECT(live_count(pool) == 1 && moved.get() != first);

    void *other = moved.get();
    moved.get_deleter().stream = per_thread;
    moved.reset();
    EXPECT(fallow::buffer(pool.get(), 8192, per_thread).get() ==
           other); // freed on the other stream

    fallow::request wishes;
    wishes.size_bytes = 4096;
    wishes.tag = 7;
    fallow::buffer tagged(pool.get(), wishes, legacy);
    fallow::defaults<fallow_block, fallow_block_init_sized> known;
    fallow::check(fallow_block_info(pool.get(), tagged.get(), &known));
    EXPECT(known.tag == 7);
    fallow_free(pool.get(), tagged.release(), legacy);
    EXPECT(live_count(pool) == 0 && !fallow::buffer(pool.get(), 0, legacy));

    block = fallow::buffer(pool.get(), 4096, legacy);
    pool.reset();
    block.reset(); // the pool is gone
}

static void test_failures()
{
    fallow::pool pool = make_pool();
    try {
        fallow::buffer block(pool.get(), std::size_t{128} << 20, legacy);
        EXPECT(false); // an allocation above the limit
    } catch (const std::bad_alloc &failure) {
        EXPECT(dynamic_cast<const fallow::bad_alloc &>(failure).status == FALLOW_OUT_OF_MEMORY);
        EXPECT(std::strcmp(failure.what(), fallow_status_message(FALLOW_OUT_OF_MEMORY)) == 0);
    }
    fallow::arena arena;
    fallow::check(fallow_arena_create(pool.get(), nullptr, fallow::out(arena)));
    try {
        fallow::check(fallow_arena_create(nullptr, nullptr, fallow::out(arena)));
        EXPECT(false); // an arena without a pool
    } catch (const fallow::error &failure) {
        EXPECT(failure.status == FALLOW_INVALID_POOL && !arena);
    }
    EXPECT(live_count(pool) == 0);
}

static void test_owners()
{
    fallow::pool pool = make_pool();
    fallow_region region = {};
    region.name = "scratch";
    region.size_bytes = 4096;
    fallow::layout layout;
    fallow::check(fallow_layout_create(&region, 1, fallow::out(layout)));
    fallow::arena arena;
    fallow::check(fallow_arena_create(pool.get(), nullptr, fallow::out(arena)));
    for (int step = 0; step < 2; step++) { // each lease has ended when the next begins
        fallow::lease lease, second;
        fallow::check(fallow_lease_begin(arena.get(), layout.get(), legacy, fallow::out(lease)));
        EXPECT(fallow_lease_begin(arena.get(), layout.get(), legacy, fallow::out(second)) ==
               FALLOW_BUSY);
    }
    arena.reset();
    for (int step = 0; step < 2; step++) { // so has each capture
        fallow::capture capture, second;
        fallow::check(fallow_capture_begin(pool.get(), per_thread, fallow::out(capture)));
        EXPECT(fallow_capture_begin(pool.get(), per_thread, fallow::out(second)) == FALLOW_BUSY);
        fallow::buffer captured(pool.get(), 4096, per_thread);
    }
    EXPECT(live_count(pool) == 0);
}

int main()
{
    test_buffers();
    test_failures();
    test_owners();
}
