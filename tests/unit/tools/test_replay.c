/* SPDX-License-Identifier: Apache-2.0
 *
 * `fallow replay` from outside: what it prints for a trace small enough to know by heart, that the
 * JSON is JSON with every promised key, and what it says to wrong command lines, files and outputs.
 * FALLOW_COMMAND names the program.
 */
#include "support/test_command.h"

#include <sys/stat.h>

#include "trace/io/json.h"
#include "trace/trace/trace.h"

static int make_folder(void **state)
{
    if (command_make_folder(state) != 0) {
        return -1;
    }
    command_write("tiny.ftext", command_trace, sizeof command_trace - 1);
    return 0;
}

/* Skip a test of the simulated device in a build without it or without liblzma. */
static void need_demo(void)
{
    if (getenv("FALLOW_DEMO") == NULL) {
        skip();
    }
}

/* --- output --- */

TEST(the_table_of_a_tiny_trace_is_as_written_here)
{
    command_expect("fallow replay tiny.ftext --policy recorded,bound");
    assert_string_equal(error_text, "");
    assert_string_equal(
        out_text,
        "trace   tiny.ftext: 7 events, 3 allocations, 2 streams, 1 block live at the start\n"
        "device  simulated device, 80 GiB, kernels 2,000 events late, rule checker on\n"
        "\n"
        "                live  reserved  reserved                   driver  driver\n"
        "policy           MiB       MiB    / live  failed  growths   calls      ms  events  steals  "
        "waits\n"
        "recorded           8         -         -       0        -       -       -       -       - "
        "     -\n"
        "bound              8         8     1.000       0        -       -       -       -       - "
        "     -\n"
        /* 2 MiB are freed on stream 0 during use by stream 7, before 4 more are requested */
        "bound, no wait     8        10     1.250       0        -       -       -       -       - "
        "     -\n"
        "\n"
        "                stream  remap  p50  p99  p99.9\n"
        "policy            wait  waits   ns   ns     ns\n"
        "recorded             -      -    -    -      -\n"
        "bound                -      -    -    -      -\n"
        "bound, no wait       -      -    -    -      -\n"
        "live, reserved: at the peak; growths: times that memory was taken from the driver; steals, "
        "waits:\n    reuse of memory that another stream freed, and waits for it\n\n");
    command_expect("fallow replay tiny.ftext --policy recorded,bound --lag 0");
    assert_null(strstr(out_text, "no wait"));
    assert_null(strstr(out_text, "device "));
    command_expect_text(
        "fallow replay tiny.ftext --brief",
        "trace   tiny.ftext: 7 events, 3 allocations, 2 streams, 1 block live at the start\n"
        "device  simulated device, 80 GiB, kernels 2,000 events late, rule checker on\n"
        "\n"
        "at the peak         reserved MiB  reserved / live\n"
        "live bytes                     8            1.000\n"
        "fallow                        16            2.000\n"
        "pytorch                       42            5.250\n"
        "pytorch-expandable            42            5.250\n"
        "\n"
        "Lower is better: no allocator can reserve less than the live bytes.\n"
        "fallow reserves 16 MiB, 61.9 % less than the model of PyTorch (42 MiB), 61.9 % less than "
        "that with\n    expandable segments (42 MiB)\n");
}

/* --- JSON --- */

/* Fail unless the text is one JSON value. */
static void expect_json(const char *text)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    static struct flw_json json;
    struct flw_input input;
    assert_true(flw_input_open_bytes(&input, text, strlen(text), "output", message));
    json = (struct flw_json){.input = &input};
    if (!flw_json_skip(&json, flw_json_next(&json)) || flw_json_next(&json) != FLW_JSON_END) {
        fail_msg("%s: %s", message, text);
    }
    flw_input_close(&input);
}

