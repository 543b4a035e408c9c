/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tests of the doctor: the sheet, the report on a simulated device with features missing, and that every failure
 * is one line with a remedy.
 */
#include "support/test.h"

#include "common/command.h"
#include "doctor/doctor.h"

#include "fallow/kernels.h"
#include "fallow/simcuda.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static struct flw_doctor_sheet sheet;

static const struct flw_doctor_entry *find(const char *section, const char *key)
{
    for (size_t i = 0; i < sheet.entry_count; i++) {
        if (strcmp(sheet.entries[i].section, section) == 0 &&
            strcmp(sheet.entries[i].key, key) == 0) {
            return &sheet.entries[i];
        }
    }
    return NULL;
}

static bool has_advice(const char *words)
{
    for (size_t i = 0; i < sheet.advice_count; i++) {
        if (strstr(sheet.advice[i], words) != NULL) {
            return true;
        }
    }
    return false;
}

static void expect_advice(const char *words)
{
    if (!has_advice(words)) {
        fail_msg("no advice has '%s'; the first of %zu: %s", words, sheet.advice_count,
                 sheet.advice_count > 0 ? sheet.advice[0] : "-");
    }
}

/* A function of the simulated driver's controls. */
static void *control(const struct flw_driver *driver, const char *name)
{
    void *address = dlsym(driver->object, name);
    assert_non_null(address);
    return address;
}

/* A fresh world with the driver opened. */
static struct flw_doctor_patient admit(const flw_sim_config *config)
{
    struct flw_doctor_patient patient = {.driver_name = "sim", .is_sim = true};
    char message[FLW_DRIVER_MESSAGE_BYTES];
    flw_sim_reset_function reset = NULL;
    memset(&sheet, 0, sizeof sheet);
    if (flw_driver_open(&patient.driver, "sim", message) != FALLOW_OK) {
        fail_msg("%s", message);
    }
    void *address = control(&patient.driver, "flw_sim_reset");
    memcpy(&reset, &address, sizeof reset);
    reset(config);
    assert_int_equal(patient.driver.cuInit(0), CUDA_SUCCESS);
    return patient;
}

static void dismiss(struct flw_doctor_patient *patient)
{
    if (patient->context != NULL) {
        patient->driver.cuCtxSetCurrent(NULL);
        patient->driver.cuDevicePrimaryCtxRelease_v2(patient->device);
    }
    flw_driver_close(&patient->driver);
}

/* Streams, events, handles, allocations that are alive. */
static uint64_t count_alive(const struct flw_driver *driver)
{
    flw_sim_ledger ledger = {.struct_size = sizeof ledger};
    flw_sim_ledger_function get_ledger = NULL;
    void *address = control(driver, "flw_sim_get_ledger");
    memcpy(&get_ledger, &address, sizeof get_ledger);
    get_ledger(0, &ledger);
    return ledger.allocation_count + ledger.handle_count + ledger.mapping_count +
           ledger.stream_count + ledger.event_count + ledger.reserved_address_bytes;
}

