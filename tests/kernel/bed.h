/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a bed for kernel modules: a pool, loaded kernels and a stream on the simulated device
 * (memory with contents, every access checked, another thread's GLOBAL capture that must survive)
 * or on a GPU; named buffers; graphs.
 * Does not: know a module (call.h does); need a test framework, so that it runs on a GPU machine without cmocka.
 *
 * A test program is a list of FLW_TEST; `--device sim` (the default) or `--device N`,
 * `--only NAME`, `--seed N`. A failed FLW_EXPECT prints and counts, and the function
 * continues. */
#ifndef FLW_TESTS_KERNEL_BED_H
#define FLW_TESTS_KERNEL_BED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "fallow/fallow.h"
#include "fallow/kernels.h"
#include "fallow/simcuda.h"

struct flw_bed;

/* Define a test; the name is a sentence. The bed's main runs all tests of a program in order. */
#define FLW_TEST(test)                                            \
    static void test(struct flw_bed *bed);                        \
    __attribute__((constructor)) static void flw_add_##test(void) \
    {                                                             \
        flw_bed_add(#test, test);                                 \
    }                                                             \
    static void test(struct flw_bed *bed)
void flw_bed_add(const char *name, void (*run)(struct flw_bed *bed));

/* Print and count a failure with file and line; the test continues. */
void flw_bed_fail(struct flw_bed *bed, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define FLW_EXPECT(bed, condition, ...)                         \
    do {                                                        \
        if (!(condition)) {                                     \
            flw_bed_fail(bed, __FILE__, __LINE__, __VA_ARGS__); \
        }                                                       \
    } while (0)
#define FLW_EXPECT_OK(bed, call)                                              \
    do {                                                                      \
        fallow_status flw_status_ = (call);                                   \
        FLW_EXPECT(bed, flw_status_ == FALLOW_OK, "%s: %s; %s", #call,        \
                   fallow_status_name(flw_status_), flw_bed_last_error(bed)); \
    } while (0)
/* Make a module's call on the bed's stream. */
#define FLW_LAUNCH(bed, call, params) \
    FLW_EXPECT_OK(bed, call(flw_bed_kernels(bed), params, flw_bed_stream(bed)))
/* Expect the status, a sentence that contains `word`, and no launch. */
#define FLW_EXPECT_REFUSED(bed, call, expected, word)                                       \
    do {                                                                                    \
        uint64_t flw_launched_ = fallow_kernels_launch_count(flw_bed_kernels(bed));         \
        fallow_status flw_status_ = (call);                                                 \
        FLW_EXPECT(bed, flw_status_ == (expected), "%s: %s", #call,                         \
                   fallow_status_name(flw_status_));                                        \
        FLW_EXPECT(bed, flw_bed_error_has(bed, word), "no '%s' in: %s", word,               \
                   flw_bed_last_error(bed));                                                \
        FLW_EXPECT(bed, fallow_kernels_launch_count(flw_bed_kernels(bed)) == flw_launched_, \
                   "%s launched something", #call);                                         \
    } while (0)

fallow_pool *flw_bed_pool(struct flw_bed *bed);
fallow_kernels *flw_bed_kernels(struct flw_bed *bed);
fallow_stream flw_bed_stream(struct flw_bed *bed);
bool flw_bed_is_simulated(const struct flw_bed *bed);
/* Simulated only: the n-th call (1 = next) of a driver entry fails with this CUresult, once. */
void flw_bed_fail_call(struct flw_bed *bed, const char *entry, uint64_t n, int error);
const char *flw_bed_last_error(struct flw_bed *bed);
bool flw_bed_error_has(struct flw_bed *bed, const char *word);

/* Return the next number of the run's generator (the seed is printed), or one below `most`. */
uint64_t flw_bed_random(struct flw_bed *bed);
int64_t flw_bed_random_below(struct flw_bed *bed, int64_t most);

/* Host memory, all zero, that lives until the test ends. Stops the program where there is none. */
void *flw_bed_memory(struct flw_bed *bed, size_t bytes);

/* ---- memory: stops the program where the device refuses. Freed after the test. */

/* `bytes` of dirty memory (a pattern, and unwritten to the checker), named in reports. bytes 0: a
 * pointer to 256 bytes that nothing may touch. */
void *flw_bed_buffer(struct flw_bed *bed, const char *name, size_t bytes);
/* The same, with the host's contents. */
void *flw_bed_upload(struct flw_bed *bed, const char *name, const void *from, size_t bytes);
/* `to` may be an input's, which a call takes as const. */
void flw_bed_write(struct flw_bed *bed, const void *to, const void *from, size_t bytes);
/* Write integers as a dtype, truncated to it. */
void flw_bed_write_ints(struct flw_bed *bed, const void *to, const int64_t *from, size_t count,
                        fallow_dtype dtype);
/* Waits for the stream. Bytes that were never written are a violation. */
void flw_bed_read(struct flw_bed *bed, void *to, const void *from, size_t bytes);
/* Return a word of flags for a call, initially 0; return the value. */
int32_t *flw_bed_flags(struct flw_bed *bed);
int32_t flw_bed_read_flags(struct flw_bed *bed, const int32_t *flags);
/* Fill with a byte, then mark it as unwritten (simulated device). */
void flw_bed_dirty(struct flw_bed *bed, void *buffer, size_t bytes, unsigned char pattern);
/* Mark as unwritten without changing the contents. */
void flw_bed_forget(struct flw_bed *bed, void *buffer, size_t bytes);

/* ---- graphs: destroyed after the test */

struct flw_bed_graph;

/* Capture the calls that `launch` makes on the bed's stream; it may not upload, read
 * or allocate. */
struct flw_bed_graph *flw_bed_capture(struct flw_bed *bed,
                                      void (*launch)(struct flw_bed *bed, void *inputs,
                                                     void *const outputs[]),
                                      void *inputs, void *const outputs[]);
/* Launch the graph, with the memory's current contents. */
void flw_bed_replay(struct flw_bed *bed, struct flw_bed_graph *graph);

/* ---- a program's own kernel, on the simulated device: a twin that a test wrote, under a name that reports
 * will show. `args` is copied; given to the bed's stream. */
void flw_bed_run_twin(struct flw_bed *bed, const char *kernel, flw_sim_twin twin, const void *args,
                      size_t args_bytes);
/* The arguments of such a twin, and the accessors of common/twin.h. */
struct flw_twin;
void flw_bed_begin_twin(struct flw_twin *twin, flw_sim_launch *launch, void **parameters,
                        void *args, size_t args_bytes);

/* Return the violations since the last call; print the first few. 0 on a GPU. */
uint64_t flw_bed_violations(struct flw_bed *bed);
/* As above, and quiet: the first sentence to `text`. For tests that expect one. */
uint64_t flw_bed_expect_violations(struct flw_bed *bed, char *text, size_t text_bytes);

#endif
