/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the policies `fallow`, `fallow-memory-first` and `fallow-speed-first`: the library as a user links it, by its
 * public header alone.
 */
#include "policies/policy.h"

#include <stdatomic.h>
#include <stdio.h>

#include "fallow/fallow.h"
#include "trace/trace/trace.h"

#include "common/replay_device.h"
#include "common/tool_host.h"

struct lane {
    fallow_capture *capture;  /* NULL: not begun, or released */
    uint64_t allocated_count; /* inside it */
};

struct subject {
    fallow_pool *pool;
    struct flw_device *device;
    const struct flw_trace *trace;
    const struct flw_program *program;
    const struct flw_lanes *lanes; /* the program's */
    struct lane *captures;         /* by private lane */
    _Atomic uint64_t deferred_bytes;
    char log[FLW_POLICY_MESSAGE_BYTES];
};

static void remember_line(void *context, fallow_log_level level, const char *message)
{
    struct subject *subject = context;
    if (level == FALLOW_LOG_ERROR) {
        snprintf(subject->log, sizeof subject->log, "%s", message);
    }
}

static void drop(struct subject *subject)
{
    flw_host_free(subject->captures);
    flw_host_free(subject);
}

enum {
    SEGMENTS,
    ONE_HANDLE
};

static const struct flw_policy_setting settings[] = {
    [SEGMENTS] = {.name = "segments", .kind = FLW_SETTING_FLAG}, /* page_source */
    [ONE_HANDLE] = {.name = "one_handle", .kind = FLW_SETTING_BYTES},
};

static void *create(const struct flw_policy_setup *setup, char *message)
{
    struct subject *subject = flw_host_alloc(1, sizeof *subject);
    subject->device = setup->device;
    subject->trace = setup->trace;
    subject->program = setup->program;
    subject->lanes = &setup->program->lanes;
    subject->captures = flw_host_alloc(subject->lanes->count, sizeof *subject->captures);
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = setup->device->is_sim ? "sim" : NULL;
    config.device = setup->device->is_sim ? 0 : setup->device->ordinal;
    config.context = setup->device->context;
    config.limit_bytes = setup->limit_bytes;
    config.economy = (fallow_economy)setup->policy->variant;
    /* Keep a replay repeatable: no decision may depend on the host's clock. */
    config.decay_ms = UINT32_MAX;
    config.wait_ms = UINT32_MAX - 1;
    if (flw_policy_value(setup->policy, SEGMENTS) != 0) {
        config.page_source = FALLOW_PAGES_SEGMENTS;
    }
    config.one_handle_bytes = flw_policy_value(setup->policy, ONE_HANDLE);
    config.log = remember_line;
    config.log_context = subject;
    fallow_status status = fallow_pool_create(&config, &subject->pool);
    if (status != FALLOW_OK) {
        snprintf(message, FLW_POLICY_MESSAGE_BYTES, "policy fallow: %s: %.150s",
                 fallow_status_name(status),
                 subject->log[0] != '\0' ? subject->log : fallow_status_message(status));
        drop(subject);
        return NULL;
    }
    return subject;
}

/* Release the captures. Each capture's stream becomes an ordinary one, ordered after the work that used the memory, as
 * after a graph's last launch. */
static bool release(struct subject *subject)
{
    bool is_done = true;
    for (size_t i = 0; i < subject->lanes->count; i++) {
        struct lane *lane = &subject->captures[i];
        const struct flw_lane *about = &subject->lanes->list[i];
        uint16_t number = (uint16_t)(subject->lanes->stream_count + i);
        if (lane->capture == NULL) {
            continue;
        }
        if (lane->allocated_count < about->alloc_count) {
            is_done &= fallow_capture_end(lane->capture) == FALLOW_OK;
        }
        is_done &=
            !subject->device->has_work || flw_device_order(subject->device, about->stream, number);
        is_done &= fallow_capture_release(lane->capture) == FALLOW_OK;
        *lane = (struct lane){0};
    }
    return is_done;
}

