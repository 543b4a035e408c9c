/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/poison.h"

#include <stdatomic.h>

#include "driver/section.h"
#include "preload/real.h"

static _Atomic uint64_t filled_count, filled_bytes, missed_count;

static void count(bool is_filled, size_t bytes)
{
    atomic_fetch_add_explicit(is_filled ? &filled_count : &missed_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&filled_bytes, is_filled ? bytes : 0, memory_order_relaxed);
}

void flw_poison_fill(CUdeviceptr pointer, size_t bytes)
{
    const struct flw_driver *driver = &flw_real.driver;
    unsigned char byte = (unsigned char)flw_settings.poison;
    struct flw_driver_section section;
    CUstream stream = NULL;
    bool is_relaxed =
        flw_section_open(&section, driver, NULL, FLW_SECTION_MODE, NULL) == CUDA_SUCCESS;
    bool is_filled = driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    if (is_filled) {
        is_filled = driver->cuMemsetD8Async(pointer, byte, bytes, stream) == CUDA_SUCCESS &&
                    driver->cuStreamSynchronize(stream) == CUDA_SUCCESS;
        (void)driver->cuStreamDestroy_v2(stream);
    }
    if (is_relaxed) {
        (void)flw_section_close(&section);
    }
    count(is_filled, bytes);
}

void flw_poison_fill_on(CUdeviceptr pointer, size_t bytes, CUstream stream)
{
    const struct flw_driver *driver = &flw_real.driver;
    unsigned char byte = (unsigned char)flw_settings.poison;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    bool is_free = driver->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
                   status == CU_STREAM_CAPTURE_STATUS_NONE;
    count(is_free && driver->cuMemsetD8Async(pointer, byte, bytes, stream) == CUDA_SUCCESS, bytes);
}

void flw_poison_sum(struct flw_poison_counts *out)
{
    *out = (struct flw_poison_counts){
        .filled_count = atomic_load_explicit(&filled_count, memory_order_relaxed),
        .filled_bytes = atomic_load_explicit(&filled_bytes, memory_order_relaxed),
        .missed_count = atomic_load_explicit(&missed_count, memory_order_relaxed)};
}
