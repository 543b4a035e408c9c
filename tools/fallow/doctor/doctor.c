/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the command line of `fallow doctor`, the order of the examination, and properties of the host: membarrier(2), address
 * space, overcommit, and the GPUs that the kernels were built for.
 */
#include "doctor/doctor.h"

#include "common/command.h"
#include "common/machine.h"
#include "common/options.h"
#include "common/terminal.h"
#include "common/tool_host.h"
#if defined(FLW_HAS_KERNELS)
#include "fallow/kernels.h"
#endif

#include <errno.h>
#include <getopt.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char help[] =
    "usage: fallow doctor [--device sim|N] [--driver NAME] [--json]\n"
    "\n"
    "Show what the host, the driver and the devices offer a pool, the cost of each driver call, the page\n"
    "source that a pool would use and why, and recommended settings. If no driver can be used, the\n"
    "simulated device is shown instead, and the exit status is 1.\n"
    "\n"
    "  --device sim|N   device to examine (0)\n"
    "  --driver NAME    library of the driver (libcuda.so.1), or sim\n"
    "  --json           print one JSON object; numbers are bytes, nanoseconds and counts\n"
    "\n"
    "exit status 0: a pool can be used on the device (the simulated device counts only if --device or\n"
    "--driver names it); 1: it cannot, and the last lines give the reason; 2: the command line is wrong\n"
    "\n"
    "example: fallow doctor --device sim\n";

/* ---- the host ---- */

/* A pool reserves eight times the card's memory in addresses. */
#define COMFORTABLE_ADDRESSES ((uint64_t)4 << 40)

static void see_membarrier(struct flw_doctor *doctor)
{
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    bool is_there = commands >= 0 && (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 &&
                    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    flw_doctor_number(doctor, "membarrier", FLW_DOCTOR_BOOL, is_there);
    if (!is_there) {
        flw_doctor_advise(
            doctor,
            "membarrier(2) is refused (%s): every hit executes a fence; allow it in the "
            "container's seccomp profile, or use Linux 4.14 or newer",
            commands < 0 ? strerror(errno) : "no private expedited command");
    }
}

/* Print a limit of the process. Returns the limit; RLIM_INFINITY if there is none. */
static rlim_t see_limit(struct flw_doctor *doctor, const char *key, int resource)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0) {
        return RLIM_INFINITY;
    }
    if (limit.rlim_cur == RLIM_INFINITY) {
        flw_doctor_text(doctor, key, "none");
    } else {
        flw_doctor_number(doctor, key, FLW_DOCTOR_BYTES, limit.rlim_cur);
    }
    return limit.rlim_cur;
}

static void see_overcommit(struct flw_doctor *doctor)
{
    unsigned mode = 0;
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "re");
    bool is_known = file != NULL && fscanf(file, "%u", &mode) == 1;
    if (file != NULL) {
        fclose(file);
    }
    if (!is_known) {
        flw_doctor_text(doctor, "overcommit_memory", "unknown");
        return;
    }
    flw_doctor_number(doctor, "overcommit_memory", FLW_DOCTOR_COUNT, mode);
    if (mode == 2) {
        flw_doctor_advise(doctor,
                          "vm.overcommit_memory is 2: large reservations of addresses may be "
                          "refused; set it to 0 (sysctl vm.overcommit_memory=0)");
    }
}