static bool allocate_inside(struct subject *subject, uint16_t number, const struct flw_op *op,
                            void **out_pointer)
{
    size_t private = number - subject->lanes->stream_count;
    struct lane *lane = &subject->captures[private];
    fallow_stream stream = subject->device->streams[number];
    if (lane->allocated_count == 0 &&
        fallow_capture_begin(subject->pool, stream, &lane->capture) != FALLOW_OK) {
        return false;
    }
    lane->allocated_count++;
    bool is_live = fallow_alloc(subject->pool, op->size_bytes, stream, out_pointer) == FALLOW_OK;
    bool is_last = lane->allocated_count == subject->lanes->list[private].alloc_count;
    return (!is_last || fallow_capture_end(lane->capture) == FALLOW_OK) && is_live;
}

static bool allocate(void *self, const struct flw_op *op, uint64_t *out_address)
{
    struct subject *subject = self;
    void *pointer = NULL;
    uint16_t lane = flw_lanes_get(subject->lanes, op->block, op->stream);
    bool is_live = lane != op->stream
                       ? allocate_inside(subject, lane, op, &pointer)
                       : fallow_alloc(subject->pool, op->size_bytes,
                                      subject->device->streams[op->stream], &pointer) == FALLOW_OK;
    *out_address = (uint64_t)(uintptr_t)pointer;
    return is_live;
}

static bool take_back(void *self, const struct flw_op *op, uint64_t address)
{
    struct subject *subject = self;
    uint16_t home = subject->trace->blocks[op->block].stream;
    uint16_t stream =
        op->stream == home ? flw_lanes_get(subject->lanes, op->block, home) : op->stream;
    if (flw_program_users(subject->program, op->block, home) != 0) {
        atomic_fetch_add_explicit(&subject->deferred_bytes, op->size_bytes, memory_order_relaxed);
    }
    return fallow_free(subject->pool, (void *)(uintptr_t)address,
                       subject->device->streams[stream]) == FALLOW_OK;
}

static bool announce(void *self, const struct flw_op *op, uint64_t address)
{
    struct subject *subject = self;
    return fallow_record_use(subject->pool, (void *)(uintptr_t)address,
                             subject->device->streams[op->stream]) == FALLOW_OK;
}

/* Each pass begins its captures again. */
static void advance(void *self, const struct flw_op *op)
{
    if (op->kind == FLW_OP_PASS) {
        (void)release(self); /* what stays is released with the pool */
    }
}

static uint64_t block_bytes(void *self, const struct flw_op *op, uint64_t address)
{
    const struct subject *subject = self;
    fallow_block block;
    (void)op;
    fallow_block_init(&block);
    fallow_status status =
        fallow_block_info(subject->pool, (const void *)(uintptr_t)address, &block);
    return status == FALLOW_OK ? block.usable_bytes : 0;
}

static void get_statistics(void *self, struct flw_policy_statistics *out)
{
    const struct subject *subject = self;
    fallow_stats stats;
    fallow_stats_init(&stats);
    if (fallow_pool_get_stats(subject->pool, &stats) != FALLOW_OK) {
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
    out->deferred_bytes = atomic_load(&subject->deferred_bytes);
}

static void finish(void *self)
{
    struct subject *subject = self;
    (void)release(subject);
    fallow_pool_destroy(subject->pool);
    drop(subject);
}

/* Common to the three policies. */
#define SUBJECT                                                                             \
    .allocates = true, .keeps_pools_apart = true, .is_thread_safe = true, .create = create, \
    .alloc = allocate, .free = take_back, .use = announce, .advance = advance,              \
    .block_bytes = block_bytes, .get_statistics = get_statistics, .finish = finish,         \
    .settings = settings, .setting_count = sizeof settings / sizeof *settings

const struct flw_policy flw_policy_fallow = {
    .name = "fallow", .summary = "this library, balanced", .variant = FALLOW_BALANCED, SUBJECT};

const struct flw_policy flw_policy_fallow_memory_first = {.name = "fallow-memory-first",
                                                          .summary = "this library, memory first",
                                                          .variant = FALLOW_MEMORY_FIRST,
                                                          SUBJECT};
const struct flw_policy flw_policy_fallow_speed_first = {.name = "fallow-speed-first",
                                                         .summary = "this library, speed first",
                                                         .variant = FALLOW_SPEED_FIRST,
                                                         SUBJECT};
#undef SUBJECT
