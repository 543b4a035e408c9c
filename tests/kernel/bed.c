/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/bed.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "common/twin.h"
#include "support/beside.h"
#include "support/sim.h"

#define BUFFERS 4096
#define GRAPHS  16
#define TESTS   24

struct flw_bed_graph {
    CUgraph graph;
    CUgraphExec executable;
};

/* Host memory of a test. */
struct piece {
    struct piece *next;
};

struct flw_bed {
    struct flw_sim sim; /* `cu` alone on a GPU */
    bool is_simulated;
    int device;
    uint64_t random;
    const char *test; /* running now */
    unsigned failures;
    fallow_pool *pool;
    fallow_kernels *kernels;
    CUcontext context;
    CUstream stream;
    void *buffers[BUFFERS];
    unsigned buffer_count;
    struct flw_bed_graph graphs[GRAPHS];
    unsigned graph_count;
    struct piece *memory;
    uint64_t violations_seen;
    struct flw_beside beside; /* simulated only: the whole of a test runs beside a capture */
    char error[256];
};

/* The simulated driver's, one a process; for twins, which are given no bed. */
static struct {
    flw_sim_load_function load;
    flw_sim_store_function store;
} accessors;

static void must(const struct flw_bed *bed, CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s: %s: %s\n", bed->test, call,
                flw_driver_error_name(&bed->sim.cu, result));
        exit(1);
    }
}
/* Make the bed's own calls in relaxed mode, which disturbs no capture; the functions under test do
 * so themselves. */
