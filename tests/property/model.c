/* SPDX-License-Identifier: Apache-2.0 */
#include "property/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

#define STREAMS         4
#define MOST_BLOCKS     1024
#define FOREIGN_BYTES   1000
#define MOST_PEAK_ERROR (1 << 20) /* the header's bound for several threads */

void flw_model_expect(const struct flw_model *model, bool good, const char *sentence,
                      fallow_status status)
{
    if (good) {
        return;
    }
    fprintf(stderr, "%s: FALSE: %s (%s)\n%s: pool %s, seed %llu, step %llu\n", model->what,
            sentence, fallow_status_name(status), model->what, model->put.ops->name,
            (unsigned long long)model->seed, (unsigned long long)model->step);
    flw_sim_print_violations(&model->sim);
    exit(1);
}

void flw_model_note(struct flw_model *model, fallow_status status)
{
    if (model->transcript_count == model->transcript_capacity) {
        model->transcript_capacity = model->transcript_capacity * 2 + 1024;
        model->transcript = realloc(model->transcript, model->transcript_capacity);
        if (model->transcript == NULL) {
            abort();
        }
    }
    model->transcript[model->transcript_count++] = (unsigned char)status;
}

void flw_model_begin_step(struct flw_model *model, uint64_t step)
{
    model->step = step;
    model->client.random = (model->seed + 1) * 0x9E3779B97F4A7C15ull ^ step * 0xD1B54A32D192ED03ull;
}

static void log_line(void *context, fallow_log_level level, const char *message)
{
    const struct flw_model *model = context;
    if (level <= FALLOW_LOG_WARNING) {
        fprintf(stderr, "pool at step %llu: %s\n", (unsigned long long)model->step, message);
    }
}

static bool create_pools(struct flw_model *model, const struct flw_model_setup *setup)
{
    fallow_pool_config config;
    memset(&config, 0, sizeof config);
    config.struct_size = sizeof config;
    config.limit_bytes = setup->limit_bytes;
    config.checks = setup->checks;
    config.economy = setup->economy;
    config.log = log_line;
    config.log_context = model;
    model->put.ops = model->other.ops = setup->ops;
    fallow_status status = setup->ops->create(&model->sim.cu, &config, &model->put.pool);
    if (status == FALLOW_OK) {
        status = setup->ops->create(&model->sim.cu, &config, &model->other.pool);
    }
    if (status == FALLOW_OK) {
        status = setup->ops->alloc(model->other.pool, FOREIGN_BYTES, NULL, &model->foreign);
    }
    if (status != FALLOW_OK) {
        fprintf(stderr, "%s: no pools: %s\n", model->what, fallow_status_name(status));
    }
    return status == FALLOW_OK;
}

bool flw_model_init(struct flw_model *model, const struct flw_model_setup *setup)
{
    flw_sim_config world = flw_sim_config_default(setup->seed);
    world.device_bytes = setup->device_bytes;
    world.schedule = setup->schedule;
    world.check = 1;
    world.without_vmm = setup->without_vmm;
    world.without_ids = setup->without_ids;
    world.reserve_most_bytes = setup->reserve_most_bytes;
    *model = (struct flw_model){.what = "property.model",
                                .seed = setup->seed,
                                .device_bytes = setup->device_bytes,
                                .limit_bytes = setup->limit_bytes != 0 ? setup->limit_bytes
                                                                       : setup->device_bytes,
                                .peak_is_exact = true,
                                .only_common = setup->only_common,
                                .ignore_peaks = setup->ignore_peaks};
    if (!flw_sim_open(&model->sim)) {
        return false;
    }
    flw_sim_begin(&model->sim, &world);
    if (!create_pools(model, setup)) {
        return false;
    }
    model->client.sim = &model->sim;
    model->client.put = model->put;
    model->client.overlap = flw_overlap_create();
    model->client.touch_bytes = 1 << 20;
    flw_client_init(&model->client, MOST_BLOCKS, STREAMS, NULL, 0);
    return true;
}

