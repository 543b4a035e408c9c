/* SPDX-License-Identifier: Apache-2.0 */
#include "quiescence_model.h"

#include <stdio.h>
#include <stdlib.h>

#define PAGE_LOG2 21

static void must(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "quiescence: the test's own %s answered %d\n", call, (int)result);
        abort();
    }
}

/* ---- streams */

/* Queries fail during another thread's capture in global mode; this thread's relaxed mode allows
 * them. */
static CUstreamCaptureMode exchange(const struct model *model, CUstreamCaptureMode mode)
{
    must(model->sim->cu.cuThreadExchangeStreamCaptureMode(&mode),
         "cuThreadExchangeStreamCaptureMode");
    return mode;
}

static void look(const struct model *model, struct model_stream *stream)
{
    CUstreamCaptureMode mode = exchange(model, CU_STREAM_CAPTURE_MODE_RELAXED);
    while (stream->done < stream->given &&
           model->sim->cu.cuEventQuery(stream->events[stream->done % MODEL_RING]) == CUDA_SUCCESS) {
        stream->done++;
    }
    (void)exchange(model, mode);
}

bool model_give(struct model *model, unsigned index, CUgraphExec graph)
{
    struct model_stream *stream = &model->streams[index];
    const struct flw_driver *cu = &model->sim->cu;
    CUcontext popped;
    if (stream->given - stream->done == MODEL_RING) {
        look(model, stream);
    }
    if (stream->given - stream->done == MODEL_RING) {
        return false;
    }
    CUevent *event = &stream->events[stream->given % MODEL_RING];
    must(cu->cuCtxPushCurrent_v2(stream->context), "cuCtxPushCurrent");
    if (*event == NULL) {
        must(cu->cuEventCreate(event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
    must(graph != NULL ? cu->cuGraphLaunch(graph, stream->stream)
                       : (CUresult)model->sim->touch(stream->stream, NULL, 0),
         "work");
    must(cu->cuEventRecord(*event, stream->stream), "cuEventRecord");
    must(cu->cuCtxPopCurrent_v2(&popped), "cuCtxPopCurrent");
    stream->given++;
    return true;
}

static bool is_done(struct model *model, const struct model_node *node)
{
    for (unsigned i = 0; i < model->stream_count; i++) {
        struct model_stream *stream = &model->streams[i];
        if (stream->done < node->awaits[i]) {
            look(model, stream);
            if (stream->done < node->awaits[i]) {
                return false;
            }
        }
    }
    return true;
}

/* ---- bytes */

static struct model_node **page_of(struct model *model, uint64_t page)
{
    return &model->pages[(page * 0x9E3779B97F4A7C15ull) >> 48];
}

static void drop(struct model *model, struct model_node **link)
{
    struct model_node *node = *link;
    *link = node->next;
    node->next = model->unused;
    model->unused = node;
}

static struct model_node *make_node(struct model *model)
{
    struct model_node *node = model->unused;
    if (node == NULL) {
        node = malloc(sizeof *node);
    } else {
        model->unused = node->next;
    }
    if (node == NULL) {
        abort();
    }
    return node;
}

static bool report(struct model *model, const struct model_node *node, uint64_t base,
                   uint64_t bytes)
{
    fprintf(stderr, "quiescence: [0x%llx, +%llu) is allocated while [0x%llx, 0x%llx) of it %s\n",
            (unsigned long long)base, (unsigned long long)bytes, (unsigned long long)node->begin,
            (unsigned long long)node->end,
            node->is_live ? "is given to somebody else"
                          : "may still be used by work given before it was freed");
    model->broken_count++;
    return false;
}

/* Also drop the page's freed ranges that are complete. */
static bool check_page(struct model *model, uint64_t page, uint64_t base, uint64_t bytes)
{
    for (struct model_node **link = page_of(model, page); *link != NULL;) {
        struct model_node *node = *link;
        bool is_touched = node->begin < base + bytes && base < node->end;
        bool is_over = !node->is_live && is_done(model, node);
        if (is_touched && !is_over) {
            return report(model, node, base, bytes);
        }
        model->reused_count += is_touched;
        if (is_over) {
            drop(model, link);
        } else {
            link = &node->next;
        }
    }
    return true;
}

bool model_alloc(struct model *model, uint64_t base, uint64_t bytes)
{
    uint64_t last = (base + bytes - 1) >> PAGE_LOG2;
    for (uint64_t page = base >> PAGE_LOG2; page <= last; page++) {
        if (!check_page(model, page, base, bytes)) {
            return false;
        }
    }
    for (uint64_t page = base >> PAGE_LOG2; page <= last; page++) {
        struct model_node *node = make_node(model), **head = page_of(model, page);
        uint64_t begin = page << PAGE_LOG2, end = begin + (1ull << PAGE_LOG2);
        node->base = base;
        node->begin = base > begin ? base : begin;
        node->end = base + bytes < end ? base + bytes : end;
        node->is_live = true;
        node->next = *head;
        *head = node;
    }
    model->allocated_count++;
    return true;
}

void model_free(struct model *model, uint64_t base, uint64_t bytes)
{
    uint64_t last = (base + bytes - 1) >> PAGE_LOG2;
    for (uint64_t page = base >> PAGE_LOG2; page <= last; page++) {
        struct model_node *node = *page_of(model, page);
        uint64_t begin = page << PAGE_LOG2;
        while (!node->is_live || node->base != base || node->begin < begin ||
               node->begin >= begin + (1ull << PAGE_LOG2)) {
            node = node->next;
        }
        node->is_live = false;
        for (unsigned i = 0; i < model->stream_count; i++) {
            node->awaits[i] = model->streams[i].given;
        }
    }
}
