/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/deferrals.h"

#include "common/tool_host.h"

/* A freed block. */
struct flw_deferred_block {
    struct flw_deferred_block *next; /* of the lost */
    void *block;
    size_t wait_count;
};

/* One event of one. */
struct deferral {
    struct deferral *next;
    struct flw_deferred_block *of;
    CUevent event;
};

struct flw_deferral_queue {
    struct deferral *first, *last;
};

void flw_deferrals_init(struct flw_deferrals *deferrals, const struct flw_program *program)
{
    deferrals->queues = flw_host_alloc(program->stream_count, sizeof *deferrals->queues);
    deferrals->stream_count = program->stream_count;
}

void flw_deferrals_finish(struct flw_deferrals *deferrals)
{
    while (deferrals->lost != NULL) {
        struct flw_deferred_block *next = deferrals->lost->next;
        flw_host_free(deferrals->lost);
        deferrals->lost = next;
    }
    flw_host_free(deferrals->queues);
}

static bool record(const struct flw_deferrals *deferrals, CUevent *event, size_t stream)
{
    const struct flw_device *device = deferrals->device;
    if (device->driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        return false;
    }
    if (device->driver.cuEventRecord(*event, device->streams[stream]) != CUDA_SUCCESS) {
        device->driver.cuEventDestroy_v2(*event);
        return false;
    }
    return true;
}

static bool add(struct flw_deferrals *deferrals, struct flw_deferred_block *deferred, size_t stream)
{
    struct deferral *deferral = flw_host_alloc(1, sizeof *deferral);
    if (!record(deferrals, &deferral->event, stream)) {
        flw_host_free(deferral);
        return false;
    }
    deferrals->call_count += 2;
    deferrals->event_count++;
    deferral->of = deferred;
    deferred->wait_count++;
    struct flw_deferral_queue *queue = &deferrals->queues[stream];
    if (queue->first == NULL) {
        queue->first = deferral;
    } else {
        queue->last->next = deferral;
    }
    queue->last = deferral;
    return true;
}

bool flw_deferrals_put(struct flw_deferrals *deferrals, void *block, uint64_t bytes,
                       uint64_t stream_mask)
{
    struct flw_deferred_block *deferred = flw_host_alloc(1, sizeof *deferred);
    deferred->block = block;
    deferrals->has_any = true;
    deferrals->deferred_bytes += bytes;
    for (size_t i = 0; i < deferrals->stream_count; i++) {
        bool is_asked = (stream_mask >> (i % 64) & 1) != 0;
        if (is_asked && !add(deferrals, deferred, i)) {
            deferred->wait_count++; /* for what does not come */
            deferred->next = deferrals->lost;
            deferrals->lost = deferred;
            return false;
        }
    }
    return true;
}

static void complete(struct flw_deferrals *deferrals, struct flw_deferral_queue *queue)
{
    struct deferral *deferral = queue->first;
    struct flw_deferred_block *deferred = deferral->of;
    queue->first = deferral->next;
    deferrals->device->driver.cuEventDestroy_v2(deferral->event);
    flw_host_free(deferral);
    if (--deferred->wait_count == 0) {
        deferrals->done(deferrals->context, deferred->block);
        flw_host_free(deferred);
    }
}

void flw_deferrals_poll(struct flw_deferrals *deferrals)
{
    for (size_t i = 0; deferrals->has_any && i < deferrals->stream_count; i++) {
        struct flw_deferral_queue *queue = &deferrals->queues[i];
        while (queue->first != NULL &&
               deferrals->device->driver.cuEventQuery(queue->first->event) == CUDA_SUCCESS) {
            complete(deferrals, queue);
        }
    }
}

void flw_deferrals_drain(struct flw_deferrals *deferrals)
{
    for (size_t i = 0; deferrals->has_any && i < deferrals->stream_count; i++) {
        struct flw_deferral_queue *queue = &deferrals->queues[i];
        while (queue->first != NULL) {
            deferrals->wait_count++;
            deferrals->call_count++;
            deferrals->device->driver.cuEventSynchronize(queue->first->event);
            complete(deferrals, queue);
        }
    }
}
