/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the program on the README's first screen, word for word from here on.
 */
#include <fallow/fallow.h>
#include <stdio.h>

int main(void)
{
    fallow_pool *pool = NULL;
    void *block = NULL;
    fallow_stats stats;
    fallow_stats_init(&stats);
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = "sim"; /* the simulated device; without this line, the GPU */
    int failed = fallow_pool_create(&config, &pool) ||
                 fallow_alloc(pool, 64 << 20, NULL, &block) || /* NULL: or your cudaStream_t */
                 fallow_free(pool, block, NULL) ||             /* no need to synchronise first */
                 fallow_pool_get_stats(pool, &stats);
    printf("lent %d block, holding %zu B\n", (int)stats.alloc_count, (size_t)stats.reserved_bytes);
    fallow_pool_destroy(pool);
    return failed;
}