TEST(json_has_every_promised_key)
{
    static const char *const keys[] = {
        ("\"trace\": {\"events\": 7, \"allocs\": 3, \"peak_requested_bytes\": 8388608, "
         "\"recorded_peak_reserved_bytes\": null"),
        "\"device\": \"simulated device\"",
        "\"lag\": 17",
        "\"policies\": [",
        "\"name\": \"bound\"",
        "\"peak_requested_bytes\": 8388608",
        "\"peak_reserved_bytes\": 8388608",
        "\"failures\": 0",
        "\"driver_calls\": null",
        "\"grow_operations\": null",
        "\"modelled_driver_seconds\": null",
        "\"events_recorded\": null",
        "\"steals\": null",
        "\"waits\": null",
        "\"remap_waits\": null",
        "\"address_matches\": null",
        "\"smallest_limit_bytes\": null",
        "\"without_wait_bytes\": 10485760",
        "\"ns_per_op\": null"};
    command_expect("fallow replay tiny.ftext --policy bound --lag 17 --json -");
    expect_json(out_text);
    assert_null(strstr(out_text, "policy  ")); /* no table */
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        flw_test_expect_in(out_text, keys[i]);
    }
}

TEST(json_goes_to_a_file_beside_the_table)
{
    command_expect("fallow replay tiny.ftext --policy bound --json result.json", "bound");
    command_read("result.json", out_text);
    expect_json(out_text);
    command_expect("fallow replay tiny.ftext --policy bound --json result.json; ls -1",
                   "result.json\n");
    assert_null(strstr(out_text, "result.json.")); /* nothing temporary stays */
}

TEST(a_trace_is_read_from_standard_input_too)
{
    command_expect("fallow replay - --policy bound < tiny.ftext", "bound ");
    command_expect("fallow report - --policy bound < tiny.ftext");
    assert_int_equal(command_run("fallow replay - --policy bound < /dev/null; exit $? #"), 1);
    assert_non_null(strstr(error_text, "the file is empty"));
}

TEST(any_file_name_keeps_the_json_json)
{
    command_expect("fallow replay tiny.ftext --policy bound >/dev/null; cp tiny.ftext "
                   "'a\"b\\c\td\303\251'; ls");
    command_expect("fallow replay 'a\"b\\c\td\303\251' --policy bound --json -");
    expect_json(out_text);
    assert_non_null(strstr(out_text, "a\\\"b\\\\c\\u0009d"));
}

/* --- on the simulated device --- */

/* The number after a key of a policy's object in out_text; UINT64_MAX for null. */
static uint64_t get_count(const char *policy, const char *key)
{
    char text[128];
    snprintf(text, sizeof text, "\"name\": \"%s\"", policy);
    const char *at = strstr(out_text, text);
    assert_non_null(at);
    snprintf(text, sizeof text, "\"%s\": ", key);
    at = strstr(at, text);
    assert_non_null(at);
    at += strlen(text);
    return strncmp(at, "null", 4) == 0 ? UINT64_MAX : strtoull(at, NULL, 10);
}

static const char *const allocating[] = {"fallow",  "fallow-memory-first", "driver", "async",
                                         "pytorch", "pytorch-expandable"};
#define ALLOCATING_COUNT (sizeof allocating / sizeof *allocating)

TEST(every_policy_serves_the_tiny_trace_within_its_own_figures)
{
    need_demo();
    command_expect("fallow replay tiny.ftext --json -");
    assert_string_equal(error_text, "");
    expect_json(out_text);
    assert_non_null(strstr(out_text, "\"label\": \"async (model)\""));
    for (size_t i = 0; i < ALLOCATING_COUNT; i++) {
        assert_int_equal(get_count(allocating[i], "failures"), 0);
        assert_int_equal(get_count(allocating[i], "peak_requested_bytes"), 8 << 20);
        assert_true(get_count(allocating[i], "peak_reserved_bytes") >= 8 << 20);
        assert_true(get_count(allocating[i], "driver_calls") > 0);
    }
    /* Two streams: 20 MiB each, and 2 MiB for the one small request. */
    assert_int_equal(get_count("pytorch", "peak_reserved_bytes"), 42 << 20);
    assert_int_equal(get_count("pytorch", "grow_operations"), 3);
    assert_int_equal(get_count("pytorch-expandable", "peak_reserved_bytes"), 42 << 20);
    assert_int_equal(get_count("pytorch-expandable", "grow_operations"), 3);
    assert_int_equal(get_count("driver", "grow_operations"), 4);
}

