/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about other devices and drivers that the simulated one can play: features
 * removed by a config or a profile, and the syntax of profiles. */
#include <stdio.h>
#include <string.h>

#define MODULE "profile"
#include "conformance.h"
#include "simcuda/forms.h"

/* Make a world with these profiles; fails the case and returns false if one is unknown. */
static bool play(struct bed *b, const char *names, const flw_sim_config *config)
{
    char message[256] = "";
    bool is_known = b->sim.play(names, message, sizeof message) != 0;
    if (is_known) {
        bed_restart(b, config);
    }
    bed_that(b, is_known, message, __LINE__);
    return is_known;
}

/* ---- devices that lack something, whichever driver is played otherwise */

OURS(missing_features_are_not_supported)
{
    CUdeviceptr address = 0;
    unsigned long long id = 0;
    int has = -1;
    flw_sim_config config = bed_world();
    config.without_vmm = config.without_pools = config.without_ids = 1;
    NEED(play(b, NULL, &config));
    IS(CUDA_ERROR_NOT_SUPPORTED, b->cu->cuMemAddressReserve(&address, 2u << 20, 0, 0, 0));
    IS(CUDA_ERROR_NOT_SUPPORTED, b->cu->cuMemAllocAsync(&address, 4096, NULL));
    IS(CUDA_ERROR_NOT_SUPPORTED, b->cu->cuStreamGetId(NULL, &id));
    IS(CUDA_ERROR_NOT_SUPPORTED, b->cu->cuCtxGetId(NULL, &id));
    OK(b->cu->cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                   0));
    THAT(has == 0);
    OK(b->cu->cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
    THAT(has == 0);
}

/* This driver checks a duty that cuda.h leaves to the caller. */
OURS(a_file_needs_a_whole_registrable_range)
{
    CUresult (*get)(void *, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long) = NULL;
    void *entry = flw_driver_entry(b->cu, "cuMemGetHandleForAddressRange"), *pinned = NULL;
    CUmemRangeHandleType kind = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    struct bed_mapping m;
    CUdeviceptr address = 0;
    int file = -1;
    flw_sim_config config = bed_world();
    memcpy(&get, &entry, sizeof entry);
    NEED(play(b, NULL, &config));
    OK(b->cu->cuMemAlloc_v2(&address, 4u << 20));
    IS(CUDA_ERROR_INVALID_VALUE, get(&file, address, 8u << 20, kind, 0));
    IS(CUDA_ERROR_INVALID_VALUE, get(&file, address + 512, 2u << 20, kind, 0));
    IS(CUDA_ERROR_NOT_SUPPORTED,
       get(&file, address, 4u << 20, kind, CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE));
    OK(b->cu->cuMemHostAlloc(&pinned, 2u << 20, 0));
    IS(CUDA_ERROR_NOT_SUPPORTED, get(&file, (uintptr_t)pinned, 2u << 20, kind, 0));
    OK(b->cu->cuMemFreeHost(pinned));
    if (bed_map(b, &m, 2, 0)) {
        unsigned is_synchronous = 1;
        CUresult (*set)(const void *, CUpointer_attribute, CUdeviceptr) = NULL;
        entry = flw_driver_entry(b->cu, "cuPointerSetAttribute");
        memcpy(&set, &entry, sizeof entry);
        IS(CUDA_ERROR_NOT_SUPPORTED, get(&file, m.address, 2 * m.grain_bytes, kind, 0));
        IS(CUDA_ERROR_NOT_SUPPORTED,
           set(&is_synchronous, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, m.address));
        OK(b->cu->cuMemUnmap(m.address, m.grain_bytes));
        IS(CUDA_ERROR_INVALID_VALUE, get(&file, m.address, 2 * m.grain_bytes, kind, 0));
    }
    THAT(file == -1);
}

OURS(a_device_without_rdma_says_so)
{
    flw_sim_config config = bed_world();
    CUmemAllocationProp properties = bed_properties(b, 0);
    CUmemGenericAllocationHandle handle = 0;
    int has = -1;
    config.without_rdma = 1;
    NEED(play(b, NULL, &config));
    OK(b->cu->cuDeviceGetAttribute(&has,
                                   CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0));
    THAT(has == 0);
    properties.allocFlags.gpuDirectRDMACapable = 1;
    REFUSED(b->cu->cuMemCreate(&handle, 2u << 20, &properties, 0));
    properties.allocFlags.gpuDirectRDMACapable = 0;
    OK(b->cu->cuMemCreate(&handle, 2u << 20, &properties, 0));
    OK(b->cu->cuMemRelease(handle));
}

