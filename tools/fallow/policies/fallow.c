/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the policies `fallow` and `fallow-memory-first`: the library as a user links it, with its
 * two settings of economy. Only the public header is used.
 */
#include "policies/policy.h"

#include <stdatomic.h>
#include <stdio.h>

#include "fallow/fallow.h"
#include "trace/trace.h"

#include "common/replay_device.h"
#include "common/tool_host.h"

struct lane {
    fallow_capture *capture; /* NULL: not begun, or released */
    uint64_t lent_count;     /* inside it */
};

struct lender {
    fallow_pool *pool;
    struct flw_device *device;
    fallow_stream *streams; /* the device's, lanes too */
    const struct flw_trace *trace;
    const struct flw_lanes *lanes;
    struct lane *captures; /* by private lane */
    atomic_bool *is_used;  /* by block: on another stream too; NULL: none is */
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
    flw_host_free(lender->captures);
    flw_host_free(lender->is_used);
    flw_host_free(lender);
}

static void make_room(struct lender *lender, const struct flw_policy_setup *setup)
{
    const struct flw_program *program = setup->program;
    lender->trace = setup->trace;
    lender->lanes = &program->lanes;
    if (program->has_uses) {
        lender->is_used = flw_host_alloc(program->block_count, sizeof *lender->is_used);
    }
    lender->captures = flw_host_alloc(program->lanes.count, sizeof *lender->captures);
}

enum {
    SEGMENTS,
    ONE_HANDLE
};

static const struct flw_policy_setting settings[] = {
    [SEGMENTS] = {.name = "segments", .kind = FLW_SETTING_FLAG}, /* page_source */
    [ONE_HANDLE] = {.name = "one_handle", .kind = FLW_SETTING_BYTES},
};

static void *create_with(const struct flw_policy_setup *setup, fallow_economy economy,
                         char *message)
{
    struct lender *lender = flw_host_alloc(1, sizeof *lender);
    make_room(lender, setup);
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = setup->device->is_sim ? "sim" : NULL;
    config.device = setup->device->is_sim ? 0 : setup->device->ordinal;
    config.context = setup->device->context;
    config.limit_bytes = setup->limit_bytes;
    config.economy = economy;
    config.decay_ms = UINT32_MAX; /* a replay is over in less than a decay: keep it repeatable */
    if (flw_policy_value(setup->policy, SEGMENTS) != 0) {
        config.page_source = FALLOW_PAGES_SEGMENTS;
    }
    config.one_handle_bytes = flw_policy_value(setup->policy, ONE_HANDLE);
    config.log = remember_line;
    config.log_context = lender;
    lender->device = setup->device;
    lender->streams = setup->device->streams;
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

/* The capture's memory goes back, and its stream is an ordinary one. The stream comes after what
 * used the memory, as it does after a graph's last launch. */
static bool release(struct lender *lender)
{
    bool is_done = true;
    for (size_t i = 0; i < lender->lanes->count; i++) {
        struct lane *lane = &lender->captures[i];
        const struct flw_lane *about = &lender->lanes->list[i];
        uint16_t number = (uint16_t)(lender->lanes->stream_count + i);
        if (lane->capture == NULL) {
            continue;
        }
        if (lane->lent_count < about->alloc_count) {
            is_done &= fallow_capture_end(lane->capture) == FALLOW_OK;
        }
        is_done &=
            !lender->device->has_work || flw_device_order(lender->device, about->stream, number);
        is_done &= fallow_capture_release(lane->capture) == FALLOW_OK;
        *lane = (struct lane){0};
    }
    return is_done;
}

static bool lend_inside(struct lender *lender, uint16_t number, const struct flw_op *op,
                        void **out_pointer)
{
    size_t private = number - lender->lanes->stream_count;
    struct lane *lane = &lender->captures[private];
    fallow_stream stream = lender->streams[number];
    if (lane->lent_count == 0 &&
        fallow_capture_begin(lender->pool, stream, &lane->capture) != FALLOW_OK) {
        return false;
    }
    lane->lent_count++;
    bool is_lent = fallow_alloc(lender->pool, op->size_bytes, stream, out_pointer) == FALLOW_OK;
    bool is_last = lane->lent_count == lender->lanes->list[private].alloc_count;
    return (!is_last || fallow_capture_end(lane->capture) == FALLOW_OK) && is_lent;
}

static bool lend(void *self, const struct flw_op *op, uint64_t *out_address)
{
    struct lender *lender = self;
    void *pointer = NULL;
    uint16_t lane = flw_lanes_get(lender->lanes, op->block, op->stream);
    bool is_lent = lane != op->stream
                       ? lend_inside(lender, lane, op, &pointer)
                       : fallow_alloc(lender->pool, op->size_bytes, lender->streams[op->stream],
                                      &pointer) == FALLOW_OK;
    *out_address = (uint64_t)(uintptr_t)pointer;
    return is_lent;
}

static bool take_back(void *self, const struct flw_op *op, uint64_t address)
{
    struct lender *lender = self;
    uint16_t home = lender->trace->blocks[op->block].stream;
    uint16_t stream =
        op->stream == home ? flw_lanes_get(lender->lanes, op->block, home) : op->stream;
    if (lender->is_used != NULL && lender->is_used[op->block]) {
        atomic_fetch_add_explicit(&lender->deferred_bytes, op->size_bytes, memory_order_relaxed);
        lender->is_used[op->block] = false; /* the next pass */
    }
    return fallow_free(lender->pool, (void *)(uintptr_t)address, lender->streams[stream]) ==
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

/* A pass begins its captures anew. */
static void advance(void *self, const struct flw_op *op)
{
    if (op->kind == FLW_OP_PASS) {
        (void)release(self); /* what stays is released with the pool */
    }
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
    out->peak_requested_bytes = stats.peak_requested_bytes;
    out->peak_reserved_bytes = stats.peak_reserved_bytes;
    out->grow_count = stats.grow_count;
    out->driver_call_count = stats.driver_call_count;
    out->event_count = stats.event_count;
    out->steal_count = stats.steal_count;
    out->wait_count = stats.wait_count;
    out->hit_count = stats.hit_count;
    out->remap_count = stats.remap_count;
    out->remap_wait_count = stats.remap_wait_count;
    out->deferred_bytes = atomic_load(&lender->deferred_bytes);
}

static void finish(void *self)
{
    struct lender *lender = self;
    (void)release(lender);
    fallow_pool_destroy(lender->pool);
    drop(lender);
}

/* What the two policies have in common. */
#define LENDER                                                                          \
    .lends = true, .keeps_pools_apart = true, .is_thread_safe = true, .alloc = lend,    \
    .free = take_back, .use = announce, .advance = advance, .block_bytes = block_bytes, \
    .get_statistics = get_statistics, .finish = finish, .settings = settings,           \
    .setting_count = sizeof settings / sizeof *settings

const struct flw_policy flw_policy_fallow = {
    .name = "fallow", .summary = "this library, balanced", .create = create_balanced, LENDER};

const struct flw_policy flw_policy_fallow_memory_first = {.name = "fallow-memory-first",
                                                          .summary = "this library, memory first",
                                                          .create = create_memory_first,
                                                          LENDER};
#undef LENDER
