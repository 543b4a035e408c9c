/* SPDX-License-Identifier: Apache-2.0 */
#include "example/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REGIONS 16

struct engine engine;

/* Addresses that a launch reads and writes; 0 ends a list. */
struct operands {
    uint64_t reads[REGIONS], writes[REGIONS];
};

static CUfunction kernel;

void engine_require(bool is_true, const char *file, int line, const char *text)
{
    if (!is_true) {
        fprintf(stderr, "%s:%d: failed: %s\n", file, line, text);
        (void)flw_sim_print_violations(&engine.sim);
        exit(1);
    }
}

static void add_up(flw_sim_launch *launch, void **parameters)
{
    struct operands operands;
    uint32_t sum = 0, word = 0;
    memcpy(&operands, parameters[0], sizeof operands);
    for (int i = 0; i < REGIONS && operands.reads[i] != 0; i++, sum += word) {
        engine.sim.load(launch, "reads", &word, operands.reads[i], sizeof word);
    }
    for (int i = 0; i < REGIONS && operands.writes[i] != 0; i++) {
        engine.sim.store(launch, "writes", operands.writes[i], &sum, sizeof sum);
    }
}

void engine_begin(void)
{
    flw_sim_config world = flw_sim_config_default(1);
    fallow_pool_config config = {.struct_size = sizeof config, .driver = "sim"};
    size_t parameter_bytes = sizeof(struct operands);
    CUmodule module = NULL;
    EXPECT(flw_sim_open(&engine.sim));
    world.check = world.backed = 1;
    flw_sim_begin(&engine.sim, &world);
    engine.sim.register_twin("add_up", add_up);
    EXPECT(engine.sim.parameters("add_up", 1, &parameter_bytes));
    OK(engine.sim.cu.cuModuleLoadData(&module, "add_up"));
    OK(engine.sim.cu.cuModuleGetFunction(&kernel, module, "add_up"));
    OK(engine.sim.cu.cuStreamCreate(&engine.stream, CU_STREAM_NON_BLOCKING));
    OK(engine.sim.cu.cuStreamCreate(&engine.second, CU_STREAM_NON_BLOCKING));
    OK(fallow_pool_create(&config, &engine.pool));
    OK(fallow_kernels_create(engine.pool, &engine.kernels));
}

int engine_end(void)
{
    OK(engine.sim.cu.cuCtxSynchronize());
    fallow_kernels_destroy(engine.kernels);
    fallow_pool_destroy(engine.pool); /* frees all blocks */
    return flw_sim_print_violations(&engine.sim) != 0;
}

void engine_launch(CUstream stream, const fallow_layout *layout, const fallow_lease *lease,
                   uint32_t regions)
{
    struct operands operands = {{0}, {0}};
    flw_sim_range ranges[2 * REGIONS];
    size_t count = 0, read_count = 0, write_count = 0;
    for (size_t bit = 0; bit < 2 * REGIONS; bit++) {
        fallow_region region;
        if ((regions >> bit & 1) == 0) {
            continue;
        }
        uint64_t address = (uint64_t)(uintptr_t)fallow_lease_region_at(lease, bit % REGIONS);
        OK(fallow_layout_region(layout, bit % REGIONS, &region, NULL));
        ranges[count++] = (flw_sim_range){
            .address = address, .bytes = region.size_bytes, .is_write = bit >= REGIONS};
        *(bit < REGIONS ? &operands.reads[read_count++] : &operands.writes[write_count++]) =
            address;
    }
    OK(engine.sim.touch(stream, ranges, count));
    OK(engine.sim.cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&operands},
                                    NULL));
}

void engine_join(CUstream stream, CUstream other)
{
    CUevent event = NULL;
    OK(engine.sim.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(engine.sim.cu.cuEventRecord(event, other));
    OK(engine.sim.cu.cuStreamWaitEvent(stream, event, 0));
    OK(engine.sim.cu.cuEventDestroy_v2(event));
}

void engine_fill(CUstream stream, void *to, uint32_t word, size_t bytes)
{
    OK(engine.sim.cu.cuMemsetD32Async((CUdeviceptr)(uintptr_t)to, word, bytes / 4, stream));
}

uint32_t engine_read(CUstream stream, const void *from)
{
    uint32_t word = 0;
    OK(engine.sim.cu.cuMemcpyDtoHAsync_v2(&word, (CUdeviceptr)(uintptr_t)from, sizeof word,
                                          stream));
    OK(engine.sim.cu.cuStreamSynchronize(stream));
    return word;
}
