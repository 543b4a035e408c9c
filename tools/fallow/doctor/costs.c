/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cost of each driver call that a pool makes: the median of some calls. On the simulated device the time of
 * the call itself means nothing, so the modelled time is taken from the device's ledger.
 */
#include "doctor/doctor.h"

#include "base/clock.h"

#include "common/machine.h"

#include "fallow/simcuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define MANY 41 /* cheap calls */
#define FEW  9  /* calls that allocate or free */

#define SLOW_EVENT_NS 10000

struct series {
    const char *call;
    double ns[MANY];
    size_t count;
    CUresult error; /* of a call that failed */
};

struct costs {
    struct flw_doctor *doctor;
    const struct flw_driver *driver;
    flw_sim_ledger_function get_ledger; /* NULL: the host's clock */
    struct series series[5];            /* in the order of the first calls */
    size_t series_count;
    uint64_t begin_ns; /* of the call that is being timed */
};

static uint64_t now_ns(const struct costs *costs)
{
    if (costs->get_ledger == NULL) {
        return flw_clock_fine_ns();
    }
    flw_sim_ledger ledger = {.struct_size = sizeof ledger};
    costs->get_ledger(costs->doctor->ordinal, &ledger);
    return ledger.modelled_host_ns;
}

static void begin_call(struct costs *costs)
{
    costs->begin_ns = now_ns(costs);
}

static bool end_call(struct costs *costs, const char *call, CUresult result)
{
    uint64_t end_ns = now_ns(costs);
    size_t i = 0;
    while (i < costs->series_count && strcmp(costs->series[i].call, call) != 0) {
        i++;
    }
    if (i == costs->series_count) {
        costs->series[costs->series_count++] = (struct series){.call = call};
    }
    struct series *series = &costs->series[i];
    if (result != CUDA_SUCCESS) {
        series->error = result;
    } else if (series->count < MANY) {
        series->ns[series->count++] = (double)(end_ns - costs->begin_ns);
    }
    return result == CUDA_SUCCESS;
}

/* Time a driver call. True if the call succeeded. */
#define TIMED(costs, call, result) (begin_call(costs), end_call(costs, call, result))

static void print_series(struct flw_doctor *doctor, const struct series *series, const char *name)
{
    const char *error = flw_driver_error_name(&doctor->driver, series->error);
    if (series->error == CUDA_ERROR_NOT_SUPPORTED && strcmp(name, "cuStreamGetId") == 0) {
        flw_doctor_text(doctor, name, "not supported");
    } else if (series->error != CUDA_SUCCESS) {
        flw_doctor_text(doctor, name, "failed with %s", error);
        flw_doctor_advise(doctor,
                          "%s failed with %s: a pool needs it; look at free_memory and "
                          "at nvidia-smi",
                          name, error);
    } else {
        double median = flw_median((double *)series->ns, series->count);
        flw_doctor_number(doctor, name, FLW_DOCTOR_NS, (uint64_t)median);
        if (!doctor->is_sim && median > SLOW_EVENT_NS && strcmp(name, "cuEventRecord") == 0) {
            flw_doctor_advise(doctor,
                              "an event costs %.1f us here: a profiler or a busy driver lock is in "
                              "the way; several streams will feel it",
                              median / 1000);
        }
    }
}

/* Print and forget the calls so far, which were of `bytes`; 0: of no size. */
static void print_costs(struct costs *costs, size_t bytes)
{
    for (size_t i = 0; i < costs->series_count; i++) {
        char name[48];
        snprintf(name, sizeof name, bytes == 0 ? "%s" : "%s %zu MiB", costs->series[i].call,
                 bytes >> 20);
        print_series(costs->doctor, &costs->series[i], name);
    }
    costs->series_count = 0;
}

/* ---- the calls ---- */

