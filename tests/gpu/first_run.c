/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the questions about a real driver that its documentation leaves open and the preload library
 * relies on, asked through the driver's own entry points: those that a C program can ask. clients.sh asks
 * the rest. The numbers are those of its list.
 *
 *   first_run [--device N|sim]
 *
 * Prints "number: answer" a line. Exit: 0 all asked, and what is relied on holds; 1 something does not;
 * 77 no such device. Does not: use the library; on the simulated device nothing is found out but that
 * the program itself works.
 */
#include "first_run.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Lasts `ns` by the clock that all of a device shares. */
static const char spin_ptx[] = ".version 7.0\n"
                               ".target sm_75\n"
                               ".address_size 64\n"
                               ".visible .entry spin(.param .u64 ns)\n"
                               "{\n"
                               "    .reg .u64 %rd<5>;\n"
                               "    .reg .pred %p<2>;\n"
                               "    ld.param.u64 %rd1, [ns];\n"
                               "    mov.u64 %rd2, %globaltimer;\n"
                               "again:\n"
                               "    mov.u64 %rd3, %globaltimer;\n"
                               "    sub.u64 %rd4, %rd3, %rd2;\n"
                               "    setp.lt.u64 %p1, %rd4, %rd1;\n"
                               "    @%p1 bra again;\n"
                               "    ret;\n"
                               "}\n";

double bed_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

void answer(const char *number, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s: ", number);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    fflush(stdout);
}

void rely(struct bed *bed, const char *number, bool holds, const char *what)
{
    answer(number, "%s: %s", what, holds ? "yes" : "NO, and the preload library relies on it");
    bed->wrong_count += !holds;
}

const char *name_of(const struct bed *bed, CUresult result)
{
    return flw_driver_error_name(bed->cu, result);
}

void must(const struct bed *bed, CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "first_run: %s: %s\n", call, name_of(bed, result));
        exit(1);
    }
}

void bed_busy(struct bed *bed, CUstream stream, unsigned ms)
{
    if (bed->is_sim) {
        MUST(cuMemsetD32Async(bed->words, 1, 16, stream));
        return;
    }
    unsigned long long ns = ms * 1000000ull;
    void *parameters[] = {&ns};
    MUST(cuLaunchKernel(bed->spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static bool begin(struct bed *bed, const char *name)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    CUdevice device;
    bed->is_sim = strcmp(name, "sim") == 0;
    if (bed->is_sim) {
        flw_sim_config world = flw_sim_config_default(1);
        world.schedule = FLW_SIM_HELD;
        if (!flw_sim_open(&bed->sim)) {
            return false;
        }
        bed->cu = &bed->sim.cu;
        bed->context = flw_sim_begin(&bed->sim, &world);
        MUST(cuMemAlloc_v2(&bed->words, MIB));
        return true;
    }
    if (flw_driver_open(&bed->sim.cu, NULL, message) != FALLOW_OK) {
        fprintf(stderr, "first_run: %s\n", message);
        return false;
    }
    bed->cu = &bed->sim.cu;
    CUmodule module;
    MUST(cuDeviceGet(&device, (int)strtol(name, NULL, 10)));
    MUST(cuDevicePrimaryCtxRetain(&bed->context, device));
    MUST(cuCtxSetCurrent(bed->context));
    MUST(cuModuleLoadData(&module, spin_ptx));
    MUST(cuModuleGetFunction(&bed->spin, module, "spin"));
    return true;
}

int main(int argc, char **argv)
{
    struct bed bed = {.cu = NULL};
    const char *device = "0";
    if (argc == 3 && strcmp(argv[1], "--device") == 0) {
        device = argv[2];
    } else if (argc != 1) {
        fprintf(stderr, "usage: first_run [--device N|sim]\n");
        return 2;
    }
    if (!begin(&bed, device)) {
        return 77;
    }
    answer("0", "driver %d%s", bed.cu->version,
           bed.is_sim ? ", SIMULATED: these are answers of a model" : "");
    check_addresses(&bed);
    check_epochs(&bed);
    check_modes(&bed);
    check_free(&bed);
    check_pointers(&bed);
    check_contexts(&bed); /* the last: it resets the context */
    printf("%u of the things relied on do not hold\n", bed.wrong_count);
    return bed.wrong_count != 0;
}