TEST(the_demo_breaks_no_rule_at_any_lag)
{
    need_demo();
    static const char *const lags[] = {"0", "200", "2000", "20000"};
    for (size_t i = 0; i < sizeof lags / sizeof *lags; i++) {
        command_expect(
            command_line("fallow replay '%s' --json - --lag %s", getenv("FALLOW_DEMO"), lags[i]));
        for (size_t j = 0; j < ALLOCATING_COUNT; j++) {
            assert_int_equal(get_count(allocating[j], "failures"), 0);
            assert_int_equal(get_count(allocating[j], "violations"), 0);
            assert_true(get_count(allocating[j], "peak_reserved_bytes") >=
                        get_count("bound", "peak_reserved_bytes"));
        }
    }
}

/* A graph's memory is never an ordinary block's, nor the other way round, and is reused by graphs. */
TEST(memory_of_private_pools_is_kept_apart)
{
    need_demo();
    command_expect("fallow gen serve --mode graph --steps 20 --max-seqs 16 -o graph.ftext");
    command_expect("fallow replay graph.ftext --lag 0 --no-times --repeat 2 --json - "
                   "--policy fallow,fallow-memory-first,pytorch,async",
                   "\"private_pools\": 1,");
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(get_count(allocating[i], "failures"), 0);
        assert_int_equal(get_count(allocating[i], "violations"), 0);
    }
    command_expect("printf '#fallow-trace 1\\ndevice 0\\nstream 0\\nfields none\\n"
                   "A 0 0 67108864 0 pool=1\\nF 0 0 0\\nA 0 1 67108864 0\\nF 0 1 0\\n"
                   "A 0 2 67108864 0 pool=1\\nF 0 2 0\\n' >pool.ftext");
    command_expect("fallow replay pool.ftext --lag 0 --no-times --json - "
                   "--policy fallow,fallow-memory-first,pytorch,async");
    for (size_t i = 0; i < 2; i++) {
        uint64_t reserved_bytes = get_count(allocating[i], "peak_reserved_bytes");
        assert_true(reserved_bytes >= 128 << 20 && reserved_bytes < 136 << 20);
    }
    assert_int_equal(get_count("pytorch", "peak_reserved_bytes"), 128 << 20);
    assert_int_equal(get_count("async", "peak_reserved_bytes"), 64 << 20);
    command_expect("fallow replay pool.ftext --policy fallow,async",
                   "1 private pool (captured graphs), kept apart by fallow; given to "
                   "everybody by async\n");
}

/* Idle memory is released only when the host waits. */
TEST(a_release_threshold_gives_back_what_is_idle)
{
    need_demo();
    static const char *const names[] = {"async", "async:release_threshold=0,sync_every=50",
                                        "async:release_threshold=max,sync_every=50"};
    command_expect(command_line("fallow replay '%s' --json - --policy %s,%s,%s,bound",
                                getenv("FALLOW_DEMO"), names[0], names[1], names[2]));
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(get_count(names[i], "violations"), 0);
        assert_true(get_count(names[i], "peak_reserved_bytes") >=
                    get_count("bound", "peak_reserved_bytes"));
    }
    assert_true(get_count(names[1], "peak_reserved_bytes") <
                get_count(names[2], "peak_reserved_bytes"));
}

