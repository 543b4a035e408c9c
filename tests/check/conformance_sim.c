/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases for the simulated driver only: the hostile behaviours, the controls and the rule
 * checker. A real driver may behave this way and promises nothing. */
#include <string.h>

#define MODULE "sim"
#include "conformance.h"

/* ---- handles and addresses are reused at once ---- */

OURS(destroyed_handles_are_handed_out_again)
{
    const struct flw_driver *cu = b->cu;
    CUstream stream[2];
    CUevent event[2];
    CUcontext context[2];
    for (int i = 0; i < 2; i++) {
        OK(cu->cuStreamCreate(&stream[i], 0));
        OK(cu->cuStreamDestroy_v2(stream[i]));
        OK(cu->cuEventCreate(&event[i], 0));
        OK(cu->cuEventDestroy_v2(event[i]));
        OK(cu->cuCtxCreate_v2(&context[i], 0, 0));
        OK(cu->cuCtxDestroy_v2(context[i]));
    }
    THAT(stream[0] == stream[1] && event[0] == event[1] && context[0] == context[1]);
    IS(CUDA_ERROR_INVALID_HANDLE, cu->cuStreamQuery(stream[0]));
    IS(CUDA_ERROR_INVALID_HANDLE, cu->cuEventQuery(event[0]));
}

OURS(mild_handles_are_not)
{
    CUstream first = NULL, second = NULL;
    flw_sim_config config = bed_world();
    config.mild = FLW_SIM_MILD_HANDLE_REUSE;
    bed_restart(b, &config);
    OK(b->cu->cuStreamCreate(&first, 0));
    OK(b->cu->cuStreamDestroy_v2(first));
    OK(b->cu->cuStreamCreate(&second, 0));
    THAT(first != second);
}

OURS(released_addresses_are_handed_out_again)
{
    const struct flw_driver *cu = b->cu;
    CUdeviceptr block[2];
    for (int i = 0; i < 2; i++) {
        OK(cu->cuMemAlloc_v2(&block[i], 4u << 20));
        OK(cu->cuMemFree_v2(block[i]));
    }
    THAT(block[0] == block[1]);
}

OURS(released_reservations_are_handed_out_again)
{
    CUdeviceptr range[2];
    size_t bytes = 16 * bed_grain(b);
    for (int i = 0; i < 2 && b->skip == NULL; i++) {
        OK(b->cu->cuMemAddressReserve(&range[i], bytes, 0, 0, 0));
        OK(b->cu->cuMemAddressFree(range[i], bytes));
    }
    THAT(range[0] == range[1]);
}

