/* SPDX-License-Identifier: Apache-2.0
 *
 * The program of include/fallow/README.md: a pool sleeps, and the weights are there again.
 */
#include <fallow/fallow.h>
#include <fallow/sleep.h>
#include <stdio.h>

enum {
    WEIGHTS = 1,
    CACHE = 2
}; /* tags */

int main(void)
{
    fallow_pool_config config = {.struct_size = sizeof config, .driver = "sim"};
    fallow_request weights = {
        .struct_size = sizeof weights, .size_bytes = 96 << 20, .tag = WEIGHTS};
    fallow_request cache = {.struct_size = sizeof cache, .size_bytes = 640 << 20, .tag = CACHE};
    fallow_sleep_request sleep = {.struct_size = sizeof sleep,
                                  .flags = FALLOW_SLEEP_WAIT, /* for the work under way */
                                  .saved_tags = (const uint32_t[]){WEIGHTS},
                                  .saved_tag_count = 1};
    fallow_stats awake = {.struct_size = sizeof awake}, asleep = awake;
    fallow_pool *pool = NULL;
    void *block[2];
    int failed = fallow_pool_create(&config, &pool) ||
                 fallow_alloc_request(pool, &weights, NULL, &block[0]) ||
                 fallow_alloc_request(pool, &cache, NULL, &block[1]) ||
                 fallow_pool_get_stats(pool, &awake) ||
                 fallow_pool_sleep(pool, &sleep) || /* the device has it all back */
                 fallow_pool_get_stats(pool, &asleep) ||
                 fallow_pool_wake(pool); /* weights and cache where they were, graphs may run */
    printf("held %u MiB, asleep %u MiB, saved %u MiB\n", (unsigned)(awake.reserved_bytes >> 20),
           (unsigned)(asleep.reserved_bytes >> 20), (unsigned)(asleep.saved_bytes >> 20));
    fallow_pool_destroy(pool);
    return failed;
}