TEST(every_setting_of_pytorch_serves_the_demo_by_the_rules)
{
    need_demo();
    static const char *const names[] = {
        "pytorch",
        "pytorch-expandable",
        "pytorch:expandable_segments=1",
        "pytorch:max_split_size_mb=128",
        "pytorch:garbage_collection_threshold=0.1",
        "pytorch:roundup_power2_divisions=8",
        "pytorch-expandable:roundup_power2_divisions=8",
    };
    command_expect(command_line("fallow replay '%s' --json - --policy %s,%s,%s,%s,%s,%s,%s",
                                getenv("FALLOW_DEMO"), names[0], names[1], names[2], names[3],
                                names[4], names[5], names[6]));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(get_count(names[i], "failures"), 0);
        assert_int_equal(get_count(names[i], "violations"), 0);
    }
    uint64_t standard_bytes = get_count(names[0], "peak_reserved_bytes");
    uint64_t expandable_bytes = get_count(names[1], "peak_reserved_bytes");
    assert_int_equal(get_count(names[2], "peak_reserved_bytes"), expandable_bytes);
    assert_true(expandable_bytes < standard_bytes);
    assert_true(get_count(names[3], "peak_reserved_bytes") > standard_bytes);
    assert_true(get_count(names[4], "peak_reserved_bytes") < standard_bytes);
    assert_true(get_count(names[6], "peak_reserved_bytes") >= expandable_bytes);
}

TEST(lag_zero_is_labelled)
{
    need_demo();
    command_expect("fallow replay tiny.ftext --policy driver --lag 0", "no GPU work");
}

/* Two blocks with a time in between: the lag decides whether the device has finished by then. */
static const char timed[] = "#fallow-trace 1\ndevice 0\nstream 0\nstream 1\nfields times\n"
                            "A 1000 0 4194304 0\nF 2000 0 0\n"
                            "A 5000000 1 4194304 1\nF 5001000 1 1\n";

TEST(a_lag_is_of_events_or_of_times)
{
    need_demo();
    static const struct {
        const char *option, *says, *json, *unit;
    } lags[] = {{"2", "kernels 2 events late", "\"lag\": 2,", "events"},
                {"200us", "kernels 200 us late", "\"lag\": 200000,", "ns of trace time"},
                {"5ms", "kernels 5 ms late", "\"lag\": 5000000,", "ns of trace time"},
                {"1s", "kernels 1 s late", "\"lag\": 1000000000,", "ns of trace time"},
                {"0ms", "no GPU work", "\"lag\": 0,", "events"}};
    char line[128], unit[64];
    command_write("timed.ftext", timed, sizeof timed - 1);
    for (size_t i = 0; i < sizeof lags / sizeof *lags; i++) {
        snprintf(line, sizeof line, "fallow replay timed.ftext --policy driver --lag %s",
                 lags[i].option);
        command_expect(line, lags[i].says);
        strcat(line, " --json -");
        command_expect(line, lags[i].json);
        snprintf(unit, sizeof unit, "\"lag_unit\": \"%s\"", lags[i].unit);
        flw_test_expect_in(out_text, unit);
    }
    command_expect("fallow replay timed.ftext --policy bound --lag 4999us --json -");
    assert_int_equal(get_count("bound", "without_wait_bytes"), 4 << 20);
    command_expect("fallow replay timed.ftext --policy bound --lag 5ms --json -");
    assert_int_equal(get_count("bound", "without_wait_bytes"), 8 << 20);
    command_expect("fallow report timed.ftext --policy bound --lag 200us", "kernels 200 us late)");
    /* tiny.ftext has no times; none are needed for no work at all */
    command_expect_error(
        "fallow replay tiny.ftext --policy driver --lag 5ms", 1,
        "tiny.ftext has no times, so that no lag can be in times; give it in events");
    command_expect_error("fallow report tiny.ftext --policy driver --lag 5ms", 1,
                         "give it in events: --lag 2000");
    command_expect("fallow replay tiny.ftext --policy driver --lag 0s");
}

TEST(threads_serve_the_demo_without_breaking_a_rule)
{
    need_demo();
    command_expect(
        command_line("fallow replay '%s' --json - --threads --policy fallow-memory-first,fallow",
                     getenv("FALLOW_DEMO")));
    static const char *const names[] = {"fallow-memory-first", "fallow"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(get_count(names[i], "threads"), 2);
        assert_int_equal(get_count(names[i], "failures"), 0);
        assert_int_equal(get_count(names[i], "violations"), 0);
    }
}