static void a_whole_device_gets_every_finding_and_no_advice(void **state)
{
    (void)state;
    flw_sim_config config = {.struct_size = sizeof config, .schedule = FLW_SIM_CLOCK};
    struct flw_doctor_patient patient = admit(&config);
    assert_true(flw_doctor_see_driver(&sheet, &patient));
    flw_doctor_see_costs(&sheet, &patient);
    assert_true(patient.has_vmm && patient.has_pools && patient.has_fd);
    assert_int_equal(find("device 0", "virtual_memory_management")->number, 1);
    assert_int_equal(find("device 0", "granularity")->number, 2 << 20);
    assert_non_null(strstr(find("device 0", "name")->text, "simulated"));
    assert_non_null(strstr(find("driver", "kind")->text, "simulated device"));
    static const char *const calls[] = {
        "cuEventCreate",         "cuEventRecord",     "cuEventQuery",          "cuMemGetInfo",
        "cuStreamGetId",         "cuMemCreate 2 MiB", "cuMemCreate 16 MiB",    "cuMemCreate 64 MiB",
        "cuMemSetAccess 64 MiB", "cuMemUnmap 2 MiB",  "cuMemRelease 16 MiB",   "cuMemAlloc 2 MiB",
        "cuMemFree 64 MiB",      "cuMemMap 2 MiB",    "cuStreamGetCaptureInfo"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const struct flw_doctor_entry *entry = find("modelled cost of a call", calls[i]);
        if (entry == NULL || entry->kind != FLW_DOCTOR_NS || entry->number == 0) {
            fail_msg("no cost of %s", calls[i]);
        }
    }
    assert_int_equal(sheet.advice_count, 0);
    assert_false(sheet.is_full);
    assert_int_equal(count_alive(&patient.driver), 0);
    flw_doctor_see_host(&sheet);
    const char *generations = fallow_kernels_generations();
    assert_non_null(strstr(find("host", "kernels")->text,
                           generations[0] != '\0' ? generations : "no device code"));
    dismiss(&patient);
}

static void a_device_without_virtual_memory_is_told_of_slabs(void **state)
{
    (void)state;
    flw_sim_config config = {.struct_size = sizeof config,
                             .schedule = FLW_SIM_CLOCK,
                             .without_vmm = 1,
                             .without_pools = 1};
    struct flw_doctor_patient patient = admit(&config);
    assert_true(flw_doctor_see_driver(&sheet, &patient));
    flw_doctor_see_costs(&sheet, &patient);
    assert_false(patient.has_vmm || patient.has_fd || patient.has_fabric || patient.has_pools);
    expect_advice("slabs from cuMemAlloc");
    assert_null(find("modelled cost of a call", "cuMemCreate 2 MiB"));
    assert_non_null(find("modelled cost of a call", "cuMemAlloc 2 MiB"));
    assert_true(flw_doctor_see_pool(&sheet, &patient));
    const struct flw_doctor_entry *source = find("pool", "page_source");
    const struct flw_doctor_entry *because = find("pool", "because");
    assert_int_equal(source != NULL, because != NULL);
    if (source != NULL && because != NULL) {
        assert_non_null(strstr(source->text, "slabs"));
        assert_non_null(strstr(because->text, "no virtual memory"));
    }
    dismiss(&patient);
}

/* The patient's world simulates these profiles; NULL: none. */
static struct flw_doctor_patient admit_with(const char *profiles)
{
    flw_sim_config config = {.struct_size = sizeof config, .schedule = FLW_SIM_CLOCK};
    struct flw_doctor_patient patient = admit(&config);
    flw_sim_play_function play = NULL;
    void *address = control(&patient.driver, "flw_sim_play");
    memcpy(&play, &address, sizeof play);
    assert_int_equal(play(profiles, NULL, 0), 1);
    dismiss(&patient);
    return admit(&config);
}

static void the_simulated_drivers_profile_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *profiles, *says;
    } rows[] = {{"old,slow", "old,slow"}, {"vgpu", "vgpu"}, {NULL, "none"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct flw_doctor_patient patient = admit_with(rows[i].profiles);
        assert_true(flw_doctor_see_driver(&sheet, &patient));
        assert_string_equal(find("driver", "profile")->text, rows[i].says);
        assert_int_equal(patient.has_vmm, i != 1);
        dismiss(&patient);
    }
}

