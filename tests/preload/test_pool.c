/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves: a program on the driver with the preload gets the memory from a pool and observes no
 * other difference: freed memory is not reused until earlier work of every stream is done,
 * captures survive, and queries work on the blocks.
 *
 * It runs preloaded (ctest sets the environment), and only the statistics differ. The group "none"
 * runs without the preload, because the cases also hold for the driver alone. */
#include "preload/pool_bed.h"

static void a_warm_pair_asks_the_driver_for_no_memory(void)
{
    begin();
    free_many(4 * KIB, 1000);
    uint64_t allocs = calls("cuMemAlloc_v2"), frees = calls("cuMemFree_v2");
    for (int i = 0; i < 10000; i++) {
        free_block(allocate(4 * KIB));
    }
    EXPECT(calls("cuMemAlloc_v2") == allocs && calls("cuMemFree_v2") == frees);
    EXPECT(calls("cuCtxRecordEvent") <= 11000 / 256 + 2);
}

static void a_block_waits_for_unknown_streams(void)
{
    begin();
    CUstream stream = hidden_stream();
    CUdeviceptr small = allocate(3000), large = allocate(5 * MIB);
    give_work(stream);
    free_block(small);
    free_block(large);
    free_many(3000, 256);
    free_many(5 * MIB, 16);
    EXPECT(!comes_again(small, 3000, 500));
    EXPECT(!comes_again(large, 5 * MIB, 16));
    sim.step(UINT64_MAX);
    EXPECT(comes_again(small, 3000, 10000));
    EXPECT(comes_again(large, 5 * MIB, 100));
}

static void questions_are_answered_about_the_block(void)
{
    begin();
    CUdeviceptr small = allocate(3000), large = allocate(3 * MIB + 1), base = 0, start = 0;
    size_t bytes = 0, size = 0;
    MUST(sim.cu.cuMemGetAddressRange_v2(&base, &bytes, small + 2999));
    EXPECT(base == small && bytes == 3000);
    MUST(sim.cu.cuMemGetAddressRange_v2(&base, &bytes, large + 3 * MIB));
    EXPECT(base == large && bytes == 3 * MIB + 1);
    MUST(sim.cu.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, small + 7));
    MUST(sim.cu.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, small + 7));
    EXPECT(start == small && size == 3000);
    EXPECT(sim.cu.cuMemGetAddressRange_v2(&base, &bytes, small + 3000) != CUDA_SUCCESS);
    free_block(small);
    EXPECT(sim.cu.cuMemGetAddressRange_v2(&base, &bytes, small) != CUDA_SUCCESS);
    EXPECT(sim.cu.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, small) !=
           CUDA_SUCCESS);
    unsigned type = 0;
    MUST(sim.cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, large));
    EXPECT(type == CU_MEMORYTYPE_DEVICE);
    EXPECT(small % 512 == 0 && allocate(1) % 512 == 0 && large % (2 * MIB) == 0);
}

