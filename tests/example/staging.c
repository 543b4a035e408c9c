/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: an example: batches go to the device through pinned memory, two streams in turn. The CPU never
 * waits and never writes a block that a copy still reads: a block that was freed behind the copy is
 * allocated again when the copy is done. Link fallow::host.
 */
#include <fallow/extend.h>
#include <fallow/host.h>
#include <stdio.h>
#include <string.h>

typedef int (*current_function)(void *context);
typedef int (*create_function)(fallow_stream *stream, unsigned flags);
typedef int (*copy_function)(unsigned long long to, const void *from, size_t bytes,
                             fallow_stream stream);

/* The driver that the pool runs on; a CUDA program calls cudaMemcpyAsync instead. */
static void find(fallow_pool *pool, const char *name, void *out_function)
{
    void *entry = fallow_pool_driver_entry(pool, name);
    memcpy(out_function, &entry, sizeof entry);
}

int main(void)
{
    enum {
        BATCHES = 200,
        BATCH_BYTES = 3 << 20
    };
    fallow_pool_config config = {.struct_size = sizeof config, .driver = "sim"};
    fallow_host_config staging = {.struct_size = sizeof staging, .limit_bytes = 64 << 20};
    fallow_pool *pool = NULL;
    fallow_host *host = NULL;
    fallow_stream streams[2] = {NULL, NULL};
    current_function set_current = NULL;
    create_function create = NULL;
    copy_function copy = NULL;
    char why[256] = "";
    int failed = fallow_pool_create(&config, &pool) || fallow_host_create(pool, &staging, &host);
    if (!failed) {
        find(pool, "cuCtxSetCurrent", &set_current);
        find(pool, "cuStreamCreate", &create);
        find(pool, "cuMemcpyHtoDAsync_v2", &copy);
        failed = set_current(fallow_pool_context(pool)) || create(&streams[0], 1) ||
                 create(&streams[1], 1);
    }
    for (int i = 0; i < BATCHES && !failed; i++) {
        fallow_stream stream = streams[i % 2];
        void *device = NULL, *batch = NULL;
        failed = fallow_alloc(pool, BATCH_BYTES, stream, &device) ||
                 fallow_host_alloc(host, BATCH_BYTES, &batch);
        if (!failed) {
            memset(batch, i, BATCH_BYTES); /* at once: it is no other site's */
            failed = copy((unsigned long long)(size_t)device, batch, BATCH_BYTES, stream) ||
                     fallow_host_free(host, batch, stream) || fallow_free(pool, device, stream);
        }
    }
    fallow_host_stats stats;
    fallow_host_stats_init(&stats);
    failed = failed || fallow_host_get_stats(host, &stats);
    fallow_host_last_error(host, why, sizeof why);
    printf("%llu batches staged in %llu MiB of pinned memory%s%s\n",
           (unsigned long long)stats.alloc_count,
           (unsigned long long)(stats.peak_reserved_bytes >> 20), failed ? ": " : "", why);
    fallow_host_destroy(host);
    fallow_pool_destroy(pool);
    return failed;
}
