/* SPDX-License-Identifier: Apache-2.0
 *
 * The program of include/fallow/README.md: weights and the scratch memory of steps, freed by C++'s scopes.
 */
#include <fallow/fallow.hpp>

#include <cstdio>

int main()
{
    fallow::pool_config config;
    config.driver = "sim";
    config.limit_bytes = std::size_t{1} << 30;
    fallow_stream stream = nullptr;
    fallow_region hidden = {};
    hidden.name = "hidden";
    hidden.size_bytes = 64 << 20;
    try {
        fallow::pool pool(config);
        fallow::buffer weights(pool.get(), 512 << 20, stream); // weights.data<float>()
        fallow::layout layout;
        fallow::check(fallow_layout_create(&hidden, 1, fallow::out(layout)));
        fallow::arena arena;
        fallow::check(fallow_arena_create(pool.get(), nullptr, fallow::out(arena)));
        for (int step = 0; step < 3; step++) {
            fallow::lease lease; // until the end of the step, also if the step throws
            fallow::check(
                fallow_lease_begin(arena.get(), layout.get(), stream, fallow::out(lease)));
            std::printf("step %d: %zu MiB of scratch\n", step, hidden.size_bytes >> 20);
        }
        fallow::buffer cache(pool.get(), 640 << 20, stream); // beyond the limit
    } catch (const fallow::bad_alloc &failure) { // out of device memory; fallow::error is the rest
        std::printf("%s: %s\n", fallow_status_name(failure.status), failure.what());
    }
}
