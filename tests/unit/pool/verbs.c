/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the verbs of script files, except those of blocks (blocks.c); values.c has the values.
 */
#include "unit/pool/script.h"

#include <unistd.h>

#include "fallow/extend.h"
#include "fallow/share.h"
#include "fallow/sleep.h"
#include "support/trim.h"

#define cu (script.sim.cu)

/* Return the value of the word KEY=VALUE, or NULL. */
const char *script_option(const struct script_call *call, const char *key)
{
    size_t length = strlen(key);
    for (int i = 1; i < call->count; i++) {
        if (strncmp(call->words[i], key, length) == 0 && call->words[i][length] == '=') {
            return call->words[i] + length + 1;
        }
    }
    return NULL;
}

bool script_has(const struct script_call *call, const char *word)
{
    for (int i = 1; i < call->count; i++) {
        if (strcmp(call->words[i], word) == 0) {
            return true;
        }
    }
    return false;
}

void script_know(const struct script_call *call, int first, const char *known)
{
    for (int i = first; i < call->count; i++) {
        size_t length = strcspn(call->words[i], "=");
        length += call->words[i][length] == '=';
        const char *at = known;
        while (strncmp(at, call->words[i], length) != 0 || at[length] != ' ') {
            at += strcspn(at, " ");
            if (*at++ == '\0') {
                script_fail("unknown word '%s'", call->words[i]);
            }
        }
    }
}

uint64_t script_number_of(const struct script_call *call, const char *key, uint64_t usual)
{
    const char *value = script_option(call, key);
    return value != NULL ? script_value(value) : usual;
}

/* Return the index of the value among `names` ("a|b|c"), or its number. */
static uint64_t choice(const struct script_call *call, const char *key, const char *names)
{
    const char *value = script_option(call, key);
    size_t length = value != NULL ? strlen(value) : 0;
    for (uint64_t i = 0; length > 0; i++) {
        size_t bytes = strcspn(names, "|");
        if (bytes == length && strncmp(names, value, bytes) == 0) {
            return i;
        }
        if (names[bytes] == '\0') {
            return script_value(value);
        }
        names += bytes + 1;
    }
    return 0;
}

/* ---- the world */

static fallow_status run_world(struct script_call *call)
{
    script_know(call, 1,
                "clock random unchecked backed vmm no-vmm no-ids new-handles lonely wants-context "
                "seed= device= devices= version= lag= depth= reserve-most= reserve-all= "
                "reserve-error= driver= ");
    if (script.has_world) {
        script_check_world();
    }
    flw_sim_config world = flw_sim_config_default(script_number_of(call, "seed", 7));
    world.schedule = script_has(call, "clock")    ? FLW_SIM_CLOCK
                     : script_has(call, "random") ? FLW_SIM_RANDOM
                                                  : FLW_SIM_HELD;
    world.check = !script_has(call, "unchecked");
    world.backed = script_has(call, "backed");
    world.without_vmm = script_has(call, "no-vmm");
    world.without_ids = script_has(call, "no-ids");
    world.mild = script_has(call, "new-handles") ? FLW_SIM_MILD_HANDLE_REUSE : 0;
    world.lonely_device = script_has(call, "lonely");
    world.wants_context = script_has(call, "wants-context");
    world.device_bytes = script_number_of(call, "device", 0);
    world.device_count = (int)script_number_of(call, "devices", 0);
    world.driver_version = (int)script_number_of(call, "version", 0);
    world.lag_ns = script_number_of(call, "lag", 0);
    world.queue_depth = (uint32_t)script_number_of(call, "depth", 0);
    world.reserve_most_bytes = script_number_of(call, "reserve-most", 0);
    world.reserve_all_bytes = script_number_of(call, "reserve-all", 0);
    world.reserve_error = (int)script_number_of(call, "reserve-error", 0);
    script_cuda(script.sim.play(script_option(call, "driver"), NULL, 0) == 1 ? CUDA_SUCCESS
                                                                             : CUDA_ERROR_UNKNOWN,
                "play");
    script.context = flw_sim_begin(&script.sim, &world);
    script.has_world = true;
    script.is_gone = script.is_violated = false;
    for (size_t i = 0; i < script.block_count; i++) {
        script.blocks[i].is_freed = true;
    }
    for (size_t i = 0; i < script.thing_count; i++) {
        script.things[i].handle = script.things[i].kind == 's' ? NULL : script.things[i].handle;
    }
    (void)script_stream("s");
    (void)script_stream("o");
    return FALLOW_OK;
}

