/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the simulated driver's memory: mappings, moved and shared handles, lists. */
#include "unit/simcuda/test_simcuda.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/emulator.h"

TEST(unmapping_under_unfinished_work_is_found)
{
    for (int schedule = FLW_SIM_CLOCK; schedule <= FLW_SIM_HELD; schedule++) {
        begin(1, (flw_sim_schedule)schedule, false);
        CUmemGenericAllocationHandle handle;
        CUdeviceptr at = map_one(HANDLE_BYTES, &handle);
        CUstream stream = make_stream();
        touch(stream, at, 4096, true);
        ASSERT_OK(sim.cu.cuStreamSynchronize(stream));
        ASSERT_OK(sim.cu.cuMemUnmap(at, HANDLE_BYTES));
        assert_int_equal(violations(), 0);
        at = map_one(HANDLE_BYTES, &handle);
        touch(stream, at, 4096, true);
        ASSERT_OK(sim.cu.cuMemUnmap(at, HANDLE_BYTES));
        assert_int_equal(violations(), 1);
        assert_non_null(strstr(sim.violation(0), "unfinished"));
    }
}

TEST(touching_what_is_not_mapped_is_found_and_sticks)
{
    begin(1, FLW_SIM_CLOCK, false);
    CUdeviceptr at;
    ASSERT_OK(sim.cu.cuMemAddressReserve(&at, HANDLE_BYTES, 0, 0, 0));
    CUstream stream = make_stream();
    touch(stream, at, 64, false);
    assert_int_equal(violations(), 1);
    ASSERT_CU(sim.cu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    ASSERT_CU(sim.cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(a_handle_keeps_its_contents_when_it_moves)
{
    begin(1, FLW_SIM_RANDOM, true);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = map_one(HANDLE_BYTES, &handle);
    ASSERT_OK(sim.cu.cuMemsetD8_v2(at, 0x5a, 4096));
    ASSERT_OK(sim.cu.cuCtxSynchronize());
    ASSERT_OK(sim.cu.cuMemUnmap(at, HANDLE_BYTES));
    CUdeviceptr other;
    ASSERT_OK(sim.cu.cuMemAddressReserve(&other, HANDLE_BYTES, 0, 0, 0));
    ASSERT_OK(sim.cu.cuMemMap(other, HANDLE_BYTES, 0, handle, 0));
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    ASSERT_OK(sim.cu.cuMemSetAccess(other, HANDLE_BYTES, &access, 1));
    unsigned char bytes[4096];
    ASSERT_OK(sim.cu.cuMemcpyDtoH_v2(bytes, other, sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_int_equal(bytes[i], 0x5a);
    }
    assert_int_equal(violations(), 0);
    ASSERT_OK(sim.cu.cuMemcpyDtoH_v2(bytes, other + 8192, 16));
    assert_int_equal(violations(), 1);
    assert_non_null(strstr(sim.violation(0), "unwritten"));
}

TEST(an_exported_handle_imports_as_the_same_memory)
{
    begin(1, FLW_SIM_RANDOM, true);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = map_one(HANDLE_BYTES, &handle);
    int file = -1;
    ASSERT_OK(sim.cu.cuMemExportToShareableHandle(&file, handle,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    assert_int_equal(fcntl(file, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    CUmemGenericAllocationHandle imported;
    ASSERT_OK(sim.cu.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)file,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    assert_int_equal(flw_sim_read_ledger(&sim).given_bytes, HANDLE_BYTES);
    ASSERT_OK(sim.cu.cuMemUnmap(at, HANDLE_BYTES));
    ASSERT_OK(sim.cu.cuMemRelease(handle));
    assert_int_equal(flw_sim_read_ledger(&sim).given_bytes, HANDLE_BYTES);
    ASSERT_OK(sim.cu.cuMemRelease(imported));
    assert_int_equal(flw_sim_read_ledger(&sim).given_bytes, 0);
}

/* In the child: import, check, change. Returns the exit status of the first error. */
static int use_in_child(int file)
{
    CUmemGenericAllocationHandle imported;
    if (sim.cu.cuInit(0) != CUDA_ERROR_NOT_INITIALIZED) {
        return 1; /* a forked child must not inherit the driver */
    }
    begin(2, FLW_SIM_RANDOM, true);
    if (sim.cu.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)file,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) !=
        CUDA_SUCCESS) {
        return 2;
    }
    CUdeviceptr at;
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    if (sim.cu.cuMemAddressReserve(&at, HANDLE_BYTES, 0, 0, 0) != CUDA_SUCCESS ||
        sim.cu.cuMemMap(at, HANDLE_BYTES, 0, imported, 0) != CUDA_SUCCESS ||
        sim.cu.cuMemSetAccess(at, HANDLE_BYTES, &access, 1) != CUDA_SUCCESS) {
        return 3;
    }
    unsigned char byte = 0;
    if (sim.cu.cuMemcpyDtoH_v2(&byte, at + 77, 1) != CUDA_SUCCESS || byte != 0x11) {
        return 4;
    }
    sim.cu.cuMemsetD8_v2(at + 77, 0x22, 1);
    sim.cu.cuCtxSynchronize();
    return flw_sim_read_ledger(&sim).given_bytes == 0 ? 0 : 5; /* the exporter pays */
}

TEST(another_process_sees_the_bytes_of_an_exported_handle)
{
    begin(1, FLW_SIM_RANDOM, true);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = map_one(HANDLE_BYTES, &handle);
    ASSERT_OK(sim.cu.cuMemsetD8_v2(at + 77, 0x11, 1));
    ASSERT_OK(sim.cu.cuCtxSynchronize());
    int file = -1;
    ASSERT_OK(sim.cu.cuMemExportToShareableHandle(&file, handle,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    pid_t child = fork();
    if (child == 0) {
        _exit(use_in_child(file));
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    unsigned char byte = 0;
    ASSERT_OK(sim.cu.cuMemcpyDtoH_v2(&byte, at + 77, 1));
    assert_int_equal(byte, 0x22);
    close(file);
}

/* Return the signal that ends a process that reads, or writes, there; 0: none. */
static int signal_of_touch(uint64_t address, bool is_write)
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        volatile unsigned char *byte = (void *)(uintptr_t)address;
        struct rlimit no_core = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)signal(SIGSEGV, SIG_DFL); /* not the test framework's */
        unsigned char read = *byte;
        if (is_write) {
            *byte = read;
        }
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(the_profile_gives_contents_to_default_worlds_alone)
{
    static const flw_sim_config own = {.struct_size = sizeof own};
    assert_int_equal(sim.play("contents", NULL, 0), 1);
    for (int is_own = 0; is_own < 2; is_own++) {
        CUdeviceptr at;
        unsigned char bytes[2] = {1, 1};
        flw_sim_begin(&sim, is_own ? &own : NULL);
        ASSERT_OK(sim.cu.cuMemAlloc_v2(&at, HANDLE_BYTES));
        ASSERT_OK(sim.cu.cuMemsetD8_v2(at, 0x5a, 1));
        ASSERT_OK(sim.cu.cuMemcpyDtoH_v2(bytes, at, sizeof bytes));
        assert_int_equal(bytes[0], is_own ? 1 : 0x5a);
        assert_int_equal(bytes[1], is_own ? 1 : 0);
    }
    assert_int_equal(sim.play(NULL, NULL, 0), 1);
}

#define SPARSE_BYTES (64ull << 30)
#define SPARSE_PLACE 65536u

/* Fill, copy and write a random range of two allocations of 640 KiB, and of the model of both. */
static void change(uint64_t random, const CUdeviceptr at[2], unsigned char *model[2])
{
    static const unsigned units[] = {1, 2, 4};
    uint64_t limit = 10 * SPARSE_PLACE, unit = units[random % 3], from = (random >> 8) % limit,
             to = (random >> 20) % limit,
             bytes = (random >> 32) % (limit - (from > to ? from : to));
    unsigned value = (unsigned)(random >> 40) & 0xff;
    unsigned which = (unsigned)(random >> 7) & 1;
    if (random >> 60 < 6) { /* whole steps */
        from -= from % SPARSE_PLACE;
        to -= to % SPARSE_PLACE;
        bytes -= bytes % SPARSE_PLACE;
        to += random >> 62 == 0 ? 1 : 0; /* a step of one value to an odd place */
    }
    if (unit == 4 && (random >> 4 & 2) != 0) {
        to &= ~3ull;
        bytes &= ~3ull;
    }
    switch (random >> 4 & 3) {
    case 0:
        ASSERT_OK(sim.cu.cuMemcpyHtoD_v2(at[which] + to, model[!which] + from, bytes));
        memcpy(model[which] + to, model[!which] + from, bytes);
        break;
    case 1:
        ASSERT_OK(sim.cu.cuMemcpyDtoDAsync_v2(at[which] + to, at[!which] + from, bytes, NULL));
        memcpy(model[which] + to, model[!which] + from, bytes);
        break;
    default:
        if (unit == 4) {
            ASSERT_OK(sim.cu.cuMemsetD32Async(at[which] + to, value << 9, bytes / 4, NULL));
        } else {
            ASSERT_OK(sim.cu.cuMemsetD8Async(at[which] + to, (unsigned char)value, bytes, NULL));
        }
        for (uint64_t i = 0; i < bytes; i++) {
            model[which][to + i] = (unsigned char)(unit == 4 ? value << 9 >> (i % 4 * 8) : value);
        }
    }
}

static uint64_t resident_bytes(void)
{
    unsigned long long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu %llu", &all, &resident), 2);
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void begin_sparse(uint64_t seed)
{
    flw_sim_config config = flw_sim_config_default(seed);
    config.backed = 1;
    config.check = 1;
    config.mild = FLW_SIM_MILD_GARBAGE;
    flw_sim_begin(&sim, &config);
}

TEST(sparse_contents_are_those_of_a_plain_array)
{
    static unsigned char plain[2][10 * SPARSE_PLACE], back[10 * SPARSE_PLACE];
    unsigned char *model[2] = {plain[0], plain[1]};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        CUdeviceptr at[2];
        uint64_t random = seed * 0x9e3779b97f4a7c15ull;
        begin_sparse(seed);
        memset(plain, 0, sizeof plain);
        ASSERT_OK(sim.cu.cuMemAlloc_v2(&at[0], sizeof plain[0]));
        ASSERT_OK(sim.cu.cuMemAlloc_v2(&at[1], sizeof plain[1]));
        for (unsigned i = 0; i < 40; i++) {
            random = (random ^ random >> 29) * 0xbf58476d1ce4e5b9ull;
            change(random, at, model);
        }
        for (unsigned i = 0; i < 2; i++) {
            ASSERT_OK(sim.cu.cuMemcpyDtoH_v2(back, at[i], sizeof back));
            assert_memory_equal(back, plain[i], sizeof back);
        }
    }
}

/* With and without the rule checker's state of each byte. */
TEST(a_large_fill_uses_little_host_memory)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || FLW_IS_EMULATED
    skip(); /* memory of the sanitizer or the emulator counts too */
#endif
    CUdeviceptr at, other;
    unsigned char tail[8];
    begin_sparse(1);
    uint64_t before = resident_bytes();
    ASSERT_OK(sim.cu.cuMemAlloc_v2(&at, SPARSE_BYTES / 2));
    ASSERT_OK(sim.cu.cuMemAlloc_v2(&other, SPARSE_BYTES / 2));
    ASSERT_OK(sim.cu.cuMemsetD8_v2(at, 0x5a, SPARSE_BYTES / 2));
    ASSERT_OK(sim.cu.cuMemcpyDtoDAsync_v2(other, at, SPARSE_BYTES / 2, NULL));
    ASSERT_OK(sim.cu.cuMemcpyDtoH_v2(tail, other + SPARSE_BYTES / 2 - sizeof tail, sizeof tail));
    assert_int_equal(tail[0], 0x5a);
    assert_int_equal(tail[7], 0x5a);
    assert_true(resident_bytes() < before + (128u << 20));
    assert_int_equal(violations(), 0);
}

TEST(the_variable_sets_devices_and_their_size)
{
    size_t bytes = 0;
    int count = 0;
    char message[256];
    assert_int_equal(sim.play("devices=3,size=24G,check,contents", message, sizeof message), 1);
    flw_sim_begin(&sim, NULL);
    ASSERT_OK(sim.cu.cuDeviceGetCount(&count));
    ASSERT_OK(sim.cu.cuDeviceTotalMem_v2(&bytes, 2));
    assert_int_equal(count, 3);
    assert_int_equal(bytes, 24ull << 30);
    static const char *const wrong[] = {"devices=0", "devices=17",  "size=G", "size=2X",
                                        "size",      "devices=2@1", "check=1"};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        message[0] = '\0';
        assert_int_equal(sim.play(wrong[i], message, sizeof message), 0);
        assert_true(message[0] == '\'');
    }
    assert_int_equal(sim.play(NULL, NULL, 0), 1);
}

/* Though a device may read the host's: with and without. */
TEST(the_host_cannot_touch_what_is_the_devices)
{
    static const char *const profiles[] = {NULL, "host-pageable"};
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip(); /* the sanitizer's shadow may be at these addresses */
#endif
    for (unsigned i = 0; i < 2; i++) {
        CUmemGenericAllocationHandle handle;
        CUdeviceptr plain = 0, pooled = 0;
        void *pinned = NULL;
        assert_int_equal(sim.play(profiles[i], NULL, 0), 1);
        begin(1, FLW_SIM_CLOCK, true);
        CUdeviceptr mapped = map_one(HANDLE_BYTES, &handle);
        ASSERT_OK(sim.cu.cuMemAlloc_v2(&plain, HANDLE_BYTES));
        ASSERT_OK(sim.cu.cuMemAllocAsync(&pooled, HANDLE_BYTES, NULL));
        ASSERT_OK(sim.cu.cuMemHostAlloc(&pinned, 4096, 0));
        ASSERT_OK(sim.cu.cuMemsetD8_v2(plain, 1, HANDLE_BYTES)); /* has contents */
        assert_int_equal(signal_of_touch(mapped, false), SIGSEGV);
        assert_int_equal(signal_of_touch(plain, false), SIGSEGV);
        assert_int_equal(signal_of_touch(pooled, false), SIGSEGV);
        assert_int_equal(signal_of_touch((uint64_t)(uintptr_t)pinned, true), 0);
    }
    assert_int_equal(sim.play(NULL, NULL, 0), 1);
}

TEST(dead_handles_and_addresses_come_back_at_once)
{
    begin(1, FLW_SIM_RANDOM, false);
    CUstream stream = make_stream();
    unsigned long long first;
    unsigned long long second;
    ASSERT_OK(sim.cu.cuStreamGetId(stream, &first));
    ASSERT_OK(sim.cu.cuStreamDestroy_v2(stream));
    CUstream again = make_stream();
    ASSERT_OK(sim.cu.cuStreamGetId(again, &second));
    assert_ptr_equal(stream, again);
    assert_int_not_equal(first, second);
    CUdeviceptr at;
    CUdeviceptr next;
    ASSERT_OK(sim.cu.cuMemAlloc_v2(&at, 10000));
    ASSERT_OK(sim.cu.cuMemFree_v2(at));
    ASSERT_OK(sim.cu.cuMemAlloc_v2(&next, 10000));
    assert_int_equal(at, next);
    ASSERT_CU(sim.cu.cuMemFree_v2(next + 512), CUDA_ERROR_INVALID_VALUE);
}

TEST(what_is_given_is_listed_by_address)
{
    begin(1, FLW_SIM_RANDOM, false);
    assert_int_equal(sim.get_extents(0, NULL, 0), 0);
    CUmemGenericAllocationHandle handle;
    CUmemGenericAllocationHandle idle;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUdeviceptr plain, at;
    ASSERT_OK(sim.cu.cuMemAlloc_v2(&plain, 1000));
    ASSERT_OK(sim.cu.cuMemAddressReserve(&at, 5ull * HANDLE_BYTES, 0, 0, 0));
    ASSERT_OK(sim.cu.cuMemCreate(&handle, HANDLE_BYTES, &properties, 0));
    ASSERT_OK(
        sim.cu.cuMemCreate(&idle, HANDLE_BYTES, &properties, 0)); /* stays without an address */
    ASSERT_OK(sim.cu.cuMemMap(at, HANDLE_BYTES, 0, handle, 0));   /* two side by side, a gap, one */
    ASSERT_OK(sim.cu.cuMemMap(at + HANDLE_BYTES, HANDLE_BYTES, 0, handle, 0));
    ASSERT_OK(sim.cu.cuMemMap(at + 3ull * HANDLE_BYTES, HANDLE_BYTES, 0, handle, 0));
    flw_sim_extent extents[4] = {0};
    assert_int_equal(sim.get_extents(0, extents, 4), 3);
    unsigned plain_at = plain < at ? 0 : 2;
    unsigned first_at = plain < at ? 1 : 0;
    assert_int_equal(extents[plain_at].address, plain);
    assert_int_equal(extents[plain_at].bytes, 1024);
    assert_int_equal(extents[plain_at].kind, FLW_SIM_EXTENT_ALLOCATION);
    assert_int_equal(extents[first_at].address, at);
    assert_int_equal(extents[first_at].bytes, 2ull * HANDLE_BYTES);
    assert_int_equal(extents[first_at].kind, FLW_SIM_EXTENT_MAPPED);
    assert_int_equal(extents[first_at + 1].address, at + 3ull * HANDLE_BYTES);
    assert_int_equal(extents[first_at + 1].bytes, HANDLE_BYTES);
    assert_int_equal(sim.get_extents(0, extents, 1), 3); /* counted, not written */
    assert_int_equal(sim.get_extents(1, extents, 4), 0); /* no such device */
    CUstream stream = make_stream();
    CUdeviceptr pooled;
    ASSERT_OK(sim.cu.cuMemAllocAsync(&pooled, 1000, stream));
    assert_int_equal(sim.get_extents(0, extents, 4), 4);
    unsigned pooled_count = 0;
    for (unsigned i = 0; i < 4; i++) {
        pooled_count += extents[i].kind == FLW_SIM_EXTENT_POOLED && extents[i].address <= pooled &&
                        pooled < extents[i].address + extents[i].bytes;
        assert_true(i == 0 || extents[i - 1].address < extents[i].address);
    }
    assert_int_equal(pooled_count, 1);
}

/* Whatever the kernel gives: older ones, and emulators, begin anything at any page. */
TEST(pinned_memory_of_whole_huge_pages_begins_at_one)
{
    const size_t huge = 2u << 20;
    begin(1, FLW_SIM_RANDOM, false);
    void *odd[4], *whole[4];
    for (unsigned i = 0; i < 4; i++) {
        ASSERT_OK(sim.cu.cuMemHostAlloc(&odd[i], 5000, 0));
        ASSERT_OK(sim.cu.cuMemHostAlloc(&whole[i], (i + 1) * huge, 0));
        assert_int_equal((uintptr_t)whole[i] % huge, 0);
        memset(odd[i], 1, 5000);
        memset(whole[i], 1, (i + 1) * huge);
    }
    for (unsigned i = 0; i < 4; i++) {
        ASSERT_OK(sim.cu.cuMemFreeHost(odd[i]));
        ASSERT_OK(sim.cu.cuMemFreeHost(whole[i]));
    }
    assert_int_equal(flw_sim_read_ledger(&sim).pinned_bytes, 0);
}

FLW_TEST_MAIN(open_driver, close_driver)
