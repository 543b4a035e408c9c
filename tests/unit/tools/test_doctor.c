/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tests of the doctor: findings and advice on a simulated device with features missing, and that every failure
 * is one line with a remedy.
 */
#include "support/test.h"

#include "common/command.h"
#include "common/tool_host.h"
#include "doctor/doctor.h"

#include "fallow/kernels.h"
#include "fallow/simcuda.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* The examination prints JSON to `found`. */
static struct flw_doctor doctor;
static char *found;
static size_t found_bytes;

/* Return the text behind `key` in a section of the findings, or NULL. */
static const char *find(const char *section, const char *key)
{
    char heading[64], member[64];
    fflush(doctor.json.file);
    snprintf(heading, sizeof heading, "\"%s\":{", section);
    snprintf(member, sizeof member, "\"%s\":", key);
    const char *begin = strstr(found, heading);
    const char *end = begin == NULL ? NULL : strchr(begin, '}');
    const char *at = begin == NULL ? NULL : strstr(begin, member);
    return at == NULL || (end != NULL && at > end) ? NULL : at + strlen(member);
}

/* Fail unless the finding begins so. */
static void expect(const char *section, const char *key, const char *value)
{
    const char *at = find(section, key);
    if (at == NULL || strncmp(at, value, strlen(value)) != 0) {
        fail_msg("%s, %s is not %s: %s", section, key, value, found);
    }
}

static void expect_advice(const char *words)
{
    for (size_t i = 0; i < doctor.advice_count; i++) {
        if (strstr(doctor.advice[i], words) != NULL) {
            return;
        }
    }
    fail_msg("no advice has '%s'; the first of %zu: %s", words, doctor.advice_count,
             doctor.advice_count > 0 ? doctor.advice[0] : "-");
}

/* A function of the simulated driver's controls. */
static void *control(const char *name)
{
    void *address = dlsym(doctor.driver.object, name);
    assert_non_null(address);
    return address;
}

/* Begin an examination in a fresh world with the driver opened. */
static void admit(const flw_sim_config *config)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    flw_sim_reset_function reset = NULL;
    doctor = (struct flw_doctor){.is_json = true, .driver_name = "sim", .is_sim = true};
    doctor.json.file = open_memstream(&found, &found_bytes);
    flw_json_begin(&doctor.json, NULL, '{');
    if (flw_driver_open(&doctor.driver, "sim", message) != FALLOW_OK) {
        fail_msg("%s", message);
    }
    void *address = control("flw_sim_reset");
    memcpy(&reset, &address, sizeof reset);
    reset(config);
    assert_ok(doctor.driver.cuInit(0));
}

static void dismiss(void)
{
    flw_doctor_leave(&doctor);
    fclose(doctor.json.file);
    free(found);
    flw_host_free(doctor.advice);
}

/* Make the n-th call of an entry point of a simulated driver fail; NULL: none. */
static void make_fail(void *object, const char *entry, uint64_t n, CUresult error)
{
    flw_sim_fail_function make = NULL;
    void *address = dlsym(object, "flw_sim_fail");
    assert_non_null(address);
    memcpy(&make, &address, sizeof make);
    assert_true(make(entry, n, error, 0) != 0 || entry == NULL);
}

/* Return the number of streams, events, handles and allocations that are alive. */
static uint64_t count_alive(void)
{
    flw_sim_ledger ledger = {.struct_size = sizeof ledger};
    flw_sim_ledger_function get_ledger = NULL;
    void *address = control("flw_sim_get_ledger");
    memcpy(&get_ledger, &address, sizeof get_ledger);
    get_ledger(0, &ledger);
    return ledger.allocation_count + ledger.handle_count + ledger.mapping_count +
           ledger.stream_count + ledger.event_count + ledger.reserved_address_bytes;
}

TEST(a_whole_device_gets_every_finding_and_no_advice)
{
    flw_sim_config config = {.struct_size = sizeof config, .schedule = FLW_SIM_CLOCK};
    admit(&config);
    assert_true(flw_doctor_see_driver(&doctor));
    flw_doctor_see_costs(&doctor);
    expect("device 0", "virtual_memory_management", "true");
    expect("device 0", "memory_pools", "true");
    expect("device 0", "handle_file_descriptor", "true");
    expect("device 0", "granularity", "2097152");
    expect("device 0", "name", "\"simulated");
    expect("driver", "kind", "\"simulated device");
    static const char *const calls[] = {
        "cuEventCreate",         "cuEventRecord",     "cuEventQuery",          "cuMemGetInfo",
        "cuStreamGetId",         "cuMemCreate 2 MiB", "cuMemCreate 16 MiB",    "cuMemCreate 64 MiB",
        "cuMemSetAccess 64 MiB", "cuMemUnmap 2 MiB",  "cuMemRelease 16 MiB",   "cuMemAlloc 2 MiB",
        "cuMemFree 64 MiB",      "cuMemMap 2 MiB",    "cuStreamGetCaptureInfo"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const char *cost = find("modelled cost of a call", calls[i]);
        if (cost == NULL || strtoull(cost, NULL, 10) == 0) {
            fail_msg("no cost of %s", calls[i]);
        }
    }
    assert_int_equal(doctor.advice_count, 0);
    assert_int_equal(count_alive(), 0);
    flw_doctor_see_host(&doctor);
    const char *generations = fallow_kernels_generations();
    assert_non_null(
        strstr(find("host", "kernels"), generations[0] != '\0' ? generations : "no device code"));
    dismiss();
}