uint64_t flw_model_requested_bytes(const struct flw_model *model)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < model->client.count; i++) {
        sum += model->client.blocks[i].size_bytes;
    }
    return sum;
}

bool flw_model_waste_is_bounded(size_t requested_bytes, size_t usable_bytes)
{
    size_t waste = usable_bytes - requested_bytes;
    if (usable_bytes < requested_bytes) {
        return false;
    }
    return requested_bytes <= 4096      ? waste <= 511
           : requested_bytes <= FLW_MIB ? waste * 8 <= requested_bytes
                                        : waste < 65536;
}

static void judge_block(struct flw_model *model, struct flw_client_block *block)
{
    fallow_block info;
    memset(&info, 0xA5, sizeof info);
    size_t size = block->size_bytes;
    unsigned char *probe = block->ptr + flw_client_below(&model->client, size);
    fallow_status status = model->put.ops->block_info(model->put.pool, probe, &info);
    flw_model_expect(model, status == FALLOW_OK, "block_info finds a live block from inside",
                     status);
    flw_model_expect(model, info.base == block->ptr, "block_info gives the block's base", status);
    flw_model_expect(model, info.requested_bytes == size, "block_info gives the size asked",
                     status);
    flw_model_expect(model, info.usable_bytes >= size, "usable is at least what was asked", status);
    flw_model_expect(model, info.tag == block->tag, "block_info gives the tag", status);
    flw_model_expect(model, info.state == FALLOW_BLOCK_LIVE || info.state == FALLOW_BLOCK_CAPTURED,
                     "a live block is live", status);
    flw_model_expect(
        model, block->align_bytes > 512 || flw_model_waste_is_bounded(size, info.usable_bytes),
        "waste stays within the published bound", status);
    block->claimed_bytes = info.usable_bytes;
}

void flw_model_judge_alloc(struct flw_model *model, const struct flw_client_block *asked,
                           fallow_status status, void *ptr)
{
    size_t size = asked->size_bytes;
    if (status != FALLOW_OK) {
        flw_model_expect(model, ptr == NULL, "no pointer after a failure", status);
        flw_model_expect(model, size != 0, "size 0 never fails", status);
        bool absurd = size >= FLW_MODEL_ABSURD_BYTES;
        bool may_lack = size > model->limit_bytes || !model->only_common;
        flw_model_expect(
            model,
            (absurd && status == FALLOW_INVALID_ARGUMENT) ||
                (may_lack && !absurd && status == FALLOW_OUT_OF_MEMORY) ||
                (!absurd && size > FLW_MODEL_ABSURD_BYTES / 8 && status == FALLOW_INVALID_ARGUMENT),
            "an allocation fails for its size or for room only", status);
        return;
    }
    if (size == 0) {
        flw_model_expect(model, ptr == NULL, "size 0 gives NULL", status);
        model->zero_size_count++;
        return;
    }
    flw_model_expect(model, size <= model->limit_bytes, "nothing beyond the limit is allocated",
                     status);
    size_t align = flw_max(asked->align_bytes, size >= 512 ? 512 : 256);
    flw_model_expect(model, ptr != NULL && (uintptr_t)ptr % align == 0, "the block is aligned",
                     status);
    struct flw_client_block block = *asked;
    block.ptr = ptr;
    block.claimed_bytes = 0;
    if (model->put.ops->block_info != NULL) {
        judge_block(model, &block);
    }
    flw_model_expect(model, flw_client_adopt(&model->client, &block), "live blocks never overlap",
                     status);
    model->peak_requested_bytes =
        flw_max(model->peak_requested_bytes, flw_model_requested_bytes(model));
}

