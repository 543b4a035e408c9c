/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about copies and memsets: the resulting contents, and their order. */
#include <string.h>

#define MODULE "copy"
#include "conformance.h"

#define BYTES 65536

struct field {
    CUstream stream;
    CUdeviceptr a, c;
    unsigned char *pinned;
};

static struct field plough(struct bed *b)
{
    struct field f = {bed_stream(b), bed_alloc(b, BYTES), bed_alloc(b, BYTES),
                      bed_pinned(b, BYTES)};
    for (size_t i = 0; i < BYTES; i++) {
        f.pinned[i] = (unsigned char)(i * 31 + 7);
    }
    return f;
}

static bool is_pattern(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != (unsigned char)(i * 31 + 7)) {
            return false;
        }
    }
    return true;
}

HEADER(contents_go_there_and_back, "Copies from host memory to device memory")
{
    static unsigned char back[BYTES];
    struct field f = plough(b);
    OK(b->cu->cuMemcpyHtoD_v2(f.a, f.pinned, BYTES));
    memset(back, 0, sizeof back);
    OK(b->cu->cuMemcpyDtoH_v2(back, f.a, BYTES));
    THAT(is_pattern(back, BYTES));
}

HEADER(copies_on_a_stream_follow_each_other, "Copies from device memory to device memory")
{
    struct field f = plough(b);
    OK(b->cu->cuMemcpyHtoDAsync_v2(f.a, f.pinned, BYTES, f.stream));
    OK(b->cu->cuMemcpyDtoDAsync_v2(f.c, f.a, BYTES, f.stream));
    OK(b->cu->cuMemsetD8Async(f.a, 0, BYTES, f.stream));
    OK(b->cu->cuStreamSynchronize(f.stream));
    memset(f.pinned, 0, BYTES);
    OK(b->cu->cuMemcpyDtoHAsync_v2(f.pinned, f.c, BYTES, f.stream));
    OK(b->cu->cuStreamSynchronize(f.stream));
    THAT(is_pattern(f.pinned, BYTES));
    THAT(bed_peek(b, f.a) == 0);
}

HEADER(pageable_memory_may_change_after_the_call, "Copies from host memory to device memory")
{
    static unsigned char page[4096];
    struct field f = plough(b);
    memset(page, 9, sizeof page);
    bed_gate_close(b, CU_STREAM_PER_THREAD); /* an unrelated stream is busy */
    OK(b->cu->cuMemcpyHtoDAsync_v2(f.a, page, sizeof page, f.stream));
    memset(page, 0, sizeof page);
    OK(b->cu->cuStreamSynchronize(f.stream));
    THAT(bed_peek(b, f.a + 2048) == 0x09090909);
    bed_gate_open(b);
    OK(b->cu->cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

HEADER(memsets_fill_exactly, "Sets the memory range of N 32-bit values to the specified value")
{
    static unsigned char back[4096];
    struct field f = plough(b);
    OK(b->cu->cuMemsetD8_v2(f.a, 0xee, 4096));
    OK(b->cu->cuCtxSynchronize()); /* the plain memset may return early */
    OK(b->cu->cuMemsetD8Async(f.a + 100, 0x11, 50, f.stream));
    OK(b->cu->cuMemsetD32Async(f.a + 200, 0x22334455, 3, f.stream));
    OK(b->cu->cuStreamSynchronize(f.stream));
    OK(b->cu->cuMemcpyDtoH_v2(back, f.a, sizeof back));
    THAT(back[99] == 0xee && back[100] == 0x11 && back[149] == 0x11 && back[150] == 0xee);
    THAT(back[199] == 0xee && back[200] == 0x55 && back[203] == 0x22 && back[211] == 0x22 &&
         back[212] == 0xee);
}

HEADER(misaligned_memset_is_refused, "pointer must be four byte aligned")
{
    struct field f = plough(b);
    REFUSED(b->cu->cuMemsetD32Async(f.a + 2, 1, 1, f.stream));
}

RISKY(memory_that_is_no_more_is_refused, "specify the base pointers of the destination and source")
{
    CUdeviceptr gone = 0;
    uint32_t word = 0;
    OK(b->cu->cuMemAlloc_v2(&gone, 4u << 20));
    OK(b->cu->cuMemFree_v2(gone));
    REFUSED(b->cu->cuMemcpyDtoH_v2(&word, gone, sizeof word));
    REFUSED(b->cu->cuMemcpyDtoH_v2(&word, 0, sizeof word));
}

HEADER(free_waits_for_the_device,
       "For all other pointers, this API may perform implicit synchronization")
{
    CUdeviceptr address = 0;
    CUstream stream = bed_stream(b);
    OK(b->cu->cuMemAlloc_v2(&address, BYTES));
    OK(b->cu->cuMemsetD8Async(address, 1, BYTES, stream));
    OK(b->cu->cuMemFree_v2(address)); /* after this the work is complete, or was never at risk */
    OK(b->cu->cuStreamSynchronize(stream));
}
