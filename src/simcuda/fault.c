/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: planned failures: the n-th call of an entry point fails, once, for good, or with every
 * later call until cleared; those of a profile are never cleared.
 * Does not: fail anything that was not planned. */
#include "simcuda/world.h"

static void remove_fault(unsigned i)
{
    flw_world.fault[i] = flw_world.fault[--flw_world.fault_count];
}

CUresult flw_fault_strike(struct flw_thread *thread, enum flw_entry entry)
{
    CUresult strikes = CUDA_SUCCESS;
    for (unsigned i = 0; i < flw_world.fault_count;) {
        struct flw_fault *fault = &flw_world.fault[i];
        if ((fault->entry != FLW_FAULT_ANY && fault->entry != entry) || --fault->left != 0) {
            i++;
            continue;
        }
        strikes = fault->error;
        if (fault->is_sticky) {
            CUresult ignored;
            struct flw_context *context = flw_context_current(thread, &ignored);
            if (context != NULL) {
                context->sticky = fault->error;
            }
        }
        if (fault->repeats) {
            fault->left = 1;
            i++;
        } else {
            remove_fault(i);
        }
    }
    return strikes;
}

static int plan(const char *entry, uint64_t n, int error, int sticky)
{
    if (n == 0) {
        for (unsigned i = flw_world.fault_count; i-- > 0;) {
            if (!flw_world.fault[i].is_lasting) {
                remove_fault(i);
            }
        }
        return 1;
    }
    unsigned index = entry == NULL ? FLW_FAULT_ANY : flw_entry_find(entry);
    if ((entry != NULL && index == FLW_ENTRY_COUNT) || flw_world.fault_count == FLW_FAULT_MAX) {
        return 0;
    }
    flw_world.fault[flw_world.fault_count++] = (struct flw_fault){.entry = index,
                                                                  .left = n,
                                                                  .error = (CUresult)error,
                                                                  .is_sticky = sticky == 1,
                                                                  .repeats = sticky == 2};
    return 1;
}

FLW_SIM_EXPORT int flw_sim_fail(const char *entry, uint64_t n, int error, int sticky);
int flw_sim_fail(const char *entry, uint64_t n, int error, int sticky)
{
    pthread_mutex_lock(&flw_world.lock);
    flw_world_make_ready();
    int planned = plan(entry, n, error, sticky);
    pthread_mutex_unlock(&flw_world.lock);
    return planned;
}
