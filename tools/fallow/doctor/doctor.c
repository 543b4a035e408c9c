/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the command line of `fallow doctor`, and the order in which it looks.
 */
#include "doctor/doctor.h"

#include "common/command.h"
#include "common/options.h"
#include "common/tool_host.h"
#include "fallow/fallow.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

#define UNNAMED (-2) /* no device was asked for */

struct settings {
    const char *driver; /* NULL: look for the real one, then show the simulated one */
    int device;
    bool is_stand_in; /* set by open_driver: the simulated device is shown for want of another */
    bool is_json;
};

static const struct flw_option option_list[] = {
    {.name = "device", .kind = FLW_OPTION_DEVICE, .offset = offsetof(struct settings, device)},
    {.name = "driver", .kind = FLW_OPTION_TEXT, .offset = offsetof(struct settings, driver)},
    {.name = "json", .kind = FLW_OPTION_SET, .offset = offsetof(struct settings, is_json)},
    {.name = NULL}};

/* False: no driver at all; the advice says why, as it does of a stand-in. */
static bool open_driver(struct flw_doctor_sheet *sheet, struct settings *settings,
                        struct flw_doctor_patient *patient)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    bool is_asked = settings->driver != NULL || settings->device != UNNAMED;
    patient->ordinal = settings->device < 0 ? 0 : settings->device;
    patient->driver_name = settings->device == FLW_OPTION_SIM ? "sim" : settings->driver;
    patient->is_sim = patient->driver_name != NULL && strcmp(patient->driver_name, "sim") == 0;
    if (flw_driver_open(&patient->driver, patient->driver_name, message) == FALLOW_OK) {
        return true;
    }
    flw_doctor_advise(sheet, "%s", message);
    if (is_asked) {
        return false;
    }
    flw_doctor_begin(sheet, "driver wanted");
    flw_doctor_text(sheet, "libcuda.so.1", "%s", message);
    patient->driver_name = "sim";
    patient->is_sim = true;
    if (flw_driver_open(&patient->driver, "sim", message) != FALLOW_OK) {
        flw_doctor_advise(sheet, "%s", message);
        return false;
    }
    settings->is_stand_in = true;
    return true;
}

static char pool_message[FLW_DOCTOR_TEXT_BYTES];
static unsigned line_count;

/* What the driver refuses a pool, which goes on without it, is a finding. */
static void keep_line(void *context, fallow_log_level level, const char *line)
{
    if (level != FALLOW_LOG_ERROR) {
        char key[16];
        snprintf(key, sizeof key, "log_%u", ++line_count);
        flw_doctor_text(context, key, "%s", line);
    }
    if (level == FALLOW_LOG_ERROR || pool_message[0] == '\0') {
        snprintf(pool_message, sizeof pool_message, "%s", line);
    }
}

/* "descriptors, fabric; registration by network adapters" */
static void describe_handles(struct flw_doctor_sheet *sheet, const fallow_stats *stats)
{
    bool has_fd = (stats->handle_types & FALLOW_HANDLE_FD) != 0;
    bool has_fabric = (stats->handle_types & FALLOW_HANDLE_FABRIC) != 0;
    flw_doctor_text(sheet, "handle_kinds", "%s%s%s%s%s", has_fd ? "descriptors" : "",
                    has_fd && has_fabric ? ", " : "", has_fabric ? "fabric" : "",
                    has_fd || has_fabric ? "" : "no way to export",
                    stats->allows_rdma ? "; registration by network adapters" : "");
}

static void describe_pool(struct flw_doctor_sheet *sheet, const struct flw_doctor_patient *patient,
                          fallow_pool *pool)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    if (fallow_pool_get_stats(pool, &stats) != FALLOW_OK) {
        return;
    }
    flw_doctor_text(sheet, "page_source", "%s",
                    stats.uses_vmm ? "handles (cuMemCreate, cuMemMap): memory moves between sizes "
                                     "by remapping"
                                   : "slabs (cuMemAlloc): released whole when empty");
    flw_doctor_text(sheet, "because", "%s",
                    stats.uses_vmm     ? "a handle was created, mapped, written and released"
                    : patient->has_vmm ? "the driver refused handles: see log_1"
                                       : "the device has no virtual memory management");
    if (stats.uses_vmm) {
        describe_handles(sheet, &stats);
    }
    flw_doctor_text(sheet, "owner_path", "%s",
                    stats.uses_membarrier ? "plain stores (membarrier pays for them)"
                                          : "its cache's lock on every call (no membarrier)");
    flw_doctor_number(sheet, "reserved_for_one_block", FLW_DOCTOR_BYTES, stats.reserved_bytes);
    flw_doctor_number(sheet, "driver_calls_for_one_block", FLW_DOCTOR_COUNT,
                      stats.driver_call_count);
    flw_doctor_number(sheet, "host_bytes", FLW_DOCTOR_BYTES, stats.host_bytes);
}

bool flw_doctor_see_pool(struct flw_doctor_sheet *sheet, struct flw_doctor_patient *patient)
{
    fallow_pool *pool = NULL;
    fallow_pool_config config;
    void *block = NULL;
    fallow_pool_config_init(&config);
    config.driver = patient->driver_name;
    config.device = patient->ordinal;
    config.log = keep_line;
    config.log_context = sheet;
    line_count = 0;
    flw_doctor_begin(sheet, "pool");
    fallow_status status = fallow_pool_create(&config, &pool);
    if (status == FALLOW_OK) {
        status = fallow_alloc(pool, (size_t)1 << 20, NULL, &block);
    }
    flw_doctor_text(sheet, "a block of 1 MiB", "%s", fallow_status_name(status));
    if (status == FALLOW_OK) {
        describe_pool(sheet, patient, pool);
        status = fallow_free(pool, block, NULL);
    }
    if (status != FALLOW_OK) {
        flw_doctor_advise(sheet, "a pool on device %d: %s", patient->ordinal,
                          pool_message[0] != '\0' ? pool_message : fallow_status_message(status));
    }
    fallow_pool_destroy(pool);
    return status == FALLOW_OK;
}

static bool examine(struct flw_doctor_sheet *sheet, struct flw_doctor_patient *patient)
{
    bool is_usable = flw_doctor_see_driver(sheet, patient);
    if (is_usable) {
        flw_doctor_see_costs(sheet, patient);
        is_usable = flw_doctor_see_pool(sheet, patient);
    }
    if (patient->context != NULL) {
        patient->driver.cuCtxSetCurrent(NULL);
        patient->driver.cuDevicePrimaryCtxRelease_v2(patient->device);
    }
    flw_driver_close(&patient->driver);
    return is_usable;
}

int flw_command_doctor(int argc, char **argv)
{
    struct settings settings = {.device = UNNAMED};
    struct flw_doctor_patient patient = {0};
    int code = flw_options_read(
        &(struct flw_options){.command = "doctor", .help = help, .list = option_list}, &settings,
        argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    if (optind < argc) {
        flw_complain("doctor: what is '%s'? see fallow doctor --help", argv[optind]);
        return FLW_EXIT_USAGE;
    }
    struct flw_doctor_sheet *sheet = flw_host_alloc(1, sizeof *sheet);
    flw_doctor_see_host(sheet);
    bool is_usable = open_driver(sheet, &settings, &patient) && examine(sheet, &patient);
    flw_doctor_print(sheet, settings.is_json);
    if (sheet->is_full) {
        flw_complain("doctor: some findings are left out: there are too many");
    }
    flw_host_free(sheet);
    return is_usable && !settings.is_stand_in ? FLW_EXIT_OK : FLW_EXIT_FAILED;
}
