/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about streams: identities, the default handles, order, host functions.
 */
#include <stdatomic.h>

#define MODULE "stream"
#include "conformance.h"

HEADER(ids_are_unique_even_when_handles_are_not, "The Id is unique for the life of the program")
{
    unsigned long long id[8] = {0};
    CUstream stream = NULL;
    NEED(bed_has(b, b->cu->cuStreamGetId != NULL));
    for (int i = 0; i < 8; i++) {
        OK(b->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        OK(b->cu->cuStreamGetId(stream, &id[i]));
        OK(b->cu->cuStreamDestroy_v2(stream));
        for (int k = 0; k < i; k++) {
            THAT(id[i] != id[k]);
        }
    }
}

static void id_of_thread_stream_body(struct bed *b, void *argument)
{
    OK(b->cu->cuStreamGetId(CU_STREAM_PER_THREAD, argument));
}

HEADER(default_handles_have_ids,
       "any of the special streams such as the NULL stream, CU_STREAM_LEGACY and")
{
    unsigned long long null_id = 0, legacy = 0, own = 0, again = 0, other = 0;
    NEED(bed_has(b, b->cu->cuStreamGetId != NULL));
    OK(b->cu->cuStreamGetId(NULL, &null_id));
    OK(b->cu->cuStreamGetId(CU_STREAM_LEGACY, &legacy));
    OK(b->cu->cuStreamGetId(CU_STREAM_PER_THREAD, &own));
    OK(b->cu->cuStreamGetId(CU_STREAM_PER_THREAD, &again));
    bed_on_thread(b, id_of_thread_stream_body, &other);
    THAT(null_id == legacy);
    THAT(own == again && own != legacy);
    THAT(other != own && other != legacy);
}

HEADER(streams_know_their_context,
       "The returned context is the context that was active in the calling thread when the "
       "stream was created")
{
    const struct flw_driver *cu = b->cu;
    CUcontext made = NULL, of_stream = NULL;
    CUstream stream = NULL;
    NEED(bed_has(b, cu->cuStreamGetCtx != NULL && cu->cuCtxCreate_v2 != NULL));
    OK(cu->cuStreamCreate(&stream, 0));
    OK(cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(cu->cuStreamGetCtx(stream, &of_stream));
    THAT(of_stream == b->context);
    OK(cu->cuStreamGetCtx(NULL, &of_stream));
    THAT(of_stream == made);
    OK(cu->cuCtxDestroy_v2(made));
    OK(cu->cuStreamDestroy_v2(stream));
}

HEADER(default_handles_need_a_context,
       "Specifying any of the special handles will return the context current to the calling "
       "thread")
{
    CUcontext context = NULL;
    NEED(bed_has(b, b->cu->cuStreamGetCtx != NULL));
    OK(b->cu->cuCtxSetCurrent(NULL));
    IS(CUDA_ERROR_INVALID_CONTEXT, b->cu->cuStreamGetCtx(NULL, &context));
    IS(CUDA_ERROR_INVALID_CONTEXT, b->cu->cuStreamGetCtx(CU_STREAM_PER_THREAD, &context));
    OK(b->cu->cuCtxSetCurrent(b->context));
}

HEADER(unknown_flags_are_refused, "Valid values for Flags are")
{
    CUstream stream = NULL;
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuStreamCreate(&stream, 1u << 20));
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuStreamCreate(NULL, 0));
}

HEADER(priorities_are_accepted, "Creates a stream with the specified priority")
{
    CUstream stream = NULL;
    NEED(bed_has(b, b->cu->cuStreamCreateWithPriority != NULL));
    OK(b->cu->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -1));
    OK(b->cu->cuStreamQuery(stream));
    OK(b->cu->cuStreamDestroy_v2(stream));
}

HEADER(query_tells_unfinished_work,
       "if all operations in the stream specified by hStream have completed, or")
{
    CUstream stream = bed_stream(b);
    OK(b->cu->cuStreamQuery(stream));
    bed_gate_close(b, stream);
    IS(CUDA_ERROR_NOT_READY, b->cu->cuStreamQuery(stream));
    bed_gate_open(b);
    OK(b->cu->cuStreamSynchronize(stream));
    OK(b->cu->cuStreamQuery(stream));
}

