/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the world's begin and end, threads, and the frame around every call.
 * Does not: implement any entry point. */
#include "simcuda/world.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "simcuda/check.h"
#include "simcuda/forms.h"
#include "simcuda/host.h"
#include "simcuda/launch.h"
#include "simcuda/order.h"
#include "simcuda/storage.h"

struct flw_world flw_world = {.lock = PTHREAD_MUTEX_INITIALIZER,
                              .changed = PTHREAD_COND_INITIALIZER};

static __thread struct flw_thread *this_thread __attribute__((tls_model("initial-exec")));
static pthread_key_t thread_key;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;
static bool has_thread_key;

/* Forget everything of the world; nothing is freed. */
static void clear_world(void)
{
    struct flw_world *w = &flw_world;
    /* Ids are unique "for the life of the program", so they survive. */
    uint64_t next_id = w->next_id;
    uint64_t generation = w->generation;
    struct flw_thread *threads = w->threads;
    memset((char *)w + offsetof(struct flw_world, config), 0,
           sizeof *w - offsetof(struct flw_world, config));
    w->next_id = next_id;
    w->generation = generation;
    w->threads = threads;
}

/* The parent's world, in the child: reachable for leak checkers; nothing else reads it. */
__attribute__((used)) static struct flw_world left_behind;

/* A child of a process that initialised CUDA cannot use it: every call returns NOT_INITIALIZED,
 * cuInit too. Only a reset, which no driver has, gives it a world of its own.
 *
 * Nothing is locked before a fork: the holder of the world's lock may be waiting for memory, and
 * an allocator whose own handler ran first gives no thread any. So another thread may have been
 * half way through a change of the parent's world; the child never reads that again, unless it was
 * forked by a host function or a kernel: the call that runs it returns into that world. */
static void orphan_child(void)
{
    struct flw_world *w = &flw_world;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    bool is_in_call =
        this_thread != NULL && (this_thread->is_in_twin || this_thread->is_in_callback);
    bool is_orphan = w->is_orphan || w->is_initialised;
    if (w->is_initialised && !is_in_call) {
        struct flw_sim_config config = w->config;
        left_behind = *w;
        clear_world();
        w->config = config;
        w->generation++; /* the threads' state is gone */
    }
    flw_absent_forget(); /* the parent prints its own calls */
    w->is_orphan = is_orphan;
    w->threads = this_thread;
    if (this_thread != NULL) {
        this_thread->next = NULL;
        if (this_thread->is_in_twin) {
            pthread_mutex_lock(&w->lock); /* the kernel that forked returns and releases it */
        }
    }
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, orphan_child);
}

static void apply_defaults(struct flw_sim_config *config)
{
    if (config->device_bytes == 0) {
        config->device_bytes = 80ull << 30;
    }
    if (config->device_count <= 0) {
        config->device_count = 1;
    }
    if (config->device_count > FLW_DEVICE_MAX) {
        config->device_count = FLW_DEVICE_MAX;
    }
    if (config->driver_version == 0) {
        config->driver_version = 13000;
    }
    if (config->queue_depth == 0) {
        config->queue_depth = 1024;
    }
}

static void begin_world(const struct flw_sim_config *config)
{
    struct flw_world *w = &flw_world;
    if (config != NULL) {
        size_t known = config->struct_size;
        if (known == 0 || known > sizeof w->config) {
            known = sizeof w->config;
        }
        memset(&w->config, 0, sizeof w->config);
        memcpy(&w->config, config, known);
    }
    apply_defaults(&w->config);
    bool keeps = flw_world_is_mild(FLW_SIM_MILD_HANDLE_REUSE);
    struct flw_table *table[] = {&w->context_table,    &w->stream_table, &w->event_table,
                                 &w->handle_table,     &w->pool_table,   &w->graph_table,
                                 &w->executable_table, &w->module_table, &w->function_table};
    for (unsigned i = 0; i < sizeof table / sizeof table[0]; i++) {
        flw_table_init(table[i], i, keeps);
    }
    flw_space_init(&w->space, flw_world_is_mild(FLW_SIM_MILD_ADDRESS_REUSE));
    flw_profile_begin(config == NULL);
    for (int i = 0; i < w->config.device_count; i++) {
        w->device[i] = (struct flw_device){.ordinal = i};
    }
    w->random = w->config.seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull;
    w->generation++;
    w->is_ready = true;
}

static void end_world(void)
{
    struct flw_world *w = &flw_world;
    FLW_ASSERT_VALID(flw_ledger_is_valid());
    flw_order_finish();
    flw_capture_finish_all();
    flw_graph_finish_all();
    flw_event_finish_all();
    flw_module_finish_all();
    flw_pool_finish_all();
    flw_vmm_finish_all();
    flw_memory_finish_all();
    flw_context_finish_all();
    flw_check_finish();
    struct flw_table *table[] = {&w->context_table,    &w->stream_table, &w->event_table,
                                 &w->handle_table,     &w->pool_table,   &w->graph_table,
                                 &w->executable_table, &w->module_table, &w->function_table};
    for (unsigned i = 0; i < sizeof table / sizeof table[0]; i++) {
        flw_table_finish(table[i]);
    }
    flw_space_finish(&w->space);
    free(w->slot);
    free(w->active);
    flw_clock_finish(&w->host_clock);
}

void flw_world_make_ready(void)
{
    if (!flw_world.is_ready) {
        begin_world(NULL);
    }
}

void flw_world_reset(const struct flw_sim_config *config)
{
    if (flw_world.is_ready) {
        end_world();
    }
    clear_world();
    flw_absent_forget();
    begin_world(config);
}