static CUstreamCaptureMode exchange_mode(const struct flw_bed *bed, CUstreamCaptureMode mode)
{
    if (bed->is_simulated) {
        must(bed, bed->sim.cu.cuThreadExchangeStreamCaptureMode(&mode), "capture mode");
    }
    return mode;
}
#define MUST(bed, call)                                                                 \
    do {                                                                                \
        CUstreamCaptureMode mode_ = exchange_mode(bed, CU_STREAM_CAPTURE_MODE_RELAXED); \
        must(bed, (bed)->sim.cu.call, #call);                                           \
        (void)exchange_mode(bed, mode_);                                                \
    } while (0)

void flw_bed_fail(struct flw_bed *bed, const char *file, int line, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s:%d: %s: ", file, line, bed->test);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    bed->failures++;
}

fallow_pool *flw_bed_pool(struct flw_bed *bed)
{
    return bed->pool;
}

void flw_bed_fail_call(struct flw_bed *bed, const char *entry, uint64_t n, int error)
{
    bed->sim.fail(entry, n, error, 0);
}

fallow_kernels *flw_bed_kernels(struct flw_bed *bed)
{
    return bed->kernels;
}

fallow_stream flw_bed_stream(struct flw_bed *bed)
{
    return bed->stream;
}

bool flw_bed_is_simulated(const struct flw_bed *bed)
{
    return bed->is_simulated;
}

const char *flw_bed_last_error(struct flw_bed *bed)
{
    fallow_kernels_last_error(bed->kernels, bed->error, sizeof bed->error);
    return bed->error;
}

bool flw_bed_error_has(struct flw_bed *bed, const char *word)
{
    return strstr(flw_bed_last_error(bed), word) != NULL;
}

uint64_t flw_bed_random(struct flw_bed *bed)
{
    return flw_random_next(&bed->random);
}

int64_t flw_bed_random_below(struct flw_bed *bed, int64_t most)
{
    return (int64_t)(flw_bed_random(bed) % (uint64_t)most);
}

/* ---- memory */

void *flw_bed_memory(struct flw_bed *bed, size_t bytes)
{
    struct piece *piece = calloc(1, bytes + 17);
    if (piece == NULL) {
        fprintf(stderr, "no host memory for %zu bytes\n", bytes);
        abort();
    }
    piece->next = bed->memory;
    bed->memory = piece;
    return (char *)piece + 16;
}

static void free_memory(struct flw_bed *bed)
{
    while (bed->memory != NULL) {
        struct piece *piece = bed->memory;
        bed->memory = piece->next;
        free(piece);
    }
}

static CUdeviceptr address_of(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

void flw_bed_forget(struct flw_bed *bed, void *buffer, size_t bytes)
{
    MUST(bed, cuStreamSynchronize(bed->stream));
    if (bytes > 0 && bed->is_simulated) {
        bed->sim.forget(address_of(buffer), bytes);
    }
}

void flw_bed_dirty(struct flw_bed *bed, void *buffer, size_t bytes, unsigned char pattern)
{
    if (bytes > 0) {
        MUST(bed, cuMemsetD8Async(address_of(buffer), pattern, bytes, bed->stream));
        flw_bed_forget(bed, buffer, bytes);
    }
}

void *flw_bed_buffer(struct flw_bed *bed, const char *name, size_t bytes)
{
    void *buffer = NULL;
    size_t room = bytes == 0 ? 256 : bytes;
    fallow_status status = fallow_alloc(bed->pool, room, bed->stream, &buffer);
    if (status != FALLOW_OK || bed->buffer_count == BUFFERS) {
        fprintf(stderr, "%s: no buffer '%s' of %zu bytes: %s\n", bed->test, name, bytes,
                fallow_status_name(status));
        exit(1);
    }
    bed->buffers[bed->buffer_count++] = buffer;
    if (bed->is_simulated) {
        bed->sim.name(address_of(buffer), room, name);
    }
    flw_bed_dirty(bed, buffer, room, 0xcd);
    return buffer;
}

void flw_bed_write(struct flw_bed *bed, const void *to, const void *from, size_t bytes)
{
    if (bytes > 0) {
        MUST(bed, cuMemcpyHtoDAsync_v2(address_of(to), from, bytes, bed->stream));
        MUST(bed, cuStreamSynchronize(bed->stream));
    }
}

void *flw_bed_upload(struct flw_bed *bed, const char *name, const void *from, size_t bytes)
{
    void *buffer = flw_bed_buffer(bed, name, bytes);
    flw_bed_write(bed, buffer, from, bytes);
    return buffer;
}

void flw_bed_write_ints(struct flw_bed *bed, const void *to, const int64_t *from, size_t count,
                        fallow_dtype dtype)
{
    size_t each = fallow_dtype_bytes(dtype);
    unsigned char *raw = flw_bed_memory(bed, count * each);
    for (size_t i = 0; i < count; i++) {
        memcpy(raw + i * each, &from[i], each); /* little endian: the low half */
    }
    flw_bed_write(bed, to, raw, count * each);
}

void flw_bed_read(struct flw_bed *bed, void *to, const void *from, size_t bytes)
{
    if (bytes > 0) {
        MUST(bed, cuMemcpyDtoHAsync_v2(to, address_of(from), bytes, bed->stream));
    }
    MUST(bed, cuStreamSynchronize(bed->stream));
}

int32_t *flw_bed_flags(struct flw_bed *bed)
{
    return flw_bed_upload(bed, "flags", &(int32_t){0}, sizeof(int32_t));
}

int32_t flw_bed_read_flags(struct flw_bed *bed, const int32_t *flags)
{
    int32_t value = 0;
    flw_bed_read(bed, &value, flags, sizeof value);
    return value;
}

static void free_buffers(struct flw_bed *bed)
{
    while (bed->buffer_count > 0) {
        void *buffer = bed->buffers[--bed->buffer_count];
        if (bed->is_simulated) {
            bed->sim.name(address_of(buffer), 1, NULL);
        }
        FLW_EXPECT(bed, fallow_free(bed->pool, buffer, bed->stream) == FALLOW_OK,
                   "a buffer could not be freed");
    }
}

/* ---- graphs */

struct flw_bed_graph *flw_bed_capture(struct flw_bed *bed,
                                      void (*launch)(struct flw_bed *bed, void *inputs,
                                                     void *const outputs[]),
                                      void *inputs, void *const outputs[])
{
    if (bed->graph_count == GRAPHS) {
        fprintf(stderr, "%s: more than %d graphs\n", bed->test, GRAPHS);
        exit(1);
    }
    struct flw_bed_graph *graph = &bed->graphs[bed->graph_count++];
    FLW_EXPECT_OK(bed, fallow_kernels_load(bed->kernels, NULL, 0)); /* not inside the capture */
    MUST(bed, cuStreamBeginCapture_v2(bed->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch(bed, inputs, outputs);
    MUST(bed, cuStreamEndCapture(bed->stream, &graph->graph));
    MUST(bed, cuGraphInstantiateWithFlags(&graph->executable, graph->graph, 0));
    return graph;
}

void flw_bed_replay(struct flw_bed *bed, struct flw_bed_graph *graph)
{
    MUST(bed, cuGraphLaunch(graph->executable, bed->stream));
}

static void destroy_graphs(struct flw_bed *bed)
{
    while (bed->graph_count > 0) {
        struct flw_bed_graph *graph = &bed->graphs[--bed->graph_count];
        MUST(bed, cuGraphExecDestroy(graph->executable));
        MUST(bed, cuGraphDestroy(graph->graph));
    }
}

/* ---- a program's own kernel */

void flw_bed_run_twin(struct flw_bed *bed, const char *kernel, flw_sim_twin twin, const void *args,
                      size_t args_bytes)
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    unsigned char copy[256];
    void *parameters[] = {copy};
    if (!bed->is_simulated) {
        fprintf(stderr, "the kernel '%s' exists on the simulated device alone\n", kernel);
        exit(77);
    }
    if (args_bytes > sizeof copy) {
        fprintf(stderr, "%s: the arguments of '%s' do not fit\n", bed->test, kernel);
        exit(1);
    }
    memcpy(copy, args, args_bytes);
    bed->sim.register_twin(kernel, twin);
    bed->sim.parameters(kernel, 1, &args_bytes);
    MUST(bed, cuModuleLoadData(&module, kernel));
    MUST(bed, cuModuleGetFunction(&function, module, kernel));
    MUST(bed, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, bed->stream, parameters, NULL));
    MUST(bed, cuStreamSynchronize(bed->stream));
    MUST(bed, cuModuleUnload(module));
}

void flw_bed_begin_twin(struct flw_twin *twin, flw_sim_launch *launch, void **parameters,
                        void *args, size_t args_bytes)
{
    memcpy(args, parameters[0], args_bytes);
    *twin = (struct flw_twin){.launch = launch, .load = accessors.load, .store = accessors.store};
}

/* ---- violations */

static uint64_t new_violations(struct flw_bed *bed)
{
    if (!bed->is_simulated) {
        return 0;
    }
    uint64_t count = flw_sim_read_ledger(&bed->sim).violation_count;
    uint64_t fresh = count - bed->violations_seen;
    bed->violations_seen = count;
    return fresh;
}

uint64_t flw_bed_violations(struct flw_bed *bed)
{
    uint64_t first = bed->violations_seen, fresh = new_violations(bed);
    for (uint64_t i = 0; i < fresh && i < 5; i++) {
        const char *sentence = bed->sim.violation(first + i);
        fprintf(stderr, "violation: %s\n", sentence != NULL ? sentence : "(no sentence)");
    }
    return fresh;
}

uint64_t flw_bed_expect_violations(struct flw_bed *bed, char *text, size_t text_bytes)
{
    uint64_t first = bed->violations_seen, fresh = new_violations(bed);
    const char *sentence = fresh > 0 ? bed->sim.violation(first) : NULL;
    snprintf(text, text_bytes, "%s", sentence != NULL ? sentence : "");
    return fresh;
}

/* ---- main */

static const char *option(int argc, char **argv, const char *name, const char *absent)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return argv[i + 1];
        }
    }
    return absent;
}