static void keep_line(void *context, fallow_log_level level, const char *message)
{
    (void)context;
    script.alarm_count += level != FALLOW_LOG_INFO;
    if (strncmp(message, "the address space is limited", 28) != 0) {
        snprintf(script.log, sizeof script.log, "%s", message);
        script.log_count++;
    } else {
        script.alarm_count--;
    }
}

static int run_callback(void *context, size_t bytes, fallow_stream stream)
{
    (void)context;
    (void)bytes;
    (void)stream;
    script.oom_calls++;
    if (script.oom_length == 0) {
        return 0;
    }
    size_t length = script.oom_length;
    script.oom_length = 0; /* once */
    script_run_text(script.oom_body, length);
    return 1;
}

static fallow_status run_on_oom(struct script_call *call)
{
    script.oom_body = call->body != NULL ? call->body : "";
    script.oom_length = call->body_length;
    return FALLOW_OK;
}

/* "a+b": the bits of the names. */
static uint32_t bits(const char *value, const char *const *names, const uint32_t *values,
                     size_t count)
{
    uint32_t sum = 0;
    for (size_t i = 0; value != NULL && i < count; i++) {
        sum |= strstr(value, names[i]) != NULL ? values[i] : 0;
    }
    return sum == 0 && value != NULL ? (uint32_t)script_value(value) : sum;
}

static const char *const check_names[] = {"poison", "zones", "quarantine", "leaks"};
static const uint32_t check_values[] = {FALLOW_CHECK_POISON, FALLOW_CHECK_RED_ZONES,
                                        FALLOW_CHECK_QUARANTINE, FALLOW_CHECK_LEAKS};
static const char *const type_names[] = {"fd", "fabric"};
static const uint32_t type_values[] = {FALLOW_HANDLE_FD, FALLOW_HANDLE_FABRIC};

static uint32_t types_of(const char *value)
{
    return bits(value, type_names, type_values, 2);
}

/* pool [NAME] KEY=VALUE...; as in fallow_pool_config. The usual wait_ms lets an allocation wait for ever. */
static fallow_status run_pool(struct script_call *call)
{
    const char *name =
        call->count > 1 && strchr(call->words[1], '=') == NULL ? call->words[1] : "p";
    script_know(call, name == call->words[1] ? 2 : 1,
                "driver= device= limit= wait= economy= reuse= order= source= checks= types= dies= "
                "helper= decay= one= reserved= reserved_1= peer-count= peers= ");
    static int peers[16];
    fallow_pool_config config;
    fallow_pool *pool = NULL;
    if (!script.has_world) {
        (void)run_world(&(struct script_call){.count = 1});
    }
    fallow_pool_config_init(&config);
    config.driver = script_option(call, "driver") != NULL ? script_option(call, "driver") : "sim";
    config.log = keep_line;
    config.device = (int)script_number_of(call, "device", 0);
    config.limit_bytes = script_number_of(call, "limit", 0);
    const char *wait = script_option(call, "wait");
    config.wait_ms = wait != NULL && strcmp(wait, "never") == 0
                         ? UINT32_MAX
                         : (uint32_t)script_number_of(call, "wait", UINT32_MAX - 1);
    config.economy = (fallow_economy)choice(call, "economy", "balanced|memory|speed");
    config.reuse_policy = (fallow_reuse_policy)choice(call, "reuse", "wait|completed|same");
    config.order = (fallow_order)choice(call, "order", "stream|context");
    config.page_source = (fallow_page_source)choice(call, "source", "automatic|handles|segments");
    config.checks = bits(script_option(call, "checks"), check_names, check_values, 4);
    config.handle_types = types_of(script_option(call, "types"));
    config.streams_may_die = (uint8_t)script_number_of(call, "dies", 0);
    config.helper_thread = (uint8_t)script_number_of(call, "helper", 0);
    config.decay_ms = (uint32_t)script_number_of(call, "decay", 0);
    const char *one = script_option(call, "one");
    config.one_handle_bytes = one != NULL && strcmp(one, "none") == 0
                                  ? FALLOW_ONE_HANDLE_NONE
                                  : script_number_of(call, "one", 0);
    config.reserved_0[script_number_of(call, "reserved", 0) % 2] =
        script_option(call, "reserved") != NULL;
    config.reserved_1 = (uint32_t)script_number_of(call, "reserved_1", 0);
    config.peer_device_count = script_number_of(call, "peer-count", 0);
    for (const char *peer = script_option(call, "peers"); peer != NULL; peer = strchr(peer, '+')) {
        peer += *peer == '+';
        peers[config.peer_device_count++] = atoi(peer);
        config.peer_devices = peers;
    }
    config.on_oom = script.oom_body != NULL ? run_callback : NULL;
    script.log[0] = '\0'; /* lines of earlier calls */
    fallow_status status = fallow_pool_create(&config, &pool);
    script.failure_count += status != FALLOW_OK;
    if ((status == FALLOW_OK) != (pool != NULL)) {
        script_fail("%s, but the pool is %p", fallow_status_name(status), (void *)pool);
    }
    if (pool != NULL) {
        script_find(name, 'p', true)->handle = pool;
    }
    return status;
}