void flw_model_compare(struct flw_model *model)
{
    fallow_stats stats, others;
    fallow_status status = model->put.ops->get_stats(model->put.pool, &stats);
    flw_model_expect(model, status == FALLOW_OK, "statistics are given", status);
    status = model->other.ops->get_stats(model->other.pool, &others);
    flw_model_expect(model, status == FALLOW_OK, "the other pool's statistics too", status);
    flw_sim_ledger ledger = flw_sim_read_ledger(&model->sim);
    uint64_t reserved = stats.reserved_bytes + others.reserved_bytes;
    flw_model_expect(model, ledger.violation_count == 0, "no rule of the device is broken", status);
    flw_model_expect(model,
                     model->put.ops->exact_ledger ? reserved == ledger.given_bytes
                                                  : reserved <= ledger.given_bytes,
                     "reserved is what the driver has given", status);
    flw_model_expect(model, stats.reserved_bytes <= model->limit_bytes, "the limit holds", status);
    flw_model_expect(model, stats.peak_reserved_bytes >= stats.reserved_bytes, "a peak is a peak",
                     status);
    flw_model_expect(model, stats.requested_bytes == flw_model_requested_bytes(model),
                     "requested is the sum of the live blocks", status);
    flw_model_expect(model, stats.live_count == model->client.count, "live counts the blocks",
                     status);
    flw_model_expect(model, stats.alloc_count - stats.free_count == stats.live_count,
                     "allocated less freed is live", status);
    flw_model_expect(model, stats.live_bytes >= stats.requested_bytes, "live is at least requested",
                     status);
    flw_model_expect(model, stats.reserved_bytes >= stats.live_bytes, "reserved is at least live",
                     status);
    flw_model_expect(model,
                     !model->put.ops->exact_ledger ||
                         stats.reserved_bytes == stats.live_bytes + stats.cached_bytes +
                                                     stats.deferred_bytes + stats.captured_bytes +
                                                     stats.idle_bytes,
                     "the parts of reserved add up", status);
    flw_model_expect(model, stats.zero_size_count == model->zero_size_count,
                     "requests of size 0 are counted apart", status);
    flw_model_expect(model,
                     stats.misuse_count >= model->misuse_count &&
                         stats.misuse_count <= model->misuse_count + model->refused_use_count,
                     "refused frees are counted", status);
    if (model->ignore_peaks) {
        return;
    }
    uint64_t above = stats.peak_requested_bytes - model->peak_requested_bytes;
    if (stats.peak_requested_bytes < model->peak_requested_bytes ||
        (model->peak_is_exact && above > MOST_PEAK_ERROR)) {
        fprintf(stderr, "peak of requested: %llu, model %llu\n",
                (unsigned long long)stats.peak_requested_bytes,
                (unsigned long long)model->peak_requested_bytes);
        flw_model_expect(model, false, "the peak of requested is exact with one thread", status);
    }
}

bool flw_model_finish(struct flw_model *model)
{
    const struct flw_put_ops *ops = model->put.ops;
    while (model->client.count > 0) {
        fallow_status status = flw_client_free(&model->client, model->client.count - 1, 0, false);
        flw_model_expect(model, status == FALLOW_OK, "the last frees succeed", status);
    }
    flw_model_compare(model);
    ops->destroy(model->put.pool);
    ops->destroy(model->other.pool);
    flw_overlap_destroy(model->client.overlap);
    flw_client_finish(&model->client, 0);
    flw_sim_ledger ledger = flw_sim_read_ledger(&model->sim);
    flw_model_expect(model, ledger.given_bytes == 0, "destroy gives every byte back", FALLOW_OK);
    flw_model_expect(model, ledger.event_count == 0, "destroy leaves no event", FALLOW_OK);
    flw_model_expect(model, ledger.mapping_count == 0 && ledger.handle_count == 0,
                     "destroy leaves no handle and no mapping", FALLOW_OK);
    flw_model_expect(model, ledger.reserved_address_bytes == 0, "destroy leaves no address range",
                     FALLOW_OK);
    flw_model_expect(model, ledger.violation_count == 0, "no rule was broken to the end",
                     FALLOW_OK);
    flw_sim_close(&model->sim);
    return true;
}
