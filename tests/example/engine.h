/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a substitute for an inference engine and the GPU in the arena examples: a simulated device with
 * memory contents that checks the order of every access, a pool, two streams, and a kernel.
 * Does not: use an arena. The examples show that part.
 */
#ifndef FLW_TESTS_EXAMPLE_ENGINE_H
#define FLW_TESTS_EXAMPLE_ENGINE_H

#include "fallow/arena.h"
#include "fallow/kernels.h"
#include "support/sim.h"

extern struct engine {
    struct flw_sim sim; /* sim.cu has the functions of the driver */
    fallow_pool *pool;
    fallow_kernels *kernels;
    CUstream stream, second;
} engine;

/* Stop the program unless a call returns FALLOW_OK or CUDA_SUCCESS, or unless a condition is true. */
#define OK(call)          engine_require((call) == 0, __FILE__, __LINE__, #call)
#define EXPECT(condition) engine_require(condition, __FILE__, __LINE__, #condition)
void engine_require(bool is_true, const char *file, int line, const char *text);

void engine_begin(void);
/* Destroy the pool. Return 0 if all accesses were in order, else 1: the exit status of the program. */
int engine_end(void);

/* Launch a kernel that reads and writes whole regions: READS(i) | WRITES(j) | ..., for indexes below 16. The
 * kernel stores the sum of the first words of the read regions in the first word of each written region. */
#define READS(region)  (1u << (region))
#define WRITES(region) (1u << 16 << (region))
void engine_launch(CUstream stream, const fallow_layout *layout, const fallow_lease *lease,
                   uint32_t regions);

/* Make `stream` wait for all work queued on `other`. */
void engine_join(CUstream stream, CUstream other);

/* Fill device memory with a word. engine_read synchronizes the stream and returns a word. */
void engine_fill(CUstream stream, void *to, uint32_t word, size_t bytes);
uint32_t engine_read(CUstream stream, const void *from);

#endif