OURS(a_limit_of_addresses_refuses_reservations)
{
    flw_sim_config config = bed_world();
    const size_t grain = 2u << 20;
    CUdeviceptr first = 0, second = 0;
    config.reserve_most_bytes = 4 * grain;
    config.reserve_all_bytes = 6 * grain;
    NEED(play(b, NULL, &config));
    IS(CUDA_ERROR_OUT_OF_MEMORY, b->cu->cuMemAddressReserve(&first, 5 * grain, 0, 0, 0));
    OK(b->cu->cuMemAddressReserve(&first, 4 * grain, 0, 0, 0));
    IS(CUDA_ERROR_OUT_OF_MEMORY, b->cu->cuMemAddressReserve(&second, 3 * grain, 0, 0, 0));
    OK(b->cu->cuMemAddressFree(first, 4 * grain));
    OK(b->cu->cuMemAddressReserve(&second, 3 * grain, 0, 0, 0));
    OK(b->cu->cuMemAddressFree(second, 3 * grain));
    config.reserve_error = CUDA_ERROR_NOT_SUPPORTED;
    if (play(b, NULL, &config)) {
        IS(CUDA_ERROR_NOT_SUPPORTED, b->cu->cuMemAddressReserve(&first, 5 * grain, 0, 0, 0));
    }
}

/* ---- names of profiles */

OURS(a_name_that_is_not_known_is_refused)
{
    static const struct {
        const char *names, *sentence;
    } wrong[] = {
        {"no-fabrik", "there are: refusing[:CALL[@N][=ERROR]], no-fabric[@N], vgpu, old, slow, "
                      "host-pageable, contents"},
        {"slow,no-fabrik", "'no-fabrik' is not a profile"},
        {"slow,,old", "'' is not a profile"},
        {"vgpu@3", "'vgpu@3' is not a profile"},
        {"no-fabric@0", "'0' is not a call number"},
        {"no-fabric@x", "'x' is not a call number"},
        {"no-fabric:cuMemCreate", "'no-fabric:cuMemCreate' is not a profile"},
        {"refusing:cuSow", "'cuSow' is not an entry point"},
        {"refusing:cuMemCreate=SUCCESS", "'SUCCESS' is not a driver error"},
        {"refusing:cuMemCreate@2=NO", "'NO' is not a driver error"},
    };
    const char *before = b->sim.played();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char message[256] = "", cut[12] = "";
        bed_that(b, b->sim.play(wrong[i].names, message, sizeof message) == 0, wrong[i].names,
                 __LINE__);
        bed_that(b, strstr(message, wrong[i].sentence) != NULL, message, __LINE__);
        bed_that(b, b->sim.play(wrong[i].names, cut, sizeof cut) == 0 && strlen(cut) == 11,
                 wrong[i].names, __LINE__);
        bed_that(b, b->sim.play(wrong[i].names, NULL, 0) == 0, wrong[i].names, __LINE__);
    }
    THAT(b->sim.played() == before); /* nothing is changed */
}

OURS(several_profiles_are_played_at_once)
{
    flw_sim_config config = bed_world();
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = bed_properties(b, CU_MEM_HANDLE_TYPE_FABRIC);
    int version = 0;
    NEED(play(b, "old,slow,refusing:cuEventCreate", &config));
    CUevent event = NULL;
    OK(b->cu->cuDriverGetVersion(&version));
    THAT(version == 12000 && strcmp(b->sim.played(), "old,slow,refusing:cuEventCreate") == 0);
    IS(CUDA_ERROR_NOT_PERMITTED, b->cu->cuEventCreate(&event, 0));
    REFUSED(b->cu->cuMemCreate(&handle, 2u << 20, &properties, 0));
    if (play(b, NULL, &config)) {
        OK(b->cu->cuDriverGetVersion(&version));
        THAT(version == 13000 && b->sim.played()[0] == '\0');
    }
}