TEST(a_limit_that_is_too_small_shows_and_the_smallest_is_found)
{
    need_demo();
    assert_int_equal(
        command_run("fallow replay tiny.ftext --json - --limit 7M --policy pytorch,driver,bound"),
        1);
    flw_test_expect_in(error_text, "policy pytorch failed 3 of 4 requests (75 %) within 7 MiB; "
                                   "the first was 3,145,728 bytes; ");
    flw_test_expect_in(error_text, "fallow: policy driver failed ");
    assert_null(strstr(error_text, "bound"));
    assert_int_not_equal(get_count("pytorch", "failures"), 0);
    assert_int_not_equal(get_count("driver", "failures"), 0);
    assert_true(get_count("pytorch", "peak_reserved_bytes") <= 7 << 20);
    command_expect("fallow replay tiny.ftext --json - --find-limit --policy driver,pytorch");
    uint64_t limit_bytes = get_count("driver", "smallest_limit_bytes");
    assert_true(limit_bytes >= 8 << 20 && limit_bytes <= 12 << 20);
    assert_true(get_count("pytorch", "smallest_limit_bytes") <= 42 << 20);
    command_expect(command_line("fallow replay tiny.ftext --json - --limit %llu --policy driver",
                                (unsigned long long)limit_bytes));
    assert_string_equal(error_text, "");
    assert_int_equal(get_count("driver", "failures"), 0);
}

TEST(a_device_has_the_bytes_that_it_is_given)
{
    need_demo();
    command_expect("fallow replay tiny.ftext --json - --device-bytes 10M --policy driver,fallow",
                   "\"device_bytes\": 10485760");
    assert_int_equal(get_count("driver", "failures"), 0);
    assert_int_equal(get_count("fallow", "failures"), 0);
    assert_int_equal(
        command_run("fallow replay tiny.ftext --device-bytes 6M --policy driver,fallow --limit 1G"),
        1);
    flw_test_expect_in(out_text, "device  simulated device, 6 MiB, limit 1 GiB, ");
    assert_int_equal(
        command_run(
            "fallow replay tiny.ftext --json - --device-bytes 6M --policy driver,fallow --limit 1G"),
        1);
    assert_int_equal(get_count("driver", "failures"), 2); /* the driver's steps are 2 MiB */
    assert_int_equal(get_count("fallow", "failures"), 1);
    assert_true(get_count("fallow", "peak_reserved_bytes") <= 6 << 20);
    command_expect_error("fallow replay tiny.ftext --device 0 --device-bytes 6M", 2,
                         "on a GPU use --limit");
    command_expect_error("fallow replay tiny.ftext --device-bytes 0", 2,
                         "--device-bytes '0' is not a number");
}

TEST(a_second_pass_is_counted_apart)
{
    need_demo();
    command_expect("fallow replay tiny.ftext --json - --repeat 3 --policy driver",
                   "\"last_pass\": {\"number\": 3, \"driver_calls\": ");
    assert_int_equal(get_count("driver", "grow_operations"), 12);
}

/* Ten blocks, one after the other, each freed 1 us after the allocation, 99 us before the next. The driver takes each
 * back when the work is done. */
