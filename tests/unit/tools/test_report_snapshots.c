/* SPDX-License-Identifier: Apache-2.0
 *
 * `fallow report` on PyTorch's snapshots, put together opcode by opcode: which device is shown and which ones the
 * thresholds look at. FALLOW_COMMAND names the program.
 */
#include "support/test.h"

#include "support/test_command.h"
#include "test_pickle_writer.h"

#define MIB  (UINT64_C(1) << 20)
#define BASE UINT64_C(0x7F0000000000)

static struct writer begin(void)
{
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    return w;
}

/* Behind the last of the snapshot's lists. */
static void finish(struct writer *w, const char *name)
{
    end_snapshot(w);
    command_write(name, w->bytes, w->count);
    free(w->bytes);
}

/* A block, if it has bytes, and a hole that fills the segment. */
static void put_segment(struct writer *w, uint64_t device, uint64_t address, uint64_t bytes,
                        uint64_t used_bytes)
{
    begin_segment_of(w, device, address, bytes, "large", 0);
    if (used_bytes != 0) {
        put_block(w, address, used_bytes, "active_allocated");
    }
    if (used_bytes != bytes) {
        put_block(w, address + used_bytes, bytes - used_bytes, "inactive");
    }
    end_segment(w);
}

/* ---- several devices ---- */

/* Device 0 does most, device 1 runs out. */
static void write_devices(const char *name)
{
    struct writer w = begin();
    put_segment(&w, 0, BASE, 80 * MIB, 0);
    put_segment(&w, 1, BASE + (MIB << 20), 64 * MIB, 60 * MIB);
    begin_events(&w);
    for (size_t i = 0; i < 20; i++) {
        put_event(&w, "alloc", BASE, 80 * MIB);
        put_event(&w, "free_requested", BASE, 80 * MIB);
        put_event(&w, "free_completed", BASE, 80 * MIB);
    }
    next_device(&w);
    put_event(&w, "segment_alloc", BASE + (MIB << 20), 64 * MIB);
    put_event(&w, "alloc", BASE + (MIB << 20), 60 * MIB);
    put_oom(&w, 40 * MIB, 2 * MIB);
    finish(&w, name);
}

static void the_device_that_ran_out_is_shown_and_the_others_have_a_line(void **state)
{
    (void)state;
    write_devices("two.pickle");
    assert_int_equal(command_run("\"$F\" report two.pickle --no-times --html two.html"), 0);
    flw_test_expect_in(out_text, "out of memory at event 3: 40 MiB asked for beside 60 MiB");
    flw_test_expect_in(out_text, "\ndevice 1 of 0 1; --trace-device chooses\n"
                                 "device 0: 60 events, peak requested 80 MiB, held 80\n");
    assert_int_equal(
        command_run("grep -c '<p class=lead>device 0: 60 events, peak requested 80 MiB, held "
                    "80</p>' two.html"),
        0);
    assert_int_equal(
        command_run("\"$F\" report - --no-times --policy recorded --json - <two.pickle"), 0);
    flw_test_expect_in(out_text, "\"recorded_device\": 1, \"other_devices\": [{\"device\": 0, "
                                 "\"events\": 60, \"peak_requested_bytes\": 83886080, "
                                 "\"recorded_peak_reserved_bytes\": 83886080, "
                                 "\"out_of_memory_event\": null, \"asked_bytes\": null}]");
    flw_test_expect_in(out_text, "stdin, device 0\"");
    assert_int_equal(command_run("\"$F\" report two.pickle --no-times --trace-device 0"), 0);
    flw_test_expect_in(out_text, "\ndevice 0 of 0 1; --trace-device chooses\npeak requested");
    assert_null(strstr(out_text, "out of memory"));
}

static void every_threshold_looks_at_every_device(void **state)
{
    const char *line = "\"$F\" report two.pickle --no-times --policy recorded %s >screen";
    char whole[512];
    (void)state;
    write_devices("two.pickle");
    snprintf(whole, sizeof whole, line, "--fail-on-oom");
    command_expect_error(whole, 1, "two.pickle: ran out of memory at event 3: 41,943,040 bytes");
    snprintf(whole, sizeof whole, line, "--fail-on-oom --trace-device 0");
    assert_int_equal(command_run(whole), 0);
    /* What device 0 holds, and not the device that is shown. */
    snprintf(whole, sizeof whole, line, "--max-reserved 70M");
    command_expect_error(whole, 1, "two.pickle, device 0: policy recorded holds 83,886,080 bytes");
    snprintf(whole, sizeof whole, line,
             "--json now.json && sed 's/83886080/8388608/' now.json >then.json");
    assert_int_equal(command_run(whole), 0);
    snprintf(whole, sizeof whole, line, "--baseline now.json");
    assert_int_equal(command_run(whole), 0);
    assert_int_equal(
        command_run("sed 's/\"peak_reserved_bytes\": 83886080/\"peak_reserved_bytes\": 8388608/' "
                    "now.json >less.json"),
        0);
    snprintf(whole, sizeof whole, line, "--baseline less.json");
    command_expect_error(whole, 1, "two.pickle, device 0");
    assert_int_equal(
        command_run("cp two.pickle copy.pickle; \"$F\" report diff two.pickle copy.pickle"), 0);
    assert_string_equal(out_text, "no number differs\n");
}

static void a_folder_and_a_job_have_every_device(void **state)
{
    (void)state;
    assert_int_equal(command_run("mkdir job"), 0);
    write_devices("job/rank0.pickle");
    write_devices("job/rank1.pickle");
    assert_int_equal(command_run("\"$F\" report job --no-times --policy recorded --html job.html"),
                     0);
    flw_test_expect_in(out_text, "\nrank1.pickle, device 0");
    flw_test_expect_in(out_text, "a job of 2 ranks; 2 ran out of memory");
    assert_int_equal(command_run("grep -c '<a[^>]*>rank1.pickle, device 0</a>' job.html"), 0);
    command_expect_error(
        "\"$F\" report job --no-times --policy recorded --max-reserved 70M >screen", 1,
        "rank0.pickle, device 0: policy recorded holds");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_that_ran_out_is_shown_and_the_others_have_a_line),
        cmocka_unit_test(every_threshold_looks_at_every_device),
        cmocka_unit_test(a_folder_and_a_job_have_every_device),
    };
    return cmocka_run_group_tests(tests, command_make_folder, command_remove_folder);
}
