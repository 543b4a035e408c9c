/* SPDX-License-Identifier: Apache-2.0
 *
 * example.install: a shared object that carries libfallow.a and keeps it to itself.
 */
#include <fallow/fallow.h>

int use_fallow(void);

int use_fallow(void)
{
    fallow_pool_config config = {.struct_size = sizeof config, .driver = "sim"};
    fallow_pool *pool = NULL;
    void *block = NULL;
    int failed = fallow_pool_create(&config, &pool) || fallow_alloc(pool, 4096, NULL, &block) ||
                 fallow_free(pool, block, NULL);
    fallow_pool_destroy(pool);
    return failed;
}