/* ---- streams, contexts, captures */

/* Destroy the stream and make another, which gets the same handle. */
static fallow_status run_renew(struct script_call *call)
{
    struct script_thing *stream = script_find(call->words[1], 's', true);
    const void *before = script_stream(call->words[1]);
    script_cuda(cu.cuStreamDestroy_v2(stream->handle), "cuStreamDestroy");
    script_cuda(cu.cuStreamCreate((CUstream *)&stream->handle, CU_STREAM_NON_BLOCKING),
                "cuStreamCreate");
    if (stream->handle != before) {
        script_fail("the handle is another");
    }
    return FALLOW_OK;
}

/* order A B: B waits for A. */
static fallow_status run_order(struct script_call *call)
{
    CUevent event = NULL;
    script_cuda(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    script_cuda(cu.cuEventRecord(event, script_stream(call->words[1])), "cuEventRecord");
    script_cuda(cu.cuStreamWaitEvent(script_stream(call->words[2]), event, 0), "cuStreamWaitEvent");
    script_cuda(cu.cuEventDestroy_v2(event), "cuEventDestroy");
    return FALLOW_OK;
}

static fallow_status run_context(struct script_call *call)
{
    struct script_thing *context = script_find(call->words[1], 'c', true);
    script_cuda(cu.cuCtxCreate_v2((CUcontext *)&context->handle, 0,
                                  (CUdevice)script_number_of(call, "device", 0)),
                "cuCtxCreate");
    return FALLOW_OK;
}

static fallow_status run_push(struct script_call *call)
{
    const struct script_thing *context = script_find(call->words[1], 'c', false);
    bool is_home = strcmp(call->words[1], "home") == 0;
    script_cuda(
        cu.cuCtxPushCurrent_v2(context == NULL || is_home ? script.context : context->handle),
        "cuCtxPushCurrent");
    if (context == NULL && !is_home) {
        script_cuda(cu.cuCtxSetCurrent(NULL), "cuCtxSetCurrent");
    }
    return FALLOW_OK;
}

static fallow_capture *capture_of(const char *name)
{
    const struct script_thing *capture = script_find(name, 'k', false);
    return capture != NULL ? capture->handle : NULL;
}

static fallow_status run_capture(struct script_call *call)
{
    fallow_capture *capture = NULL;
    fallow_status status =
        fallow_capture_begin(call->pool, script_stream(call->words[2]), &capture);
    if ((status == FALLOW_OK) != (capture != NULL)) {
        script_fail("%s, but the capture is %p", fallow_status_name(status), (void *)capture);
    }
    if (capture != NULL) {
        script_find(call->words[1], 'k', true)->handle = capture;
    }
    return status;
}

/* begin STREAM: in the driver alone, unannounced. */
static fallow_status run_begin(struct script_call *call)
{
    script_cuda(cu.cuStreamBeginCapture_v2(script_stream(call->words[1]),
                                           script_has(call, "global")
                                               ? CU_STREAM_CAPTURE_MODE_GLOBAL
                                               : CU_STREAM_CAPTURE_MODE_RELAXED),
                "cuStreamBeginCapture");
    return FALLOW_OK;
}

/* drop STREAM [broken]: end the capture, which is valid, or was invalidated. */
static fallow_status run_drop(struct script_call *call)
{
    CUgraph graph = NULL;
    CUresult result = cu.cuStreamEndCapture(script_stream(call->words[1]), &graph);
    if (script_has(call, "broken")) {
        return result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ? FALLOW_OK : FALLOW_DRIVER;
    }
    script_cuda(result, "cuStreamEndCapture");
    script_cuda(cu.cuGraphDestroy(graph), "cuGraphDestroy");
    return FALLOW_OK;
}

/* graph NAME STREAM: end the capture as an executable graph. */
static fallow_status run_graph(struct script_call *call)
{
    CUgraph graph = NULL;
    struct script_thing *executable = script_find(call->words[1], 'g', true);
    script_cuda(cu.cuStreamEndCapture(script_stream(call->words[2]), &graph), "cuStreamEndCapture");
    script_cuda(cu.cuGraphInstantiateWithFlags((CUgraphExec *)&executable->handle, graph, 0),
                "cuGraphInstantiate");
    script_cuda(cu.cuGraphDestroy(graph), "cuGraphDestroy");
    return FALLOW_OK;
}

/* ---- upkeep, sleep, sharing */

/* trim KEEP [NANOSECONDS] */
static fallow_status run_trim(struct script_call *call)
{
    return fallow_pool_trim(call->pool, script_value(call->words[1]),
                            call->count > 2 ? script_value(call->words[2]) : 0, &script.released);
}

/* Release all that can be: the second trim finds the fences of the first complete. */
static fallow_status run_empty(struct script_call *call)
{
    fallow_status status = flw_test_trim(call->pool, 0);
    (void)script.sim.step(UINT64_MAX);
    return status == FALLOW_OK ? flw_test_trim(call->pool, 0) : status;
}

static fallow_status run_sleep(struct script_call *call)
{
    uint32_t tags[4];
    fallow_sleep_request request;
    fallow_sleep_request_init(&request);
    request.flags = (script_has(call, "wait") ? FALLOW_SLEEP_WAIT : 0u) |
                    (script_has(call, "all") ? FALLOW_SLEEP_SAVE_ALL : 0u) |
                    (uint32_t)script_number_of(call, "flags", 0);
    request.saved_tag_count = script_number_of(call, "count", 0);
    for (const char *tag = script_option(call, "tags"); tag != NULL; tag = strchr(tag, '+')) {
        tag += *tag == '+';
        tags[request.saved_tag_count++] = (uint32_t)atoi(tag);
        request.saved_tags = tags;
    }
    return fallow_pool_sleep(call->pool, call->count > 1 ? &request : NULL);
}

static fallow_share *share_of(const char *name, bool may_add)
{
    struct script_thing *thing = script_find(name, 'e', may_add);
    if (thing == NULL) {
        script_fail("no export '%s'", name);
    }
    if (thing->handle == NULL) {
        thing->handle = calloc(1, sizeof(fallow_share));
    }
    return thing->handle;
}

static fallow_status export_one(struct script_call *call, struct script_blocks *blocks, size_t i,
                                void *ptr)
{
    fallow_share *share = share_of(call->words[2], true);
    (void)blocks;
    (void)i;
    fallow_share_init(share);
    return fallow_export(call->pool, ptr, types_of(call->words[3]), share);
}

/* export BLOCK NAME fd|fabric */
static fallow_status run_export(struct script_call *call)
{
    return script_each_block(call, export_one);
}

/* import NAME BLOCK [FIELD=VALUE]: with a field of the share changed; the descriptor stays open. */
static fallow_status run_import(struct script_call *call)
{
    fallow_share share = *share_of(call->words[1], false);
    void *ptr = &share;
    share.type = (uint32_t)script_number_of(call, "type", share.type);
    share.struct_size = script_number_of(call, "struct_size", share.struct_size);
    share.offset_bytes = script_number_of(call, "offset", share.offset_bytes);
    share.handle_bytes = script_number_of(call, "handle", share.handle_bytes);
    share.descriptor = script_option(call, "descriptor") != NULL
                           ? atoi(script_option(call, "descriptor"))
                           : share.descriptor;
    fallow_status status = fallow_import(call->pool, &share, &ptr);
    if ((status == FALLOW_OK) != (ptr != NULL)) {
        script_fail("%s, but the pointer is %p", fallow_status_name(status), ptr);
    }
    if (ptr != NULL) {
        script_keep_block(call, call->words[2], ptr, share.size_bytes, script_stream("s"));
    }
    return status;
}

static fallow_status unimport_one(struct script_call *call, struct script_blocks *blocks, size_t i,
                                  void *ptr)
{
    (void)i;
    fallow_status status = fallow_unimport(call->pool, ptr);
    blocks->is_freed = blocks->is_freed || status == FALLOW_OK;
    return status;
}

static fallow_status run_unimport(struct script_call *call)
{
    return script_each_block(call, unimport_one);
}

/* ---- the device and the driver */

static int error_of(const char *name)
{
    static const struct {
        const char *name;
        CUresult error;
    } errors[] = {{"INVALID_VALUE", CUDA_ERROR_INVALID_VALUE},
                  {"OUT_OF_MEMORY", CUDA_ERROR_OUT_OF_MEMORY},
                  {"DEINITIALIZED", CUDA_ERROR_DEINITIALIZED},
                  {"INVALID_CONTEXT", CUDA_ERROR_INVALID_CONTEXT},
                  {"OPERATING_SYSTEM", CUDA_ERROR_OPERATING_SYSTEM},
                  {"ILLEGAL_ADDRESS", CUDA_ERROR_ILLEGAL_ADDRESS},
                  {"CONTEXT_IS_DESTROYED", CUDA_ERROR_CONTEXT_IS_DESTROYED},
                  {"NOT_PERMITTED", CUDA_ERROR_NOT_PERMITTED},
                  {"NOT_SUPPORTED", CUDA_ERROR_NOT_SUPPORTED},
                  {"INVALID_DEVICE", CUDA_ERROR_INVALID_DEVICE},
                  {"UNKNOWN", CUDA_ERROR_UNKNOWN}};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (strcmp(errors[i].name, name) == 0) {
            return (int)errors[i].error;
        }
    }
    script_fail("no error '%s'", name);
}

