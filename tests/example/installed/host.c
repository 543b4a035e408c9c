/* SPDX-License-Identifier: Apache-2.0
 *
 * example.install: a user of libfallow-host.
 */
#include <fallow/host.h>

int main(void)
{
    fallow_pool_config config = {.struct_size = sizeof config, .driver = "sim"};
    fallow_pool *pool = NULL;
    fallow_host *host = NULL;
    void *block = NULL;
    int failed = fallow_pool_create(&config, &pool) || fallow_host_create(pool, NULL, &host) ||
                 fallow_host_alloc(host, 1 << 20, &block) || fallow_host_free(host, block, NULL);
    fallow_host_destroy(host);
    fallow_pool_destroy(pool);
    return failed;
}
