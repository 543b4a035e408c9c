/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the program on the README's first screen, word for word from here on.
 */
#include <fallow/fallow.h>
#include <stdio.h>

int main(void)
{
    /* The simulated device; without .driver, the GPU. */
    fallow_pool_config config = {.struct_size = sizeof config, .driver = "sim"};
    fallow_pool *pool = NULL;
    void *block = NULL;
    int failed = fallow_pool_create(&config, &pool) ||
                 fallow_alloc(pool, 64 << 20, NULL, &block) || /* NULL: or your cudaStream_t */
                 fallow_free(pool, block, NULL);               /* no need to synchronise first */
    printf("%s 64 MiB at %p\n", failed ? "could not lend" : "lent", block);
    fallow_pool_destroy(pool);
    return failed;
}