/* fail ENTRY N[-M] ERROR [broken|lasting]: the n-th to m-th calls from now; without words: none any more. */
static fallow_status run_fail(struct script_call *call)
{
    if (call->count == 1) {
        (void)(script.sim.fail)(NULL, 0, 0, 0);
        return FALLOW_OK;
    }
    char *dash = strchr(call->words[2], '-');
    uint64_t first = script_value(strtok(call->words[2], "-")),
             last = dash != NULL ? script_value(dash + 1) : first;
    for (uint64_t n = first; n <= last; n++) {
        if ((script.sim.fail)(strcmp(call->words[1], "any") == 0 ? NULL : call->words[1], n,
                              error_of(call->words[3]),
                              script_has(call, "broken")    ? 1
                              : script_has(call, "lasting") ? 2
                                                            : 0) != 1) {
            script_fail("the driver has no such entry point");
        }
    }
    return FALLOW_OK;
}

/* refused ENTRY ERROR: the pool's last driver error. */
static fallow_status run_refused(struct script_call *call)
{
    const char *entry = NULL;
    int error = fallow_pool_last_driver_error(call->pool, &entry);
    if (error != error_of(call->words[2]) || entry == NULL || strcmp(entry, call->words[1]) != 0) {
        script_fail("the last error is %d of %s", error, entry == NULL ? "no call" : entry);
    }
    return FALLOW_OK;
}