TEST(waits_are_counted_where_the_host_stops)
{
    need_demo();
    char text[1024] = "#fallow-trace 1\ndevice 0\nstream 0\nfields times\n";
    for (unsigned i = 0; i < 10; i++) {
        size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, "A %u %u 4096 0\nF %u %u 0\n", 100000 * i, i,
                 100000 * i + 1000, i);
    }
    command_write("ten.ftext", text, strlen(text));
    command_expect("fallow replay ten.ftext --policy driver,fallow --lag 50us --json - --repeat 2");
    assert_int_equal(get_count("driver", "waits"), 20);
    assert_int_equal(get_count("driver", "host_wait"), 20 * 49000);
    assert_int_equal(get_count("driver", "stream_waits"), 0);
    assert_int_equal(get_count("driver", "synchronising_calls"), 0);
    assert_int_equal(get_count("driver", "queries"), 0);
    assert_int_equal(get_count("driver", "allocations"), 20);
    flw_test_expect_in(out_text,
                       "\"last_pass\": {\"number\": 2, \"driver_calls\": 20, "
                       "\"events_recorded\": 0, \"steals\": null, \"waits\": 10, "
                       "\"remap_waits\": null, \"stream_waits\": 0, \"allocations\": 10}");
    flw_test_expect_in(out_text, "\"last_quarter\": {\"driver_calls\": 4, "
                                 "\"events_recorded\": 0, \"steals\": null, \"waits\": 2, "
                                 "\"remap_waits\": null, \"stream_waits\": 0, \"allocations\": 2}");
    assert_int_equal(get_count("fallow", "waits"),
                     0); /* no wait for the trial of the device either */
    command_expect("fallow replay ten.ftext --policy driver,fallow --lag 50us --no-times",
                   "per 1,000 allocations\n"
                   "          host  stream  driver  last quarter:  stream  driver\n"
                   "policy   waits   waits   calls     host waits   waits   calls\n"
                   "driver  1000.0     0.0  2000.0         1000.0     0.0  2000.0\n");
    command_expect("fallow replay ten.ftext --policy driver,fallow --lag 1us --json -");
    assert_int_equal(get_count("driver", "waits"), 0); /* all work is done by the driver's call */
    command_expect("fallow replay ten.ftext --policy driver,fallow --lag 1us");
    assert_null(strstr(out_text, "per 1,000"));
    command_expect("fallow replay tiny.ftext --policy driver,fallow --threads --json -",
                   "\"last_quarter\": null"); /* threads have no common moment */
}

/* A check of the bound without a wait: a policy that held less has waited. */
TEST(who_holds_less_than_without_a_wait_has_waited)
{
    need_demo();
    static const char *const lags[] = {"20us", "500us", "5ms", "50ms"};
    size_t held_count = 0;
    command_expect(
        "fallow gen random multi-stream --count 600 --shared 20 --max 64M --cap 1G --streams 3 "
        "-o several.ftext");
    for (size_t i = 0; i < sizeof lags / sizeof *lags; i++) {
        command_expect(
            command_line("fallow replay several.ftext --no-times --json - --lag %s", lags[i]));
        uint64_t least_bytes = get_count("bound", "without_wait_bytes");
        assert_true(least_bytes > get_count("bound", "peak_reserved_bytes"));
        for (size_t j = 0; j < ALLOCATING_COUNT; j++) {
            if (get_count(allocating[j], "waits") + get_count(allocating[j], "stream_waits") == 0) {
                assert_true(get_count(allocating[j], "peak_reserved_bytes") >= least_bytes);
                held_count++;
            }
        }
    }
    assert_true(held_count > 4);
}

/* The way to a GPU, with a driver without the simulated driver's controls: here the simulated driver under the name
 * libcuda.so.1. No figures of the simulated device are read. */
TEST(a_gpus_driver_is_asked_for_nothing_but_its_own_calls)
{
    need_demo();
    static const char *const policies[] = {"fallow", "driver", "async", "pytorch"};
    char what[64];
    command_expect(
        "LD_LIBRARY_PATH=$(dirname $F)/../lib/driver fallow replay $FALLOW_DEMO --device 0 "
        "--policy fallow,driver,async,pytorch --json -");
    assert_string_equal(error_text, "");
    assert_non_null(strstr(out_text, "\"simulated\": false"));
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        snprintf(what, sizeof what, "{\"name\": \"%s\", ", policies[i]);
        const char *line = strstr(out_text, what);
        assert_non_null(line);
        const char *end = strchr(line, '\n');
        const char *failures = strstr(line, "\"failures\": 0,");
        const char *ledger = strstr(line, "\"reserved_from_ledger\": false");
        assert_true(failures != NULL && failures < end);
        assert_true(ledger != NULL && ledger < end);
    }
}