static void what_a_pool_is_refused_is_a_finding(void **state)
{
    (void)state;
    flw_sim_config config = {.struct_size = sizeof config, .schedule = FLW_SIM_CLOCK};
    struct flw_doctor_patient patient = admit(&config);
    flw_sim_fail_function make_fail = NULL;
    void *address = control(&patient.driver, "flw_sim_fail");
    memcpy(&make_fail, &address, sizeof make_fail);
    assert_true(flw_doctor_see_driver(&sheet, &patient));
    for (uint64_t n = 1; n <= 2; n++) { /* a fabric without the channel */
        assert_int_not_equal(make_fail("cuMemCreate", n, CUDA_ERROR_NOT_PERMITTED, 0), 0);
    }
    assert_true(flw_doctor_see_pool(&sheet, &patient));
    (void)make_fail(NULL, 0, 0, 0);
    const struct flw_doctor_entry *kinds = find("pool", "handle_kinds");
    const struct flw_doctor_entry *line = find("pool", "log_1");
    if (find("pool", "page_source") != NULL) { /* else this build has no library */
        assert_true(kinds != NULL && line != NULL);
        assert_string_equal(kinds->text, "descriptors; registration by network adapters");
        assert_non_null(strstr(line->text, "no fabric handles: cuMemCreate answered"));
    }
    dismiss(&patient);
}

static void a_device_that_is_not_there_is_named(void **state)
{
    (void)state;
    flw_sim_config config = {.struct_size = sizeof config, .device_count = 2};
    struct flw_doctor_patient patient = admit(&config);
    patient.ordinal = 7;
    assert_false(flw_doctor_see_driver(&sheet, &patient));
    expect_advice("no device 7");
    assert_null(patient.context);
    dismiss(&patient);
}

/* Every call of the doctor fails once; the doctor must continue, report the failure, and leak nothing. */
static void every_failing_call_becomes_a_line_and_leaves_nothing(void **state)
{
    (void)state;
    static const char *const entries[] = {
        "cuDeviceGetCount", "cuDeviceGetName", "cuDeviceTotalMem_v2", "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",  "cuMemGetInfo_v2", "cuStreamCreate",      "cuEventCreate",
        "cuEventRecord",    "cuEventQuery",    "cuMemAlloc_v2",       "cuMemAddressReserve",
        "cuMemCreate",      "cuMemMap",        "cuMemSetAccess"};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        flw_sim_config config = {.struct_size = sizeof config, .schedule = FLW_SIM_CLOCK};
        struct flw_doctor_patient patient = admit(&config);
        flw_sim_fail_function make_fail = NULL;
        void *address = control(&patient.driver, "flw_sim_fail");
        memcpy(&make_fail, &address, sizeof make_fail);
        assert_int_not_equal(make_fail(entries[i], 1, CUDA_ERROR_OUT_OF_MEMORY, 0), 0);
        if (flw_doctor_see_driver(&sheet, &patient)) {
            flw_doctor_see_costs(&sheet, &patient);
        }
        (void)make_fail(NULL, 0, 0, 0);
        expect_advice("failed with CUDA_ERROR_OUT_OF_MEMORY");
        for (size_t k = 0; k < sheet.advice_count; k++) {
            assert_null(strchr(sheet.advice[k], '\n'));
        }
        if (count_alive(&patient.driver) != 0) {
            fail_msg("after a failure of %s something is left", entries[i]);
        }
        dismiss(&patient);
    }
}

