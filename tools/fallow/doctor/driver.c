/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: properties of the driver and of its devices, and of a pool on one of these.
 */
#include "doctor/doctor.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "fallow/fallow.h"
#include "fallow/simcuda.h"

/* Return an attribute of a device; 0 if the driver does not know the attribute. */
static int attribute(const struct flw_doctor *doctor, CUdevice device, CUdevice_attribute which)
{
    int value = 0;
    return doctor->driver.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

/* ---- the driver ---- */

/* Name the real driver that the simulated one imitates. */
static void see_profile(struct flw_doctor *doctor)
{
    flw_sim_played_function played = NULL;
    void *address = dlsym(doctor->driver.object, "flw_sim_played");
    memcpy(&played, &address, sizeof address);
    if (played != NULL) {
        flw_doctor_text(doctor, "profile", "%s", played()[0] != '\0' ? played() : "none");
    }
}

static void see_library(struct flw_doctor *doctor)
{
    const struct flw_driver *driver = &doctor->driver;
    Dl_info info;
    void *address = NULL;
    memcpy(&address, &driver->cuInit, sizeof address);
    bool is_known = dladdr(address, &info) != 0 && info.dli_fname != NULL;
    flw_doctor_begin(doctor, "driver");
    flw_doctor_text(doctor, "kind", "%s",
                    doctor->is_sim ? "simulated device (these are not figures of a GPU)"
                                   : "CUDA driver");
    flw_doctor_text(doctor, "path", "%s", is_known ? info.dli_fname : "unknown");
    flw_doctor_text(doctor, "version", "%d.%d", driver->version / 1000,
                    driver->version % 1000 / 10);
    see_profile(doctor);
    char absent[FLW_DOCTOR_TEXT_BYTES] = "";
    size_t used = 0;
#define X(need, symbol, since, before, parameters)                                             \
    if (driver->symbol == NULL && used < sizeof absent) {                                      \
        used += (size_t)snprintf(absent + used, sizeof absent - used, "%s%s", used ? " " : "", \
                                 #symbol);                                                     \
    }
    FLW_DRIVER_ENTRY_POINTS(X)
#undef X
    flw_doctor_text(doctor, "absent_entry_points", "%s", used == 0 ? "none" : absent);
    if (driver->cuStreamGetId == NULL) {
        flw_doctor_advise(
            doctor, "the driver has no cuStreamGetId: a destroyed stream cannot be distinguished "
                    "from a new one; call fallow_stream_retire before each destruction");
    }
}

/* ---- devices ---- */

static void see_memory(struct flw_doctor *doctor, CUdevice device)
{
    size_t total = 0, unused = 0;
    if (FLW_DOCTOR_TRY(doctor, cuDeviceTotalMem_v2, NULL, &total, device)) {
        flw_doctor_number(doctor, "memory", FLW_DOCTOR_BYTES, total);
    }
    if (doctor->context == NULL || device != doctor->device ||
        !FLW_DOCTOR_TRY(doctor, cuMemGetInfo_v2, NULL, &unused, &total)) {
        return;
    }
    flw_doctor_number(doctor, "free_memory", FLW_DOCTOR_BYTES, unused);
    if (unused < total / 2) {
        flw_doctor_advise(
            doctor,
            "other programs hold %zu MiB of device %d: set limit_bytes to at most %zu MiB, or end those programs",
            (total - unused) >> 20, doctor->ordinal, unused >> 20);
    }
}

static void see_granularity(struct flw_doctor *doctor)
{
    CUmemAllocationProp properties = flw_doctor_properties(doctor);
    size_t least = 0, best = 0;
    if (doctor->driver.cuMemGetAllocationGranularity != NULL &&
        FLW_DOCTOR_TRY(doctor, cuMemGetAllocationGranularity, "update the driver", &least,
                       &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) &&
        FLW_DOCTOR_TRY(doctor, cuMemGetAllocationGranularity, "update the driver", &best,
                       &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
        flw_doctor_number(doctor, "granularity", FLW_DOCTOR_BYTES, least);
        flw_doctor_number(doctor, "granularity_recommended", FLW_DOCTOR_BYTES, best);
    }
}

static void see_vmm(struct flw_doctor *doctor)
{
    const struct flw_driver *driver = &doctor->driver;
    bool has_calls = driver->cuMemCreate != NULL && driver->cuMemMap != NULL &&
                     driver->cuMemSetAccess != NULL && driver->cuMemUnmap != NULL &&
                     driver->cuMemRelease != NULL && driver->cuMemAddressReserve != NULL &&
                     driver->cuMemAddressFree != NULL;
    doctor->has_vmm =
        has_calls && attribute(doctor, doctor->device,
                               CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0;
    flw_doctor_number(doctor, "virtual_memory_management", FLW_DOCTOR_BOOL, doctor->has_vmm);
    if (doctor->has_vmm) {
        see_granularity(doctor);
    } else {
        flw_doctor_advise(doctor,
                          "device %d has no virtual memory management (%s): the pool falls back to "
                          "slabs from cuMemAlloc, holds more and cannot share memory%s",
                          doctor->ordinal,
                          has_calls ? "reported by the device" : "the driver lacks the calls",
                          has_calls ? "" : "; update the driver");
    }
}

static void see_features(struct flw_doctor *doctor)
{
    see_vmm(doctor);
    const struct {
        const char *key;
        bool can_be;
        CUdevice_attribute which;
    } features[] = {
        {"handle_file_descriptor", doctor->has_vmm,
         CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
        {"handle_fabric", doctor->has_vmm, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED},
        {"memory_pools", doctor->driver.cuMemPoolCreate != NULL,
         CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED}};
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        flw_doctor_number(doctor, features[i].key, FLW_DOCTOR_BOOL,
                          features[i].can_be &&
                              attribute(doctor, doctor->device, features[i].which) != 0);
    }
    if (attribute(doctor, doctor->device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) ==
        CU_COMPUTEMODE_PROHIBITED) {
        flw_doctor_advise(doctor,
                          "device %d is in compute mode PROHIBITED: nvidia-smi -i %d -c DEFAULT",
                          doctor->ordinal, doctor->ordinal);
    }
}

static void see_device(struct flw_doctor *doctor, int ordinal)
{
    char section[32], name[96] = "unknown";
    CUdevice device = 0;
    snprintf(section, sizeof section, "device %d", ordinal);
    flw_doctor_begin(doctor, section);
    if (!FLW_DOCTOR_TRY(doctor, cuDeviceGet, NULL, &device, ordinal)) {
        return;
    }
    FLW_DOCTOR_TRY(doctor, cuDeviceGetName, NULL, name, sizeof name, device);
    bool is_unclear = doctor->is_sim && strstr(name, "simulated") == NULL;
    flw_doctor_text(doctor, "name", "%s%s", is_unclear ? "simulated device, " : "", name);
    flw_doctor_text(doctor, "compute_capability", "%d.%d",
                    attribute(doctor, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                    attribute(doctor, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    see_memory(doctor, device);
    if (ordinal == doctor->ordinal) {
        see_features(doctor);
    }
}

/* Make the context of the device current; cuMemGetInfo needs one. */
static bool enter(struct flw_doctor *doctor, int count)
{
    const struct flw_driver *driver = &doctor->driver;
    CUcontext context = NULL;
    if (doctor->ordinal >= count) {
        flw_doctor_advise(
            doctor,
            "there is no device %d, the driver has %d: use --device 0 to %d, and check CUDA_VISIBLE_DEVICES",
            doctor->ordinal, count, count - 1);
        return false;
    }
    if (!FLW_DOCTOR_TRY(doctor, cuDeviceGet, NULL, &doctor->device, doctor->ordinal) ||
        !FLW_DOCTOR_TRY(doctor, cuDevicePrimaryCtxRetain,
                        "the device may be full or exclusive to another program; see nvidia-smi",
                        &context, doctor->device)) {
        return false;
    }
    if (!FLW_DOCTOR_TRY(doctor, cuCtxSetCurrent, NULL, context)) {
        driver->cuDevicePrimaryCtxRelease_v2(doctor->device);
        return false;
    }
    doctor->context = context;
    return true;
}

bool flw_doctor_see_driver(struct flw_doctor *doctor)
{
    int count = 0;
    see_library(doctor);
    if (!FLW_DOCTOR_TRY(doctor, cuDeviceGetCount, "check the driver with nvidia-smi", &count)) {
        return false;
    }
    flw_doctor_number(doctor, "devices", FLW_DOCTOR_COUNT, (uint64_t)count);
    if (count == 0) {
        flw_doctor_advise(
            doctor, "the driver reports no device: check nvidia-smi and CUDA_VISIBLE_DEVICES");
        return false;
    }
    bool is_in = enter(doctor, count);
    for (int i = 0; i < count; i++) {
        see_device(doctor, i);
    }
    return is_in;
}

void flw_doctor_leave(struct flw_doctor *doctor)
{
    if (doctor->context != NULL) {
        doctor->driver.cuCtxSetCurrent(NULL);
        doctor->driver.cuDevicePrimaryCtxRelease_v2(doctor->device);
    }
    flw_driver_close(&doctor->driver);
}

/* ---- a pool ---- */

struct pool_log {
    struct flw_doctor *doctor;
    unsigned line_count;
    char message[FLW_DOCTOR_TEXT_BYTES]; /* the last error, else the first line */
};

/* Show a line of the pool's log: a feature that the driver refused and the pool continues without. */
static void keep_line(void *context, fallow_log_level level, const char *line)
{
    struct pool_log *log = context;
    if (level != FALLOW_LOG_ERROR) {
        char key[16];
        snprintf(key, sizeof key, "log_%u", ++log->line_count);
        flw_doctor_text(log->doctor, key, "%s", line);
    }
    if (level == FALLOW_LOG_ERROR || log->message[0] == '\0') {
        snprintf(log->message, sizeof log->message, "%s", line);
    }
}

static void describe_pool(struct flw_doctor *doctor, fallow_pool *pool)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    if (fallow_pool_get_stats(pool, &stats) != FALLOW_OK) {
        return;
    }
    flw_doctor_text(doctor, "page_source", "%s",
                    stats.uses_vmm ? "handles (cuMemCreate, cuMemMap): memory moves between sizes "
                                     "by remapping"
                                   : "slabs (cuMemAlloc): released whole when empty");
    flw_doctor_text(doctor, "because", "%s",
                    stats.uses_vmm    ? "a handle was created, mapped, written and released"
                    : doctor->has_vmm ? "the driver refused handles: see log_1"
                                      : "the device has no virtual memory management");
    if (stats.uses_vmm) { /* "descriptors, fabric; registration by network adapters" */
        bool has_fd = (stats.handle_types & FALLOW_HANDLE_FD) != 0;
        bool has_fabric = (stats.handle_types & FALLOW_HANDLE_FABRIC) != 0;
        flw_doctor_text(doctor, "handle_kinds", "%s%s%s%s%s", has_fd ? "descriptors" : "",
                        has_fd && has_fabric ? ", " : "", has_fabric ? "fabric" : "",
                        has_fd || has_fabric ? "" : "no way to export",
                        stats.allows_rdma ? "; registration by network adapters" : "");
    }
    flw_doctor_text(doctor, "owner_path", "%s",
                    stats.uses_membarrier ? "plain stores (made safe by membarrier)"
                                          : "its cache's lock on every call (no membarrier)");
    flw_doctor_number(doctor, "reserved_for_one_block", FLW_DOCTOR_BYTES, stats.reserved_bytes);
    flw_doctor_number(doctor, "driver_calls_for_one_block", FLW_DOCTOR_COUNT,
                      stats.driver_call_count);
    flw_doctor_number(doctor, "host_bytes", FLW_DOCTOR_BYTES, stats.host_bytes);
}

bool flw_doctor_see_pool(struct flw_doctor *doctor)
{
    struct pool_log log = {.doctor = doctor};
    fallow_pool *pool = NULL;
    fallow_pool_config config;
    void *block = NULL;
    fallow_pool_config_init(&config);
    config.driver = doctor->driver_name;
    config.device = doctor->ordinal;
    config.log = keep_line;
    config.log_context = &log;
    flw_doctor_begin(doctor, "pool");
    fallow_status status = fallow_pool_create(&config, &pool);
    if (status == FALLOW_OK) {
        status = fallow_alloc(pool, (size_t)1 << 20, NULL, &block);
    }
    flw_doctor_text(doctor, "a block of 1 MiB", "%s", fallow_status_name(status));
    if (status == FALLOW_OK) {
        describe_pool(doctor, pool);
        status = fallow_free(pool, block, NULL);
    }
    if (status != FALLOW_OK) {
        flw_doctor_advise(doctor, "a pool on device %d: %s", doctor->ordinal,
                          log.message[0] != '\0' ? log.message : fallow_status_message(status));
    }
    fallow_pool_destroy(pool);
    return status == FALLOW_OK;
}