static void see_events(struct costs *costs, CUstream stream)
{
    const struct flw_driver *driver = costs->driver;
    CUevent event = NULL;
    for (int i = 0; i < MANY && TIMED(costs, "cuEventCreate",
                                      driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
         i++) {
        TIMED(costs, "cuEventRecord", driver->cuEventRecord(event, stream));
        begin_call(costs);
        CUresult state = driver->cuEventQuery(event);
        end_call(costs, "cuEventQuery", state == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : state);
        TIMED(costs, "cuStreamWaitEvent", driver->cuStreamWaitEvent(stream, event, 0));
        TIMED(costs, "cuEventDestroy", driver->cuEventDestroy_v2(event));
    }
    driver->cuStreamSynchronize(stream);
    print_costs(costs, 0);
}

static void see_queries(struct costs *costs, CUstream stream)
{
    const struct flw_driver *driver = costs->driver;
    for (int i = 0; i < MANY; i++) {
        unsigned long long stream_id = 0;
        cuuint64_t capture_id = 0;
        CUstreamCaptureStatus status;
        size_t unused = 0, total = 0;
        if (driver->cuStreamGetId != NULL) {
            TIMED(costs, "cuStreamGetId", driver->cuStreamGetId(stream, &stream_id));
        }
        if (driver->cuStreamGetCaptureInfo_v2 != NULL) {
            TIMED(
                costs, "cuStreamGetCaptureInfo",
                driver->cuStreamGetCaptureInfo_v2(stream, &status, &capture_id, NULL, NULL, NULL));
        }
        TIMED(costs, "cuMemGetInfo", driver->cuMemGetInfo_v2(&unused, &total));
    }
    print_costs(costs, 0);
}

static void see_plain_memory(struct costs *costs, size_t bytes)
{
    CUdeviceptr pointer = 0;
    for (int i = 0;
         i < FEW && TIMED(costs, "cuMemAlloc", costs->driver->cuMemAlloc_v2(&pointer, bytes));
         i++) {
        TIMED(costs, "cuMemFree", costs->driver->cuMemFree_v2(pointer));
    }
    print_costs(costs, bytes);
}

/* Create, map, unmap and release a handle. Returns false if a call failed; the handle is released then, too. */
static bool use_handle(struct costs *costs, CUdeviceptr address, size_t bytes)
{
    const struct flw_driver *driver = costs->driver;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = flw_doctor_properties(costs->doctor);
    CUmemAccessDesc access = {.location = properties.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (!TIMED(costs, "cuMemCreate", driver->cuMemCreate(&handle, bytes, &properties, 0))) {
        return false;
    }
    bool is_good = TIMED(costs, "cuMemMap", driver->cuMemMap(address, bytes, 0, handle, 0));
    if (is_good) {
        is_good =
            TIMED(costs, "cuMemSetAccess", driver->cuMemSetAccess(address, bytes, &access, 1));
        is_good = TIMED(costs, "cuMemUnmap", driver->cuMemUnmap(address, bytes)) && is_good;
    }
    return TIMED(costs, "cuMemRelease", driver->cuMemRelease(handle)) && is_good;
}

static void see_handles(struct costs *costs, size_t bytes)
{
    CUdeviceptr address = 0;
    CUresult result = costs->driver->cuMemAddressReserve(&address, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        flw_doctor_advise(costs->doctor,
                          "cuMemAddressReserve of %zu MiB failed with %s: look at ulimit -v",
                          bytes >> 20, flw_driver_error_name(costs->driver, result));
        return;
    }
    for (int i = 0; i < FEW && use_handle(costs, address, bytes); i++) {
    }
    costs->driver->cuMemAddressFree(address, bytes);
    print_costs(costs, bytes);
}

void flw_doctor_see_costs(struct flw_doctor *doctor)
{
    static const size_t sizes[] = {(size_t)2 << 20, (size_t)16 << 20, (size_t)64 << 20};
    struct costs costs = {.doctor = doctor, .driver = &doctor->driver};
    CUstream stream = NULL;
    flw_doctor_begin(doctor, doctor->is_sim ? "modelled cost of a call" : "cost of a call");
    if (doctor->is_sim) {
        void *address = dlsym(doctor->driver.object, "flw_sim_get_ledger");
        memcpy(&costs.get_ledger, &address, sizeof address);
    }
    for (int i = 0; i < MANY && !doctor->is_sim; i++) {
        TIMED(&costs, "reading the clock", CUDA_SUCCESS);
    }
    print_costs(&costs, 0);
    if (!flw_doctor_check(doctor, doctor->driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
                          "cuStreamCreate", NULL)) {
        return;
    }
    see_events(&costs, stream);
    see_queries(&costs, stream);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        see_plain_memory(&costs, sizes[i]);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && doctor->has_vmm; i++) {
        see_handles(&costs, sizes[i]);
    }
    doctor->driver.cuStreamDestroy_v2(stream);
}