OURS(new_memory_holds_garbage)
{
    CUdeviceptr address = 0;
    unsigned char bytes[4096];
    unsigned zeros = 0;
    OK(b->cu->cuMemAlloc_v2(&address, sizeof bytes));
    flw_sim_config config = bed_world();
    config.check = 0; /* with the checker, reading unwritten memory is reported */
    bed_restart(b, &config);
    OK(b->cu->cuMemAlloc_v2(&address, sizeof bytes));
    OK(b->cu->cuMemcpyDtoH_v2(bytes, address, sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++) {
        zeros += bytes[i] == 0;
    }
    THAT(zeros < sizeof bytes / 8);
}

OURS(mild_memory_is_zero)
{
    CUdeviceptr address = 0;
    flw_sim_config config = bed_world();
    config.check = 0;
    config.mild = FLW_SIM_MILD_GARBAGE;
    bed_restart(b, &config);
    OK(b->cu->cuMemAlloc_v2(&address, 4096));
    THAT(bed_peek(b, address) == 0 && bed_peek(b, address + 4092) == 0);
}

/* ---- the queue ---- */

/* The call that finds the queue full does not return before the device has taken something. */
OURS(a_full_stream_blocks_the_caller)
{
    CUstream stream = NULL;
    flw_sim_range none = {0};
    for (int mild = 0; mild < 2; mild++) {
        flw_sim_config config = bed_world();
        config.queue_depth = 8;
        config.mild = mild != 0 ? FLW_SIM_MILD_QUEUE_DEPTH : 0;
        bed_restart(b, &config);
        OK(b->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        for (int i = 0; i < 12; i++) {
            OK((CUresult)b->sim.touch(stream, &none, 0));
        }
        uint64_t left = b->sim.step(100);
        THAT(mild != 0 ? left == 12 : left > 0 && left <= 8);
    }
}

OURS(held_work_waits_for_a_step)
{
    CUstream stream = NULL;
    flw_sim_range none = {0};
    OK(b->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 3; i++) {
        OK((CUresult)b->sim.touch(stream, &none, 0));
    }
    for (int i = 0; i < 50; i++) {
        IS(CUDA_ERROR_NOT_READY, b->cu->cuStreamQuery(stream));
    }
    THAT(b->sim.step(2) == 2);
    IS(CUDA_ERROR_NOT_READY, b->cu->cuStreamQuery(stream));
    THAT(b->sim.step(10) == 1);
    OK(b->cu->cuStreamQuery(stream));
}

OURS(random_work_completes_by_itself)
{
    CUstream stream = NULL;
    flw_sim_range none = {0};
    flw_sim_config config = bed_world();
    config.schedule = FLW_SIM_RANDOM;
    bed_restart(b, &config);
    OK(b->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK((CUresult)b->sim.touch(stream, &none, 0));
    int queries = 0;
    while (queries < 100000 && b->cu->cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
        queries++;
    }
    THAT(queries < 100000);
}

OURS(on_the_clock_work_takes_its_lag)
{
    CUstream stream = NULL;
    flw_sim_range none = {0};
    flw_sim_config config = bed_world();
    config.schedule = FLW_SIM_CLOCK;
    config.lag_ns = 1000;
    config.check = 0;
    bed_restart(b, &config);
    OK(b->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK((CUresult)b->sim.touch(stream, &none, 0));
    b->sim.advance(999);
    IS(CUDA_ERROR_NOT_READY, b->cu->cuStreamQuery(stream));
    b->sim.advance(1);
    OK(b->cu->cuStreamQuery(stream));
}

/* ---- host functions ---- */

static struct bed *calling_bed;
static CUresult called_from_host;

static void CUDA_CB call_the_driver(void *argument)
{
    CUdeviceptr address = 0;
    (void)argument;
    called_from_host = calling_bed->cu->cuMemAlloc_v2(&address, 4096);
}

OURS(calls_from_host_functions_are_refused)
{
    calling_bed = b;
    called_from_host = CUDA_SUCCESS;
    OK(b->cu->cuLaunchHostFunc(NULL, call_the_driver, NULL));
    OK(b->cu->cuCtxSynchronize());
    THAT(called_from_host == CUDA_ERROR_NOT_PERMITTED);
}

/* ---- faults ---- */

/* Every entry point takes integers and pointers only, and a planned failure precedes any use of
 * them, so calling each with zeros is sound on the calling conventions we build for. */
typedef CUresult (*any_entry)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                              uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

__attribute__((no_sanitize("undefined"))) static CUresult call_with_zeros(any_entry entry)
{
    return entry(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

static const struct {
    const char *name;
    size_t offset;
} entries[] = {
#define X(need, symbol, since, before, parameters) {#symbol, offsetof(struct flw_driver, symbol)},
    FLW_DRIVER_ENTRY_POINTS(X)
#undef X
};
#define ENTRIES (sizeof entries / sizeof *entries)

OURS(every_entry_point_fails_when_told_to)
{
    for (size_t i = 0; i < ENTRIES; i++) {
        any_entry entry;
        memcpy(&entry, (const char *)b->cu + entries[i].offset, sizeof entry);
        if (entry == NULL) {
            continue; /* an old driver has no such entry point */
        }
        bed_that(b, b->sim.fail(entries[i].name, 1, CUDA_ERROR_ECC_UNCORRECTABLE, 0) != 0,
                 entries[i].name, __LINE__);
        bed_result(b, call_with_zeros(entry), CUDA_ERROR_ECC_UNCORRECTABLE, entries[i].name,
                   __LINE__);
    }
    THAT(b->sim.fail("cuSowAndReap", 1, CUDA_ERROR_UNKNOWN, 0) == 0);
    OK(b->cu->cuCtxSynchronize());
}

OURS(the_nth_call_fails_and_only_that)
{
    CUdeviceptr address[4] = {0};
    THAT(b->sim.fail("cuMemAlloc_v2", 3, CUDA_ERROR_OUT_OF_MEMORY, 0) != 0);
    for (int i = 0; i < 4; i++) {
        CUresult want = i == 2 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
        IS(want, b->cu->cuMemAlloc_v2(&address[i], 4096));
    }
    THAT(b->sim.fail(NULL, 2, CUDA_ERROR_UNKNOWN, 0) != 0);
    OK(b->cu->cuCtxSynchronize());
    IS(CUDA_ERROR_UNKNOWN, b->cu->cuMemFree_v2(address[0]));
    OK(b->cu->cuMemFree_v2(address[0]));
    THAT(b->sim.fail("cuMemAlloc_v2", 2, CUDA_ERROR_NOT_PERMITTED, 2) != 0);
    for (int i = 0; i < 3; i++) {
        CUresult want = i == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
        IS(want, b->cu->cuMemAlloc_v2(&address[1], 4096));
    }
    THAT(b->sim.fail(NULL, 0, 0, 0) != 0); /* all forgotten */
    OK(b->cu->cuMemAlloc_v2(&address[0], 4096));
}

OURS(a_sticky_error_ends_its_context_only)
{
    const struct flw_driver *cu = b->cu;
    CUcontext made = NULL;
    CUdeviceptr address = 0;
    OK(cu->cuCtxCreate_v2(&made, 0, 0));
    THAT(b->sim.fail("cuMemAlloc_v2", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 1) != 0);
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu->cuMemAlloc_v2(&address, 4096));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu->cuMemAlloc_v2(&address, 4096));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu->cuCtxSynchronize());
    OK(cu->cuCtxDestroy_v2(made));
    OK(cu->cuMemAlloc_v2(&address, 4096));
}

/* True for calls independent of a device's work: they succeed in a broken context. */
static bool is_only_a_question(const char *name)
{
    static const char *const begins[] = {"cuInit",
                                         "cuDriverGet",
                                         "cuGetError",
                                         "cuGetProcAddress",
                                         "cuDeviceGetCount",
                                         "cuDeviceGetName",
                                         "cuDeviceGetAttribute",
                                         "cuDeviceTotalMem",
                                         "cuDeviceCanAccessPeer",
                                         "cuDevicePrimaryCtx",
                                         "cuCtxCreate",
                                         "cuCtxDestroy",
                                         "cuCtxPushCurrent",
                                         "cuCtxPopCurrent",
                                         "cuCtxSetCurrent",
                                         "cuCtxGet",
                                         "cuCtxFromGreenCtx",
                                         "cuThreadExchange",
                                         "cuFuncGet",
                                         "cuGraphExecDestroy",
                                         "cuGraphDestroy"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        if (strncmp(name, begins[i], strlen(begins[i])) == 0) {
            return true;
        }
    }
    return strcmp(name, "cuDeviceGet") == 0;
}

/* "This leaves the process in an inconsistent state and any further CUDA work will return the same
 * error." */
OURS(a_sticky_error_answers_every_later_work)
{
    CUdeviceptr address = 0;
    unsigned count = 0;
    THAT(b->sim.fail("cuMemAlloc_v2", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 1) != 0);
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, b->cu->cuMemAlloc_v2(&address, 4096));
    for (size_t i = 0; i < ENTRIES; i++) {
        any_entry entry;
        memcpy(&entry, (const char *)b->cu + entries[i].offset, sizeof entry);
        if (entry != NULL && !is_only_a_question(entries[i].name)) {
            bed_result(b, call_with_zeros(entry), CUDA_ERROR_ILLEGAL_ADDRESS, entries[i].name,
                       __LINE__);
            count++;
        }
    }
    THAT(count > 60);
}

/* ---- the ledger ---- */

OURS(the_ledger_counts_what_was_given)
{
    struct bed_mapping m;
    flw_sim_ledger before = flw_sim_read_ledger(&b->sim);
    NEED(bed_map(b, &m, 2, 0));
    flw_sim_ledger during = flw_sim_read_ledger(&b->sim);
    THAT(during.given_bytes == before.given_bytes + 2 * m.grain_bytes);
    THAT(during.handle_count == before.handle_count + 2);
    THAT(during.mapping_count == before.mapping_count + 2);
    THAT(during.reserved_address_bytes >= before.reserved_address_bytes + 2 * m.grain_bytes);
    bed_unmap(b, &m);
    flw_sim_ledger after = flw_sim_read_ledger(&b->sim);
    THAT(after.given_bytes == before.given_bytes && after.handle_count == before.handle_count);
    THAT(after.mapping_count == before.mapping_count);
    THAT(after.peak_given_bytes >= during.given_bytes);
}

/* ---- the rule checker ---- */

struct field {
    CUstream stream[2];
    CUevent event;
    CUdeviceptr address;
};

static struct field plough(struct bed *b)
{
    return (struct field){{bed_stream(b), bed_stream(b)}, bed_event(b), bed_alloc(b, 1u << 20)};
}

static void touch(struct bed *b, CUstream stream, CUdeviceptr address, size_t bytes, bool write)
{
    flw_sim_range range = {.address = address, .bytes = bytes, .is_write = write};
    b->sim.touch(stream, &range, 1);
}

static void expect_violations(struct bed *b, bool some)
{
    OK(b->cu->cuCtxSynchronize());
    uint64_t count = flw_sim_read_ledger(&b->sim).violation_count;
    THAT((count > 0) == some);
    THAT((b->sim.violation(0) != NULL) == some);
}

/* cuCtxEnablePeerAccess applies to allocations; mappings have their own access flags. A forbidden access breaks the
 * context, so each access uses a new one. */
static void expect_reach(struct bed *b, CUcontext peer, CUdeviceptr address, bool is_reached)
{
    CUcontext made = NULL;
    CUstream stream = NULL;
    OK(b->cu->cuCtxCreate_v2(&made, 0, 0));
    OK(b->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (peer != NULL) {
        OK(b->cu->cuCtxEnablePeerAccess(peer, 0));
    }
    flw_sim_range range = {.address = address, .bytes = 4096};
    (void)b->sim.touch(stream, &range, 1);
    IS(is_reached ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS, b->cu->cuCtxSynchronize());
    OK(b->cu->cuCtxDestroy_v2(made));
}

OURS(a_device_reaches_another_ones_memory_only_if_allowed)
{
    CUcontext peer = NULL;
    CUdeviceptr address = 0;
    OK(b->cu->cuDevicePrimaryCtxRetain(&peer, 1));
    OK(b->cu->cuCtxPushCurrent_v2(peer));
    OK(b->cu->cuMemAlloc_v2(&address, 4096));
    OK(b->cu->cuCtxPopCurrent_v2(NULL));
    expect_reach(b, NULL, address, false);
    expect_reach(b, peer, address, true);
    expect_reach(b, NULL, address, false); /* peer access is per context */
    OK(b->cu->cuDevicePrimaryCtxRelease_v2(1));
}

OURS(an_enabled_peer_is_given_no_mapping)
{
    CUcontext peer = NULL;
    struct bed_mapping m;
    b->device = 1;
    bool is_mapped = bed_map(b, &m, 1, 0);
    b->device = 0;
    NEED(is_mapped);
    OK(b->cu->cuDevicePrimaryCtxRetain(&peer, 1));
    expect_reach(b, peer, m.address, false);
    bed_unmap(b, &m);
    OK(b->cu->cuDevicePrimaryCtxRelease_v2(1));
}

OURS(a_pool_is_reached_by_devices_with_access)
{
    CUresult (*set)(CUmemoryPool, const CUmemAccessDesc *, size_t) = NULL;
    void *symbol = flw_driver_entry(b->cu, "cuMemPoolSetAccess");
    CUcontext peer = NULL;
    CUmemoryPool pool = NULL;
    CUdeviceptr address = 0;
    CUmemAccessDesc access = bed_access(b, CU_MEM_ACCESS_FLAGS_PROT_READ);
    NEED(bed_has(b, symbol != NULL));
    memcpy(&set, &symbol, sizeof set);
    NEED(bed_has_attribute(b, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, "no pools"));
    OK(b->cu->cuDevicePrimaryCtxRetain(&peer, 1));
    OK(b->cu->cuDeviceGetDefaultMemPool(&pool, 1));
    OK(b->cu->cuCtxPushCurrent_v2(peer));
    OK(b->cu->cuMemAllocAsync(&address, 4096, NULL));
    OK(b->cu->cuCtxSynchronize());
    OK(b->cu->cuCtxPopCurrent_v2(NULL));
    expect_reach(b, peer, address, false);
    OK(set(pool, &access, 1));
    expect_reach(b, NULL, address, true);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    OK(set(pool, &access, 1));
    expect_reach(b, NULL, address, false);
    OK(b->cu->cuDevicePrimaryCtxRelease_v2(1));
}

OURS(unordered_writes_are_found)
{
    struct field f = plough(b);
    touch(b, f.stream[0], f.address, 4096, true);
    touch(b, f.stream[1], f.address + 4000, 4096, true);
    expect_violations(b, true);
}

OURS(a_wait_orders_them)
{
    struct field f = plough(b);
    touch(b, f.stream[0], f.address, 4096, true);
    OK(b->cu->cuEventRecord(f.event, f.stream[0]));
    OK(b->cu->cuStreamWaitEvent(f.stream[1], f.event, 0));
    touch(b, f.stream[1], f.address, 4096, true);
    expect_violations(b, false);
}

OURS(a_record_before_the_write_does_not)
{
    struct field f = plough(b);
    OK(b->cu->cuEventRecord(f.event, f.stream[0]));
    touch(b, f.stream[0], f.address, 4096, true);
    OK(b->cu->cuStreamWaitEvent(f.stream[1], f.event, 0));
    touch(b, f.stream[1], f.address, 4096, true);
    expect_violations(b, true);
}

OURS(reads_may_be_unordered)
{
    struct field f = plough(b);
    touch(b, f.stream[0], f.address, 4096, true);
    OK(b->cu->cuStreamSynchronize(f.stream[0]));
    touch(b, f.stream[0], f.address, 4096, false);
    touch(b, f.stream[1], f.address, 4096, false);
    expect_violations(b, false);
}

OURS(a_query_seen_complete_orders)
{
    struct field f = plough(b);
    touch(b, f.stream[0], f.address, 4096, true);
    OK(b->cu->cuEventRecord(f.event, f.stream[0]));
    b->sim.step(~0ull);
    OK(b->cu->cuEventQuery(f.event));
    touch(b, f.stream[1], f.address, 4096, true);
    expect_violations(b, false);
}

OURS(done_but_not_seen_does_not_order)
{
    struct field f = plough(b);
    touch(b, f.stream[0], f.address, 4096, true);
    b->sim.step(~0ull); /* completed by chance, not by a query */
    touch(b, f.stream[1], f.address, 4096, true);
    expect_violations(b, true);
}

OURS(a_free_address_is_found)
{
    struct field f = plough(b);
    touch(b, f.stream[0], f.address + (64ull << 30), 4096, true);
    b->cu->cuCtxSynchronize();
    THAT(flw_sim_read_ledger(&b->sim).violation_count > 0 ||
         b->cu->cuCtxSynchronize() != CUDA_SUCCESS);
    b->object_count = 0; /* the context is lost */
}

OURS(unmapping_under_work_is_found)
{
    struct bed_mapping m;
    struct field f = plough(b);
    NEED(bed_map(b, &m, 1, 0));
    touch(b, f.stream[0], m.address, 4096, true);
    OK(b->cu->cuMemUnmap(m.address, m.grain_bytes)); /* does not wait */
    THAT(flw_sim_read_ledger(&b->sim).violation_count > 0);
    b->object_count = 0; /* the context is lost */
}

/* An assumption: cuda.h does not describe calls over two reservations. */
OURS(no_call_covers_two_reservations)
{
    struct bed_mapping m;
    CUdeviceptr next = 0;
    CUmemAccessDesc access = bed_access(b, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    NEED(bed_map(b, &m, 1, 0));
    OK(b->cu->cuMemAddressReserve(&next, m.grain_bytes, 0, m.address + m.grain_bytes, 0));
    OK(b->cu->cuMemMap(next, m.grain_bytes, 0, m.handle[0], 0));
    if (next == m.address + m.grain_bytes) {
        REFUSED(b->cu->cuMemSetAccess(m.address, 2 * m.grain_bytes, &access, 1));
        REFUSED(b->cu->cuMemUnmap(m.address, 2 * m.grain_bytes));
    }
    OK(b->cu->cuMemUnmap(next, m.grain_bytes));
    OK(b->cu->cuMemAddressFree(next, m.grain_bytes));
    bed_unmap(b, &m);
}

OURS(unwritten_bytes_are_found)
{
    struct field f = plough(b);
    touch(b, f.stream[0], f.address, 64, true);
    OK(b->cu->cuStreamSynchronize(f.stream[0]));
    b->sim.forget(f.address, 64);
    bed_peek(b, f.address + 4);
    THAT(flw_sim_read_ledger(&b->sim).violation_count > 0);
}

OURS(a_named_range_is_named_in_the_sentence)
{
    struct field f = plough(b);
    b->sim.name(f.address, 1u << 20, "the lower meadow");
    touch(b, f.stream[0], f.address, 4096, true);
    touch(b, f.stream[1], f.address, 4096, true);
    expect_violations(b, true);
    const char *sentence = b->sim.violation(0);
    THAT(sentence != NULL && strstr(sentence, "the lower meadow") != NULL);
    b->sim.name(f.address, 1u << 20, NULL);
}

OURS(a_reset_begins_a_new_world)
{
    CUdeviceptr address = 0;
    unsigned long long before = 0, after = 0;
    OK(b->cu->cuMemAlloc_v2(&address, 4096));
    OK(b->cu->cuCtxGetId(NULL, &before));
    flw_sim_config config = bed_world();
    bed_restart(b, &config);
    THAT(flw_sim_read_ledger(&b->sim).given_bytes == 0);
    THAT(flw_sim_read_ledger(&b->sim).call_count == 3); /* calls made by restart */
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemFree_v2(address));
    OK(b->cu->cuCtxGetId(NULL, &after));
    THAT(before != after);
}

OURS(calls_before_init_are_refused)
{
    flw_sim_config config = bed_world();
    int count = 0;
    b->sim.reset(&config);
    IS(CUDA_ERROR_NOT_INITIALIZED, b->cu->cuDeviceGetCount(&count));
    OK(b->cu->cuInit(0));
    OK(b->cu->cuDeviceGetCount(&count));
}
