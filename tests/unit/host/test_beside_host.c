/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: every public call of libfallow-host beside another thread's capture (see test_beside_pool.c).
 */
#include "unit/pool/test_beside.h"

#include "fallow/host.h"

static fallow_host *make_host(struct bed *bed)
{
    fallow_host_config config;
    fallow_host *host = NULL;
    fallow_host_config_init(&config);
    config.limit_bytes = 64 * MIB;
    config.wait_ms = 1;
    WORKS(bed, fallow_host_create(bed->api.pool, &config, &host));
    return host;
}

static void *allocate(struct bed *bed, fallow_host *host, size_t bytes)
{
    void *block = NULL;
    WORKS(bed, fallow_host_alloc(host, bytes, &block));
    return block;
}

static void pinned_memory_is_allocated_and_freed(enum flw_beside_place place)
{
    struct bed bed;
    fallow_host_stats stats;
    size_t released = 0;
    char text[256];
    begin_usual(&bed, place);
    fallow_host *host = make_host(&bed);
    CUstream stream = bed.api.stream, other = bed.api.other;
    for (unsigned i = 0; i < 100; i++) { /* more than a fence's worth */
        void *block = allocate(&bed, host, i % 7 == 0 ? MIB : 3000);
        if (i % 3 == 0) {
            WORKS(&bed, fallow_host_record_use(host, block, other));
        }
        WORKS(&bed, fallow_host_free(host, block, stream));
    }
    WORKS(&bed, fallow_host_free_idle(host, allocate(&bed, host, 5000)));
    WORKS(&bed, fallow_host_poll(host));
    WORKS(&bed, fallow_host_validate(host));
    fallow_host_stats_init(&stats);
    WORKS(&bed, fallow_host_get_stats(host, &stats));
    DO(&bed, fallow_host_last_error(host, text, sizeof text));
    WORKS(&bed, fallow_host_trim(host, 0, UINT64_MAX, &released));
    assert_true(released > 0);
    WORKS(&bed, fallow_host_stream_retire(host, other));
    DO(&bed, fallow_host_destroy(host));
    end_bed(&bed);
}

static void a_full_host_pool_climbs_to_the_end(enum flw_beside_place place)
{
    struct bed bed;
    void *blocks[16], *ptr = NULL;
    begin_usual(&bed, place);
    fallow_host *host = make_host(&bed);
    unsigned count = 0;
    while (count < 16 && fallow_host_alloc(host, 7 * MIB, &blocks[count]) == FALLOW_OK) {
        count++;
    }
    SURVIVES(&bed, "fallow_host_alloc");
    assert_true(count >= 4);
    ANSWERS(&bed, fallow_host_alloc(host, 60 * MIB, &ptr), FALLOW_OUT_OF_PINNED_MEMORY);
    while (count > 0) {
        WORKS(&bed, fallow_host_free(host, blocks[--count], bed.api.stream));
    }
    DO(&bed, fallow_host_destroy(host));
    end_bed(&bed);
}

int main(void)
{
    static const struct group groups[] = {GROUP(pinned_memory_is_allocated_and_freed),
                                          GROUP(a_full_host_pool_climbs_to_the_end)};
    return run_groups(groups, sizeof groups / sizeof *groups);
}