/* False: no such device here. */
static bool open_driver(struct flw_bed *bed, const char *device)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    bed->is_simulated = strcmp(device, "sim") == 0;
    bed->device = bed->is_simulated ? 0 : atoi(device);
    if (bed->is_simulated) {
        bool is_open = flw_sim_open(&bed->sim);
        accessors.load = bed->sim.load;
        accessors.store = bed->sim.store;
        return is_open;
    }
    if (flw_driver_open(&bed->sim.cu, NULL, message) != FALLOW_OK) {
        fprintf(stderr, "%s\n", message);
        return false;
    }
    return bed->sim.cu.cuInit(0) == CUDA_SUCCESS;
}

static void begin_test(struct flw_bed *bed)
{
    if (bed->is_simulated) {
        flw_sim_config config = flw_sim_config_default(flw_bed_random(bed));
        config.backed = 1;
        config.check = 1;
        config.device_bytes = (uint64_t)8 << 30;
        config.device_count = 2;
        bed->context = flw_sim_begin(&bed->sim, &config);
        static const enum flw_beside_place places[] = {FLW_BESIDE_STREAM, FLW_BESIDE_BLOCKING,
                                                       FLW_BESIDE_CONTEXT, FLW_BESIDE_DEVICE};
        flw_beside_begin(&bed->beside, &bed->sim, places[flw_bed_random_below(bed, 4)], NULL);
    } else {
        MUST(bed, cuDevicePrimaryCtxRetain(&bed->context, bed->device));
        MUST(bed, cuCtxSetCurrent(bed->context));
    }
    bed->violations_seen = 0;
    MUST(bed, cuStreamCreate(&bed->stream, CU_STREAM_NON_BLOCKING));
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.device = bed->device;
    config.driver = bed->is_simulated ? "sim" : NULL;
    fallow_status status = fallow_pool_create(&config, &bed->pool);
    if (status == FALLOW_OK) {
        status = fallow_kernels_create(bed->pool, &bed->kernels);
    }
    if (status != FALLOW_OK) {
        char why[256];
        fallow_kernels_last_error(NULL, why, sizeof why);
        fprintf(stderr, "%s: no pool or kernels (device code: %s): %s: %s\n", bed->test,
                fallow_kernels_generations(), fallow_status_name(status), why);
        exit(status == FALLOW_NOT_SUPPORTED || status == FALLOW_NOT_FOUND ? 77 : 1);
    }
}

