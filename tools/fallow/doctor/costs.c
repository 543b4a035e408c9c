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
    struct series series[6];            /* in the order of the first calls; call NULL: the end */
    uint64_t begin_ns;                  /* of the call that is being timed */
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
    struct series *series = costs->series;
    for (; series->call != NULL && strcmp(series->call, call) != 0; series++) {
    }
    series->call = call;
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
        series->error = result;
        return false;
    }
    if (series->count < MANY) {
        series->ns[series->count++] = (double)(end_ns - costs->begin_ns);
    }
    return true;
}

/* Time a driver call. True if the call succeeded. */
#define TIMED(costs, call, ...) \
    (begin_call(costs), end_call(costs, #call, (costs)->driver->call(__VA_ARGS__)))

static void print_series(struct flw_doctor *doctor, struct series *series, const char *name)
{
    const char *error = flw_driver_error_name(&doctor->driver, series->error);
    if (series->error == CUDA_ERROR_NOT_SUPPORTED && strcmp(name, "cuStreamGetId") == 0) {
        flw_doctor_text(doctor, name, "not supported");
        return;
    }
    if (series->error != CUDA_SUCCESS) {
        flw_doctor_text(doctor, name, "failed with %s", error);
        flw_doctor_advise(doctor,
                          "%s failed with %s: a pool needs this call; check free_memory and "
                          "nvidia-smi",
                          name, error);
        return;
    }
    double median = flw_median(series->ns, series->count);
    flw_doctor_number(doctor, name, FLW_DOCTOR_NS, (uint64_t)median);
    if (!doctor->is_sim && median > SLOW_EVENT_NS && strcmp(name, "cuEventRecord") == 0) {
        flw_doctor_advise(
            doctor,
            "an event costs %.1f us here: a profiler or a contended driver lock may be the cause; programs with "
            "several streams become slower",
            median / 1000);
    }
}

/* Print and forget the calls so far, which were of `bytes`; 0: of no size. */
static void print_costs(struct costs *costs, size_t bytes)
{
    for (struct series *series = costs->series; series->call != NULL; series++) {
        char name[48];
        snprintf(name, sizeof name, bytes == 0 ? "%.*s" : "%.*s %zu MiB",
                 (int)strcspn(series->call, "_"), series->call, bytes >> 20);
        print_series(costs->doctor, series, name);
    }
    memset(costs->series, 0, sizeof costs->series);
}

/* ---- the calls ---- */

static void see_events(struct costs *costs, CUstream stream)
{
    CUevent event = NULL;
    for (int i = 0; i < MANY && TIMED(costs, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING); i++) {
        TIMED(costs, cuEventRecord, event, stream);
        TIMED(costs, cuEventQuery, event);
        TIMED(costs, cuStreamWaitEvent, stream, event, 0);
        TIMED(costs, cuEventDestroy_v2, event);
    }
    costs->driver->cuStreamSynchronize(stream);
    print_costs(costs, 0);
}

static void see_queries(struct costs *costs, CUstream stream)
{
    unsigned long long stream_id = 0;
    cuuint64_t capture_id = 0;
    CUstreamCaptureStatus status;
    size_t unused = 0, total = 0;
    for (int i = 0; i < MANY; i++) {
        if (costs->driver->cuStreamGetId != NULL) {
            TIMED(costs, cuStreamGetId, stream, &stream_id);
        }
        if (costs->driver->cuStreamGetCaptureInfo_v2 != NULL) {
            TIMED(costs, cuStreamGetCaptureInfo_v2, stream, &status, &capture_id, NULL, NULL, NULL);
        }
        TIMED(costs, cuMemGetInfo_v2, &unused, &total);
    }
    print_costs(costs, 0);
}

static void see_plain_memory(struct costs *costs, size_t bytes)
{
    CUdeviceptr pointer = 0;
    for (int i = 0; i < FEW && TIMED(costs, cuMemAlloc_v2, &pointer, bytes); i++) {
        TIMED(costs, cuMemFree_v2, pointer);
    }
    print_costs(costs, bytes);
}

/* Create, map, unmap and release a handle. Returns false if a call failed; the handle is released then, too. */
static bool use_handle(struct costs *costs, CUdeviceptr address, size_t bytes)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = flw_doctor_properties(costs->doctor);
    CUmemAccessDesc access = {.location = properties.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (!TIMED(costs, cuMemCreate, &handle, bytes, &properties, 0)) {
        return false;
    }
    bool is_good = TIMED(costs, cuMemMap, address, bytes, 0, handle, 0);
    if (is_good) {
        is_good = TIMED(costs, cuMemSetAccess, address, bytes, &access, 1);
        is_good = TIMED(costs, cuMemUnmap, address, bytes) && is_good;
    }
    return TIMED(costs, cuMemRelease, handle) && is_good;
}

static void see_handles(struct costs *costs, size_t bytes)
{
    CUdeviceptr address = 0;
    CUresult result = costs->driver->cuMemAddressReserve(&address, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        flw_doctor_advise(costs->doctor,
                          "cuMemAddressReserve of %zu MiB failed with %s: check ulimit -v",
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
        begin_call(&costs);
        end_call(&costs, "reading the clock", CUDA_SUCCESS);
    }
    print_costs(&costs, 0);
    if (!FLW_DOCTOR_TRY(doctor, cuStreamCreate, NULL, &stream, CU_STREAM_NON_BLOCKING)) {
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
