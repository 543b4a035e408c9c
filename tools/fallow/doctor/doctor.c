/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the command line of `fallow doctor`, and the order in which it looks.
 */
#include "doctor/doctor.h"

#include "common/command.h"
#include "common/options.h"
#include "fallow/fallow.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: fallow doctor [--device sim|N] [--driver NAME] [--json]\n"
    "\n"
    "What the host, the driver and the devices offer a pool, what each driver call costs, which page\n"
    "source a pool would use and why, and what to set. Without a driver that can be used it says so,\n"
    "shows the simulated device, and its exit status is 1 all the same.\n"
    "\n"
    "  --device sim|N   the device to look at closely (0)\n"
    "  --driver NAME    a driver's library (libcuda.so.1), or sim\n"
    "  --json           the same as one JSON object; numbers are bytes, nanoseconds and counts\n"
    "\n"
    "exit status 0: a pool can be used on the device (the simulated one only where --device or\n"
    "--driver names it); 1: it cannot, the last lines say why; 2: the command line\n"
    "\n"
    "example: fallow doctor --device sim\n";

struct settings {
    const char *driver; /* NULL: look for the real one, then show the simulated one */
    int ordinal;
    bool is_asked;    /* a driver or device was named: no fallback */
    bool is_stand_in; /* set by open_driver: the simulated device is shown for want of another */
    bool is_json;
};

static bool parse_device(struct settings *settings, const char *text)
{
    char *end = NULL;
    settings->is_asked = true;
    if (strcmp(text, "sim") == 0) {
        settings->driver = "sim";
        return true;
    }
    long value = strtol(text, &end, 10);
    settings->ordinal = (int)value;
    return end != text && *end == '\0' && value >= 0 && value < 1024;
}

/* 0: go on; 1: help was shown; 2: a mistake was named. */
static int parse(int argc, char **argv, struct settings *settings)
{
    static const struct option options[] = {{"device", required_argument, NULL, 'd'},
                                            {"driver", required_argument, NULL, 'D'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
        switch (option) {
        case 'h':
            fputs(help, stdout);
            return 1;
        case 'D':
            settings->driver = optarg;
            settings->is_asked = true;
            break;
        case 'j':
            settings->is_json = true;
            break;
        case 'd':
            if (!parse_device(settings, optarg)) {
                fprintf(stderr, "fallow doctor: '%s' is no device: use sim or a number\n", optarg);
                return 2;
            }
            break;
        default:
            flw_complain_option("doctor", argv, option);
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "fallow doctor: what is '%s'? see --help\n", argv[optind]);
        return 2;
    }
    return 0;
}

/* False: no driver at all; the advice says why, as it does of a stand-in. */
static bool open_driver(struct flw_doctor_sheet *sheet, struct settings *settings,
                        struct flw_doctor_patient *patient)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    patient->ordinal = settings->ordinal;
    patient->driver_name = settings->driver;
    patient->is_sim = settings->driver != NULL && strcmp(settings->driver, "sim") == 0;
    if (flw_driver_open(&patient->driver, settings->driver, message) == FALLOW_OK) {
        return true;
    }
    flw_doctor_advise(sheet, "%s", message);
    if (settings->is_asked) {
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

#if defined(FLW_HAS_LIBRARY)
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
#else
bool flw_doctor_see_pool(struct flw_doctor_sheet *sheet, struct flw_doctor_patient *patient)
{
    (void)patient;
    flw_doctor_begin(sheet, "pool");
    flw_doctor_text(sheet, "library", "this build has none");
    return true;
}
#endif

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
    struct settings settings = {0};
    struct flw_doctor_patient patient = {0};
    int parsed = parse(argc, argv, &settings);
    if (parsed != 0) {
        return parsed == 1 ? FLW_EXIT_OK : FLW_EXIT_USAGE;
    }
    struct flw_doctor_sheet *sheet = calloc(1, sizeof *sheet);
    if (sheet == NULL) {
        fprintf(stderr, "fallow doctor: the host is out of memory\n");
        return FLW_EXIT_FAILED;
    }
    flw_doctor_see_host(sheet);
    bool is_usable = open_driver(sheet, &settings, &patient) && examine(sheet, &patient);
    flw_doctor_print(sheet, settings.is_json);
    if (sheet->is_full) {
        fprintf(stderr, "fallow doctor: not every finding fitted on the sheet\n");
    }
    free(sheet);
    return is_usable && !settings.is_stand_in ? FLW_EXIT_OK : FLW_EXIT_FAILED;
}