static void wrong_frees_are_answered_as_by_the_driver(void)
{
    begin();
    CUdeviceptr small = allocate(3000), large = allocate(3 * MIB);
    EXPECT(sim.cu.cuMemFree_v2(small + 512) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(sim.cu.cuMemFree_v2(large + 2 * MIB) == CUDA_ERROR_INVALID_VALUE);
    free_block(small);
    free_block(large);
    EXPECT(sim.cu.cuMemFree_v2(small) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(sim.cu.cuMemFree_v2(large) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(sim.cu.cuMemFree_v2(12345) == CUDA_ERROR_INVALID_VALUE);
    MUST(sim.cu.cuMemFree_v2(0));
    CUdeviceptr pointer = 0;
    EXPECT(sim.cu.cuMemAlloc_v2(&pointer, 0) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(sim.cu.cuMemAlloc_v2(NULL, 100) == CUDA_ERROR_INVALID_VALUE);
}

static void memory_of_other_calls_is_the_drivers(void)
{
    begin();
    CUdeviceptr managed = 0, pitched = 0, async = 0;
    size_t pitch = 0;
    CUstream stream = hidden_stream();
    (void)allocate(100);
    MUST(sim.cu.cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
    MUST(sim.cu.cuMemAllocPitch_v2(&pitched, &pitch, 1000, 100, 4));
    MUST(sim.cu.cuMemAllocAsync(&async, 10000, stream));
    sim.step(UINT64_MAX);
    uint64_t frees = calls("cuMemFree_v2");
    free_block(managed);
    free_block(pitched);
    free_block(async);
    EXPECT(calls("cuMemFree_v2") == frees + 3);
}

/* With and without the preload, for small and large blocks, cuMemFree and cuMemFreeAsync each free
 * blocks of cuMemAlloc and cuMemAllocAsync, once. */
static void either_call_frees_what_either_gave(void)
{
    static const size_t sizes[] = {3000, 3 * MIB};
    begin();
    CUstream stream = hidden_stream();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CUdeviceptr plain[2] = {allocate(sizes[i]), allocate(sizes[i])}, async[2] = {0, 0};
        MUST(sim.cu.cuMemAllocAsync(&async[0], sizes[i], stream));
        MUST(sim.cu.cuMemAllocAsync(&async[1], sizes[i], stream));
        give_work(stream);
        MUST(sim.cu.cuMemFreeAsync(plain[0], stream));
        MUST(sim.cu.cuMemFreeAsync(async[0], stream));
        EXPECT(sim.cu.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY); /* neither has waited */
        EXPECT(sim.cu.cuMemFreeAsync(plain[0], stream) == CUDA_ERROR_INVALID_VALUE);
        EXPECT(sim.cu.cuMemFree_v2(plain[0]) == CUDA_ERROR_INVALID_VALUE);
        MUST(sim.cu.cuStreamSynchronize(stream));
        free_block(plain[1]);
        free_block(async[1]);
        EXPECT(sim.cu.cuMemFreeAsync(plain[1], stream) == CUDA_ERROR_INVALID_VALUE);
        EXPECT(sim.cu.cuMemFreeAsync(async[1], stream) == CUDA_ERROR_INVALID_VALUE);
    }
}

/* A free that is refused has freed nothing. */
static void a_free_in_a_capture_takes_no_plain_memory(void)
{
    begin();
    CUstream stream = hidden_stream(), gone = hidden_stream();
    CUgraph graph = NULL;
    CUdeviceptr small = allocate(3000), large = allocate(3 * MIB);
    MUST(sim.cu.cuStreamDestroy_v2(gone));
    EXPECT(sim.cu.cuMemFreeAsync(small, gone) != CUDA_SUCCESS);
    MUST(sim.cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    give_work(stream);
    EXPECT(sim.cu.cuMemFreeAsync(small, stream) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(sim.cu.cuMemFreeAsync(large, stream) == CUDA_ERROR_INVALID_VALUE);
    MUST(sim.cu.cuStreamEndCapture(stream, &graph));
    EXPECT(graph != NULL);
    free_block(small);
    free_block(large);
}

static void a_block_freed_in_order_waits_for_its_stream(void)
{
    begin();
    CUstream stream = hidden_stream();
    CUdeviceptr small = allocate(3000), large = allocate(5 * MIB);
    give_work(stream);
    MUST(sim.cu.cuMemFreeAsync(small, stream));
    MUST(sim.cu.cuMemFreeAsync(large, stream));
    free_many(3000, 256);
    free_many(5 * MIB, 16);
    EXPECT(!comes_again(small, 3000, 500));
    EXPECT(!comes_again(large, 5 * MIB, 16));
    sim.step(UINT64_MAX);
    EXPECT(comes_again(small, 3000, 10000));
    EXPECT(comes_again(large, 5 * MIB, 100));
}

static void a_capture_lives_through_allocations(void)
{
    begin();
    CUstream stream = hidden_stream();
    CUgraph graph = NULL;
    CUdeviceptr before = allocate(3000);
    MUST(sim.cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    give_work(stream);
    free_block(before);
    free_many(3000, 2000);
    free_many(20 * MIB, 5);
    EXPECT(!comes_again(before, 3000, 2000));
    EXPECT(calls("cuCtxRecordEvent") == 0 && calls("cuEventQuery") == 0);
    MUST(sim.cu.cuStreamEndCapture(stream, &graph));
    EXPECT(graph != NULL);
    free_many(3000, 300);
    EXPECT(comes_again(before, 3000, 10000));
    EXPECT(calls("cuCtxRecordEvent") > 0);
}

/* Epochs are closed again after every kind of end. */
static void captures_that_fail_are_counted_out(void)
{
    begin();
    CUstream stream = hidden_stream(), other = hidden_stream();
    CUgraph graph = NULL;
    MUST(sim.cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(sim.cu.cuCtxSynchronize() != CUDA_SUCCESS); /* ends the capture */
    EXPECT(sim.cu.cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS);
    free_many(3000, 1000);
    uint64_t records = calls("cuCtxRecordEvent");
    EXPECT(records > 0);
    MUST(sim.cu.cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    free_many(3000, 1000);
    EXPECT(calls("cuCtxRecordEvent") == records);
    MUST(sim.cu.cuStreamDestroy_v2(other));
    free_many(3000, 1000);
    EXPECT(calls("cuCtxRecordEvent") > records);
}

static void idle_memory_counts_as_free(void)
{
    size_t free_bytes = 0, total_bytes = 0, before = 0;
    begin();
    MUST(sim.cu.cuMemGetInfo_v2(&before, &total_bytes));
    CUdeviceptr live = allocate(10 * MIB);
    free_many(16 * MIB, 10);
    MUST(sim.cu.cuMemGetInfo_v2(&free_bytes, &total_bytes));
    EXPECT(flw_sim_read_ledger(&sim).given_bytes >= 160 * MIB);
    EXPECT(free_bytes >= before - 12 * MIB && free_bytes < before);
    EXPECT(total_bytes == 4 * GIB);
    free_block(live);
}

static void a_limit_is_all_the_memory_that_a_program_sees(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    begin();
    MUST(sim.cu.cuDeviceTotalMem_v2(&total_bytes, 0));
    EXPECT(total_bytes == GIB);
    MUST(sim.cu.cuMemGetInfo_v2(&free_bytes, &total_bytes));
    EXPECT(total_bytes == GIB && free_bytes == GIB);
    CUdeviceptr live = allocate(256 * MIB);
    MUST(sim.cu.cuMemGetInfo_v2(&free_bytes, &total_bytes));
    EXPECT(total_bytes == GIB && free_bytes == 768 * MIB);
    free_block(live);
    MUST(sim.cu.cuMemGetInfo_v2(&free_bytes, &total_bytes));
    EXPECT(free_bytes == GIB);
}

static void a_full_device_serves_everybody_from_what_idles(void)
{
    CUdeviceptr managed = 0, pitched = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    size_t pitch = 0;
    begin();
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUdeviceptr blocks[6];
    for (int i = 0; i < 6; i++) {
        blocks[i] = allocate(640 * MIB);
    }
    for (int i = 0; i < 6; i++) {
        free_block(blocks[i]);
    }
    MUST(sim.cu.cuMemAllocManaged(&managed, GIB, CU_MEM_ATTACH_GLOBAL));
    CUdeviceptr most = allocate(2800 * MIB);
    EXPECT(most != 0);
    free_block(most);
    MUST(sim.cu.cuMemAllocPitch_v2(&pitched, &pitch, MIB, 2000, 4));
    free_block(allocate(500 * MIB));
    MUST(sim.cu.cuMemCreate(&handle, 900 * MIB, &properties, 0));
    CUdeviceptr none = 0;
    EXPECT(sim.cu.cuMemAlloc_v2(&none, 900 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void what_idles_leaves_the_reserve_alone(void)
{
    flw_sim_config config = flw_sim_config_default(3);
    config.schedule = FLW_SIM_HELD;
    config.device_bytes = GIB;
    begin_world(&config);
    free_many(16 * MIB, 20);
    EXPECT(flw_sim_read_ledger(&sim).given_bytes >= 320 * MIB);
    CUdeviceptr large = allocate(210 * MIB); /* would leave less than the default of 512 MiB */
    EXPECT(flw_sim_read_ledger(&sim).given_bytes <= 512 * MIB);
    free_block(large);
    free_block(allocate(900 * MIB)); /* the program's own request succeeds */
}

/* Replace sixteen blocks of about 32 MiB in turn by blocks of slightly different sizes, while the device works: at the
 * bound a replacement waits, and makes only the driver calls that the wait takes. */
static void replacing_large_blocks_asks_the_driver_little(void)
{
    CUdeviceptr blocks[16];
    begin();
    CUstream stream = hidden_stream();
    for (size_t i = 0; i < 1016; i++) {
        if (i >= 16) {
            free_block(blocks[i % 16]);
        }
        blocks[i % 16] = allocate(32 * MIB + i % 16 * 64 * KIB);
        give_work(stream);
    }
    EXPECT(calls("cuMemGetInfo_v2") <= 32);
    EXPECT(calls("cuCtxRecordEvent") <= 512 && calls("cuEventQuery") <= 512);
    EXPECT(calls("cuMemAlloc_v2") <= 33);
}

/* Replace one live block repeatedly: the pool holds little at first, and more over time to record fewer events. */
static void a_small_program_holds_little(void)
{
    begin();
    CUdeviceptr live = allocate(MIB);
    for (int i = 0; i < 64; i++) {
        free_block(live);
        live = allocate(MIB);
    }
    EXPECT(calls("cuMemAlloc_v2") <= 8);
    EXPECT(flw_sim_read_ledger(&sim).given_bytes <= 16 * MIB);
    for (int i = 0; i < 16000; i++) {
        free_block(live);
        live = allocate(MIB);
    }
    uint64_t records = calls("cuCtxRecordEvent"), queries = calls("cuEventQuery");
    for (int i = 0; i < 640; i++) {
        free_block(live);
        live = allocate(MIB);
    }
    EXPECT(calls("cuCtxRecordEvent") - records <= 10 && calls("cuEventQuery") - queries <= 10);
}

static void a_synchronisation_makes_what_was_freed_ready(void)
{
    begin();
    CUdeviceptr pointer = allocate(5 * MIB);
    give_work(hidden_stream());
    free_block(pointer);
    MUST(sim.cu.cuCtxSynchronize());
    EXPECT(allocate(5 * MIB) == pointer);
    EXPECT(calls("cuCtxRecordEvent") == 0 && calls("cuEventQuery") == 0);
}

static void only_blocks_of_their_own_are_exported(void)
{
    CUipcMemHandle handle, other;
    CUresult (*get_handle)(CUipcMemHandle *, CUdeviceptr) = NULL;
    begin();
    void *address = flw_driver_entry(&sim.cu, "cuIpcGetMemHandle");
    memcpy(&get_handle, &address, sizeof address);
    CUdeviceptr small = allocate(3000), large = allocate(4 * MIB);
    bool is_ipc = getenv("FALLOW") != NULL && strstr(getenv("FALLOW"), "ipc:1") != NULL;
    EXPECT(get_handle(&handle, small) == (is_ipc ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED));
    MUST(get_handle(&handle, large));
    uint64_t frees = calls("cuMemFree_v2");
    free_block(large); /* not kept: the next owner needs another handle */
    EXPECT(calls("cuMemFree_v2") == frees + 1);
    EXPECT(sim.cu.cuMemFree_v2(large) == CUDA_ERROR_INVALID_VALUE);
    large = allocate(4 * MIB);
    MUST(get_handle(&other, large));
    EXPECT(memcmp(&handle, &other, sizeof handle) != 0);
    EXPECT(get_handle(&handle, 12345) == CUDA_ERROR_INVALID_VALUE);
}

static void strict_frees_wait_for_the_device(void)
{
    begin();
    CUstream stream = hidden_stream();
    CUevent event = NULL;
    CUgraph graph = NULL;
    CUdeviceptr pointer = allocate(5 * MIB);
    give_work(stream);
    MUST(sim.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(sim.cu.cuEventRecord(event, stream));
    EXPECT(sim.cu.cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    free_block(pointer);
    MUST(sim.cu.cuEventQuery(event));
    free_block(allocate(5 * MIB)); /* the wait covers the first */
    EXPECT(comes_again(pointer, 5 * MIB, 2) && calls("cuCtxRecordEvent") == 0);
    MUST(sim.cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(sim.cu.cuMemAlloc_v2(&pointer, 5 * MIB) != CUDA_SUCCESS); /* and is lost, as natively */
    EXPECT(sim.cu.cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS);
}

int main(int argc, char **argv)
{
    static const struct pool_case cases[] = {
        CASE("cache", a_warm_pair_asks_the_driver_for_no_memory),
        CASE("cache", a_block_waits_for_unknown_streams),
        CASE("cache", questions_are_answered_about_the_block),
        CASE("cache", wrong_frees_are_answered_as_by_the_driver),
        CASE("cache", memory_of_other_calls_is_the_drivers),
        CASE("cache", either_call_frees_what_either_gave),
        CASE("cache", a_free_in_a_capture_takes_no_plain_memory),
        CASE("cache", a_block_freed_in_order_waits_for_its_stream),
        CASE("cache", a_capture_lives_through_allocations),
        CASE("cache", captures_that_fail_are_counted_out),
        CASE("cache", idle_memory_counts_as_free),
        CASE("cache", a_full_device_serves_everybody_from_what_idles),
        CASE("cache", what_idles_leaves_the_reserve_alone),
        CASE("cache", replacing_large_blocks_asks_the_driver_little),
        CASE("cache", a_small_program_holds_little),
        CASE("cache", a_synchronisation_makes_what_was_freed_ready),
        CASE("cache", only_blocks_of_their_own_are_exported),
        CASE("strict", strict_frees_wait_for_the_device),
        CASE("strict", either_call_frees_what_either_gave),
        CASE("strict", a_free_in_a_capture_takes_no_plain_memory),
        CASE("none", either_call_frees_what_either_gave),
        CASE("none", a_free_in_a_capture_takes_no_plain_memory),
        CASE("limit", a_limit_is_all_the_memory_that_a_program_sees),
        CASE("ipc", only_blocks_of_their_own_are_exported),
    };
    return pool_main(cases, sizeof cases / sizeof *cases, argc, argv);
}
