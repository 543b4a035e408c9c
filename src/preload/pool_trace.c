/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/pool_trace.h"

#include <stdatomic.h>

#include "fallow/trace.h"
#include "preload/live_contexts.h"
#include "preload/log.h"
#include "preload/runplace.h"
#include "preload/settings.h"
#include "preload/tracer.h"

/* Synchronization: live_contexts.c creates one pool at a time. Recorders are only added; the end may run
 * while a thread creates one, which then has no end. */
static struct {
    fallow_recorder *_Atomic recorders[FLW_HOMES_MAX];
    _Atomic unsigned count;
    unsigned device_counts[FLW_TRACER_DEVICES]; /* pools there so far */
} traces;

static void record_pool(fallow_pool *pool, CUdevice device)
{
    char path[FLW_FILENAME_BYTES];
    fallow_record_config config;
    fallow_recorder *recorder = NULL;
    unsigned place = device >= 0 && device < FLW_TRACER_DEVICES ? (unsigned)device : 0;
    unsigned number = atomic_load(&traces.count);
    struct flw_tracer_settings settings = {.path = flw_settings.trace_file,
                                           .page = flw_runplace_page()};
    fallow_record_config_init(&config);
    config.path = path;
    config.stack_depth = flw_settings.stack_depth;
    config.flags = config.stack_depth > 0 && flw_settings.enters_python
                       ? (uint32_t)FALLOW_RECORD_ENTER_PYTHON
                       : 0u;
    if (number == FLW_HOMES_MAX ||
        !flw_tracer_name_file(&settings, place, traces.device_counts[place]++, path)) {
        flw_log_line("recording: a pool is not recorded: %s; the program continues",
                     number == FLW_HOMES_MAX ? "there were too many" : "the file name is too long");
        return;
    }
    fallow_status status = fallow_record_start(pool, &config, &recorder);
    if (status == FALLOW_OK) {
        atomic_store(&traces.recorders[number], recorder);
        atomic_store(&traces.count, number + 1);
    } else if (status != FALLOW_IO) { /* logged already */
        flw_log_line("recording: cannot begin %s: %s; the program continues", path,
                     fallow_status_message(status));
    }
}

void flw_pool_trace_begin(void)
{
    flw_live_contexts_on_pool = record_pool;
}

/* A pool's recorder ends with the pool. */
void flw_pool_trace_finish(void)
{
    unsigned count = atomic_exchange(&traces.count, 0);
    for (unsigned i = 0; i < count; i++) {
        (void)fallow_record_stop(atomic_load(&traces.recorders[i]));
    }
}

void flw_pool_trace_forget(void)
{
    atomic_store(&traces.count, 0);
    for (unsigned i = 0; i < FLW_TRACER_DEVICES; i++) {
        traces.device_counts[i] = 0;
    }
}