uint64_t flw_world_random(void)
{
    uint64_t x = flw_world.random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    flw_world.random = x;
    return x * 0x2545f4914f6cdd1dull >> 16;
}

static void end_thread(void *argument)
{
    struct flw_thread *thread = argument;
    pthread_mutex_lock(&flw_world.lock);
    if (thread->generation == flw_world.generation) {
        for (struct flw_stream *stream = thread->streams; stream != NULL;) {
            struct flw_stream *next = stream->thread_next;
            stream->thread = NULL;
            flw_stream_end(stream);
            stream = next;
        }
    }
    struct flw_thread **place = &flw_world.threads;
    while (*place != thread) {
        place = &(*place)->next;
    }
    *place = thread->next;
    pthread_mutex_unlock(&flw_world.lock);
    free(thread->stack);
    free(thread);
    this_thread = NULL;
}

static void make_key(void)
{
    has_thread_key = pthread_key_create(&thread_key, end_thread) == 0;
}

static struct flw_thread *make_thread(void)
{
    pthread_once(&thread_once, make_key);
    struct flw_thread *thread = flw_host_get(sizeof *thread);
    thread->next = flw_world.threads;
    flw_world.threads = thread;
    this_thread = thread;
    if (has_thread_key) {
        pthread_setspecific(thread_key, thread);
    }
    return thread;
}

struct flw_thread *flw_thread_get(void)
{
    struct flw_thread *thread = this_thread;
    if (thread == NULL) {
        thread = make_thread();
    }
    if (thread->generation != flw_world.generation) {
        thread->generation = flw_world.generation;
        thread->depth = 0;
        thread->capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        thread->streams = NULL;
    }
    return thread;
}

/* The library is unloaded: no function of it may be called when a thread ends later. */
__attribute__((destructor)) static void leave_process(void)
{
    if (has_thread_key) {
        pthread_key_delete(thread_key);
    }
    pthread_mutex_lock(&flw_world.lock);
    flw_absent_report();
    if (flw_world.is_ready) {
        if (flw_world.profile.is_checked && flw_world.config.check) {
            flw_report_print();
        }
        end_world();
        flw_world.is_ready = false;
    }
    while (flw_world.threads != NULL) {
        struct flw_thread *thread = flw_world.threads;
        flw_world.threads = thread->next;
        free(thread->stack);
        free(thread);
    }
    this_thread = NULL;
    pthread_mutex_unlock(&flw_world.lock);
}

static CUresult refuse_absent(unsigned needs)
{
    const struct flw_sim_config *config = &flw_world.config;
    if (((needs & FLW_CALL_VMM) && config->without_vmm) ||
        ((needs & FLW_CALL_POOLS) && config->without_pools) ||
        ((needs & FLW_CALL_IDS) && config->without_ids)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

/* After a sticky error "any further CUDA work will return the same error": this includes calls
 * that need no current context, if the thread has one. Queries of devices, contexts and graphs
 * still work. */
static CUresult meet_context(struct flw_call *call, unsigned needs)
{
    CUresult result = CUDA_SUCCESS;
    struct flw_context *context = flw_context_current(call->thread, &result);
    if ((needs & FLW_CALL_CONTEXT) == 0 && !flw_world.config.wants_context) {
        return context != NULL ? context->sticky : CUDA_SUCCESS;
    }
    call->context = context;
    return context != NULL ? context->sticky : result;
}

CUresult flw_call_enter(struct flw_call *call, enum flw_entry entry, unsigned needs)
{
    struct flw_world *w = &flw_world;
    *call = (struct flw_call){.thread = this_thread};
    /* inside a kernel: the lock is this thread's */
    FLW_REFUSE_IF(this_thread != NULL && this_thread->is_in_twin, CUDA_ERROR_NOT_PERMITTED);
    pthread_mutex_lock(&w->lock);
    flw_world_make_ready();
    struct flw_thread *thread = flw_thread_get();
    call->thread = thread;
    /* "The host function must not make any CUDA API calls.  Attempting to use a CUDA API may result
     * in CUDA_ERROR_NOT_PERMITTED" (cuLaunchHostFunc) */
    FLW_REFUSE_IF(thread->is_in_callback && (needs & FLW_CALL_IN_CALLBACK) == 0,
                  CUDA_ERROR_NOT_PERMITTED);
    CUresult result = CUDA_SUCCESS;
    if ((needs & FLW_CALL_SILENT) == 0) {
        w->call_count++;
        w->calls[entry]++;
        flw_latency_add(entry);
        if (w->fault_count != 0 && (result = flw_fault_strike(thread, entry)) != CUDA_SUCCESS) {
            return result;
        }
    }
    FLW_REFUSE_IF(w->is_orphan || ((needs & FLW_CALL_BEFORE_INIT) == 0 && !w->is_initialised),
                  CUDA_ERROR_NOT_INITIALIZED);
    if (needs & FLW_CALL_WORK) {
        result = meet_context(call, needs);
    }
    if (result == CUDA_SUCCESS) {
        result = refuse_absent(needs);
    }
    if (result == CUDA_SUCCESS && (needs & FLW_CALL_UNSAFE) && w->captures != NULL) {
        result = flw_capture_refuse_unsafe(thread);
    }
    if (w->active_count != 0 && w->config.schedule == FLW_SIM_RANDOM && !thread->is_in_callback) {
        flw_order_drift(thread, false);
    }
    return result;
}

void flw_call_leave(struct flw_call *call)
{
    if (call->thread == NULL || !call->thread->is_in_twin) {
        pthread_mutex_unlock(&flw_world.lock);
    }
}
