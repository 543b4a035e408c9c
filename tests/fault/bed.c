/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/bed.h"

#include <stdio.h>

static void arm(struct flw_bed *bed, const char *step)
{
    bed->step = step;
    bed->fired_now = false;
    int kind = bed->lasts ? 2 : bed->sticky;
    if (bed->lasts && bed->has_fired && !bed->has_recovered) {
        bed->sim.fail(NULL, 1, bed->error, kind);
    } else if (!bed->has_fired && bed->fail_at != 0) {
        bed->sim.fail(NULL, bed->fail_at - bed->call_count, bed->error, kind);
    }
}

static uint64_t calls_now(struct flw_bed *bed)
{
    return flw_sim_read_ledger(&bed->sim).call_count;
}

static void disarm(struct flw_bed *bed, uint64_t before)
{
    bed->sim.fail(NULL, 0, 0, 0);
    bed->call_count += calls_now(bed) - before;
    if (!bed->has_fired && bed->fail_at != 0 && bed->call_count >= bed->fail_at) {
        bed->has_fired = bed->fired_now = true;
    }
}

static void complain(struct flw_bed *bed, const char *sentence, fallow_status status)
{
    bed->broken++;
    fprintf(stderr, "fault.pool: %s, %s: driver call %llu answers %s%s: %s: %s (%s)\n",
            bed->put.ops->name, bed->scenario, (unsigned long long)bed->fail_at,
            flw_driver_error_name(&bed->sim.cu, bed->error),
            bed->sticky  ? " for good"
            : bed->lasts ? ", and every later one"
                         : "",
            bed->step, sentence, fallow_status_name(status));
}

/* Judge a status. Before the failure every call succeeds; the failing call returns a documented
 * status; afterwards the pool works, unless the context is broken, the only reason for a lost
 * pool. `may_lack`: the call may run out of memory. */
static bool judge(struct flw_bed *bed, fallow_status status, bool may_lack)
{
    bool good = status == FALLOW_OK || (may_lack && status == FALLOW_OUT_OF_MEMORY);
    bool is_refusal = status == FALLOW_DRIVER || status == FALLOW_NOT_SUPPORTED ||
                      (bed->error == CUDA_ERROR_OUT_OF_MEMORY && status == FALLOW_OUT_OF_MEMORY);
    if (bed->fired_now || (bed->has_fired && (bed->sticky || bed->lasts))) {
        good = good || (is_refusal && !bed->has_recovered);
    }
    if (bed->has_fired && bed->sticky) {
        good = good || status == FALLOW_DEVICE_LOST || status == FALLOW_DRIVER;
    }
    if (status == FALLOW_DEVICE_LOST && !bed->lost) {
        bed->lost = true;
        bed->lost_in = bed->step;
    }
    if (!good) {
        complain(bed, "an answer that is not documented for it", status);
    } else if (bed->lost && status == FALLOW_OK && may_lack) {
        fprintf(stderr, "lost in %s: ", bed->lost_in);
        complain(bed, "a lost pool allocates", status);
    }
    return status == FALLOW_OK;
}

static void log_line(void *context, fallow_log_level level, const char *message)
{
    (void)context;
    (void)level;
    (void)message; /* tests/unit/pool/test_api checks that the message names the call */
}

void flw_bed_create(struct flw_bed *bed)
{
    for (unsigned i = 0; i < FLW_BED_STREAMS; i++) {
        if (bed->sim.cu.cuStreamCreate(&bed->streams[i], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
            complain(bed, "the test's own stream", FALLOW_DRIVER);
        }
    }
    bed->config.struct_size = sizeof bed->config;
    bed->config.log = log_line;
    uint64_t before = calls_now(bed);
    arm(bed, "create");
    fallow_status status = bed->put.ops->create(&bed->sim.cu, &bed->config, &bed->put.pool);
    disarm(bed, before);
    bed->was_tried_in_vain = bed->fired_now && (bed->lasts || bed->sticky);
    if (status == FALLOW_OK) {
        return;
    }
    flw_sim_ledger ledger = flw_sim_read_ledger(&bed->sim);
    if (!bed->fired_now || bed->put.pool != NULL) {
        complain(bed, "create failed without a cause, or left a pool", status);
    } else if (!bed->was_tried_in_vain &&
               (ledger.given_bytes != 0 || ledger.event_count != 0 || ledger.mapping_count != 0 ||
                (ledger.reserved_address_bytes != 0 &&
                 !bed->lasts))) { /* (addresses, refused, stay) */
        complain(bed, "a failed create left something behind", status);
    }
    bed->put.pool = NULL;
}

/* Bytes at both ends of a block identify its owner. */
#define MARK_BYTES 16

static size_t mark_bytes(size_t size)
{
    return size < MARK_BYTES ? size : MARK_BYTES;
}

static void use(struct flw_bed *bed, unsigned index)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)bed->ptrs[index];
    size_t size = bed->sizes[index], ends = mark_bytes(size);
    CUstream stream = bed->streams[bed->homes[index]];
    flw_sim_range range = {at, size, 1, 0};
    CUresult result = (CUresult)bed->sim.touch(stream, &range, 1);
    bed->marks[index] = 0;
    if (bed->has_content && !bed->is_capturing && result == CUDA_SUCCESS) {
        bed->last_mark = bed->last_mark == 255 ? 1 : bed->last_mark + 1;
        bed->marks[index] = bed->last_mark;
        result = bed->sim.cu.cuMemsetD8Async(at, bed->marks[index], ends, stream);
        result =
            result != CUDA_SUCCESS
                ? result
                : bed->sim.cu.cuMemsetD8Async(at + size - ends, bed->marks[index], ends, stream);
    }
    if (result != CUDA_SUCCESS && flw_bed_device_works(bed)) {
        complain(bed, "the block cannot be used", FALLOW_DRIVER);
    }
}

