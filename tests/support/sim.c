/* SPDX-License-Identifier: Apache-2.0 */
#include "support/sim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SENTENCES 5

bool flw_sim_find_controls(struct flw_sim *sim)
{
    const struct {
        const char *name;
        void *slot;
    } controls[] = {{"flw_sim_reset", &sim->reset},
                    {"flw_sim_play", &sim->play},
                    {"flw_sim_played", &sim->played},
                    {"flw_sim_advance", &sim->advance},
                    {"flw_sim_step", &sim->step},
                    {"flw_sim_touch", &sim->touch},
                    {"flw_sim_get_ledger", &sim->get_ledger},
                    {"flw_sim_get_extents", &sim->get_extents},
                    {"flw_sim_fail", &sim->fail},
                    {"flw_sim_call_count", &sim->call_count},
                    {"flw_sim_violation", &sim->violation},
                    {"flw_sim_name", &sim->name},
                    {"flw_sim_forget", &sim->forget},
                    {"flw_sim_register", &sim->register_twin},
                    {"flw_sim_parameters", &sim->parameters},
                    {"flw_sim_dimensions", &sim->dimensions},
                    {"flw_sim_load", &sim->load},
                    {"flw_sim_store", &sim->store}};
    size_t found = 0, count = sizeof controls / sizeof *controls;
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(sim->cu.object, controls[i].name);
        memcpy(controls[i].slot, &address, sizeof address);
        found += address != NULL;
    }
    return found == count;
}

bool flw_sim_open(struct flw_sim *sim)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    *sim = (struct flw_sim){0};
    if (flw_driver_open(&sim->cu, "sim", message) != FALLOW_OK) {
        fprintf(stderr, "%s\n", message);
        return false;
    }
    if (!flw_sim_find_controls(sim)) {
        fprintf(stderr, "libfallow-simcuda.so lacks a control of fallow/simcuda.h: rebuild it\n");
        flw_sim_close(sim);
        return false;
    }
    return true;
}

void flw_sim_renew(void)
{
    flw_sim_reset_function reset = NULL;
    void *object = dlopen("libfallow-simcuda.so", RTLD_NOW | RTLD_NOLOAD);
    void *address = object != NULL ? dlsym(object, "flw_sim_reset") : NULL;
    memcpy(&reset, &address, sizeof reset);
    if (reset != NULL) {
        reset(NULL);
    }
    if (object != NULL) {
        dlclose(object);
    }
}

void flw_sim_close(struct flw_sim *sim)
{
    flw_driver_close(&sim->cu);
    *sim = (struct flw_sim){0};
}

flw_sim_config flw_sim_config_default(uint64_t seed)
{
    return (flw_sim_config){.struct_size = sizeof(flw_sim_config), .seed = seed};
}

static void must(const struct flw_sim *sim, CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s: %s\n", call, flw_driver_error_name(&sim->cu, result));
        abort();
    }
}

CUcontext flw_sim_begin(const struct flw_sim *sim, const flw_sim_config *config)
{
    CUcontext context = NULL;
    sim->reset(config);
    must(sim, sim->cu.cuInit(0), "cuInit");
    must(sim, sim->cu.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(sim, sim->cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    return context;
}

uint64_t flw_sim_step_of_sample(uint64_t every)
{
    return every == 0 || getenv("FALLOW_TEST_ALL") != NULL ? 1 : every;
}

flw_sim_ledger flw_sim_read_ledger(const struct flw_sim *sim)
{
    flw_sim_ledger ledger = {.struct_size = sizeof ledger};
    sim->get_ledger(0, &ledger);
    return ledger;
}

uint64_t flw_sim_print_violations(const struct flw_sim *sim)
{
    uint64_t count = flw_sim_read_ledger(sim).violation_count;
    for (uint64_t i = 0; i < count && i < MOST_SENTENCES; i++) {
        const char *sentence = sim->violation(i);
        fprintf(stderr, "violation %llu: %s\n", (unsigned long long)i,
                sentence != NULL ? sentence : "(no sentence)");
    }
    return count;
}
