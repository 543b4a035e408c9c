/* SPDX-License-Identifier: Apache-2.0 */
#include "deferrals.h"

#include "tool_host.h"

struct deferral {
    struct deferral *next;
    CUevent event;
    uint32_t block;
};

struct flw_deferral_queue {
    struct deferral *first, *last;
};

bool flw_deferrals_init(struct flw_deferrals *deferrals, const struct flw_program *program)
{
    deferrals->queues = flw_host_alloc(program->stream_count, sizeof *deferrals->queues);
    deferrals->stream_count = deferrals->queues == NULL ? 0 : program->stream_count;
    deferrals->counts = flw_host_alloc(program->block_count, sizeof *deferrals->counts);
    deferrals->block_count = program->block_count;
    return deferrals->queues != NULL && deferrals->counts != NULL;
}

void flw_deferrals_finish(struct flw_deferrals *deferrals)
{
    flw_host_free(deferrals->queues, deferrals->stream_count, sizeof *deferrals->queues);
    flw_host_free(deferrals->counts, deferrals->block_count, sizeof *deferrals->counts);
}

static bool record(const struct flw_deferrals *deferrals, CUevent *event, uint16_t stream)
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

bool flw_deferrals_add(struct flw_deferrals *deferrals, uint32_t block, uint16_t stream)
{
    struct deferral *deferral = flw_host_alloc(1, sizeof *deferral);
    if (deferral == NULL || !record(deferrals, &deferral->event, stream)) {
        flw_host_free(deferral, 1, sizeof *deferral);
        return false;
    }
    deferrals->call_count += 2;
    deferrals->event_count++;
    deferral->block = block;
    struct flw_deferral_queue *queue = &deferrals->queues[stream];
    if (queue->first == NULL) {
        queue->first = deferral;
    } else {
        queue->last->next = deferral;
    }
    queue->last = deferral;
    deferrals->counts[block]++;
    deferrals->has_any = true;
    return true;
}

static void complete(struct flw_deferrals *deferrals, struct flw_deferral_queue *queue)
{
    struct deferral *deferral = queue->first;
    uint32_t block = deferral->block;
    queue->first = deferral->next;
    deferrals->device->driver.cuEventDestroy_v2(deferral->event);
    flw_host_free(deferral, 1, sizeof *deferral);
    if (--deferrals->counts[block] == 0) {
        deferrals->done(deferrals->context, block);
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