static void look_at(struct flw_bed *bed, unsigned index)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)bed->ptrs[index];
    size_t size = bed->sizes[index], ends = mark_bytes(size);
    unsigned char copy[2 * MARK_BYTES];
    if (bed->marks[index] == 0 || !flw_bed_device_works(bed)) {
        return;
    }
    if (bed->sim.cu.cuStreamSynchronize(bed->streams[bed->homes[index]]) != CUDA_SUCCESS ||
        bed->sim.cu.cuMemcpyDtoH_v2(copy, at, ends) != CUDA_SUCCESS ||
        bed->sim.cu.cuMemcpyDtoH_v2(copy + ends, at + size - ends, ends) != CUDA_SUCCESS) {
        complain(bed, "the block cannot be read", FALLOW_DRIVER);
        return;
    }
    for (size_t i = 0; i < 2 * ends; i++) {
        if (copy[i] != bed->marks[index]) {
            complain(bed, "a live block has lost its contents", FALLOW_OK);
            return;
        }
    }
}

void flw_bed_alloc_flags(struct flw_bed *bed, size_t size, unsigned stream, uint32_t flags)
{
    if (bed->put.pool == NULL || bed->count == FLW_BED_BLOCKS) {
        return;
    }
    void *ptr = bed;
    fallow_request request = {.struct_size = sizeof request, .size_bytes = size, .flags = flags};
    fallow_status status;
    uint64_t before = calls_now(bed);
    arm(bed, flags == 0 ? "alloc" : "alloc_request");
    if (flags == 0) {
        status = bed->put.ops->alloc(bed->put.pool, size, bed->streams[stream], &ptr);
    } else {
        status = bed->put.ops->alloc_request(bed->put.pool, &request, bed->streams[stream], &ptr);
    }
    disarm(bed, before);
    if (judge(bed, status, true)) {
        bed->ptrs[bed->count] = ptr;
        bed->sizes[bed->count] = size;
        bed->homes[bed->count] = stream;
        use(bed, bed->count++);
    } else if (ptr != NULL) {
        complain(bed, "a pointer after a failure", status);
    }
}

void flw_bed_alloc(struct flw_bed *bed, size_t size, unsigned stream)
{
    flw_bed_alloc_flags(bed, size, stream, 0);
}

void flw_bed_free(struct flw_bed *bed, unsigned index)
{
    if (index >= bed->count) {
        return;
    }
    void *ptr = bed->ptrs[index];
    look_at(bed, index);
    uint64_t before = calls_now(bed);
    arm(bed, "free");
    fallow_status status = bed->put.ops->free(bed->put.pool, ptr, bed->streams[bed->homes[index]]);
    disarm(bed, before);
    if (status != FALLOW_OK) {
        complain(bed, "a good free failed", status);
    }
    for (unsigned i = index + 1; i < bed->count; i++) {
        bed->ptrs[i - 1] = bed->ptrs[i];
        bed->homes[i - 1] = bed->homes[i];
        bed->sizes[i - 1] = bed->sizes[i];
        bed->marks[i - 1] = bed->marks[i];
    }
    bed->count--;
}

void flw_bed_free_all(struct flw_bed *bed)
{
    while (bed->count > 0) {
        flw_bed_free(bed, 0);
    }
}

void flw_bed_record_use(struct flw_bed *bed, unsigned index, unsigned stream)
{
    if (index >= bed->count) {
        return;
    }
    uint64_t before = calls_now(bed);
    arm(bed, "record_use");
    fallow_status status =
        bed->put.ops->record_use(bed->put.pool, bed->ptrs[index], bed->streams[stream]);
    disarm(bed, before);
    judge(bed, status, false);
}