HEADER(destroying_does_not_wait,
       "the function will return immediately and the resources associated with hStream will "
       "be released automatically")
{
    CUstream stream = NULL;
    OK(b->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    bed_gate_close(b, stream);
    OK(b->cu->cuStreamDestroy_v2(stream)); /* a wait would never end */
    bed_gate_open(b);
    OK(b->cu->cuCtxSynchronize());
}

HEADER(streams_of_another_context_complete_alone,
       "Blocks until the current context has completed all preceding requested tasks")
{
    const struct flw_driver *cu = b->cu;
    CUcontext made = NULL;
    CUstream stream = NULL;
    NEED(bed_has(b, cu->cuCtxCreate_v2 != NULL));
    OK(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    bed_gate_close(b, stream);
    OK(cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(cu->cuCtxSynchronize()); /* the new context's own: nothing to wait for */
    OK(cu->cuCtxPopCurrent_v2(NULL));
    IS(CUDA_ERROR_NOT_READY, cu->cuStreamQuery(stream));
    bed_gate_open(b);
    OK(cu->cuStreamSynchronize(stream));
    OK(cu->cuStreamDestroy_v2(stream));
    OK(cu->cuCtxDestroy_v2(made));
}

/* ---- order against the legacy stream ---- */

HEADER(blocking_streams_wait_for_the_legacy_stream,
       "Stream handle that can be passed as a CUstream to use an implicit stream with legacy "
       "synchronization behavior")
{
    CUstream stream = NULL;
    CUdeviceptr address = bed_alloc(b, 4096);
    OK(b->cu->cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    bed_gate_close(b, CU_STREAM_LEGACY);
    OK(b->cu->cuMemsetD8Async(address, 1, 4096, stream));
    IS(CUDA_ERROR_NOT_READY, b->cu->cuStreamQuery(stream));
    bed_gate_open(b);
    OK(b->cu->cuStreamSynchronize(stream));
    OK(b->cu->cuStreamQuery(CU_STREAM_LEGACY)); /* queued earlier */
    OK(b->cu->cuStreamDestroy_v2(stream));
}

HEADER(non_blocking_streams_do_not,
       "the created stream should perform no implicit synchronization with stream 0")
{
    CUdeviceptr address = bed_alloc(b, 4096);
    CUstream stream = bed_stream(b);
    bed_gate_close(b, CU_STREAM_LEGACY);
    OK(b->cu->cuMemsetD8Async(address, 1, 4096, stream));
    OK(b->cu->cuStreamSynchronize(stream));
    IS(CUDA_ERROR_NOT_READY, b->cu->cuStreamQuery(CU_STREAM_LEGACY));
    bed_gate_open(b);
    OK(b->cu->cuCtxSynchronize());
}

HEADER(the_legacy_stream_waits_for_blocking_streams, "legacy synchronization behavior")
{
    CUstream stream = NULL;
    CUdeviceptr address = bed_alloc(b, 4096);
    OK(b->cu->cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    bed_gate_close(b, stream);
    OK(b->cu->cuMemsetD8Async(address, 1, 4096, CU_STREAM_LEGACY));
    IS(CUDA_ERROR_NOT_READY, b->cu->cuStreamQuery(CU_STREAM_LEGACY));
    bed_gate_open(b);
    OK(b->cu->cuStreamSynchronize(CU_STREAM_LEGACY));
    OK(b->cu->cuStreamQuery(stream));
    OK(b->cu->cuStreamDestroy_v2(stream));
}

/* ---- host functions ---- */

struct diary {
    atomic_uint at;
    unsigned entry[8];
};

static void CUDA_CB write_diary(void *argument)
{
    unsigned *slot = argument;
    struct diary *diary = *(struct diary **)(void *)(slot + 2);
    diary->entry[atomic_fetch_add(&diary->at, 1) % 8] = slot[0];
}

HEADER(host_functions_run_in_stream_order,
       "The function will be called after currently enqueued work and will block work added "
       "after it")
{
    static struct diary diary;
    static struct {
        unsigned number, pad;
        struct diary *diary;
    } page[8];
    CUstream stream = NULL;
    atomic_store(&diary.at, 0);
    OK(b->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    bed_gate_close(b, stream);
    for (unsigned i = 0; i < 8; i++) {
        page[i].number = i;
        page[i].diary = &diary;
        OK(b->cu->cuLaunchHostFunc(stream, write_diary, &page[i]));
    }
    THAT(atomic_load(&diary.at) == 0);
    bed_gate_open(b);
    OK(b->cu->cuStreamSynchronize(stream));
    THAT(atomic_load(&diary.at) == 8);
    for (unsigned i = 0; i < 8; i++) {
        THAT(diary.entry[i] == i);
    }
    OK(b->cu->cuStreamDestroy_v2(stream));
}

HEADER(a_host_function_blocks_what_follows, "will block work added after it")
{
    CUdeviceptr address = bed_alloc(b, 4096);
    bed_poke(b, address, 1);
    CUstream stream = bed_stream(b);
    bed_gate_close(b, stream);
    OK(b->cu->cuMemsetD32Async(address, 2, 1, stream));
    IS(CUDA_ERROR_NOT_READY, b->cu->cuStreamQuery(stream));
    bed_gate_open(b);
    OK(b->cu->cuStreamSynchronize(stream));
    THAT(bed_peek(b, address) == 2);
}

HEADER(no_host_function_is_refused,
       "The function to call once preceding stream operations are complete")
{
    REFUSED(b->cu->cuLaunchHostFunc(NULL, NULL, NULL));
}