static void a_sheet_that_overflows_says_so(void **state)
{
    (void)state;
    memset(&sheet, 0, sizeof sheet);
    for (int i = 0; i < FLW_DOCTOR_ENTRIES; i++) {
        flw_doctor_number(&sheet, "key", FLW_DOCTOR_COUNT, 1);
    }
    assert_false(sheet.is_full);
    flw_doctor_text(&sheet, "key", "one too many");
    assert_true(sheet.is_full);
    assert_int_equal(sheet.entry_count, FLW_DOCTOR_ENTRIES);
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

static void without_a_driver_it_says_so(void **state)
{
    (void)state;
    char name[] = "--driver=/nonexistent/libcuda.so", json[] = "--json";
    assert_int_equal(run_command(name, NULL), 1);
    assert_non_null(strstr(printed, "/nonexistent/libcuda.so"));
    assert_int_equal(run_command(name, json), 1);
    assert_int_equal(printed[0], '{');
    assert_non_null(strstr(printed, "\"advice\":["));
}

static void the_simulated_device_is_called_simulated(void **state)
{
    (void)state;
    char device[] = "--device=sim", json[] = "--json";
    flw_sim_config config = {.struct_size = sizeof config};
    struct flw_doctor_patient patient = admit(&config);
    assert_int_equal(run_command(device, NULL), 0);
    assert_non_null(strstr(printed, "simulated device"));
    assert_non_null(strstr(printed, "modelled cost"));
    assert_int_equal(run_command(device, json), 0);
    assert_non_null(strstr(printed, "\"cuMemCreate 16 MiB\":"));
    dismiss(&patient);
}

/* The driver that is found without a name: a simulated one under the CUDA driver's name, which the
 * loader then takes for libcuda.so.1. */
static void *load_default_driver(flw_sim_fail_function *out_make_fail)
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
    address = dlsym(object, "flw_sim_fail");
    assert_non_null(address);
    memcpy(out_make_fail, &address, sizeof *out_make_fail);
    return object;
}

static void a_script_learns_from_the_status_whether_a_device_can_be_used(void **state)
{
    (void)state;
    static const struct {
        const char *entry;
        CUresult error;
        const char *says;
    } refusals[] = {
        {"cuInit", CUDA_ERROR_NO_DEVICE, "driver wanted"},
        {"cuDeviceGetCount", CUDA_ERROR_UNKNOWN, "cuDeviceGetCount failed"},
        {"cuDevicePrimaryCtxRetain", CUDA_ERROR_OUT_OF_MEMORY, "cuDevicePrimaryCtxRetain failed"}};
    char number[] = "--device=0", sim[] = "--device=sim", json[] = "--json";
    flw_sim_fail_function make_fail = NULL;
    void *object = load_default_driver(&make_fail);
    assert_int_equal(run_command(NULL, NULL), 0);
    assert_null(strstr(printed, "driver wanted"));
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        assert_int_not_equal(make_fail(refusals[i].entry, 1, refusals[i].error, 0), 0);
        assert_int_equal(run_command(json, NULL), 1);
        assert_non_null(strstr(printed, refusals[i].says));
        assert_int_not_equal(make_fail(refusals[i].entry, 1, refusals[i].error, 0), 0);
        assert_int_equal(run_command(number, NULL), 1);
        assert_int_equal(run_command(sim, NULL), 0);
        (void)make_fail(NULL, 0, 0, 0);
    }
    assert_int_equal(run_command(number, NULL), 0);
    dlclose(object);
}

static void mistakes_on_the_command_line_are_refused(void **state)
{
    (void)state;
    char bad[] = "--device=x", unknown[] = "--frobnicate", word[] = "word", help[] = "--help";
    assert_int_equal(run_command(bad, NULL), 2);
    assert_int_equal(run_command(unknown, NULL), 2);
    assert_int_equal(run_command(word, NULL), 2);
    assert_int_equal(run_command(help, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_device_gets_every_finding_and_no_advice),
        cmocka_unit_test(a_device_without_virtual_memory_is_told_of_slabs),
        cmocka_unit_test(the_simulated_drivers_profile_is_named),
        cmocka_unit_test(what_a_pool_is_refused_is_a_finding),
        cmocka_unit_test(a_device_that_is_not_there_is_named),
        cmocka_unit_test(every_failing_call_becomes_a_line_and_leaves_nothing),
        cmocka_unit_test(a_sheet_that_overflows_says_so),
        cmocka_unit_test(without_a_driver_it_says_so),
        cmocka_unit_test(the_simulated_device_is_called_simulated),
        cmocka_unit_test(a_script_learns_from_the_status_whether_a_device_can_be_used),
        cmocka_unit_test(mistakes_on_the_command_line_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
