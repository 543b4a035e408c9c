/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: asking others for memory: the caller's callback, then idle memory of other pools of the device.
 */
#include "pool/ladder/climb.h"
#include "pool/state/table.h"

static void trim_other(struct flw_pool *other, void *context)
{
    struct flw_climb *climb = context;
    if (other != climb->pool && other->config.device == climb->pool->config.device &&
        other->driver.object == climb->pool->driver.object &&
        flw_gate_enter(&other->gate, false) == FALLOW_OK) {
        (void)flw_heap_release_idle(&other->heap, 0);
        flw_gate_leave(&other->gate);
    }
}

bool flw_rung_callback(struct flw_climb *climb)
{
    struct flw_pool *pool = climb->pool;
    bool any = false;
    if (pool->config.on_oom != NULL && !atomic_flag_test_and_set(&pool->climbs.in_callback)) {
        flw_gate_leave(&pool->gate); /* nobody waits for a callback, which may wait for a turn */
        struct flw_driver_section *paused = flw_section_pause();
        any = pool->config.on_oom(pool->config.oom_context, climb->need->size_bytes,
                                  (fallow_stream)climb->need->domain->stream) != 0;
        flw_section_resume(paused);
        atomic_flag_clear(&pool->climbs.in_callback);
        climb->gate_status = flw_gate_enter_again(&pool->gate);
        if (climb->gate_status != FALLOW_OK) {
            return false;
        }
    }
    if (any && (flw_climb_own_cache(climb) || flw_rung_caches(climb) || flw_climb_reclaim(climb) ||
                flw_rung_limit(climb))) {
        return true;
    }
    if ((climb->need->flags & FALLOW_REQUEST_NO_GROW) != 0 || climb->is_refused) {
        return false; /* what idles elsewhere is not for it, or would not be given to it */
    }
    flw_pool_table_each(trim_other, climb);
    return flw_climb_grow_to_limit(climb);
}
