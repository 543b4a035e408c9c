/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves: a program loads exactly the kernels that it launches, each once, never inside a capture,
 * and during another thread's capture without ending it. */
#include <pthread.h>
#include <string.h>

#include "driver/driver_types.h"
#include "driver/entry_points.h"
#include "fallow/debug_kernels.h"
#include "fallow/extend.h"
#include "kernel/bed.h"

#define X(need, symbol, since, before, parameters) typedef CUresult(*symbol##_function) parameters;
FLW_DRIVER_ENTRY_POINTS(X)
#undef X

/* Declares `name` as the driver's entry point of that name. */
#define ENTRY(bed, name)                                                   \
    name##_function name;                                                  \
    do {                                                                   \
        void *entry_ = fallow_pool_driver_entry(flw_bed_pool(bed), #name); \
        memcpy(&name, &entry_, sizeof entry_);                             \
    } while (0)

/* Count loads on the simulated device; on others return true. */
static bool has_loaded(struct flw_bed *bed, uint64_t count)
{
    flw_sim_calls_function calls;
    void *entry = fallow_pool_driver_entry(flw_bed_pool(bed), "flw_sim_call_count");
    memcpy(&calls, &entry, sizeof entry);
    return !flw_bed_is_simulated(bed) || calls("cuModuleLoadData") == count;
}

static fallow_status poison(struct flw_bed *bed, void *memory, fallow_stream stream)
{
    fallow_poison_params params;
    fallow_poison_params_init(&params);
    params.memory = memory;
    params.bytes = 4096;
    return fallow_debug_poison(flw_bed_kernels(bed), &params, stream);
}

FLW_TEST(a_program_loads_what_it_launches)
{
    void *memory = flw_bed_buffer(bed, "memory", 4096);
    FLW_EXPECT(bed, has_loaded(bed, 0), "create has loaded something");
    FLW_EXPECT_OK(bed, poison(bed, memory, flw_bed_stream(bed)));
    FLW_EXPECT(bed, has_loaded(bed, 1), "a launch has not loaded one kernel");
    FLW_EXPECT_OK(bed, poison(bed, memory, flw_bed_stream(bed)));
    FLW_EXPECT(bed, has_loaded(bed, 1), "a second launch has loaded");
}

FLW_TEST(kernels_are_loaded_by_name_or_all)
{
    static const char *const two[] = {"merge_states", "route"}, *const bad[] = {"route", "flw_x"};
    fallow_kernels *kernels = flw_bed_kernels(bed);
    FLW_EXPECT_REFUSED(bed, fallow_kernels_load(kernels, bad, 2), FALLOW_INVALID_ARGUMENT, "flw_x");
    FLW_EXPECT_REFUSED(bed, fallow_kernels_load(kernels, NULL, 2), FALLOW_INVALID_ARGUMENT,
                       "names");
    FLW_EXPECT(bed, fallow_kernels_load(NULL, two, 2) == FALLOW_INVALID_ARGUMENT, "no refusal");
    FLW_EXPECT(bed, has_loaded(bed, 0), "a refusal has loaded something");
    FLW_EXPECT_OK(bed, fallow_kernels_load(kernels, two, 2));
    FLW_EXPECT(bed, has_loaded(bed, 2), "not two");
    FLW_EXPECT_OK(bed, fallow_kernels_load(kernels, two, 1));
    FLW_EXPECT_OK(bed, fallow_kernels_load(kernels, two, 0));
    FLW_EXPECT(bed, has_loaded(bed, 2), "loaded twice");
    FLW_EXPECT_OK(bed, fallow_kernels_load(kernels, NULL, 0));
    FLW_EXPECT(bed, has_loaded(bed, 25), "not all");
}

/* The next launch tries again. */
FLW_TEST(a_kernel_that_cannot_be_loaded_launches_nothing)
{
    void *memory = flw_bed_buffer(bed, "memory", 4096);
    static const char *const entries[] = {"cuModuleLoadData", "cuModuleGetFunction",
                                          "cuThreadExchangeStreamCaptureMode",
                                          "cuStreamIsCapturing"};
    if (!flw_bed_is_simulated(bed)) {
        return;
    }
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        flw_bed_fail_call(bed, entries[i], 1, 999 /* unknown */);
        FLW_EXPECT_REFUSED(bed, poison(bed, memory, flw_bed_stream(bed)), FALLOW_DRIVER,
                           "CUDA_ERROR_UNKNOWN");
    }
    FLW_EXPECT_OK(bed, poison(bed, memory, flw_bed_stream(bed)));
}

