/* SPDX-License-Identifier: Apache-2.0 */
#include "host/pin.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bits.h"

#include "fallow/extend.h"

/* From linux/mempolicy.h; three calls need no library. */
#define POLICY_PREFERRED 1
#define MEMS_ALLOWED     4
#define MOST_NODES       1024
#define WORD_BITS        (8 * sizeof(unsigned long))
#define NODE_WORDS       (MOST_NODES / WORD_BITS)

/* ---- nodes */

static bool may_use(const unsigned long *nodes, int node)
{
    return node >= 0 && node < MOST_NODES && (nodes[node / WORD_BITS] >> node % WORD_BITS & 1) != 0;
}

/* Return how many nodes this process may use; 0: unknown. */
static unsigned read_nodes(unsigned long *nodes)
{
    unsigned count = 0;
    memset(nodes, 0, NODE_WORDS * sizeof *nodes);
    if (syscall(SYS_get_mempolicy, NULL, nodes, MOST_NODES, NULL, MEMS_ALLOWED) != 0) {
        return 0;
    }
    for (size_t i = 0; i < NODE_WORDS; i++) {
        count += (unsigned)__builtin_popcountl(nodes[i]);
    }
    return count;
}

/* Bind pages that appear in the range later to the node, while it has any. */
static bool bind_to(void *address, uint64_t bytes, int node)
{
    unsigned long nodes[NODE_WORDS] = {0};
    nodes[node / WORD_BITS] = 1ul << node % WORD_BITS;
    return syscall(SYS_mbind, address, bytes, POLICY_PREFERRED, nodes, MOST_NODES, 0) == 0;
}

/* True if this process may bind; containers often forbid it. */
static bool can_bind(int node)
{
    void *page =
        mmap(NULL, FLW_HOST_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool can = page != MAP_FAILED && bind_to(page, FLW_HOST_PAGE, node);
    if (page != MAP_FAILED) {
        munmap(page, FLW_HOST_PAGE);
    }
    return can;
}

static int device_node(struct flw_pin *pin)
{
    CUdevice device = 0;
    int node = -1;
    CUresult result = flw_pin_ask(pin)->cuCtxGetDevice(&device);
    if (result == CUDA_SUCCESS) {
        result =
            flw_pin_ask(pin)->cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device);
    }
    return result == CUDA_SUCCESS ? node : -1;
}

static fallow_status choose_node(struct flw_pin *pin, const fallow_host_config *config,
                                 char *message)
{
    unsigned long nodes[NODE_WORDS];
    unsigned count = read_nodes(nodes);
    bool can_register = pin->cu.cuMemHostRegister_v2 != NULL && pin->cu.cuMemHostUnregister != NULL;
    if (config->placement == FALLOW_HOST_ON_NODE) {
        int node = config->numa_node < MOST_NODES ? (int)config->numa_node : MOST_NODES;
        if (!may_use(nodes, node) || !can_register || !can_bind(node)) {
            snprintf(
                message, FLW_DRIVER_MESSAGE_BYTES,
                "fallow_host_create: memory cannot be bound to NUMA node %u: check that the node exists and that mbind(2) is allowed here (a container needs CAP_SYS_NICE), or use FALLOW_HOST_ANYWHERE",
                config->numa_node);
            return FALLOW_NOT_SUPPORTED;
        }
        atomic_init(&pin->node, node);
        pin->is_strict = true;
    } else if (config->placement == FALLOW_HOST_NEAR_DEVICE && count > 1 && can_register) {
        int node = device_node(pin);
        atomic_init(&pin->node, may_use(nodes, node) && can_bind(node) ? node : -1);
    }
    return FALLOW_OK;
}

/* ---- the driver */

