/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the memset entry points: one value of 1, 2 or 4 bytes over a rectangle of rows.
 * Does not: write bytes (work.c) or order the write (schedule.c).
 *
 * The plain forms use the legacy stream and, for device memory, do not wait: "asynchronous with
 * respect to the host except when the target is pinned host memory or a Unified Memory region, in
 * which case they are fully synchronous" ("API synchronization behavior" of the driver's manual). */
#include "simcuda/forms.h"
#include "simcuda/storage.h"

struct rectangle {
    uint64_t to;
    unsigned value, value_bytes;
    size_t width, pitch_bytes, height; /* width in values; a height of 1 needs no pitch */
};

static CUresult fill_row(struct flw_call *call, const struct rectangle *area, uint64_t to,
                         size_t bytes, bool is_plain)
{
    FLW_REFUSE_IF(!flw_storage_is_known(to) || to % area->value_bytes != 0,
                  CUDA_ERROR_INVALID_VALUE);
    struct flw_sim_range range = {.address = to, .bytes = bytes, .is_write = 1};
    struct flw_work work = {.kind = FLW_WORK_MEMSET,
                            .name = "memset",
                            .ranges = &range,
                            .range_count = 1,
                            .to = to,
                            .bytes = bytes,
                            .value = area->value,
                            .value_bytes = area->value_bytes};
    return flw_order_give(call, call->stream, &work, is_plain && flw_storage_is_host(to));
}

static CUresult fill(struct flw_call *call, const struct rectangle *area, bool is_plain)
{
    if (area->width == 0 || area->height == 0) {
        return CUDA_SUCCESS;
    }
    size_t row_bytes = area->width * area->value_bytes;
    FLW_REFUSE_IF(area->width > SIZE_MAX / area->value_bytes ||
                      area->pitch_bytes % area->value_bytes != 0 ||
                      (area->height > 1 && area->pitch_bytes < row_bytes),
                  CUDA_ERROR_INVALID_VALUE);
    if (area->height > 1 && area->pitch_bytes == row_bytes) {
        FLW_REFUSE_IF(area->height > SIZE_MAX / row_bytes, CUDA_ERROR_INVALID_VALUE);
        return fill_row(call, area, area->to, row_bytes * area->height, is_plain);
    }
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < area->height && result == CUDA_SUCCESS; i++) {
        result = fill_row(call, area, area->to + i * area->pitch_bytes, row_bytes, is_plain);
    }
    return result;
}

static CUresult fill_on(enum flw_entry entry, struct rectangle area, CUstream handle)
{
    FLW_FRAME(flw_stream_enter(&call, entry, FLW_CALL_CONTEXT, handle));
    return fill(&call, &area, entry == FLW_ENTRY_cuMemsetD8_v2);
}

static CUresult fill_now(struct rectangle area, CUstream handle)
{
    return fill_on(FLW_ENTRY_cuMemsetD8_v2, area, handle);
}

/* ---- entry points: name, type, stream, and for asynchronous ones the entry that the call counts as */

#define ROW_NOW(symbol, type, on)                                            \
    CUresult CUDAAPI symbol(CUdeviceptr pointer, type value, size_t count)   \
    {                                                                        \
        struct rectangle area = {pointer, value, sizeof value, count, 0, 1}; \
        return fill_now(area, on);                                           \
    }
#define ROW(symbol, type, on, entry)                                                        \
    CUresult CUDAAPI symbol(CUdeviceptr pointer, type value, size_t count, CUstream stream) \
    {                                                                                       \
        struct rectangle area = {pointer, value, sizeof value, count, 0, 1};                \
        return fill_on(entry, area, on);                                                    \
    }
#define ROWS_NOW(symbol, type, on)                                                       \
    CUresult CUDAAPI symbol(CUdeviceptr pointer, size_t pitch, type value, size_t width, \
                            size_t height)                                               \
    {                                                                                    \
        struct rectangle area = {pointer, value, sizeof value, width, pitch, height};    \
        return fill_now(area, on);                                                       \
    }
#define ROWS(symbol, type, on, entry)                                                    \
    CUresult CUDAAPI symbol(CUdeviceptr pointer, size_t pitch, type value, size_t width, \
                            size_t height, CUstream stream)                              \
    {                                                                                    \
        struct rectangle area = {pointer, value, sizeof value, width, pitch, height};    \
        return fill_on(entry, area, on);                                                 \
    }

ROW_NOW(cuMemsetD8_v2, unsigned char, CU_STREAM_LEGACY)
ROW_NOW(cuMemsetD8_v2_ptds, unsigned char, CU_STREAM_PER_THREAD)
ROW(cuMemsetD8Async, unsigned char, stream, FLW_ENTRY_cuMemsetD8Async)
ROW_NOW(cuMemsetD16_v2, unsigned short, CU_STREAM_LEGACY)
ROW_NOW(cuMemsetD16_v2_ptds, unsigned short, CU_STREAM_PER_THREAD)
ROW(cuMemsetD16Async, unsigned short, stream, FLW_ENTRY_cuMemsetD32Async)
ROW(cuMemsetD16Async_ptsz, unsigned short, flw_own_stream(stream), FLW_ENTRY_cuMemsetD32Async)
ROW_NOW(cuMemsetD32_v2, unsigned, CU_STREAM_LEGACY)
ROW_NOW(cuMemsetD32_v2_ptds, unsigned, CU_STREAM_PER_THREAD)
ROW(cuMemsetD32Async, unsigned, stream, FLW_ENTRY_cuMemsetD32Async)

ROWS_NOW(cuMemsetD2D8_v2, unsigned char, CU_STREAM_LEGACY)
ROWS_NOW(cuMemsetD2D8_v2_ptds, unsigned char, CU_STREAM_PER_THREAD)
ROWS(cuMemsetD2D8Async, unsigned char, stream, FLW_ENTRY_cuMemsetD8Async)
ROWS(cuMemsetD2D8Async_ptsz, unsigned char, flw_own_stream(stream), FLW_ENTRY_cuMemsetD8Async)
ROWS_NOW(cuMemsetD2D16_v2, unsigned short, CU_STREAM_LEGACY)
ROWS_NOW(cuMemsetD2D16_v2_ptds, unsigned short, CU_STREAM_PER_THREAD)
ROWS(cuMemsetD2D16Async, unsigned short, stream, FLW_ENTRY_cuMemsetD32Async)
ROWS(cuMemsetD2D16Async_ptsz, unsigned short, flw_own_stream(stream), FLW_ENTRY_cuMemsetD32Async)
ROWS_NOW(cuMemsetD2D32_v2, unsigned, CU_STREAM_LEGACY)
ROWS_NOW(cuMemsetD2D32_v2_ptds, unsigned, CU_STREAM_PER_THREAD)
ROWS(cuMemsetD2D32Async, unsigned, stream, FLW_ENTRY_cuMemsetD32Async)
ROWS(cuMemsetD2D32Async_ptsz, unsigned, flw_own_stream(stream), FLW_ENTRY_cuMemsetD32Async)

#undef ROW_NOW
#undef ROW
#undef ROWS_NOW
#undef ROWS