/* ---- effects of each profile */

OURS(a_refusing_driver_refuses_from_the_nth_call_on)
{
    flw_sim_config config = bed_world();
    CUmemAllocationProp properties = bed_properties(b, 0);
    CUmemGenericAllocationHandle handle[4];
    int has = 0;
    NEED(play(b, "refusing:cuMemCreate@3=OPERATING_SYSTEM,refusing:cuMemAlloc", &config));
    for (int i = 0; i < 4; i++) {
        CUresult want = i < 2 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
        IS(want, b->cu->cuMemCreate(&handle[i], 2u << 20, &properties, 0));
    }
    THAT(b->sim.fail(NULL, 0, 0, 0) != 0); /* clears the planned failures, not the driver's
                                               profile */
    IS(CUDA_ERROR_OPERATING_SYSTEM, b->cu->cuMemCreate(&handle[2], 2u << 20, &properties, 0));
    CUdeviceptr address = 0;
    IS(CUDA_ERROR_NOT_PERMITTED, b->cu->cuMemAlloc_v2(&address, 4096));
    OK(b->cu->cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                   b->device));
    THAT(has == 1 && flw_sim_read_ledger(&b->sim).given_bytes == 4u << 20);
    OK(b->cu->cuCtxSynchronize()); /* nothing sticks */
}