static const char *fill_table(struct flw_pin *pin, fallow_pool *pool)
{
    const char *missing = NULL;
#define X(need, symbol, since, before, parameters)                                    \
    {                                                                                 \
        void *address = fallow_pool_driver_entry(pool, #symbol);                      \
        memcpy(&pin->cu.symbol, &address, sizeof address);                            \
        missing = missing == NULL && #need[0] == 'R' && !address ? #symbol : missing; \
    }
    FLW_DRIVER_ENTRY_POINTS(X)
#undef X
    return missing;
}

fallow_status flw_pin_init(struct flw_pin *pin, fallow_pool *pool, const fallow_host_config *config,
                           char *message)
{
    struct flw_pin_section section;
    message[0] = '\0';
    *pin = (struct flw_pin){.context = fallow_pool_context(pool)};
    atomic_init(&pin->node, -1);
    if (pin->context == NULL) {
        snprintf(
            message, FLW_DRIVER_MESSAGE_BYTES,
            "fallow_host_create: the device pool is destroyed; create the host pool before that");
        return FALLOW_INVALID_POOL;
    }
    const char *missing = fill_table(pin, pool);
    if (missing != NULL) {
        snprintf(
            message, FLW_DRIVER_MESSAGE_BYTES,
            "fallow_host_create: the driver lacks '%s': install a driver of CUDA 11.4 or newer",
            missing);
        return FALLOW_VERSION;
    }
    fallow_status status = FALLOW_DRIVER;
    if (flw_pin_enter(pin, &section, NULL)) {
        status = choose_node(pin, config, message);
        flw_pin_leave(pin, &section);
    }
    if (flw_pin_is_lost(pin)) {
        snprintf(message, FLW_DRIVER_MESSAGE_BYTES,
                 "fallow_host_create: %s answered %s: the pool's context does not work any more",
                 atomic_load(&pin->lost_call), flw_pin_error_name(pin, pin->lost_error));
        status = FALLOW_DRIVER;
    } else if (status == FALLOW_DRIVER) {
        snprintf(message, FLW_DRIVER_MESSAGE_BYTES,
                 "fallow_host_create: the driver does not make the pool's context current: %s",
                 flw_pin_error_name(pin, (int)section.refusal));
    }
    return status;
}

#define LEAVE_TRIES 3 /* retries, so that the program's context does not stay covered */

bool flw_pin_enter(struct flw_pin *pin, struct flw_pin_section *section, CUcontext context)
{
    FLW_ASSERT(flw_lock_none_held());
    if (flw_pin_is_lost(pin)) {
        section->refusal = (CUresult)atomic_load(&pin->lost_error);
        return false;
    }
    bool is_own = context == NULL || context == pin->context;
    section->refusal = flw_section_open(&section->frame, &pin->cu, is_own ? pin->context : context,
                                        FLW_SECTION_BOTH, &pin->call_count);
    if (section->refusal != CUDA_SUCCESS && is_own) {
        flw_pin_heed(pin, section->refusal, section->frame.refused);
    }
    return section->refusal == CUDA_SUCCESS;
}

void flw_pin_hold(struct flw_pin *pin, struct flw_pin_section *section)
{
    section->refusal = CUDA_SUCCESS;
    flw_section_hold(&section->frame, &pin->cu, pin->context, &pin->call_count);
}

void flw_pin_leave(struct flw_pin *pin, struct flw_pin_section *section)
{
    FLW_ASSERT(flw_lock_none_held());
    CUresult result = flw_section_close(&section->frame);
    if (result != CUDA_SUCCESS) {
        flw_pin_heed(pin, result, section->frame.refused);
    }
}

void flw_pin_heed(struct flw_pin *pin, CUresult result, const char *call)
{
    if (flw_result_is_gone(result)) {
        flw_pin_lose(pin, result, call);
    }
}

void flw_pin_lose(struct flw_pin *pin, CUresult error, const char *call)
{
    int none = 0;
    if (atomic_load(&pin->lost_call) == NULL) {
        atomic_store(&pin->lost_call, call);
    }
    (void)atomic_compare_exchange_strong(&pin->lost_error, &none, (int)error);
}

const char *flw_pin_error_name(const struct flw_pin *pin, int error)
{
    const char *name = NULL;
    return pin->cu.cuGetErrorName((CUresult)error, &name) == CUDA_SUCCESS && name != NULL
               ? name
               : "an unknown driver error";
}

/* ---- memory */

static CUresult allocate(struct flw_pin *pin, struct flw_chunk *chunk)
{
    void *address = NULL;
    CUresult result = flw_pin_ask(pin)->cuMemHostAlloc(&address, flw_chunk_bytes(chunk),
                                                       CU_MEMHOSTALLOC_PORTABLE);
    chunk->base = address;
    return result;
}

/* Pages appear on their node when the driver pins them. */
static CUresult map_and_register(struct flw_pin *pin, struct flw_chunk *chunk, int node)
{
    uint64_t bytes = flw_chunk_bytes(chunk);
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* If a forked child shared the pages, the parent's next write would move the parent to new
     * pages, while the device would continue with the old ones. */
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (bind_to(address, bytes, node) && madvise(address, bytes, MADV_DONTFORK) == 0) {
        result =
            flw_pin_ask(pin)->cuMemHostRegister_v2(address, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    }
    if (result != CUDA_SUCCESS) {
        munmap(address, bytes);
        return result;
    }
    chunk->base = address;
    chunk->is_registered = true;
    chunk->is_bound = true;
    return CUDA_SUCCESS;
}

CUresult flw_pin_acquire(struct flw_pin *pin, struct flw_chunk *chunk, const char **out_call)
{
    int node = atomic_load(&pin->node);
    *out_call = "cuMemHostRegister";
    if (node >= 0) {
        CUresult result = map_and_register(pin, chunk, node);
        bool is_refused = result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED;
        if (!is_refused || pin->is_strict) {
            return result;
        }
        atomic_store(&pin->node, -1); /* from now on without an attempt */
    }
    *out_call = "cuMemHostAlloc";
    return allocate(pin, chunk);
}

CUresult flw_pin_release(struct flw_pin *pin, const struct flw_chunk *chunk)
{
    const struct flw_driver *cu = flw_pin_ask(pin);
    if (!chunk->is_registered) {
        return cu->cuMemFreeHost(chunk->base);
    }
    CUresult result = cu->cuMemHostUnregister(chunk->base);
    if (result == CUDA_SUCCESS) {
        munmap(chunk->base, flw_chunk_bytes(chunk));
    }
    return result;
}
