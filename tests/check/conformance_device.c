/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about the driver and the devices: version, names, attributes, names of errors,
 * entry points by name, modules and kernels. */
#include <string.h>

#define MODULE "device"
#include "conformance.h"

HEADER(version_is_a_number_of_thousands_and_tens,
       "Returns in *driverVersion the version of CUDA supported by the driver")
{
    int version = 0;
    OK(b->cu->cuDriverGetVersion(&version));
    THAT(version >= 11040 && version % 10 == 0);
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuDriverGetVersion(NULL));
}

HEADER(init_refuses_flags, "the Flags parameter must be 0")
{
    OK(b->cu->cuInit(0));
    REFUSED(b->cu->cuInit(1));
}

HEADER(error_names_are_known_or_refused,
       "will be returned and *pStr will be set to the NULL address")
{
    const char *name = "x";
    OK(b->cu->cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
    THAT(name != NULL && strcmp(name, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
    OK(b->cu->cuGetErrorName(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &name));
    THAT(name != NULL && strcmp(name, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED") == 0);
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuGetErrorName((CUresult)123456, &name));
    THAT(name == NULL);
}

HEADER(error_texts_are_known_or_refused,
       "will be returned and *pStr will be set to the NULL address")
{
    const char *text = NULL;
    OK(b->cu->cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    THAT(text != NULL && text[0] != '\0');
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuGetErrorString((CUresult)123456, &text));
    THAT(text == NULL);
}

HEADER(ordinals_begin_at_zero, "<b>[0, cuDeviceGetCount()-1]</b>")
{
    int count = 0;
    CUdevice device = -1;
    OK(b->cu->cuDeviceGetCount(&count));
    THAT(count >= 1);
    OK(b->cu->cuDeviceGet(&device, count - 1));
    IS(CUDA_ERROR_INVALID_DEVICE, b->cu->cuDeviceGet(&device, count));
    IS(CUDA_ERROR_INVALID_DEVICE, b->cu->cuDeviceGet(&device, -1));
}

HEADER(name_fits_the_buffer, "len specifies the maximum length of the string that may be returned")
{
    char name[4] = {'x', 'x', 'x', 'x'};
    OK(b->cu->cuDeviceGetName(name, sizeof name, b->device));
    THAT(memchr(name, '\0', sizeof name) != NULL);
}

HEADER(total_memory_is_what_a_context_sees,
       "Returns in *bytes the total amount of memory available on the device")
{
    size_t device_bytes = 0, free_bytes = 0, total_bytes = 0;
    OK(b->cu->cuDeviceTotalMem_v2(&device_bytes, b->device));
    OK(b->cu->cuMemGetInfo_v2(&free_bytes, &total_bytes));
    THAT(device_bytes > 0 && total_bytes > 0 && total_bytes <= device_bytes);
    THAT(free_bytes <= total_bytes);
}

HEADER(attributes_answer, "Returns in *pi the integer value of the attribute attrib")
{
    int value = 0;
    OK(b->cu->cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, b->device));
    THAT(value == 1);
    OK(b->cu->cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                   b->device));
    THAT(value >= 5);
    IS(CUDA_ERROR_INVALID_VALUE,
       b->cu->cuDeviceGetAttribute(&value, (CUdevice_attribute)99999, b->device));
}

HEADER(device_cannot_be_its_own_peer,
       "are capable of directly accessing memory from contexts on peerDev and 0 otherwise")
{
    int can = -1;
    NEED(bed_has(b, b->cu->cuDeviceCanAccessPeer != NULL));
    OK(b->cu->cuDeviceCanAccessPeer(&can, b->device, b->device));
    THAT(can == 0);
}

HEADER(entry_points_are_found_by_name,
       "this API will return the function pointer to the corresponding versioned function")
{
    void *function = NULL;
    CUdriverProcAddressQueryResult status;
    NEED(bed_has(b, b->cu->cuGetProcAddress_v2 != NULL));
    OK(b->cu->cuGetProcAddress_v2("cuMemAlloc", &function, 11040, 0, &status));
    THAT(function != NULL && status == CU_GET_PROC_ADDRESS_SUCCESS);
    int (*get_version)(int *) = NULL;
    OK(b->cu->cuGetProcAddress_v2("cuDriverGetVersion", &function, 11040, 0, NULL));
    memcpy(&get_version, &function, sizeof get_version);
    int version = 0;
    THAT(get_version != NULL && get_version(&version) == 0 && version == b->cu->version);
}

HEADER(unknown_entry_point_is_not_found, "The requested symbol was not found")
{
    void *function = &function;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    NEED(bed_has(b, b->cu->cuGetProcAddress_v2 != NULL));
    /* The header documents success with NULL, the list of results NOT_FOUND; drivers do either. */
    CUresult result = b->cu->cuGetProcAddress_v2("cuSowAndReap", &function, 11040, 0, &status);
    THAT(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_FOUND);
    THAT(function == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

HEADER(entry_point_newer_than_the_driver_is_refused,
       "If the specified CUDA version is greater than the driver version")
{
    void *function = NULL;
    NEED(bed_has(b, b->cu->cuGetProcAddress_v2 != NULL));
    IS(CUDA_ERROR_INVALID_VALUE,
       b->cu->cuGetProcAddress_v2("cuMemAlloc", &function, b->cu->version + 1000, 0, NULL));
}

/* ---- kernels: PTX for a real driver, a twin of the same name for the simulated one ---- */

static const char kernel_image[] = ".version 6.0\n"
                                   ".target sm_50\n"
                                   ".address_size 64\n"
                                   ".visible .entry flw_store_word(.param .u64 to, .param .u32 v)\n"
                                   "{\n"
                                   "  .reg .u64 %a; .reg .u32 %v;\n"
                                   "  ld.param.u64 %a, [to];\n"
                                   "  ld.param.u32 %v, [v];\n"
                                   "  cvta.to.global.u64 %a, %a;\n"
                                   "  st.global.u32 [%a], %v;\n"
                                   "  ret;\n"
                                   "}\n";

static const struct flw_sim *twin_sim;

static void store_word_twin(flw_sim_launch *launch, void **parameters)
{
    uint64_t to;
    uint32_t value;
    memcpy(&to, parameters[0], sizeof to);
    memcpy(&value, parameters[1], sizeof value);
    twin_sim->store(launch, "to", to, &value, sizeof value);
}

static bool load_kernel(struct bed *b, CUmodule *module, CUfunction *function)
{
    if (!bed_has(b, b->cu->cuLaunchKernel != NULL && b->cu->cuModuleLoadData != NULL)) {
        return false;
    }
    if (b->is_sim) {
        twin_sim = &b->sim;
        static const size_t bytes[] = {sizeof(uint64_t), sizeof(uint32_t)};
        b->sim.register_twin("flw_store_word", store_word_twin);
        THAT(b->sim.parameters("flw_store_word", 2, bytes) != 0);
    }
    return OK(b->cu->cuModuleLoadData(module, kernel_image)) &&
           OK(b->cu->cuModuleGetFunction(function, *module, "flw_store_word"));
}

HEADER(kernel_stores_in_stream_order, "Invokes the function")
{
    const struct flw_driver *cu = b->cu;
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUdeviceptr address = 0;
    CUstream stream = NULL;
    NEED(load_kernel(b, &module, &function));
    OK(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cu->cuMemAlloc_v2(&address, 4096));
    OK(cu->cuMemsetD32Async(address, 7, 2, stream));
    uint32_t value = 42;
    void *parameters[] = {&address, &value};
    OK(cu->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    value = 43; /* the launch has a copy */
    OK(cu->cuStreamSynchronize(stream));
    THAT(bed_peek(b, address) == 42);
    THAT(bed_peek(b, address + 4) == 7);
    OK(cu->cuMemFree_v2(address));
    OK(cu->cuStreamDestroy_v2(stream));
    OK(cu->cuModuleUnload(module));
}

HEADER(kernel_takes_its_parameters_from_a_buffer,
       "a single buffer that is passed in via the extra parameter")
{
    const struct flw_driver *cu = b->cu;
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUdeviceptr address = 0;
    NEED(load_kernel(b, &module, &function));
    OK(cu->cuMemAlloc_v2(&address, 4096));
    OK(cu->cuMemsetD32Async(address, 7, 2, NULL));
    struct {
        CUdeviceptr to;
        uint32_t value;
    } buffer = {address, 44};
    size_t bytes = offsetof(__typeof__(buffer), value) + sizeof buffer.value;
    void *pointer_name = (void *)1, *size_name = (void *)2; /* CU_LAUNCH_PARAM_BUFFER_... */
    void *extra[] = {pointer_name, &buffer, size_name, &bytes, NULL};
    void *parameters[] = {&buffer.to, &buffer.value};
    OK(cu->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    OK(cu->cuCtxSynchronize());
    THAT(bed_peek(b, address) == 44);
    IS(CUDA_ERROR_INVALID_VALUE,
       cu->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, extra));
    OK(cu->cuMemFree_v2(address));
    OK(cu->cuModuleUnload(module));
}

HEADER(function_tells_its_name, "the function name associated with the function handle")
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    const char *name = NULL;
    NEED(bed_has(b, b->cu->cuFuncGetName != NULL) && load_kernel(b, &module, &function));
    OK(b->cu->cuFuncGetName(&name, function));
    THAT(name != NULL && strcmp(name, "flw_store_word") == 0);
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuFuncGetName(NULL, function));
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuFuncGetName(&name, NULL));
    OK(b->cu->cuModuleUnload(module));
}

HEADER(function_tells_its_parameters, "must be less than the number of parameters")
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    size_t offset = 99, bytes = 99;
    NEED(bed_has(b, b->cu->cuFuncGetParamInfo != NULL) && load_kernel(b, &module, &function));
    OK(b->cu->cuFuncGetParamInfo(function, 0, &offset, &bytes));
    THAT(offset == 0 && bytes == 8);
    OK(b->cu->cuFuncGetParamInfo(function, 1, &offset, &bytes));
    THAT(offset == 8 && bytes == 4);
    OK(b->cu->cuFuncGetParamInfo(function, 1, &offset, NULL));
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuFuncGetParamInfo(function, 2, &offset, &bytes));
    OK(b->cu->cuModuleUnload(module));
}

HEADER(kernel_of_unknown_name_is_not_found,
       "If no function of that name exists, cuModuleGetFunction() returns")
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    NEED(load_kernel(b, &module, &function));
    IS(CUDA_ERROR_NOT_FOUND, b->cu->cuModuleGetFunction(&function, module, "no_such_kernel"));
    OK(b->cu->cuModuleUnload(module));
}

HEADER(launch_without_blocks_is_refused, "gridDimY x gridDimZ grid of blocks")
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    NEED(load_kernel(b, &module, &function));
    CUdeviceptr address = 0;
    uint32_t value = 0;
    void *parameters[] = {&address, &value};
    REFUSED(b->cu->cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    REFUSED(b->cu->cuLaunchKernel(function, 1, 1, 1, 4096, 1, 1, 0, NULL, parameters, NULL));
    OK(b->cu->cuModuleUnload(module));
}
