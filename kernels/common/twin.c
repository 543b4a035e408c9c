/* SPDX-License-Identifier: Apache-2.0 */
#include "common/twin.h"

/* Looked up once: the simulated driver is one shared object of the process, however opened.
 * Synchronization: written before the twins are registered, under the driver's own lock
 * thereafter. */
static flw_sim_load_function load_accessor;
static flw_sim_store_function store_accessor;

bool flw_twin_set_accessors(void *load, void *store)
{
    if (load == NULL || store == NULL) {
        return false;
    }
    __atomic_store(&load_accessor, (flw_sim_load_function *)(void *)&load, __ATOMIC_RELEASE);
    __atomic_store(&store_accessor, (flw_sim_store_function *)(void *)&store, __ATOMIC_RELEASE);
    return true;
}

void flw_twin_begin(struct flw_twin *twin, flw_sim_launch *launch)
{
    twin->launch = launch;
    __atomic_load(&load_accessor, &twin->load, __ATOMIC_ACQUIRE);
    __atomic_load(&store_accessor, &twin->store, __ATOMIC_ACQUIRE);
}