FLW_TEST(a_capture_loads_nothing)
{
    ENTRY(bed, cuStreamBeginCapture_v2);
    ENTRY(bed, cuStreamEndCapture);
    ENTRY(bed, cuGraphDestroy);
    void *memory = flw_bed_buffer(bed, "memory", 4096);
    static const char *const names[] = {"poison"};
    for (int is_loaded = 0; is_loaded < 2; is_loaded++) {
        CUgraph graph = NULL;
        if (is_loaded) {
            FLW_EXPECT_OK(bed, fallow_kernels_load(flw_bed_kernels(bed), names, 1));
        }
        FLW_EXPECT(bed,
                   cuStreamBeginCapture_v2(flw_bed_stream(bed), CU_STREAM_CAPTURE_MODE_GLOBAL) == 0,
                   "no capture");
        if (is_loaded) {
            FLW_EXPECT_OK(bed, poison(bed, memory, flw_bed_stream(bed)));
        } else {
            FLW_EXPECT_REFUSED(bed, poison(bed, memory, flw_bed_stream(bed)), FALLOW_CAPTURING,
                               "fallow_kernels_load");
        }
        FLW_EXPECT(bed, cuStreamEndCapture(flw_bed_stream(bed), &graph) == 0 && graph != NULL,
                   "the capture was ended");
        FLW_EXPECT(bed, has_loaded(bed, (uint64_t)is_loaded), "loaded inside the capture");
        FLW_EXPECT(bed, cuGraphDestroy(graph) == 0, "no graph");
    }
}

struct beside {
    struct flw_bed *bed;
    void *memory;
    pthread_barrier_t met;
    fallow_status first, named, made;
};

static void *load_beside(void *argument)
{
    static const char *const names[] = {"route"};
    struct beside *beside = argument;
    fallow_kernels *own = NULL;
    beside->first = poison(beside->bed, beside->memory, flw_bed_stream(beside->bed));
    beside->named = fallow_kernels_load(flw_bed_kernels(beside->bed), names, 1);
    beside->made = fallow_kernels_create(flw_bed_pool(beside->bed), &own);
    if (beside->made == FALLOW_OK) {
        beside->made = fallow_kernels_load(own, NULL, 0);
    }
    fallow_kernels_destroy(own);
    return NULL;
}

/* Create, first launch, load and destroy, on another thread and on the one that captures. */
FLW_TEST(another_streams_capture_lives_on)
{
    ENTRY(bed, cuStreamCreate);
    ENTRY(bed, cuStreamDestroy_v2);
    ENTRY(bed, cuStreamBeginCapture_v2);
    ENTRY(bed, cuStreamEndCapture);
    ENTRY(bed, cuGraphDestroy);
    struct beside beside = {.bed = bed, .memory = flw_bed_buffer(bed, "memory", 4096)};
    for (int is_elsewhere = 0; is_elsewhere < 2; is_elsewhere++) {
        CUstream stream = NULL;
        CUgraph graph = NULL;
        pthread_t thread;
        FLW_EXPECT(bed, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == 0, "no stream");
        FLW_EXPECT(bed, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == 0,
                   "no capture");
        if (is_elsewhere) {
            FLW_EXPECT(bed, pthread_create(&thread, NULL, load_beside, &beside) == 0, "no thread");
            (void)pthread_join(thread, NULL);
        } else {
            (void)load_beside(&beside);
        }
        FLW_EXPECT_OK(bed, beside.first);
        FLW_EXPECT_OK(bed, beside.named);
        FLW_EXPECT_OK(bed, beside.made);
        FLW_EXPECT(bed, cuStreamEndCapture(stream, &graph) == 0 && graph != NULL,
                   "the capture was ended");
        FLW_EXPECT(bed, cuGraphDestroy(graph) == 0, "no graph");
        FLW_EXPECT(bed, cuStreamDestroy_v2(stream) == 0, "no end of the stream");
    }
}

static void *launch_at_once(void *argument)
{
    struct beside *beside = argument;
    (void)pthread_barrier_wait(&beside->met);
    return poison(beside->bed, beside->memory, flw_bed_stream(beside->bed)) == FALLOW_OK ? beside
                                                                                         : NULL;
}

FLW_TEST(threads_that_launch_at_once_load_once)
{
    enum {
        THREADS = 8
    };
    struct beside beside = {.bed = bed, .memory = flw_bed_buffer(bed, "memory", 4096)};
    pthread_t threads[THREADS];
    (void)pthread_barrier_init(&beside.met, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        FLW_EXPECT(bed, pthread_create(&threads[i], NULL, launch_at_once, &beside) == 0,
                   "no thread");
    }
    for (int i = 0; i < THREADS; i++) {
        void *result = NULL;
        (void)pthread_join(threads[i], &result);
        FLW_EXPECT(bed, result == &beside, "a launch failed: %s", flw_bed_last_error(bed));
    }
    FLW_EXPECT(bed, has_loaded(bed, 1), "not loaded once");
    (void)pthread_barrier_destroy(&beside.met);
}