/* Fail unless a replay prints the same text with a clock that jumps at each read. */
static void expect_repeats(const char *arguments)
{
    char expected[COMMAND_TEXT_BYTES];
    command_expect(command_line("fallow replay %s --no-times", arguments));
    memcpy(expected, out_text, sizeof expected);
    command_expect_text(
        command_line("LD_PRELOAD=\"$FALLOW_CLOCK\" fallow replay %s --no-times", arguments),
        expected);
}

TEST(no_count_depends_on_the_hosts_clock)
{
    need_demo();
    if (getenv("FALLOW_CLOCK") == NULL) {
        skip();
    }
    command_expect("fallow gen random rmm --count 200 --max 1G -o random.ftext");
    expect_repeats("random.ftext --find-limit --repeat 2");
    expect_repeats(
        "random.ftext --policy fallow:segments=1,fallow-memory-first:segments=1 --find-limit");
    expect_repeats("\"$FALLOW_DEMO\" --policy fallow,fallow-memory-first --find-limit");
}

TEST(a_gpu_that_is_not_there_is_named)
{
    need_demo();
    command_expect_error("fallow replay tiny.ftext --device 1000", 1, "");
}

/* --- errors --- */

TEST(a_wrong_command_line_is_named_and_ends_with_2)
{
    command_expect_error("fallow reply tiny.ftext", 2, "'reply'");
    command_expect_error("fallow replay", 2, "needs a trace");
    command_expect_error("fallow replay tiny.ftext again.ftext", 2, "'again.ftext'");
    command_expect_error("fallow replay tiny.ftext --policy bound,nobody", 2, "'nobody'");
    command_expect_error("fallow replay tiny.ftext --policy ''", 2, "no policy ''");
    command_expect_error("fallow replay tiny.ftext --policy bound:size=1", 2,
                         "bound has no setting 'size'");
    command_expect_error("fallow replay tiny.ftext --policy async:", 2, "leave the colon out");
    command_expect_error("fallow replay tiny.ftext --policy bound,async:release_threshold=low", 2,
                         "release_threshold=low is not a number of bytes");
    command_expect_error("fallow replay tiny.ftext --policy pytorch:max_split_size_mb=20", 2,
                         "max_split_size_mb=20 is not a whole number from 21");
    command_expect_error("fallow replay tiny.ftext --policy", 2, "--policy needs a value");
    command_expect_error("fallow replay tiny.ftext --device gpu", 2, "'gpu'");
    command_expect_error("fallow replay tiny.ftext --lag soon", 2, "'soon'");
    command_expect_error("fallow replay tiny.ftext --lag=soon", 2,
                         "--lag 'soon' is neither a number of events");
    command_expect_error("fallow replay tiny.ftext --lag -1", 2, "'-1'");
    command_expect_error("fallow replay tiny.ftext --lag 99999999999999999999", 2, "--lag");
    command_expect_error("fallow replay tiny.ftext --lag 4611686018427387904", 2, "--lag");
    command_expect_error("fallow replay tiny.ftext --lag 4611686019s", 2, "--lag");
    command_expect_error("fallow replay tiny.ftext --lag us", 2, "'us'");
    command_expect_error("fallow replay tiny.ftext --lag 5mss", 2,
                         "nor a time, such as 200us, 5ms or 1s");
    command_expect_error("fallow replay tiny.ftext --lag 5m", 2, "'5m'");
    command_expect_error("fallow replay tiny.ftext --limit 0", 2, "'0'");
    command_expect_error("fallow replay tiny.ftext --limit 4X", 2, "'4X'");
    command_expect_error("fallow replay tiny.ftext --limit 99999999T", 2, "'99999999T'");
    command_expect_error("fallow replay tiny.ftext --colour", 2, "'--colour'");
}