TEST(a_device_without_virtual_memory_is_told_of_slabs)
{
    flw_sim_config config = {.struct_size = sizeof config,
                             .schedule = FLW_SIM_CLOCK,
                             .without_vmm = 1,
                             .without_pools = 1};
    admit(&config);
    assert_true(flw_doctor_see_driver(&doctor));
    flw_doctor_see_costs(&doctor);
    static const char *const features[] = {"virtual_memory_management", "handle_file_descriptor",
                                           "handle_fabric", "memory_pools"};
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        expect("device 0", features[i], "false");
    }
    expect_advice("slabs from cuMemAlloc");
    assert_null(find("modelled cost of a call", "cuMemCreate 2 MiB"));
    assert_non_null(find("modelled cost of a call", "cuMemAlloc 2 MiB"));
    assert_true(flw_doctor_see_pool(&doctor));
    if (find("pool", "page_source") != NULL) { /* else this build has no library */
        expect("pool", "page_source", "\"slabs");
        expect("pool", "because", "\"the device has no virtual memory");
    }
    dismiss();
}

/* Begin an examination in a world that simulates these profiles; NULL: none. */
static void admit_with(const char *profiles)
{
    flw_sim_config config = {.struct_size = sizeof config, .schedule = FLW_SIM_CLOCK};
    admit(&config);
    flw_sim_play_function play = NULL;
    void *address = control("flw_sim_play");
    memcpy(&play, &address, sizeof play);
    assert_int_equal(play(profiles, NULL, 0), 1);
    dismiss();
    admit(&config);
}

TEST(the_simulated_drivers_profile_is_named)
{
    static const struct {
        const char *profiles, *says;
    } rows[] = {{"old,slow", "\"old,slow\""}, {"vgpu", "\"vgpu\""}, {NULL, "\"none\""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        admit_with(rows[i].profiles);
        assert_true(flw_doctor_see_driver(&doctor));
        expect("driver", "profile", rows[i].says);
        assert_int_equal(doctor.has_vmm, i != 1);
        dismiss();
    }
}

TEST(what_a_pool_is_refused_is_a_finding)
{
    flw_sim_config config = {.struct_size = sizeof config, .schedule = FLW_SIM_CLOCK};
    admit(&config);
    assert_true(flw_doctor_see_driver(&doctor));
    for (uint64_t n = 1; n <= 2; n++) { /* a fabric without the channel */
        make_fail(doctor.driver.object, "cuMemCreate", n, CUDA_ERROR_NOT_PERMITTED);
    }
    assert_true(flw_doctor_see_pool(&doctor));
    make_fail(doctor.driver.object, NULL, 0, CUDA_SUCCESS);
    if (find("pool", "page_source") != NULL) { /* else this build has no library */
        expect("pool", "handle_kinds", "\"descriptors; registration by network adapters\"");
        assert_non_null(strstr(find("pool", "log_1"), "no fabric handles: cuMemCreate answered"));
    }
    dismiss();
}

TEST(a_device_that_is_not_there_is_named)
{
    flw_sim_config config = {.struct_size = sizeof config, .device_count = 2};
    admit(&config);
    doctor.ordinal = 7;
    assert_false(flw_doctor_see_driver(&doctor));
    expect_advice("no device 7");
    assert_null(doctor.context);
    dismiss();
}

/* Every call of the doctor fails once; the doctor must continue, report the failure, and leak nothing. */
TEST(every_failing_call_becomes_a_line_and_leaves_nothing)
{
    static const char *const entries[] = {
        "cuDeviceGetCount", "cuDeviceGetName", "cuDeviceTotalMem_v2", "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",  "cuMemGetInfo_v2", "cuStreamCreate",      "cuEventCreate",
        "cuEventRecord",    "cuEventQuery",    "cuMemAlloc_v2",       "cuMemAddressReserve",
        "cuMemCreate",      "cuMemMap",        "cuMemSetAccess"};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        flw_sim_config config = {.struct_size = sizeof config, .schedule = FLW_SIM_CLOCK};
        admit(&config);
        make_fail(doctor.driver.object, entries[i], 1, CUDA_ERROR_OUT_OF_MEMORY);
        if (flw_doctor_see_driver(&doctor)) {
            flw_doctor_see_costs(&doctor);
        }
        make_fail(doctor.driver.object, NULL, 0, CUDA_SUCCESS);
        expect_advice("failed with CUDA_ERROR_OUT_OF_MEMORY");
        for (size_t k = 0; k < doctor.advice_count; k++) {
            assert_null(strchr(doctor.advice[k], '\n'));
        }
        if (count_alive() != 0) {
            fail_msg("after a failure of %s something is left", entries[i]);
        }
        dismiss();
    }
}

