/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the driver and its devices say of themselves.
 */
#include "doctor/doctor.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "fallow/simcuda.h"

/* 0 where the device does not know the question. */
static int attribute(const struct flw_doctor_patient *patient, CUdevice device,
                     CUdevice_attribute which)
{
    int value = 0;
    return patient->driver.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

static bool check(struct flw_doctor_sheet *sheet, const struct flw_doctor_patient *patient,
                  CUresult result, const char *call, const char *what_to_do)
{
    if (result != CUDA_SUCCESS) {
        flw_doctor_advise(sheet, "%s failed with %s: %s", call,
                          flw_driver_error_name(&patient->driver, result), what_to_do);
    }
    return result == CUDA_SUCCESS;
}

/* Which of the drivers that programs meet the simulated one plays. */
static void see_profile(struct flw_doctor_sheet *sheet, const struct flw_doctor_patient *patient)
{
    flw_sim_played_function played = NULL;
    void *address = dlsym(patient->driver.object, "flw_sim_played");
    memcpy(&played, &address, sizeof address);
    if (played != NULL) {
        const char *names = played();
        flw_doctor_text(sheet, "profile", "%s", names[0] != '\0' ? names : "none");
    }
}

static void see_library(struct flw_doctor_sheet *sheet, const struct flw_doctor_patient *patient)
{
    Dl_info info;
    void *address = NULL;
    memcpy(&address, &patient->driver.cuInit, sizeof address);
    flw_doctor_begin(sheet, "driver");
    flw_doctor_text(sheet, "kind", "%s",
                    patient->is_sim ? "simulated device (these are not figures of a GPU)"
                                    : "CUDA driver");
    flw_doctor_text(sheet, "path", "%s",
                    dladdr(address, &info) != 0 && info.dli_fname != NULL ? info.dli_fname
                                                                          : "unknown");
    flw_doctor_text(sheet, "version", "%d.%d", patient->driver.version / 1000,
                    patient->driver.version % 1000 / 10);
    see_profile(sheet, patient);
    char absent[FLW_DOCTOR_TEXT_BYTES] = "";
#define X(need, symbol, since, before, parameters)                                            \
    if (patient->driver.symbol == NULL) {                                                     \
        size_t used = strlen(absent);                                                         \
        snprintf(absent + used, sizeof absent - used, "%s%s", used == 0 ? "" : " ", #symbol); \
    }
    FLW_DRIVER_ENTRY_POINTS(X)
#undef X
    flw_doctor_text(sheet, "absent_entry_points", "%s", absent[0] == '\0' ? "none" : absent);
    if (patient->driver.cuStreamGetId == NULL) {
        flw_doctor_advise(
            sheet, "the driver has no cuStreamGetId: a destroyed stream cannot be distinguished "
                   "from a new one; call fallow_stream_retire before each destruction");
    }
}

static void see_memory(struct flw_doctor_sheet *sheet, const struct flw_doctor_patient *patient,
                       CUdevice device)
{
    size_t total = 0, unused = 0;
    if (check(sheet, patient, patient->driver.cuDeviceTotalMem_v2(&total, device),
              "cuDeviceTotalMem", "check the device with nvidia-smi")) {
        flw_doctor_number(sheet, "memory", FLW_DOCTOR_BYTES, total);
    }
    if (patient->context == NULL || device != patient->device ||
        !check(sheet, patient, patient->driver.cuMemGetInfo_v2(&unused, &total), "cuMemGetInfo",
               "check the device with nvidia-smi")) {
        return;
    }
    flw_doctor_number(sheet, "free_memory", FLW_DOCTOR_BYTES, unused);
    if (unused < total / 2) {
        flw_doctor_advise(sheet,
                          "other programs hold %zu MiB of device %d: set limit_bytes to at most "
                          "%zu MiB, or end them",
                          (total - unused) >> 20, patient->ordinal, unused >> 20);
    }
}

static void see_granularity(struct flw_doctor_sheet *sheet,
                            const struct flw_doctor_patient *patient)
{
    size_t least = 0, best = 0;
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = patient->ordinal;
    if (patient->driver.cuMemGetAllocationGranularity == NULL ||
        !check(sheet, patient,
               patient->driver.cuMemGetAllocationGranularity(&least, &properties,
                                                             CU_MEM_ALLOC_GRANULARITY_MINIMUM),
               "cuMemGetAllocationGranularity", "update the driver") ||
        !check(sheet, patient,
               patient->driver.cuMemGetAllocationGranularity(&best, &properties,
                                                             CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
               "cuMemGetAllocationGranularity", "update the driver")) {
        return;
    }
    flw_doctor_number(sheet, "granularity", FLW_DOCTOR_BYTES, least);
    flw_doctor_number(sheet, "granularity_recommended", FLW_DOCTOR_BYTES, best);
}

static void see_features(struct flw_doctor_sheet *sheet, struct flw_doctor_patient *patient)
{
    CUdevice device = patient->device;
    const struct flw_driver *driver = &patient->driver;
    bool has_calls = driver->cuMemCreate != NULL && driver->cuMemMap != NULL &&
                     driver->cuMemSetAccess != NULL && driver->cuMemUnmap != NULL &&
                     driver->cuMemRelease != NULL && driver->cuMemAddressReserve != NULL &&
                     driver->cuMemAddressFree != NULL;
    bool has_attribute =
        attribute(patient, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0;
    patient->has_vmm = has_calls && has_attribute;
    patient->has_pools =
        driver->cuMemPoolCreate != NULL &&
        attribute(patient, device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) != 0;
    patient->has_fd =
        patient->has_vmm &&
        attribute(patient, device,
                  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0;
    patient->has_fabric =
        patient->has_vmm &&
        attribute(patient, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED) != 0;
    flw_doctor_number(sheet, "virtual_memory_management", FLW_DOCTOR_BOOL, patient->has_vmm);
    if (patient->has_vmm) {
        see_granularity(sheet, patient);
    } else {
        flw_doctor_advise(sheet,
                          "device %d has no virtual memory management (%s): the pool falls back to "
                          "slabs from cuMemAlloc, holds more and cannot share memory%s",
                          patient->ordinal,
                          has_calls ? "the device says so" : "the driver lacks the calls",
                          has_calls ? "" : "; update the driver");
    }
    flw_doctor_number(sheet, "handle_file_descriptor", FLW_DOCTOR_BOOL, patient->has_fd);
    flw_doctor_number(sheet, "handle_fabric", FLW_DOCTOR_BOOL, patient->has_fabric);
    flw_doctor_number(sheet, "memory_pools", FLW_DOCTOR_BOOL, patient->has_pools);
    if (attribute(patient, device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) == CU_COMPUTEMODE_PROHIBITED) {
        flw_doctor_advise(sheet,
                          "device %d is in compute mode PROHIBITED: nvidia-smi -i %d -c DEFAULT",
                          patient->ordinal, patient->ordinal);
    }
}

static void see_device(struct flw_doctor_sheet *sheet, struct flw_doctor_patient *patient,
                       int ordinal)
{
    char section[32], name[96] = "unknown";
    CUdevice device = 0;
    snprintf(section, sizeof section, "device %d", ordinal);
    flw_doctor_begin(sheet, section);
    if (!check(sheet, patient, patient->driver.cuDeviceGet(&device, ordinal), "cuDeviceGet",
               "check the device with nvidia-smi")) {
        return;
    }
    check(sheet, patient, patient->driver.cuDeviceGetName(name, sizeof name, device),
          "cuDeviceGetName", "check the device with nvidia-smi");
    flw_doctor_text(
        sheet, "name", "%s%s",
        patient->is_sim && strstr(name, "simulated") == NULL ? "simulated device, " : "", name);
    flw_doctor_text(sheet, "compute_capability", "%d.%d",
                    attribute(patient, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                    attribute(patient, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    see_memory(sheet, patient, device);
    if (ordinal == patient->ordinal) {
        see_features(sheet, patient);
    }
}

/* The context first: what the device says of its free memory depends on one. */
static bool enter(struct flw_doctor_sheet *sheet, struct flw_doctor_patient *patient, int count)
{
    const struct flw_driver *driver = &patient->driver;
    CUcontext context = NULL;
    if (patient->ordinal >= count) {
        flw_doctor_advise(sheet,
                          "there is no device %d, the driver has %d: use --device 0 to %d, and "
                          "look at CUDA_VISIBLE_DEVICES",
                          patient->ordinal, count, count - 1);
        return false;
    }
    if (!check(sheet, patient, driver->cuDeviceGet(&patient->device, patient->ordinal),
               "cuDeviceGet", "check the device with nvidia-smi") ||
        !check(sheet, patient, driver->cuDevicePrimaryCtxRetain(&context, patient->device),
               "cuDevicePrimaryCtxRetain",
               "the device may be full or exclusive to another program; see nvidia-smi")) {
        return false;
    }
    if (!check(sheet, patient, driver->cuCtxSetCurrent(context), "cuCtxSetCurrent",
               "check the device with nvidia-smi")) {
        driver->cuDevicePrimaryCtxRelease_v2(patient->device);
        return false;
    }
    patient->context = context;
    return true;
}

bool flw_doctor_see_driver(struct flw_doctor_sheet *sheet, struct flw_doctor_patient *patient)
{
    int count = 0;
    see_library(sheet, patient);
    if (!check(sheet, patient, patient->driver.cuDeviceGetCount(&count), "cuDeviceGetCount",
               "check the driver with nvidia-smi")) {
        return false;
    }
    flw_doctor_number(sheet, "devices", FLW_DOCTOR_COUNT, (uint64_t)count);
    if (count == 0) {
        flw_doctor_advise(sheet, "the driver shows no device: look at nvidia-smi and at "
                                 "CUDA_VISIBLE_DEVICES");
        return false;
    }
    bool is_in = enter(sheet, patient, count);
    for (int i = 0; i < count; i++) {
        see_device(sheet, patient, i);
    }
    return is_in;
}
