/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: README.md's program, word for word from here on.
 */
#include <fallow/fallow.h>
#include <stdio.h>

int main(void)
{
    fallow_pool_config config = {.struct_size = sizeof config, .driver = "sim"}; /* without: GPU */
    fallow_pool *pool = NULL;
    void *block = NULL;
    int failed = fallow_pool_create(&config, &pool) ||
                 fallow_alloc(pool, 64 << 20, NULL, &block) || /* NULL, or your cudaStream_t */
                 fallow_free(pool, block, NULL);               /* no need to synchronise first */
    printf("%s 64 MiB at %p\n", failed ? "no" : "allocated", block);
    fallow_pool_destroy(pool);
    return failed;
}
