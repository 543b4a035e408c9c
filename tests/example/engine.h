/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the stand-in for an engine and a GPU in the arena examples: a simulated device that checks the
 * order of every access and whose memory has contents, a pool, two streams, and a stand-in for kernels.
 * Does not: use an arena. The examples show that part.
 */
#ifndef FLW_TESTS_EXAMPLE_ENGINE_H
#define FLW_TESTS_EXAMPLE_ENGINE_H

#include "fallow/arena.h"
#include "fallow/kernels.h"
#include "support/sim.h"

extern struct engine {
    struct flw_sim sim; /* sim.cu.cuGraphLaunch and so on are the driver's functions */
    fallow_pool *pool;
    fallow_kernels *kernels;
    CUstream stream, second;
} engine;

/* Stop the program unless a call returns 0, a fallow_status or a CUresult; unless a condition is true. */
#define OK(call)          engine_require((call) == 0, __FILE__, __LINE__, #call)
#define EXPECT(condition) engine_require(condition, __FILE__, __LINE__, #condition)
void engine_require(bool is_true, const char *file, int line, const char *text);

void engine_begin(void);
/* Destroy the pool. Returns the exit status of the program: 0 if all accesses were in order. */
int engine_end(void);

/* A kernel that reads and writes all of some regions of a lease: READS(i) | WRITES(j) | ..., i and j below
 * 16. The first word of each written region becomes the sum of the first words of those read. */
#define READS(region)  (1u << (region))
#define WRITES(region) (1u << 16 << (region))
void engine_launch(CUstream stream, const fallow_layout *layout, const fallow_lease *lease,
                   uint32_t regions);

/* Have `stream` wait for all work that `other` has been given. */
void engine_join(CUstream stream, CUstream other);

/* Fill device memory with a word; wait for the stream and read a word. */
void engine_fill(CUstream stream, void *to, uint32_t word, size_t bytes);
uint32_t engine_read(CUstream stream, const void *from);

#endif
