/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/life.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#include "fallow/publish.h"
#include "preload/dlsym.h"
#include "preload/hook_use.h"
#include "preload/log.h"
#include "preload/runplace.h"
#include "preload/settings.h"

_Atomic int flw_life;

static void say_line(void *nothing, fallow_log_level level, const char *line)
{
    (void)nothing;
    (void)level;
    flw_log_line("%s", line);
}

/* At the first use of the driver: publish later pools, if configured. A failure is one log line,
 * and the program continues. */
static void admit_onlookers(void)
{
    fallow_publish_config config;
    bool has_pools = flw_settings.mode == FLW_MODE_CACHE || flw_settings.mode == FLW_MODE_STRICT;
    if (flw_settings.is_top && has_pools) {
        fallow_publish_config_init(&config);
        config.log = say_line;
        (void)fallow_publish_start(&config);
    }
}

static const struct flw_part *const parts[] = {
#define X(name) &flw_part_##name,
    FLW_PART_LIST(X)
#undef X
};

#define PART_COUNT (sizeof parts / sizeof *parts)

void flw_life_note_use(void)
{
    for (size_t i = 0; i < PART_COUNT; i++) {
        if (parts[i]->use != NULL) {
            parts[i]->use();
        }
    }
}

void flw_life_use(void)
{
    int fresh = FLW_LIFE_FRESH;
    if (atomic_compare_exchange_strong_explicit(&flw_life, &fresh, FLW_LIFE_USED,
                                                memory_order_relaxed, memory_order_relaxed)) {
        admit_onlookers();
        flw_life_note_use();
    }
}

CUresult flw_life_heed(CUresult result)
{
    if (result == CUDA_ERROR_DEINITIALIZED && flw_life_state() != FLW_LIFE_DEAD) {
        atomic_store_explicit(&flw_life, FLW_LIFE_EXITING, memory_order_relaxed);
    }
    return result;
}

static void prepare(void)
{
    for (size_t i = 0; i < PART_COUNT; i++) {
        if (parts[i]->prepare != NULL) {
            parts[i]->prepare();
        }
    }
}

static void parent(void)
{
    for (size_t i = PART_COUNT; i-- > 0;) {
        if (parts[i]->parent != NULL) {
            parts[i]->parent();
        }
    }
}

static void child(void)
{
    if (flw_life_state() != FLW_LIFE_FRESH) {
        atomic_store_explicit(&flw_life, FLW_LIFE_DEAD, memory_order_relaxed);
    }
    flw_runplace_renew();
    for (size_t i = PART_COUNT; i-- > 0;) {
        if (parts[i]->child != NULL) {
            parts[i]->child();
        }
    }
}

/* Our jemalloc registers the fork handlers with the first block. Handlers registered first run
 * last in prepare, so none of our locks is waited for while one of the locks is held. */
static void wake_memory(void)
{
    void *volatile block = malloc(1);
    free(block);
}

__attribute__((constructor)) static void start(void)
{
    flw_dlsym_next(); /* so that a child of vfork, or a signal handler, finds it */
    flw_settings_ready();
    flw_runplace_join();
    if (flw_settings.mode == FLW_MODE_OFF) {
        flw_runplace_say(FLW_RUNPAGE_OFF);
        return;
    }
    for (size_t i = 0; i < PART_COUNT; i++) {
        if (parts[i]->start != NULL) {
            parts[i]->start();
        }
    }
    wake_memory();
    if (pthread_atfork(prepare, parent, child) != 0) {
        flw_settings_switch_off("no memory for the handlers of fork");
    }
}

/* Under `fallow run` the run's page is updated instead. */
static void say_if_passed(void)
{
    if (flw_settings.mode != FLW_MODE_OFF && !flw_hook_use_is_reached() &&
        flw_runplace_page() == NULL && flw_hook_use_has_near_driver() &&
        !flw_hook_use_is_linked()) {
        flw_log_line(
            "not reached: libcuda.so.1 is loaded, but its user bypassed this library "
            "(RTLD_DEEPBIND, another preload's dlsym, or a loader of its own); the program ran "
            "without Fallow");
    }
}

__attribute__((destructor)) static void end(void)
{
    say_if_passed();
    for (size_t i = PART_COUNT; i-- > 0;) {
        if (parts[i]->end != NULL) {
            parts[i]->end();
        }
    }
    flw_runplace_leave();
}