static void plain_call(struct flw_bed *bed, const char *step,
                       fallow_status (*call)(struct flw_bed *bed, uint64_t argument),
                       uint64_t argument)
{
    if (bed->put.pool == NULL) {
        return;
    }
    uint64_t before = calls_now(bed);
    arm(bed, step);
    fallow_status status = call(bed, argument);
    disarm(bed, before);
    judge(bed, status, false);
}

static fallow_status call_trim(struct flw_bed *bed, uint64_t keep_bytes)
{
    return bed->put.ops->trim(bed->put.pool, keep_bytes);
}

static fallow_status call_retire(struct flw_bed *bed, uint64_t stream)
{
    return bed->put.ops->retire(bed->put.pool, bed->streams[stream]);
}

static fallow_status call_poll(struct flw_bed *bed, uint64_t unused)
{
    (void)unused;
    return bed->put.ops->poll(bed->put.pool);
}

void flw_bed_trim(struct flw_bed *bed, size_t keep_bytes)
{
    plain_call(bed, "trim", call_trim, keep_bytes);
}

void flw_bed_retire(struct flw_bed *bed, unsigned stream)
{
    plain_call(bed, "stream_retire", call_retire, stream);
    if (flw_bed_device_works(bed)) {
        (void)!bed->sim.cu.cuStreamDestroy_v2(bed->streams[stream]);
        (void)!bed->sim.cu.cuStreamCreate(&bed->streams[stream], CU_STREAM_NON_BLOCKING);
    }
}

void flw_bed_poll(struct flw_bed *bed)
{
    if (bed->put.ops->poll != NULL) {
        plain_call(bed, "poll", call_poll, 0);
    }
}

void flw_bed_finish_work(struct flw_bed *bed)
{
    bed->sim.step(UINT64_MAX);
}

static fallow_capture *current_capture;

static fallow_status call_capture_begin(struct flw_bed *bed, uint64_t stream)
{
    return bed->put.ops->capture_begin(bed->put.pool, bed->streams[stream], &current_capture);
}

static fallow_status call_capture_end(struct flw_bed *bed, uint64_t unused)
{
    (void)unused;
    return bed->put.ops->capture_end(current_capture);
}

static fallow_status call_capture_release(struct flw_bed *bed, uint64_t unused)
{
    (void)unused;
    return bed->put.ops->capture_release(current_capture);
}

static void launch_once(struct flw_bed *bed, CUgraph graph, unsigned stream)
{
    CUgraphExec executable = NULL;
    const struct flw_driver *cu = &bed->sim.cu;
    if (cu->cuGraphInstantiateWithFlags(&executable, graph, 0) != CUDA_SUCCESS ||
        cu->cuGraphLaunch(executable, bed->streams[stream]) != CUDA_SUCCESS ||
        cu->cuGraphExecDestroy(executable) != CUDA_SUCCESS) {
        complain(bed, "the graph cannot be launched", FALLOW_DRIVER);
    }
    (void)!cu->cuGraphDestroy(graph);
}

