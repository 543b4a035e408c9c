/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the policies `fallow` and `fallow-memory-first`: the library as a user links it, with its
 * two settings of economy. Only the public header is used.
 */
#include "policy.h"

#include <stdatomic.h>
#include <stdio.h>

#include "fallow/fallow.h"
#include "trace/trace.h"

#include "replay_device.h"
#include "tool_host.h"

struct lender {
    fallow_pool *pool;
    fallow_stream *streams; /* the device's */
    const struct flw_trace *trace;
    atomic_bool *is_used; /* by block: on another stream too; NULL: none is */
    size_t block_count;
    _Atomic uint64_t deferred_bytes;
    char log[FLW_POLICY_MESSAGE_BYTES];
};

static void remember_line(void *context, fallow_log_level level, const char *message)
{
    struct lender *lender = context;
    if (level == FALLOW_LOG_ERROR) {
        snprintf(lender->log, sizeof lender->log, "%s", message);
    }
}

static void drop(struct lender *lender)
{
    if (lender != NULL) {
        flw_host_free(lender->is_used, lender->block_count, sizeof *lender->is_used);
        flw_host_free(lender, 1, sizeof *lender);
    }
}

static void *create_with(const struct flw_policy_setup *setup, fallow_economy economy,
                         char *message)
{
    struct lender *lender = flw_host_alloc(1, sizeof *lender);
    bool has_memory = lender != NULL;
    if (has_memory && setup->program->has_uses) {
        lender->block_count = setup->program->block_count;
        lender->is_used = flw_host_alloc(lender->block_count, sizeof *lender->is_used);
        has_memory = lender->is_used != NULL;
    }
    if (!has_memory) {
        drop(lender);
        snprintf(message, FLW_POLICY_MESSAGE_BYTES, "policy fallow: out of host memory");
        return NULL;
    }
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = setup->device->is_sim ? "sim" : NULL;
    config.device = setup->device->is_sim ? 0 : setup->device->ordinal;
    config.context = setup->device->context;
    config.limit_bytes = setup->limit_bytes;
    config.economy = economy;
    config.decay_ms = UINT32_MAX; /* a replay is over in less than a decay: keep it repeatable */
    config.log = remember_line;
    config.log_context = lender;
    lender->streams = setup->device->streams;
    lender->trace = setup->trace;
    fallow_status status = fallow_pool_create(&config, &lender->pool);
    if (status != FALLOW_OK) {
        snprintf(message, FLW_POLICY_MESSAGE_BYTES, "policy fallow: %s: %.150s",
                 fallow_status_name(status),
                 lender->log[0] != '\0' ? lender->log : fallow_status_message(status));
        drop(lender);
        return NULL;
    }
    return lender;
}

static void *create_balanced(const struct flw_policy_setup *setup, char *message)
{
    return create_with(setup, FALLOW_BALANCED, message);
}

static void *create_memory_first(const struct flw_policy_setup *setup, char *message)
{
    return create_with(setup, FALLOW_MEMORY_FIRST, message);
}

static bool lend(void *self, const struct flw_op *op, uint64_t *out_address)
{
    struct lender *lender = self;
    void *pointer = NULL;
    fallow_status status =
        fallow_alloc(lender->pool, op->size_bytes, lender->streams[op->stream], &pointer);
    *out_address = (uint64_t)(uintptr_t)pointer;
    return status == FALLOW_OK;
}

static bool take_back(void *self, const struct flw_op *op, uint64_t address)
{
    struct lender *lender = self;
    if (lender->is_used != NULL && lender->is_used[op->block]) {
        atomic_fetch_add_explicit(&lender->deferred_bytes, op->size_bytes, memory_order_relaxed);
        lender->is_used[op->block] = false; /* the next pass */
    }
    return fallow_free(lender->pool, (void *)(uintptr_t)address, lender->streams[op->stream]) ==
           FALLOW_OK;
}

static bool announce(void *self, const struct flw_op *op, uint64_t address)
{
    struct lender *lender = self;
    if (op->stream != lender->trace->blocks[op->block].stream) {
        lender->is_used[op->block] = true;
    }
    return fallow_record_use(lender->pool, (void *)(uintptr_t)address,
                             lender->streams[op->stream]) == FALLOW_OK;
}

static uint64_t block_bytes(void *self, const struct flw_op *op, uint64_t address)
{
    const struct lender *lender = self;
    fallow_block block;
    (void)op;
    fallow_block_init(&block);
    fallow_status status =
        fallow_block_info(lender->pool, (const void *)(uintptr_t)address, &block);
    return status == FALLOW_OK ? block.usable_bytes : 0;
}

static void get_statistics(void *self, struct flw_policy_statistics *out)
{
    const struct lender *lender = self;
    fallow_stats stats;
    fallow_stats_init(&stats);
    if (fallow_pool_get_stats(lender->pool, &stats) != FALLOW_OK) {
        return;
    }
    flw_policy_take_stats(out, &stats);
    out->remap_count = stats.remap_count;
    out->remap_wait_count = stats.remap_wait_count;
    out->deferred_bytes = atomic_load(&lender->deferred_bytes);
}

static void finish(void *self)
{
    struct lender *lender = self;
    fallow_pool_destroy(lender->pool);
    drop(lender);
}

const struct flw_policy flw_policy_fallow = {
    .name = "fallow",
    .summary = "this library, balanced",
    .lends = true,
    .is_thread_safe = true,
    .create = create_balanced,
    .alloc = lend,
    .free = take_back,
    .use = announce,
    .block_bytes = block_bytes,
    .get_statistics = get_statistics,
    .finish = finish,
};

const struct flw_policy flw_policy_fallow_memory_first = {
    .name = "fallow-memory-first",
    .summary = "this library, memory first",
    .lends = true,
    .is_thread_safe = true,
    .create = create_memory_first,
    .alloc = lend,
    .free = take_back,
    .use = announce,
    .block_bytes = block_bytes,
    .get_statistics = get_statistics,
    .finish = finish,
};