TEST(an_option_that_is_none_is_named_with_where_to_look)
{
    static const char *const subcommands[] = {"replay", "report", "run",        "record", "audit",
                                              "layout", "top",    "bench pair", "doctor"};
    char line[64], what[64];
    for (size_t i = 0; i < sizeof subcommands / sizeof *subcommands; i++) {
        size_t length = strcspn(subcommands[i], " ");
        snprintf(line, sizeof line, "fallow %s --colour", subcommands[i]);
        snprintf(what, sizeof what, "fallow: %.*s has no option '--colour'; see fallow %.*s --help",
                 (int)length, subcommands[i], (int)length, subcommands[i]);
        command_expect_error(line, 2, what);
    }
    command_expect_error("fallow record -x", 2, "record has no option '-x'");
    command_expect_error("fallow doctor --json=all", 2, "--json takes no value");
    command_expect_error("fallow run --mode", 2, "--mode needs a value; see fallow run --help");
    command_expect_error("fallow bench pair --count 0", 2, "from 1 to");
    command_expect_error("fallow bench pair --size 4X", 2, "from 1 to 1099511627776");
}

TEST(a_file_that_is_no_trace_is_named_and_ends_with_1)
{
    command_expect_error("fallow replay missing.pickle", 1, "missing.pickle");
    command_expect_error("fallow replay .", 1, ".: ");
    command_expect_error("fallow replay /dev/null", 1, "/dev/null");
    command_expect_error("fallow replay out", 1, "out"); /* empty */
}

TEST(a_recording_without_room_fails_the_bench)
{
    need_demo();
    assert_int_equal(
        command_run("ulimit -f 16; fallow bench pair --count 400000 --record whole.ftrace"), 1);
    assert_non_null(strstr(error_text, "the recording is not whole"));
    assert_non_null(strstr(error_text, "whole.ftrace"));
    command_expect("fallow bench pair --count 20000 --record whole.ftrace");
    command_expect("fallow trace verify whole.ftrace");
}

TEST(an_unwritable_output_is_named_and_leaves_nothing)
{
    char path[256];
    struct stat about;
    assert_int_equal(
        command_run("fallow replay tiny.ftext --policy bound --json nowhere/result.json"), 1);
    assert_non_null(strstr(error_text, "nowhere/result.json: cannot create a file"));
    assert_int_equal(command_run("fallow replay tiny.ftext --policy bound --json ."), 1);
    assert_non_null(strstr(error_text, ".: cannot write: Is a directory"));
    if (access("/dev/full", W_OK) == 0) {
        assert_int_equal(command_run("fallow replay tiny.ftext --policy bound --json /dev/full"),
                         1);
        assert_non_null(strstr(error_text, "/dev/full: cannot write: No space"));
        assert_int_equal(
            command_run("fallow replay tiny.ftext --policy bound > /dev/full; exit $? #"), 1);
        assert_int_equal(
            command_run("fallow replay tiny.ftext --policy bound --json - > /dev/full; exit $? #"),
            1);
    }
    command_expect_text("exec 3>&1; { sleep 0.2; fallow --help; echo $? >&3; } | true", "1\n");
    assert_non_null(strstr(error_text, "its reader ended"));
    snprintf(path, sizeof path, "%s/nowhere", folder);
    assert_int_not_equal(stat(path, &about), 0);
}

TEST(help_and_version_say_what_there_is)
{
    char line[64];
    command_expect("fallow --help", "replay");
    command_expect("fallow replay --help", "--find-limit");
    for (size_t i = 0; i < ALLOCATING_COUNT; i++) {
        snprintf(line, sizeof line, "\n  %s ", allocating[i]);
        assert_non_null(strstr(out_text, line));
    }
    assert_non_null(strstr(out_text, "release_threshold: a number of bytes"));
    command_expect("fallow --version", "malloc");
    assert_int_equal(command_run("fallow "), 2);
}

FLW_TEST_MAIN(make_folder, command_remove_folder)