/* take NAME SIZE: memory of the driver's own, as another program has; drop it with `give`. */
static fallow_status run_take(struct script_call *call)
{
    CUdeviceptr at = 0;
    script_cuda(cu.cuMemAlloc_v2(&at, script_value(call->words[2])), "cuMemAlloc");
    script_find(call->words[1], 'm', true)->handle = (void *)(uintptr_t)at;
    return FALLOW_OK;
}

/* ---- checks */

/* is A OP B [OP C ...]: OP is ==, !=, <= or >=. */
static fallow_status run_is(struct script_call *call)
{
    for (int i = 1; i + 2 < call->count; i += 2) {
        uint64_t a = script_value(call->words[i]), b = script_value(call->words[i + 2]);
        const char *op = call->words[i + 1];
        bool is_so = strcmp(op, "==") == 0   ? a == b
                     : strcmp(op, "!=") == 0 ? a != b
                     : strcmp(op, "<=") == 0 ? a <= b
                                             : strcmp(op, ">=") == 0 && a >= b;
        if (!is_so) {
            script_fail("it is %llu and %llu", (unsigned long long)a, (unsigned long long)b);
        }
    }
    return FALLOW_OK;
}

/* log TEXT: the last line since `pool`, or since a call with an expected status, has it; without a text, the line is
 * forgotten. */
