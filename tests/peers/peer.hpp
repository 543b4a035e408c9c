// SPDX-License-Identifier: Apache-2.0
//
// Owns: the functions that another allocator provides to be measured. They replace the empty calls of
// libfallow-null.so, so `fallow bench --policy null` measures that allocator.
#pragma once
#include <cstddef>
#include <cuda_runtime_api.h>

// Defined for each allocator. An exception is a failed operation. A stream is NULL or a stream of its own.
void *peer_alloc(std::size_t bytes, cudaStream_t stream);
void peer_free(void *pointer, cudaStream_t stream);
void peer_record_use(void *pointer, cudaStream_t stream);
extern "C" std::size_t peer_peak_reserved();