void flw_bed_capture(struct flw_bed *bed, unsigned stream)
{
    if (bed->put.pool == NULL || bed->put.ops->capture_begin == NULL) {
        return;
    }
    const struct flw_driver *cu = &bed->sim.cu;
    CUgraph graph = NULL;
    current_capture = NULL;
    plain_call(bed, "capture_begin", call_capture_begin, stream);
    if (current_capture == NULL) {
        return;
    }
    bool captures = flw_bed_device_works(bed) &&
                    cu->cuStreamBeginCapture_v2(bed->streams[stream],
                                                CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS;
    unsigned allocated = bed->count;
    bed->is_capturing = true;
    flw_bed_alloc(bed, 5000, stream);
    flw_bed_alloc(bed, 3 << 20, stream);
    flw_bed_free(bed, allocated);
    bed->is_capturing = false;
    if (captures && flw_bed_device_works(bed) &&
        cu->cuStreamEndCapture(bed->streams[stream], &graph) != CUDA_SUCCESS) {
        complain(bed, "the pool broke the capture", FALLOW_DRIVER);
    }
    plain_call(bed, "capture_end", call_capture_end, 0);
    if (graph != NULL && flw_bed_device_works(bed)) {
        launch_once(bed, graph, stream);
    }
    plain_call(bed, "capture_release", call_capture_release, 0);
    flw_bed_free(bed, allocated);
}

/* Check a pool that was not lost. */
static void check_whole(struct flw_bed *bed)
{
    fallow_stats stats;
    bed->step = "get_stats";
    fallow_status status = bed->put.ops->get_stats(bed->put.pool, &stats);
    flw_sim_ledger ledger = flw_sim_read_ledger(&bed->sim);
    if (status != FALLOW_OK || stats.requested_bytes != 0 || stats.live_count != 0) {
        complain(bed, "blocks are counted as allocated after the last free", status);
    }
    if (bed->put.ops->exact_ledger && !bed->was_tried_in_vain &&
        stats.reserved_bytes != ledger.given_bytes) {
        complain(bed, "reserved is not what the driver has given", status);
    }
    bed->step = "validate";
    status = bed->put.ops->validate != NULL ? bed->put.ops->validate(bed->put.pool) : FALLOW_OK;
    if (status != FALLOW_OK) {
        complain(bed, "an invariant is broken", status);
    }
}

static bool is_lost(struct flw_bed *bed)
{
    void *ptr = NULL;
    fallow_status status = bed->put.ops->alloc(bed->put.pool, 100, bed->streams[0], &ptr);
    if (status == FALLOW_OK &&
        bed->put.ops->free(bed->put.pool, ptr, bed->streams[0]) != FALLOW_OK) {
        complain(bed, "a good free failed", status);
    }
    return status == FALLOW_DEVICE_LOST || status == FALLOW_DRIVER;
}

/* Trim three times. Nothing completes while the device is held: the second trim finds the first
 * one's events complete; the third waits for memory without an event, and for the device before it
 * releases segments. */
static void trim_all(struct flw_bed *bed)
{
    for (int i = 0; i < 3; i++) {
        size_t released = 0;
        bed->step = "trim_within";
        fallow_status status =
            bed->put.ops->trim_within(bed->put.pool, 0, i == 2 ? UINT64_MAX : 0, &released);
        if (status != FALLOW_OK) {
            complain(bed, "a trim fails", status);
        }
        bed->sim.step(UINT64_MAX);
    }
}

/* Check that the pool works again once the driver does: grow it, then release everything. */
static void check_service(struct flw_bed *bed)
{
    bed->has_recovered = true;
    bed->sim.step(UINT64_MAX);
    trim_all(bed);
    flw_bed_alloc(bed, (size_t)20 << 20, 0);
    if (bed->count == 0) {
        complain(bed, "the driver serves again, and the pool does not", FALLOW_OUT_OF_MEMORY);
    }
    flw_bed_free_all(bed);
    bed->sim.step(UINT64_MAX);
    trim_all(bed);
    fallow_stats stats;
    bed->step = "get_stats after a trim";
    fallow_status status = bed->put.ops->get_stats(bed->put.pool, &stats);
    if (status != FALLOW_OK || stats.reserved_bytes != 0) {
        complain(bed, "memory stays that nobody uses", status);
    }
}

void flw_bed_destroy(struct flw_bed *bed)
{
    if (bed->put.pool == NULL) {
        return;
    }
    flw_bed_free_all(bed);
    if (bed->has_fired && !bed->sticky) {
        check_service(bed);
    }
    bed->step = "alloc";
    bool lost = is_lost(bed) || bed->lost;
    if (!lost) {
        check_whole(bed);
    }
    bool fired_before = bed->has_fired;
    uint64_t before = calls_now(bed);
    arm(bed, "destroy");
    bed->put.ops->destroy(bed->put.pool);
    disarm(bed, before);
    bed->fired_in_destroy = bed->has_fired && !fired_before;
    flw_sim_ledger ledger = flw_sim_read_ledger(&bed->sim);
    bool may_leave = bed->lasts || bed->sticky;
    bool exempt = lost || bed->was_tried_in_vain || (bed->fired_in_destroy && may_leave) ||
                  !flw_bed_device_works(bed);
    if (!exempt &&
        (ledger.given_bytes != 0 || ledger.event_count != 0 || ledger.handle_count != 0 ||
         ledger.mapping_count != 0 || ledger.reserved_address_bytes != 0)) {
        fprintf(stderr,
                "left: %llu bytes, %llu events, %llu handles, %llu mappings, %llu addresses\n",
                (unsigned long long)ledger.given_bytes, (unsigned long long)ledger.event_count,
                (unsigned long long)ledger.handle_count, (unsigned long long)ledger.mapping_count,
                (unsigned long long)ledger.reserved_address_bytes);
        complain(bed, "destroy left something behind", FALLOW_OK);
    }
    if (lost && fired_before && calls_now(bed) != before && bed->put.ops->exact_ledger) {
        complain(bed, "a lost pool made a driver call in destroy", FALLOW_OK);
    }
    if (flw_sim_print_violations(&bed->sim) != 0) {
        complain(bed, "a rule of the device is broken", FALLOW_OK);
    }
}
