/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what each driver call costs that a pool makes: the median of some calls. On the simulated
 * device the time of this program's call says nothing, so the modelled time is taken from its
 * ledger.
 */
#include "doctor/doctor.h"

#include "base/clock.h"

#include "common/median.h"

#include "fallow/simcuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define MANY 41 /* cheap calls */
#define FEW  9  /* calls that take or give memory */

/* Reads time before and after a call: of the host's clock or of the simulated device's model. */
struct stopwatch {
    flw_sim_ledger_function get_ledger; /* NULL: the host's clock */
    int ordinal;
};

static uint64_t now_ns(const struct stopwatch *watch)
{
    if (watch->get_ledger == NULL) {
        return flw_clock_fine_ns();
    }
    flw_sim_ledger ledger = {.struct_size = sizeof ledger};
    watch->get_ledger(watch->ordinal, &ledger);
    return ledger.modelled_host_ns;
}

/* Samples of one call; a call that failed makes the row say so. */
struct series {
    const char *name;
    double ns[MANY];
    size_t count;
    CUresult error;
};

static void take(struct series *series, const struct stopwatch *watch, uint64_t begin,
                 CUresult result)
{
    uint64_t end = now_ns(watch);
    if (result != CUDA_SUCCESS) {
        series->error = result;
    } else if (series->count < MANY) {
        series->ns[series->count++] = (double)(end - begin);
    }
}

static uint64_t write_series(struct flw_doctor_sheet *sheet,
                             const struct flw_doctor_patient *patient, struct series *series)
{
    if (series->error != CUDA_SUCCESS) {
        flw_doctor_text(sheet, series->name, "failed with %s",
                        flw_driver_error_name(&patient->driver, series->error));
        flw_doctor_advise(sheet,
                          "%s failed with %s: a pool needs it; look at free_memory and "
                          "at nvidia-smi",
                          series->name, flw_driver_error_name(&patient->driver, series->error));
        return 0;
    }
    if (series->count == 0) {
        return 0;
    }
    uint64_t median = (uint64_t)flw_median(series->ns, series->count);
    flw_doctor_number(sheet, series->name, FLW_DOCTOR_NS, median);
    return median;
}

/* One call a time, timed, its answer kept. */
#define TIMED(series, watch, call)             \
    do {                                       \
        uint64_t begin_ns = now_ns(watch);     \
        CUresult answer = (call);              \
        take(series, watch, begin_ns, answer); \
    } while (0)

