/* SPDX-License-Identifier: Apache-2.0
 *
 * abi.leave_<how>: a driver is never unloaded after the first call, it needs no cuCtxCreate_v2,
 * and is not called after its own exit handlers. The driver (front_driver.c) ends the process
 * otherwise.
 *
 *   leave closed|helper|abandoned <driver> */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fallow/fallow.h"

#define MIB ((size_t)1 << 20)

static void say(void *context, fallow_log_level level, const char *line)
{
    (void)context;
    (void)level;
    fprintf(stderr, "leave: %s\n", line);
}

static fallow_pool *make_pool(const char *driver, bool has_helper)
{
    fallow_pool *pool = NULL;
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = driver;
    config.helper_thread = has_helper;
    config.decay_ms = 1; /* the helper polls as often as possible */
    config.log = say;
    return fallow_pool_create(&config, &pool) == FALLOW_OK ? pool : NULL;
}

static bool alloc_and_free(fallow_pool *pool)
{
    void *block = NULL;
    return fallow_alloc(pool, 64 * MIB, NULL, &block) == FALLOW_OK &&
           fallow_free(pool, block, NULL) == FALLOW_OK;
}

/* Twice: a driver left open is opened again. */
static bool close_driver(const char *driver)
{
    for (int i = 0; i < 2; i++) {
        fallow_pool *pool = make_pool(driver, false);
        if (pool == NULL || !alloc_and_free(pool)) {
            return false;
        }
        fallow_pool_destroy(pool);
        if (dlopen(driver, RTLD_NOW | RTLD_NOLOAD) == NULL) {
            fprintf(stderr, "leave: the driver was unloaded\n");
            return false;
        }
    }
    return true;
}

static uint64_t driver_calls(fallow_pool *pool)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    return fallow_pool_get_stats(pool, &stats) == FALLOW_OK ? stats.driver_call_count : 0;
}

/* The helper is at work, in the driver, when the process ends. */
static bool leave_helper(const char *driver, bool is_abandoned)
{
    fallow_pool *pool = make_pool(driver, true);
    if (pool == NULL || !alloc_and_free(pool)) {
        return false;
    }
    uint64_t before = driver_calls(pool);
    while (driver_calls(pool) < before + 20) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    if (is_abandoned) {
        fallow_pool_abandon(pool);
    }
    return true;
}

int main(int count, char **arguments)
{
    const char *how = count == 3 ? arguments[1] : "";
    bool is_well = strcmp(how, "closed") == 0      ? close_driver(arguments[2])
                   : strcmp(how, "helper") == 0    ? leave_helper(arguments[2], false)
                   : strcmp(how, "abandoned") == 0 ? leave_helper(arguments[2], true)
                                                   : false;
    printf("leave: %s: %s\n", how, is_well ? "well" : "not well");
    return is_well ? 0 : 1;
}