OURS(a_driver_may_refuse_all_that_makes)
{
    flw_sim_config config = bed_world();
    CUmemAllocationProp properties = bed_properties(b, 0);
    CUmemAccessDesc access = bed_access(b, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    NEED(play(b, "refusing=NOT_SUPPORTED", &config));
    IS(CUDA_ERROR_NOT_SUPPORTED, b->cu->cuMemAddressReserve(&address, 2u << 20, 0, 0, 0));
    IS(CUDA_ERROR_NOT_SUPPORTED, b->cu->cuMemCreate(&handle, 2u << 20, &properties, 0));
    IS(CUDA_ERROR_NOT_SUPPORTED, b->cu->cuMemMap(4096, 2u << 20, 0, 1, 0));
    IS(CUDA_ERROR_NOT_SUPPORTED, b->cu->cuMemSetAccess(4096, 2u << 20, &access, 1));
    OK(b->cu->cuMemAlloc_v2(&address, 2u << 20));
}

OURS(without_a_channel_fabric_is_not_permitted)
{
    flw_sim_config config = bed_world();
    CUmemAllocationProp fabric =
        bed_properties(b, CU_MEM_HANDLE_TYPE_FABRIC | CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemAllocationProp file = bed_properties(b, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle handle = 0;
    CUmemFabricHandle foreign = {{0}};
    size_t grain = 0;
    int has = 0;
    NEED(play(b, "no-fabric", &config));
    OK(b->cu->cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
                                   b->device));
    THAT(has == 1);
    OK(b->cu->cuMemGetAllocationGranularity(&grain, &fabric, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    IS(CUDA_ERROR_NOT_PERMITTED, b->cu->cuMemCreate(&handle, grain, &fabric, 0));
    IS(CUDA_ERROR_NOT_PERMITTED,
       b->cu->cuMemImportFromShareableHandle(&handle, &foreign, CU_MEM_HANDLE_TYPE_FABRIC));
    OK(b->cu->cuMemCreate(&handle, grain, &file, 0));
    if (play(b, "no-fabric@2", &config)) {
        OK(b->cu->cuMemCreate(&handle, grain, &file, 0));
        OK(b->cu->cuMemCreate(&handle, grain, &fabric, 0)); /* from here on there is no channel */
        IS(CUDA_ERROR_NOT_PERMITTED, b->cu->cuMemCreate(&handle, grain, &fabric, 0));
        IS(CUDA_ERROR_NOT_PERMITTED, b->cu->cuMemCreate(&handle, grain, &fabric, 0));
    }
}

static int attribute(struct bed *b, CUdevice_attribute which)
{
    int value = -1;
    OK(b->cu->cuDeviceGetAttribute(&value, which, b->device));
    return value;
}

OURS(a_vgpu_has_the_calls_and_refuses_them)
{
    flw_sim_config config = bed_world();
    CUresult (*get_handle)(CUipcMemHandle *, CUdeviceptr) = NULL;
    void *entry = flw_driver_entry(b->cu, "cuIpcGetMemHandle");
    CUmemAllocationProp properties = bed_properties(b, 0);
    CUmemGenericAllocationHandle handle = 0;
    CUipcMemHandle shared;
    CUdeviceptr address = 0;
    size_t grain = 0;
    memcpy(&get_handle, &entry, sizeof entry);
    NEED(play(b, "vgpu", &config));
    THAT(attribute(b, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0);
    THAT(attribute(b, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED) == 0);
    THAT(attribute(b, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) == 0);
    THAT(attribute(b, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED) == 0);
    THAT(attribute(b, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) == 0);
    IS(CUDA_ERROR_NOT_SUPPORTED,
       b->cu->cuMemGetAllocationGranularity(&grain, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    IS(CUDA_ERROR_NOT_SUPPORTED, b->cu->cuMemAddressReserve(&address, 2u << 20, 0, 0, 0));
    IS(CUDA_ERROR_NOT_SUPPORTED, b->cu->cuMemCreate(&handle, 2u << 20, &properties, 0));
    IS(CUDA_ERROR_NOT_SUPPORTED,
       b->cu->cuMemAllocManaged(&address, 2u << 20, CU_MEM_ATTACH_GLOBAL));
    OK(b->cu->cuMemAlloc_v2(&address, 2u << 20));
    IS(CUDA_ERROR_NOT_SUPPORTED, get_handle(&shared, address));
    OK(b->cu->cuMemAllocAsync(&address, 2u << 20, NULL));
}

OURS(an_old_driver_lacks_what_came_later)
{
    static const struct {
        const char *name;
        int since;
    } entries[] = {{"cuStreamGetId", 12000},
                   {"cuCtxRecordEvent", 12050},
                   {"cuCtxWaitEvent", 12050},
                   {"cuCtxFromGreenCtx", 12040},
                   {"cuStreamGetGreenCtx", 12040},
#define X(symbol, since, ...) {#symbol, since},
                   FLW_OTHER_FORMS(X)
#undef X
    };
    flw_sim_config config = bed_world();
    CUmemAllocationProp properties = bed_properties(b, CU_MEM_HANDLE_TYPE_FABRIC);
    CUmemGenericAllocationHandle handle = 0;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    void *function = NULL;
    int version = 0, has = 0;
    NEED(play(b, "old", &config));
    OK(b->cu->cuDriverGetVersion(&version));
    THAT(version == 12000);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        bool is_there = flw_driver_entry(b->cu, entries[i].name) != NULL;
        bed_that(b, is_there == (entries[i].since <= version), entries[i].name, __LINE__);
    }
    IS(CUDA_ERROR_NOT_FOUND,
       b->cu->cuGetProcAddress_v2("cuCtxRecordEvent", &function, 12000, 0, &status));
    THAT(function == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    IS(CUDA_ERROR_INVALID_VALUE,
       b->cu->cuGetProcAddress_v2("cuCtxRecordEvent", &function, 12050, 0, &status));
    OK(b->cu->cuGetProcAddress_v2("cuCtxSynchronize", &function, 12000, 0, NULL));
    THAT(function == flw_driver_entry(b->cu, "cuCtxSynchronize"));
    IS(CUDA_ERROR_INVALID_VALUE,
       b->cu->cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0));
    REFUSED(b->cu->cuMemCreate(&handle, 2u << 20, &properties, 0));
    b->sim.play(NULL, NULL, 0);
    THAT(flw_driver_entry(b->cu, "cuCtxRecordEvent") != NULL);
}

OURS(a_slow_driver_waits_for_the_device)
{
    flw_sim_config config = bed_world();
    CUmemAllocationProp properties = bed_properties(b, 0);
    CUmemGenericAllocationHandle handle = 0;
    CUstream stream = NULL;
    NEED(play(b, "slow", &config));
    OK(b->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    bed_gate_close(b, stream); /* held: only a waiting call completes it */
    IS(CUDA_ERROR_NOT_READY, b->cu->cuStreamQuery(stream));
    OK(b->cu->cuMemCreate(&handle, 2u << 20, &properties, 0));
    OK(b->cu->cuStreamQuery(stream));
    OK(b->cu->cuMemRelease(handle));
}

OURS(a_slow_driver_takes_its_time)
{
    flw_sim_config config = bed_world();
    struct bed_mapping m;
    config.schedule = FLW_SIM_CLOCK;
    config.lag_ns = 50000000;
    NEED(play(b, "slow", &config) && bed_map(b, &m, 1, 0));
    flw_sim_ledger made = flw_sim_read_ledger(&b->sim);
    THAT(made.clock_ns == 3000000 && made.modelled_host_ns >= 3000000);
    OK(b->cu->cuMemsetD8Async(m.address, 0, 4096, NULL));
    OK(b->cu->cuMemUnmap(m.address, m.grain_bytes));
    THAT(flw_sim_read_ledger(&b->sim).clock_ns == made.clock_ns + config.lag_ns + 3000000);
    THAT(flw_sim_read_ledger(&b->sim).violation_count == 1); /* the access after the wait was
                                                                 not reported */
}

OURS(a_device_reads_what_the_process_has_mapped)
{
    flw_sim_config config = bed_world();
    uint32_t word = 0xfa110, copy = 0;
    CUdeviceptr address = 0, here = (CUdeviceptr)(uintptr_t)&word;
    flw_sim_range range = {.address = here, .bytes = sizeof word};
    NEED(play(b, "", &config));
    REFUSED(b->cu->cuMemcpyDtoH_v2(&copy, here, sizeof copy));
    NEED(play(b, "host-pageable", &config));
    THAT(attribute(b, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS) == 1);
    OK(b->cu->cuMemcpyDtoH_v2(&copy, here, sizeof copy));
    THAT(copy == word);
    OK(b->cu->cuMemAlloc_v2(&address, 4096));
    OK(b->cu->cuMemcpyDtoDAsync_v2(address, here, sizeof word, NULL));
    THAT(bed_peek(b, address) == word);
    OK((CUresult)b->sim.touch(NULL, &range, 1));
    OK(b->cu->cuCtxSynchronize());
    THAT(flw_sim_read_ledger(&b->sim).violation_count == 0);
    REFUSED(b->cu->cuMemcpyDtoH_v2(&copy, 8192, sizeof copy)); /* not mapped in any process */
    REFUSED(b->cu->cuMemcpyDtoH_v2(&copy, 0, sizeof copy));
    range.is_write = 1;
    OK((CUresult)b->sim.touch(NULL, &range, 1));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, b->cu->cuCtxSynchronize());
}

OURS(a_kernel_without_a_twin_does_not_run)
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    OK(b->cu->cuModuleLoadData(&module, ".entry flw_no_twin()"));
    OK(b->cu->cuModuleGetFunction(&function, module, "flw_no_twin"));
    IS(CUDA_ERROR_NO_BINARY_FOR_GPU,
       b->cu->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    IS(CUDA_ERROR_NOT_FOUND, b->cu->cuModuleGetFunction(&function, module, "flw_other"));
    OK(b->cu->cuModuleUnload(module));
}

OURS(a_name_without_a_model_is_refused_and_counted)
{
    CUresult (*create)(CUarray *, const void *) = NULL;
    void *exported = flw_driver_entry(b->cu, "cuArrayCreate_v2"), *found = NULL, *earlier = NULL;
    CUarray array = NULL;
    uint64_t before = b->sim.call_count("cuArrayCreate_v2");
    flw_sim_config config = bed_world();
    if (!THAT(exported != NULL)) {
        return;
    }
    memcpy(&create, &exported, sizeof exported);
    IS(CUDA_ERROR_NOT_SUPPORTED, create(&array, NULL));
    THAT(b->sim.call_count("cuArrayCreate_v2") == before + 1 && array == NULL);
    OK(b->cu->cuGetProcAddress_v2("cuArrayCreate", &found, 3020, 0, NULL));
    OK(b->cu->cuGetProcAddress_v2("cuArrayCreate", &earlier, 3010, 0, NULL));
    THAT(found == exported && earlier != exported);
    bed_restart(b, &config); /* forgets the count, which would be printed at the end */
}
