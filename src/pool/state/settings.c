/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/state/settings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/sized.h"

fallow_status flw_struct_accept(void *ours, size_t our_size, const void *theirs)
{
    size_t size = *(const size_t *)theirs;
    const unsigned char *bytes = theirs;
    if (size < sizeof size) {
        return FALLOW_VERSION;
    }
    for (size_t i = our_size; i < size; i++) {
        if (bytes[i] != 0) {
            return FALLOW_VERSION;
        }
    }
    memset(ours, 0, our_size);
    memcpy(ours, theirs, flw_min(size, our_size));
    return FALLOW_OK;
}

fallow_status flw_struct_answer(void *theirs, const void *ours, size_t our_size)
{
    size_t size = *(const size_t *)theirs;
    if (size < sizeof size) {
        return FALLOW_VERSION;
    }
    if (size > our_size) {
        memset((unsigned char *)theirs + our_size, 0, size - our_size);
    }
    memcpy((unsigned char *)theirs + sizeof size, (const unsigned char *)ours + sizeof size,
           flw_min(size, our_size) - sizeof size);
    return FALLOW_OK;
}

FLW_DEFINE_INIT_SIZED(fallow_pool_config)

void flw_pool_log(const struct flw_pool *pool, fallow_log_level level, const char *format, ...)
{
    char line[512];
    if (pool->config.log != NULL) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(line, sizeof line, format, arguments);
        va_end(arguments);
        struct flw_driver_section *paused = flw_section_pause();
        pool->config.log(pool->config.log_context, level, line);
        flw_section_resume(paused);
    }
}

#define KNOWN_CHECKS \
    (FALLOW_CHECK_POISON | FALLOW_CHECK_RED_ZONES | FALLOW_CHECK_QUARANTINE | FALLOW_CHECK_LEAKS)

/* Return the first setting that context order does not support. */
static const char *refused_in_context_order(const fallow_pool_config *config)
{
    return config->reuse_policy != FALLOW_REUSE_WAIT
               ? "reuse_policy: must be 0 with FALLOW_ORDER_CONTEXT"
           : config->checks != 0          ? "checks: must be 0 with FALLOW_ORDER_CONTEXT"
           : config->streams_may_die != 0 ? "streams_may_die: must be 0 with FALLOW_ORDER_CONTEXT"
           : config->handle_types != 0    ? "handle_types: must be 0 with FALLOW_ORDER_CONTEXT"
           : config->page_source == FALLOW_PAGES_HANDLES
               ? "page_source: FALLOW_PAGES_HANDLES is impossible with "
                 "FALLOW_ORDER_CONTEXT, which uses cuMemAlloc"
           : config->peer_device_count != 0
               ? "peer_devices: must be empty with FALLOW_ORDER_CONTEXT; use "
                 "cuCtxEnablePeerAccess"
               : NULL;
}

static const char *find_invalid(const fallow_pool_config *config)
{
    return config->device < 0 ? "device: an ordinal, 0 or more"
           : (unsigned)config->economy > FALLOW_SPEED_FIRST
               ? "economy: FALLOW_BALANCED, FALLOW_MEMORY_FIRST or FALLOW_SPEED_FIRST"
           : (unsigned)config->reuse_policy > FALLOW_REUSE_SAME_STREAM
               ? "reuse_policy: one of the FALLOW_REUSE_ values"
           : (config->checks & ~(unsigned)KNOWN_CHECKS) != 0
               ? "checks: FALLOW_CHECK_ bits, no others"
           : (config->handle_types & ~(unsigned)(FALLOW_HANDLE_FD | FALLOW_HANDLE_FABRIC)) != 0
               ? "handle_types: FALLOW_HANDLE_ bits, no others"
           : config->streams_may_die > 1                              ? "streams_may_die: 0 or 1"
           : config->helper_thread > 1                                ? "helper_thread: 0 or 1"
           : config->reserved_0[0] != 0 || config->reserved_0[1] != 0 ? "reserved_0: 0"
           : config->reserved_1 != 0                                  ? "reserved_1: 0"
           : config->peer_device_count > 16 ? "peer_device_count: at most 16"
           : config->peer_device_count != 0 && config->peer_devices == NULL
               ? "peer_devices: peer_device_count ordinals"
           : (unsigned)config->page_source > FALLOW_PAGES_SEGMENTS
               ? "page_source: one of the FALLOW_PAGES_ values"
           : config->page_source == FALLOW_PAGES_SEGMENTS &&
                   (config->handle_types != 0 || config->peer_device_count != 0)
               ? "handle_types, peer_devices: FALLOW_PAGES_SEGMENTS has neither; use "
                 "cuIpcGetMemHandle and cuCtxEnablePeerAccess"
           : (unsigned)config->order > FALLOW_ORDER_CONTEXT
               ? "order: FALLOW_ORDER_STREAM or FALLOW_ORDER_CONTEXT"
           : config->order == FALLOW_ORDER_CONTEXT ? refused_in_context_order(config)
                                                   : NULL;
}

const char *flw_settings_resolve(fallow_pool_config *config)
{
    const char *what = find_invalid(config);
    if (what == NULL) {
        config->decay_ms = config->decay_ms == 0 ? 10000 : config->decay_ms;
        config->wait_ms = config->wait_ms == 0 ? 100 : config->wait_ms;
    }
    return what;
}
