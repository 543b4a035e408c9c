/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tracked streams of a host pool, and the open uses of each. Does not: record
 * (hostfence.c). */
#include "base/bits.h"
#include "host/hostpool.h"

#define FENCE_USES  32u     /* an event covers at least this many blocks, or bytes: */
#define FENCE_BYTES FLW_MIB /* a copy of this size takes much longer than the event */

uintptr_t flw_hoststream_thread(void)
{
    static _Thread_local uintptr_t own __attribute__((tls_model("initial-exec")));
    static _Atomic uintptr_t last;
    if (own == 0) {
        own = atomic_fetch_add(&last, 1) + 1;
    }
    return own;
}

static bool is_unused(const struct flw_hoststream *stream)
{
    return !stream->is_busy && stream->open == NULL && stream->oldest == NULL &&
           stream->announced_count == 0 && (!stream->is_known || stream->thread != 0);
}

/* True if the handle, on this thread, still means the stream. Lock held. */
static bool is_named(const struct flw_hoststream *stream, CUstream handle)
{
    return stream->is_known && stream->handle == handle &&
           stream->thread == (handle == CU_STREAM_PER_THREAD ? flw_hoststream_thread() : 0);
}

struct flw_hoststream *flw_hoststream_known(struct flw_hostfences *fences, CUstream handle)
{
    struct flw_hoststream *stream = fences->last_found;
    if (stream == NULL || !is_named(stream, handle)) {
        stream = fences->streams;
        while (stream != NULL && !is_named(stream, handle)) {
            stream = stream->next;
        }
        fences->last_found = stream;
    }
    return stream;
}

/* Return a record, reusing one that nothing waits for. Lock held. */
static struct flw_hoststream *new_stream(struct flw_hostfences *fences)
{
    struct flw_hoststream *stream = fences->streams;
    while (stream != NULL && !is_unused(stream)) {
        stream = stream->next;
    }
    struct flw_hoststream *next = stream != NULL ? stream->next : fences->streams;
    if (stream == NULL) {
        stream = flw_meta_extend(&fences->meta, sizeof *stream, 16);
        if (stream == NULL) {
            return NULL;
        }
        fences->streams = stream;
    } else if (stream->is_known) {
        fences->stream_count--;
    }
    *stream = (struct flw_hoststream){.next = next};
    fences->stream_count++;
    return stream;
}

/* Query the stream's context and id, in a section. Makes driver calls. */
static CUresult identify(struct flw_hostpool *pool, struct flw_hoststream *stream)
{
    const struct flw_driver *cu = &pool->pin.cu;
    CUresult result = CUDA_SUCCESS;
    bool is_default = (uintptr_t)stream->handle <= (uintptr_t)CU_STREAM_PER_THREAD;
    stream->context = pool->pin.context;
    if (!is_default && cu->cuStreamGetCtx != NULL) {
        result = flw_pin_ask(&pool->pin)->cuStreamGetCtx(stream->handle, &stream->context);
    }
    if (result == CUDA_SUCCESS && !is_default && cu->cuStreamGetId != NULL) {
        CUresult told = flw_pin_ask(&pool->pin)->cuStreamGetId(stream->handle, &stream->id);
        stream->has_id = told == CUDA_SUCCESS;
        result = told == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : told;
    }
    return result;
}

fallow_status flw_fences_find(struct flw_hostpool *pool, CUstream handle,
                              struct flw_hoststream **out_stream)
{
    struct flw_hostfences *fences = &pool->fences;
    struct flw_pin_section section;
    flw_lock_acquire(&pool->lock);
    *out_stream = flw_hoststream_known(fences, handle);
    if (FLW_LIKELY(*out_stream != NULL)) {
        return FALLOW_OK;
    }
    flw_lock_release(&pool->lock);
    struct flw_hoststream told = {.handle = handle, .is_known = true};
    if (handle == CU_STREAM_PER_THREAD) {
        told.thread = flw_hoststream_thread();
    }
    if (!flw_pin_enter(&pool->pin, &section, NULL)) {
        return FALLOW_DRIVER;
    }
    CUresult result = identify(pool, &told);
    if (!flw_result_is_stale(result)) {
        flw_pin_heed(&pool->pin, result, "cuStreamGetId");
    }
    flw_pin_leave(&pool->pin, &section);
    if (result != CUDA_SUCCESS) {
        return flw_pin_is_refusal(result) ? FALLOW_DRIVER : FALLOW_INVALID_STREAM;
    }
    flw_lock_acquire(&pool->lock);
    *out_stream = flw_hoststream_known(fences, handle); /* added by another thread meanwhile */
    if (*out_stream == NULL && (*out_stream = new_stream(fences)) != NULL) {
        told.next = (*out_stream)->next;
        **out_stream = told;
    }
    if (*out_stream == NULL) {
        flw_lock_release(&pool->lock);
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    return FALLOW_OK;
}

void flw_fences_add(struct flw_hostpool *pool, struct flw_hoststream *stream,
                    struct flw_hostuse *use)
{
    if (!stream->is_known && !stream->is_lost) {
        /* Retired: the last event covers all the work. */
        if (stream->newest != NULL) {
            use->block->awaits++;
            use->next = stream->newest->uses;
            stream->newest->uses = use;
        } else {
            flw_blocks_drop_use(&pool->blocks, use);
        }
        return;
    }
    use->block->awaits++;
    use->next = stream->open;
    stream->open = use;
    stream->open_count++;
    stream->open_bytes += use->block->bytes;
}

bool flw_fences_is_due(const struct flw_hoststream *stream)
{
    return stream->open_count >= FENCE_USES || stream->thread != 0 ||
           stream->open_bytes >= FENCE_BYTES;
}