void flw_doctor_see_host(struct flw_doctor *doctor)
{
    char cpu[128];
    struct utsname name;
    const char *kernels = "not built";
    flw_doctor_begin(doctor, "host");
    flw_machine_cpu_name(cpu, sizeof cpu);
    flw_doctor_text(doctor, "cpu", "%s", cpu);
    flw_doctor_number(doctor, "cpus", FLW_DOCTOR_COUNT, flw_machine_cpu_count());
    if (uname(&name) == 0) {
        flw_doctor_text(doctor, "system", "%s %s", name.sysname, name.release);
    }
    flw_doctor_number(doctor, "page_bytes", FLW_DOCTOR_BYTES, (uint64_t)sysconf(_SC_PAGESIZE));
    see_membarrier(doctor);
    if (see_limit(doctor, "address_space_limit", RLIMIT_AS) < COMFORTABLE_ADDRESSES) {
        flw_doctor_advise(doctor,
                          "the address space is limited (ulimit -v): a pool reserves 8 times the "
                          "card's memory in addresses, and its tables shrink until they take a "
                          "quarter of the rest, so that fewer blocks fit; run with ulimit -v "
                          "unlimited");
    }
    see_limit(doctor, "locked_memory_limit", RLIMIT_MEMLOCK);
    see_overcommit(doctor);
#if defined(FLW_HAS_KERNELS)
    kernels = fallow_kernels_generations();
    kernels =
        kernels[0] != '\0' ? kernels : "no device code (built without nvcc): simulated device only";
#endif
    flw_doctor_text(doctor, "kernels", "%s", kernels);
}

/* ---- the command ---- */

#define UNNAMED (-2) /* no device was named */

struct settings {
    const char *driver; /* NULL: open the CUDA driver, else the simulated one */
    int device;
    bool is_json;
};

static const struct flw_option option_list[] = {
    {.name = "device", .kind = FLW_OPTION_DEVICE, .offset = offsetof(struct settings, device)},
    {.name = "driver", .kind = FLW_OPTION_TEXT, .offset = offsetof(struct settings, driver)},
    {.name = "json", .kind = FLW_OPTION_SET, .offset = offsetof(struct settings, is_json)},
    {.name = NULL}};

static bool open_driver(struct flw_doctor *doctor, const char *name,
                        char message[static FLW_DRIVER_MESSAGE_BYTES])
{
    doctor->driver_name = name;
    doctor->is_sim = name != NULL && strcmp(name, "sim") == 0;
    bool is_open = flw_driver_open(&doctor->driver, name, message) == FALLOW_OK;
    if (!is_open) {
        flw_doctor_advise(doctor, "%s", message);
    }
    return is_open;
}

/* Examine the named driver, or the CUDA driver, or the simulated one if there is no CUDA driver. Returns true if a pool
 * can be used there; the simulated device counts only if it was named. */
static bool examine(struct flw_doctor *doctor, const struct settings *settings)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    bool is_named = settings->driver != NULL || settings->device != UNNAMED, is_stand_in = false;
    doctor->ordinal = settings->device < 0 ? 0 : settings->device;
    flw_doctor_see_host(doctor);
    if (!open_driver(doctor, settings->device == FLW_OPTION_SIM ? "sim" : settings->driver,
                     message)) {
        if (is_named) {
            return false;
        }
        flw_doctor_begin(doctor, "driver wanted");
        flw_doctor_text(doctor, "libcuda.so.1", "%s", message);
        is_stand_in = true;
        if (!open_driver(doctor, "sim", message)) {
            return false;
        }
    }
    bool is_usable = flw_doctor_see_driver(doctor);
    if (is_usable) {
        flw_doctor_see_costs(doctor);
        is_usable = flw_doctor_see_pool(doctor);
    }
    flw_doctor_leave(doctor);
    return is_usable && !is_stand_in;
}

int flw_command_doctor(int argc, char **argv)
{
    struct settings settings = {.device = UNNAMED};
    int code = flw_options_read(
        &(struct flw_options){.command = "doctor", .help = help, .list = option_list}, &settings,
        argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    if (optind < argc) {
        return flw_refuse(FLW_EXIT_USAGE, "doctor: unknown argument '%s'; see fallow doctor --help",
                          argv[optind]);
    }
    struct flw_doctor doctor = {.is_json = settings.is_json};
    doctor.json.file = settings.is_json ? stdout : flw_terminal_open(false);
    if (settings.is_json) {
        flw_json_begin(&doctor.json, NULL, '{');
    }
    bool is_usable = examine(&doctor, &settings);
    flw_doctor_print_advice(&doctor);
    if (!settings.is_json) {
        flw_terminal_close(doctor.json.file);
    }
    flw_host_free(doctor.advice);
    return is_usable ? FLW_EXIT_OK : FLW_EXIT_FAILED;
}