static void see_events(struct flw_doctor_sheet *sheet, const struct flw_doctor_patient *patient,
                       const struct stopwatch *watch, CUstream stream)
{
    const struct flw_driver *driver = &patient->driver;
    struct series create = {.name = "cuEventCreate"}, record = {.name = "cuEventRecord"},
                  query = {.name = "cuEventQuery"}, wait = {.name = "cuStreamWaitEvent"},
                  destroy = {.name = "cuEventDestroy"};
    for (int i = 0; i < MANY && create.error == CUDA_SUCCESS; i++) {
        CUevent event = NULL;
        TIMED(&create, watch, driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        if (create.error != CUDA_SUCCESS) {
            break;
        }
        TIMED(&record, watch, driver->cuEventRecord(event, stream));
        uint64_t begin = now_ns(watch);
        CUresult state = driver->cuEventQuery(event);
        take(&query, watch, begin, state == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : state);
        TIMED(&wait, watch, driver->cuStreamWaitEvent(stream, event, 0));
        TIMED(&destroy, watch, driver->cuEventDestroy_v2(event));
    }
    driver->cuStreamSynchronize(stream);
    write_series(sheet, patient, &create);
    uint64_t record_ns = write_series(sheet, patient, &record);
    write_series(sheet, patient, &query);
    write_series(sheet, patient, &wait);
    write_series(sheet, patient, &destroy);
    if (!patient->is_sim && record_ns > 10000) {
        flw_doctor_advise(sheet,
                          "an event costs %.1f us here: a profiler or a busy driver lock is in "
                          "the way; several streams will feel it",
                          (double)record_ns / 1000);
    }
}

static void see_questions(struct flw_doctor_sheet *sheet, const struct flw_doctor_patient *patient,
                          const struct stopwatch *watch, CUstream stream)
{
    const struct flw_driver *driver = &patient->driver;
    struct series id = {.name = "cuStreamGetId"}, capture = {.name = "cuStreamGetCaptureInfo"},
                  info = {.name = "cuMemGetInfo"};
    for (int i = 0; i < MANY; i++) {
        unsigned long long stream_id = 0;
        cuuint64_t capture_id = 0;
        CUstreamCaptureStatus status;
        size_t unused = 0, total = 0;
        if (driver->cuStreamGetId != NULL) {
            TIMED(&id, watch, driver->cuStreamGetId(stream, &stream_id));
        }
        if (driver->cuStreamGetCaptureInfo_v2 != NULL) {
            TIMED(
                &capture, watch,
                driver->cuStreamGetCaptureInfo_v2(stream, &status, &capture_id, NULL, NULL, NULL));
        }
        TIMED(&info, watch, driver->cuMemGetInfo_v2(&unused, &total));
    }
    if (id.error == CUDA_ERROR_NOT_SUPPORTED) {
        flw_doctor_text(sheet, id.name, "not supported");
    } else {
        write_series(sheet, patient, &id);
    }
    write_series(sheet, patient, &capture);
    write_series(sheet, patient, &info);
}

static void see_plain_memory(struct flw_doctor_sheet *sheet,
                             const struct flw_doctor_patient *patient,
                             const struct stopwatch *watch, size_t bytes)
{
    const struct flw_driver *driver = &patient->driver;
    char names[2][48];
    struct series alloc = {.name = names[0]}, release = {.name = names[1]};
    snprintf(names[0], sizeof names[0], "cuMemAlloc %zu MiB", bytes >> 20);
    snprintf(names[1], sizeof names[1], "cuMemFree %zu MiB", bytes >> 20);
    for (int i = 0; i < FEW && alloc.error == CUDA_SUCCESS; i++) {
        CUdeviceptr pointer = 0;
        TIMED(&alloc, watch, driver->cuMemAlloc_v2(&pointer, bytes));
        if (alloc.error == CUDA_SUCCESS) {
            TIMED(&release, watch, driver->cuMemFree_v2(pointer));
        }
    }
    write_series(sheet, patient, &alloc);
    write_series(sheet, patient, &release);
}

enum handle_call {
    CREATE,
    MAP,
    ACCESS,
    UNMAP,
    RELEASE,
    HANDLE_CALLS
};

/* One handle's whole life at `address`; false when a call failed. What was made is released. */
static bool live_once(const struct flw_doctor_patient *patient, const struct stopwatch *watch,
                      CUdeviceptr address, size_t bytes, struct series *series)
{
    const struct flw_driver *driver = &patient->driver;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties;
    CUmemAccessDesc access;
    memset(&properties, 0, sizeof properties);
    memset(&access, 0, sizeof access);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = patient->ordinal;
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    TIMED(&series[CREATE], watch, driver->cuMemCreate(&handle, bytes, &properties, 0));
    if (series[CREATE].error != CUDA_SUCCESS) {
        return false;
    }
    TIMED(&series[MAP], watch, driver->cuMemMap(address, bytes, 0, handle, 0));
    if (series[MAP].error == CUDA_SUCCESS) {
        TIMED(&series[ACCESS], watch, driver->cuMemSetAccess(address, bytes, &access, 1));
        TIMED(&series[UNMAP], watch, driver->cuMemUnmap(address, bytes));
    }
    TIMED(&series[RELEASE], watch, driver->cuMemRelease(handle));
    for (int i = 0; i < HANDLE_CALLS; i++) {
        if (series[i].error != CUDA_SUCCESS) {
            return false;
        }
    }
    return true;
}

static void see_handles(struct flw_doctor_sheet *sheet, const struct flw_doctor_patient *patient,
                        const struct stopwatch *watch, size_t bytes)
{
    static const char *const calls[HANDLE_CALLS] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess",
                                                    "cuMemUnmap", "cuMemRelease"};
    char names[HANDLE_CALLS][48];
    struct series series[HANDLE_CALLS] = {0};
    CUdeviceptr address = 0;
    for (int i = 0; i < HANDLE_CALLS; i++) {
        snprintf(names[i], sizeof names[i], "%s %zu MiB", calls[i], bytes >> 20);
        series[i].name = names[i];
    }
    CUresult result = patient->driver.cuMemAddressReserve(&address, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        flw_doctor_advise(sheet, "cuMemAddressReserve of %zu MiB failed with %s: look at ulimit -v",
                          bytes >> 20, flw_driver_error_name(&patient->driver, result));
        return;
    }
    for (int i = 0; i < FEW && live_once(patient, watch, address, bytes, series); i++) {
    }
    patient->driver.cuMemAddressFree(address, bytes);
    for (int i = 0; i < HANDLE_CALLS; i++) {
        write_series(sheet, patient, &series[i]);
    }
}

static void see_clock(struct flw_doctor_sheet *sheet, const struct flw_doctor_patient *patient,
                      struct stopwatch *watch)
{
    *watch = (struct stopwatch){.ordinal = patient->ordinal};
    flw_doctor_begin(sheet, patient->is_sim ? "modelled cost of a call" : "cost of a call");
    if (patient->is_sim) {
        void *address = dlsym(patient->driver.object, "flw_sim_get_ledger");
        memcpy(&watch->get_ledger, &address, sizeof address);
        return;
    }
    struct series empty = {.name = "reading the clock"};
    for (int i = 0; i < MANY; i++) {
        TIMED(&empty, watch, CUDA_SUCCESS);
    }
    write_series(sheet, patient, &empty);
}

void flw_doctor_see_costs(struct flw_doctor_sheet *sheet, struct flw_doctor_patient *patient)
{
    static const size_t sizes[] = {(size_t)2 << 20, (size_t)16 << 20, (size_t)64 << 20};
    struct stopwatch watch;
    CUstream stream = NULL;
    see_clock(sheet, patient, &watch);
    CUresult result = patient->driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) {
        flw_doctor_advise(sheet, "cuStreamCreate failed with %s: check the device with nvidia-smi",
                          flw_driver_error_name(&patient->driver, result));
        return;
    }
    see_events(sheet, patient, &watch, stream);
    see_questions(sheet, patient, &watch, stream);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        see_plain_memory(sheet, patient, &watch, sizes[i]);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && patient->has_vmm; i++) {
        see_handles(sheet, patient, &watch, sizes[i]);
    }
    patient->driver.cuStreamDestroy_v2(stream);
}

#undef TIMED