static fallow_status run_log(struct script_call *call)
{
    if (call->count == 1) {
        script.log[0] = '\0';
        script.log_count = 0;
    } else if (strstr(script.log, call->rest) == NULL) {
        script_fail("not in the log");
    }
    return FALLOW_OK;
}

static fallow_status run_no_log(struct script_call *call)
{
    if (strstr(script.log, call->rest) != NULL) {
        script_fail("in the log");
    }
    return FALLOW_OK;
}

/* await VALUE MOST [idle]: poll, or only wait, in real time, until the value is at most that. ctest's timeout is the
 * bound. */
static fallow_status run_await(struct script_call *call)
{
    script_know(call, 3, "idle ");
    while (script_value(call->words[1]) > script_value(call->words[2])) {
        (void)usleep(20000);
        (void)script.sim.step(UINT64_MAX);
        if (!script_has(call, "idle") && fallow_pool_poll(call->pool) != FALLOW_OK) {
            script_fail("the poll failed");
        }
    }
    return FALLOW_OK;
}

/* ---- threads */

struct guest {
    const char *text;
    size_t length;
    pthread_t thread;
    pthread_barrier_t barrier;
    bool stays;
};

static void *run_guest(void *argument)
{
    struct guest *guest = argument;
    (void)cu.cuCtxSetCurrent(script.context);
    script_run_text(guest->text, guest->length);
    if (guest->stays) {
        (void)pthread_barrier_wait(&guest->barrier);
        (void)pthread_barrier_wait(&guest->barrier);
    }
    return NULL;
}

static void start(struct guest *guest)
{
    if (pthread_create(&guest->thread, NULL, run_guest, guest) != 0) {
        script_fail("no thread");
    }
}

static fallow_status run_thread(struct script_call *call)
{
    struct guest guest = {.text = call->body, .length = call->body_length};
    start(&guest);
    (void)pthread_join(guest.thread, NULL);
    return FALLOW_OK;
}

static struct guest staying;

/* stay { ... }: the thread lives on until `leave`. */
static fallow_status run_stay(struct script_call *call)
{
    staying = (struct guest){.text = call->body, .length = call->body_length, .stays = true};
    (void)pthread_barrier_init(&staying.barrier, NULL, 2);
    start(&staying);
    (void)pthread_barrier_wait(&staying.barrier);
    return FALLOW_OK;
}

static fallow_status run_leave(struct script_call *call)
{
    (void)call;
    (void)pthread_barrier_wait(&staying.barrier);
    (void)pthread_join(staying.thread, NULL);
    (void)pthread_barrier_destroy(&staying.barrier);
    return FALLOW_OK;
}