static void end_test(struct flw_bed *bed)
{
    MUST(bed, cuStreamSynchronize(bed->stream));
    destroy_graphs(bed);
    free_buffers(bed);
    free_memory(bed);
    fallow_kernels_destroy(bed->kernels);
    FLW_EXPECT(bed, flw_bed_violations(bed) == 0, "violations that no test expected");
    FLW_EXPECT(bed, fallow_stream_retire(bed->pool, bed->stream) == FALLOW_OK, "no retire");
    fallow_pool_destroy(bed->pool);
    MUST(bed, cuStreamDestroy_v2(bed->stream));
    if (bed->is_simulated) {
        FLW_EXPECT(bed, flw_beside_end(&bed->beside), "a capture on %s was ended",
                   flw_beside_name(bed->beside.place));
    } else {
        MUST(bed, cuDevicePrimaryCtxRelease_v2(bed->device));
    }
}

static struct {
    const char *name;
    void (*run)(struct flw_bed *bed);
} tests[TESTS];
static size_t test_count;

void flw_bed_add(const char *name, void (*run)(struct flw_bed *bed))
{
    if (test_count == TESTS) {
        abort();
    }
    tests[test_count].name = name;
    tests[test_count++].run = run;
}

int main(int argc, char **argv)
{
    struct flw_bed bed = {.test = "start"};
    const char *only = option(argc, argv, "--only", NULL);
    const char *seed = option(argc, argv, "--seed", getenv("FALLOW_TEST_SEED"));
    bed.random = seed != NULL ? strtoull(seed, NULL, 0) : 1;
    printf("seed 0x%llx\n", (unsigned long long)bed.random);
    if (!open_driver(&bed, option(argc, argv, "--device", "sim"))) {
        return 77;
    }
    for (size_t i = 0; i < test_count; i++) {
        if (only == NULL || strcmp(only, tests[i].name) == 0) {
            unsigned before = bed.failures;
            bed.test = tests[i].name;
            begin_test(&bed);
            tests[i].run(&bed);
            end_test(&bed);
            printf("%-6s %s\n", bed.failures == before ? "ok" : "FAILED", tests[i].name);
        }
    }
    printf("%u failures%s\n", bed.failures, bed.is_simulated ? " (simulated device)" : "");
    return bed.failures == 0 ? 0 : 1;
}
