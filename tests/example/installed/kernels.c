/* SPDX-License-Identifier: Apache-2.0
 *
 * example.install: a user of libfallow-kernels: found, linked, opened.
 */
#include <fallow/arena.h>
#include <fallow/kernels.h>

int main(void)
{
    fallow_pool_config config = {.struct_size = sizeof config, .driver = "sim"};
    fallow_pool *pool = NULL;
    fallow_kernels *kernels = NULL;
    fallow_arena *arena = NULL;
    int failed = fallow_pool_create(&config, &pool) || fallow_kernels_create(pool, &kernels) ||
                 fallow_arena_create(pool, NULL, &arena);
    fallow_arena_destroy(arena);
    fallow_kernels_destroy(kernels);
    fallow_pool_destroy(pool);
    return failed;
}