/* The output of `fallow doctor WORDS`, and the exit status. */
static char printed[65536];

static int run_command(char *first, char *second)
{
    char *argv[] = {(char[]){"doctor"}, first, second, NULL};
    char path[] = "/tmp/fallow_doctor_XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    fflush(NULL);
    int out = dup(1);
    dup2(file, 1);
    int status = flw_command_doctor(second != NULL ? 3 : first != NULL ? 2 : 1, argv);
    fflush(NULL);
    dup2(out, 1);
    close(out);
    ssize_t length = pread(file, printed, sizeof printed - 1, 0);
    printed[length < 0 ? 0 : length] = '\0';
    close(file);
    unlink(path);
    return status;
}

TEST(without_a_driver_it_says_so)
{
    char name[] = "--driver=/nonexistent/libcuda.so", json[] = "--json";
    assert_int_equal(run_command(name, NULL), 1);
    assert_non_null(strstr(printed, "/nonexistent/libcuda.so"));
    assert_int_equal(run_command(name, json), 1);
    assert_int_equal(printed[0], '{');
    assert_non_null(strstr(printed, "\"advice\":["));
}

TEST(the_simulated_device_is_called_simulated)
{
    char device[] = "--device=sim", json[] = "--json";
    flw_sim_config config = {.struct_size = sizeof config};
    admit(&config);
    assert_int_equal(run_command(device, NULL), 0);
    assert_non_null(strstr(printed, "simulated device"));
    assert_non_null(strstr(printed, "modelled cost"));
    assert_int_equal(run_command(device, json), 0);
    assert_non_null(strstr(printed, "\"cuMemCreate 16 MiB\":"));
    dismiss();
}

/* The driver that is found without a name: a simulated one under the CUDA driver's name, which the
 * loader then takes for libcuda.so.1. */
static void *load_default_driver(void)
{
    const char *path = getenv("FALLOW_TEST_LIBCUDA");
    assert_non_null(path);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) {
        fail_msg("%s", dlerror());
    }
    flw_sim_reset_function reset = NULL;
    flw_sim_config config = {.struct_size = sizeof config};
    void *address = dlsym(object, "flw_sim_reset");
    assert_non_null(address);
    memcpy(&reset, &address, sizeof reset);
    reset(&config);
    return object;
}

TEST(a_script_learns_from_the_status_whether_a_device_can_be_used)
{
    static const struct {
        const char *entry;
        CUresult error;
        const char *says;
    } refusals[] = {
        {"cuInit", CUDA_ERROR_NO_DEVICE, "driver wanted"},
        {"cuDeviceGetCount", CUDA_ERROR_UNKNOWN, "cuDeviceGetCount failed"},
        {"cuDevicePrimaryCtxRetain", CUDA_ERROR_OUT_OF_MEMORY, "cuDevicePrimaryCtxRetain failed"}};
    char number[] = "--device=0", sim[] = "--device=sim", json[] = "--json";
    void *object = load_default_driver();
    assert_int_equal(run_command(NULL, NULL), 0);
    assert_null(strstr(printed, "driver wanted"));
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        make_fail(object, refusals[i].entry, 1, refusals[i].error);
        assert_int_equal(run_command(json, NULL), 1);
        assert_non_null(strstr(printed, refusals[i].says));
        make_fail(object, refusals[i].entry, 1, refusals[i].error);
        assert_int_equal(run_command(number, NULL), 1);
        assert_int_equal(run_command(sim, NULL), 0);
        make_fail(object, NULL, 0, CUDA_SUCCESS);
    }
    assert_int_equal(run_command(number, NULL), 0);
    dlclose(object);
}

TEST(mistakes_on_the_command_line_are_refused)
{
    char bad[] = "--device=x", unknown[] = "--frobnicate", word[] = "word", help[] = "--help";
    assert_int_equal(run_command(bad, NULL), 2);
    assert_int_equal(run_command(unknown, NULL), 2);
    assert_int_equal(run_command(word, NULL), 2);
    assert_int_equal(run_command(help, NULL), 0);
}

FLW_TEST_MAIN(NULL, NULL)