/* meet A B: some address of A is one of B. */
static fallow_status run_meet(struct script_call *call)
{
    const struct script_blocks *a = script_blocks_of(call->words[1], false),
                               *b = script_blocks_of(call->words[2], false);
    for (size_t i = 0; i < a->count * b->count; i++) {
        if (a->ptrs[i / b->count] == b->ptrs[i % b->count]) {
            return FALLOW_OK;
        }
    }
    script_fail("no address is in both");
}

/* ---- verbs that are one call: name, words behind it, the call */

#define STREAM(i)      script_stream(call->words[i])
#define VALUE(i)       script_value(call->words[i])
#define THING(i, kind) script_find(call->words[i], kind, true)
#define AT             ((CUdeviceptr)(uintptr_t)ptr)

static fallow_status ok(CUresult result)
{
    script_cuda(result, "the driver");
    return FALLOW_OK;
}

/* The test broke a rule on purpose: the world's violations are no failure. */
static fallow_status be_violated(void)
{
    if (flw_sim_read_ledger(&script.sim).violation_count == 0) {
        script_fail("no rule was broken");
    }
    script.is_violated = true;
    return FALLOW_OK;
}

/* The device or the pool is lost: the end of the test does not compare the ledger. */
static fallow_status be_gone(void)
{
    script.is_gone = true;
    return FALLOW_OK;
}

/* clang-format off */
#define CALLS(X) \
    X(report, "report", 0, fallow_pool_get_oom_report(call->pool, &(fallow_oom_report){.struct_size = sizeof(fallow_oom_report)})) \
    X(stats, "stats", 0, fallow_pool_get_stats(call->pool, &(fallow_stats){.struct_size = sizeof(fallow_stats)})) \
    X(destroy, "destroy", 0, (fallow_pool_destroy(call->pool), FALLOW_OK)) \
    X(abandon, "abandon", 0, (fallow_pool_abandon(call->pool), be_gone())) \
    X(gone, "gone", 0, be_gone()) \
    X(violated, "violated", 0, be_violated()) \
    X(work, "work", 1, ok(script.sim.touch(STREAM(1), NULL, 0))) \
    X(retire, "retire", 1, fallow_stream_retire(call->pool, STREAM(1))) \
    X(new, "new", 1, (STREAM(1), FALLOW_OK)) \
    X(kill, "kill", 1, ok(cu.cuStreamDestroy_v2(STREAM(1)))) \
    X(forget, "forget", 1, (THING(1, 's')->handle = NULL, FALLOW_OK)) \
    X(pop, "pop", 0, ok(cu.cuCtxPopCurrent_v2(&(CUcontext){NULL}))) \
    X(end_context, "end-context", 1, ok(cu.cuCtxDestroy_v2(THING(1, 'c')->handle))) \
    X(break, "break", 0, ((void)cu.cuCtxSynchronize(), FALLOW_OK)) \
    X(join, "join", 2, fallow_capture_join(capture_of(call->words[1]), STREAM(2))) \
    X(end, "end", 1, fallow_capture_end(capture_of(call->words[1]))) \
    X(rel, "rel", 1, fallow_capture_release(capture_of(call->words[1]))) \
    X(launch, "launch", 2, ok(cu.cuGraphLaunch(THING(1, 'g')->handle, STREAM(2)))) \
    X(ungraph, "ungraph", 1, ok(cu.cuGraphExecDestroy(THING(1, 'g')->handle))) \
    X(told, "told", 0, (fallow_context_capture_begin(), FALLOW_OK)) \
    X(untold, "untold", 0, (fallow_context_capture_end(), FALLOW_OK)) \
    X(poll, "poll", 0, fallow_pool_poll(call->pool)) \
    X(validate, "validate", 0, fallow_pool_validate(call->pool)) \
    X(limit, "limit", 1, fallow_pool_set_limit(call->pool, VALUE(1))) \
    X(reset, "reset", 0, fallow_pool_reset_peaks(call->pool)) \
    X(wake, "wake", 0, fallow_pool_wake(call->pool)) \
    X(allow, "allow", 1, fallow_pool_allow_peer(call->pool, atoi(call->words[1]))) \
    X(deny, "deny", 1, fallow_pool_deny_peer(call->pool, atoi(call->words[1]))) \
    X(close, "close", 1, close(share_of(call->words[1], false)->descriptor) == 0 ? FALLOW_OK : FALLOW_IO) \
    X(step, "step", 0, ((void)script.sim.step(call->count > 1 ? VALUE(1) : UINT64_MAX), FALLOW_OK)) \
    X(sync, "sync", 0, ok(call->count > 1 ? cu.cuStreamSynchronize(STREAM(1)) : cu.cuCtxSynchronize())) \
    X(advance, "advance", 1, (script.sim.advance(VALUE(1)), FALLOW_OK)) \
    X(give, "give", 1, ok(cu.cuMemFree_v2((CUdeviceptr)(uintptr_t)THING(1, 'm')->handle))) \
    X(mark, "mark", 0, (script_mark(), FALLOW_OK))
/* ... and for each block of the first word */
#define BLOCK_CALLS(X) \
    X(done, "done", 1, (blocks->is_freed = true, fallow_free_complete(call->pool, ptr))) \
    X(note, "note", 2, fallow_record_use(call->pool, ptr, STREAM(2))) \
    X(info, "info", 1, (fallow_block_init(&script.info), fallow_block_info(call->pool, ptr, &script.info))) \
    X(set, "set", 2, ok(cu.cuMemsetD8_v2(AT, (unsigned char)VALUE(2), blocks->sizes[i]))) \
    X(put, "put", 2, ok(cu.cuMemsetD8Async(AT, (unsigned char)VALUE(2), script_number_of(call, "bytes", 1), blocks->streams[i])))
/* clang-format on */

#define X(id, name, words, result)                           \
    static fallow_status call_##id(struct script_call *call) \
    {                                                        \
        (void)call;                                          \
        return result;                                       \
    }
CALLS(X)
#undef X
#define X(id, name, words, result)                                                         \
    static fallow_status each_##id(struct script_call *call, struct script_blocks *blocks, \
                                   size_t i, void *ptr)                                    \
    {                                                                                      \
        (void)call, (void)blocks, (void)i;                                                 \
        return result;                                                                     \
    }                                                                                      \
    static fallow_status call_##id(struct script_call *call)                               \
    {                                                                                      \
        return script_each_block(call, each_##id);                                         \
    }
BLOCK_CALLS(X)
#undef X

const struct script_verb script_verbs[] = {
#define X(id, name, words, result) {name, call_##id, words},
    CALLS(X) BLOCK_CALLS(X)
#undef X
        {"meet", run_meet, 2},
    {"await", run_await, 2},
    {"world", run_world, 0},
    {"pool", run_pool, 0},
    {"on-oom", run_on_oom, 0},
    {"a", script_run_alloc, 2},
    {"fill", script_run_fill, 2},
    {"f", script_run_free, 1},
    {"use", script_run_use, 1},
    {"once", script_run_once, 1},
    {"holds", script_run_holds, 2},
    {"differ", script_run_differ, 2},
    {"alone", script_run_alone, 1},
    {"renew", run_renew, 1},
    {"order", run_order, 2},
    {"context", run_context, 1},
    {"push", run_push, 1},
    {"cap", run_capture, 2},
    {"begin", run_begin, 1},
    {"drop", run_drop, 1},
    {"graph", run_graph, 2},
    {"trim", run_trim, 1},
    {"empty", run_empty, 0},
    {"sleep", run_sleep, 0},
    {"export", run_export, 3},
    {"import", run_import, 2},
    {"unimport", run_unimport, 1},
    {"fail", run_fail, 0},
    {"refused", run_refused, 2},
    {"take", run_take, 2},
    {"is", run_is, 3},
    {"log", run_log, 0},
    {"no-log", run_no_log, 1},
    {"thread", run_thread, 0},
    {"stay", run_stay, 0},
    {"leave", run_leave, 0},
    {NULL, NULL, 0}};
