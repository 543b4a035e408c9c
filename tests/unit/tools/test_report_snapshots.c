/* SPDX-License-Identifier: Apache-2.0
 *
 * `fallow report` on PyTorch's snapshots: the choice of the device to show, the devices that
 * thresholds check, and recordings without a history or with a late one. FALLOW_COMMAND names the program.
 */
#include "support/test.h"

#include "support/test_command.h"
#include "test_pickle_writer.h"

#define MIB (UINT64_C(1) << 20)

static void write_file(const char *name, const char *snapshot)
{
    struct writer w = write_snapshot(4, snapshot);
    command_write(name, w.bytes, w.count);
    free(w.bytes);
}

/* ---- several devices ---- */

/* Device 0 is busiest; device 1 runs out of memory. */
static void write_devices(const char *name)
{
#define FIVE(text) text text text text text
#define CYCLE      "alloc 1024M 80M\nfree_requested 1024M 80M\nfree_completed 1024M 80M\n"
    write_file(
        name,
        "segment 1024M 80M large\nblock 1024M 80M inactive\n"
        "segment 4096M 64M large device 1\nblock 4096M 60M active_allocated\n"
        "block 4156M 4M inactive\n" FIVE(
            CYCLE CYCLE CYCLE
                CYCLE) "device\nsegment_alloc 4096M 64M\nalloc 4096M 60M\noom 0 40M device_free 2M\n");
}

TEST(the_device_that_ran_out_is_shown_and_the_others_have_a_line)
{
    write_devices("two.pickle");
    command_expect("fallow report two.pickle --no-times --html two.html",
                   "out of memory at event 3: unknown code requested 40 MiB with 60 MiB live\n",
                   "\ndevice 1 of 0 1; --trace-device chooses\n"
                   "device 0: 60 events, peak live memory 80 MiB, reserved 80 MiB\n");
    command_expect_text(
        "grep -q 'device 0: 60 events, peak live memory 80 MiB, reserved 80 MiB\"' two.html && "
        "grep -o '\"recorded_device\":[01],' two.html | tr -d '\\n'",
        "\"recorded_device\":1,\"recorded_device\":0,");
    command_expect("fallow report - --no-times --policy recorded --json - <two.pickle",
                   "\"recorded_device\": 1, \"other_devices\": [{\"device\": 0, "
                   "\"events\": 60, \"peak_requested_bytes\": 83886080, "
                   "\"recorded_peak_reserved_bytes\": 83886080, "
                   "\"out_of_memory_event\": null, \"asked_bytes\": null}]",
                   "stdin, device 0\"");
    command_expect("fallow report two.pickle --no-times --trace-device 0",
                   "\ndevice 0 of 0 1; --trace-device chooses\n");
    assert_true(strncmp(out_text, "two.pickle: peak live memory 80 MiB", 35) == 0);
}

TEST(every_threshold_looks_at_every_device)
{
    const char *line = "fallow report two.pickle --no-times --policy recorded %s >screen";
    write_devices("two.pickle");
    command_expect_error(command_line(line, "--fail-on-oom"), 1,
                         "two.pickle: ran out of memory at event 3: 41,943,040 bytes");
    command_expect(command_line(line, "--fail-on-oom --trace-device 0"));
    /* Device 0 exceeds the threshold, although device 1 is shown. */
    command_expect_error(command_line(line, "--max-reserved 70M"), 1,
                         "two.pickle, device 0: policy recorded reserves 83,886,080 bytes");
    command_expect(
        command_line(line, "--json now.json && sed 's/83886080/8388608/' now.json >then.json"));
    command_expect(command_line(line, "--baseline now.json"));
    command_expect("sed 's/\"peak_reserved_bytes\": 83886080/\"peak_reserved_bytes\": 8388608/' "
                   "now.json >less.json");
    command_expect_error(command_line(line, "--baseline less.json"), 1, "two.pickle, device 0");
    command_expect_text("cp two.pickle copy.pickle; fallow report diff two.pickle copy.pickle",
                        "no number differs\n");
}

TEST(a_folder_and_a_job_have_every_device)
{
    command_expect("mkdir job");
    write_devices("job/rank0.pickle");
    write_devices("job/rank1.pickle");
    command_expect("fallow report job --no-times --policy recorded --html job.html",
                   "\nrank1.pickle, device 0", "a job of 2 ranks; 2 ran out of memory");
    command_expect("grep -c '<a[^>]*>rank1.pickle, device 0</a>' job.html");
    command_expect_error(
        "fallow report job --no-times --policy recorded --max-reserved 70M >screen", 1,
        "rank0.pickle, device 0: policy recorded reserves");
}

TEST(the_last_iteration_of_torchtitan_is_a_job)
{
    static const char *const layouts[] = {"iteration_%s/rank%u_memory_snapshot.pickle",
                                          "iteration_%s/rank%u/memory_snapshot.pickle"};
    char path[128], line[256];
    for (size_t layout = 0; layout < 2; layout++) {
        command_expect("rm -rf titan; for i in 9 10_exit; do for r in 0 1; do "
                       "mkdir -p titan/iteration_$i/rank$r; done; done");
        for (unsigned i = 0; i < 4; i++) {
            snprintf(path, sizeof path, layouts[layout], i < 2 ? "9" : "10_exit", i % 2);
            snprintf(line, sizeof line, "titan/%s", path);
            write_devices(line);
        }
        command_expect("fallow report titan --no-times --policy recorded");
        command_expect_one_line("titan/iteration_10_exit: the latest iteration is reported");
        flw_test_expect_in(out_text, "a job of 2 ranks; 2 ran out of memory");
        command_expect("fallow report titan/iteration_9 --no-times --policy recorded");
        assert_string_equal(error_text, "");
        flw_test_expect_in(out_text, "a job of 2 ranks; 2 ran out of memory");
    }
}

/* ---- incomplete or foreign files ---- */

TEST(an_empty_snapshot_and_a_device_without_memory_are_errors)
{
    write_file("empty.pickle", "device\n");
    command_expect_error("fallow report empty.pickle", 1,
                         "empty.pickle: byte 0: an empty snapshot:");
    command_expect_error("fallow trace verify empty.pickle", 1, "an empty snapshot:");
    write_file("third.pickle", "segment 1024M 20M large device 2\n"
                               "block 1024M 1M active_allocated\nblock 1025M 19M inactive\n");
    command_expect_error("fallow report third.pickle --trace-device 1", 1,
                         "nothing is on record of device 1: no segment and no event");
    command_expect("fallow report third.pickle");
}

TEST(a_ring_that_was_overwritten_is_said)
{
    write_file("ring.pickle", "segment 1024M 20M large\nblock 1024M 1M active_allocated\n"
                              "block 1025M 19M inactive\nalloc 1024M 1M\n"
                              "settings trace_alloc_overflowed True\n");
    command_expect("fallow report ring.pickle --no-times --policy recorded --json -");
    command_expect_one_line(
        "ring.pickle: the oldest events were overwritten (trace_alloc_overflowed)");
    flw_test_expect_in(out_text, "\"events_overwritten\": true");
    command_expect_error("fallow trace verify ring.pickle", 3,
                         "the oldest events were overwritten");
    command_expect("fallow trace pack ring.pickle -o ring.ftrace");
    command_expect_error("fallow trace verify ring.ftrace", 3,
                         "the oldest events were overwritten");
}

TEST(files_given_by_mistake_are_recognised)
{
    static const struct {
        const char *text, *told;
    } files[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a pointer of Git LFS"},
        {"SQLite format 3", "an SQLite database"},
        {"memray", "memray's recording"},
        {"PK\x03\x04 archive", "an archive, as torch.save() writes"},
        {"\x80\x02\x8a\nl\xfc\x9c"
         "F\xf9 j",
         "a file of torch.save()"},
        {"[    17][12:00:00:000000][info  ] ----- RMM LOG BEGIN [PTDS DISABLED] -----\n",
         "RMM's debug log"},
        {"[[1709000000000, 1709000000001], [[1, 2], [3, 4]]]",
         "a file of export_memory_timeline()"},
        {"[{\"device\": 0, \"total_size\": 2, \"segment_type\": \"small\"}]",
         "memory_snapshot() as JSON"},
        {"<!DOCTYPE html><script>import {add_local_files} from 'MemoryViz.js'</script>",
         "the page of MemoryViz"},
        {"<html><title>GPU Memory Timeline HTML</title></html>",
         "a file of export_memory_timeline()"},
        {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
         "an out-of-memory message"},
        {"RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB", "an out-of-memory message"},
        {"torch.OutOfMemoryError: XPU out of memory. Tried to allocate", "torch.xpu.memory"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        command_write("mistaken", files[i].text, strlen(files[i].text));
        command_expect_error("fallow report mistaken", 1, files[i].told);
        command_expect_error("fallow trace verify mistaken", 1, files[i].told);
    }
}

TEST(profiles_of_xpus_and_npus_are_read)
{
    for (unsigned type = 12; type <= 20; type += 8) {
        char text[512];
        snprintf(
            text, sizeof text,
            "{\"traceEvents\":[{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":1,\"ts\":1,"
            "\"args\":{\"Device Type\":%u,\"Device Id\":0,\"Addr\":512,\"Bytes\":2048,\"Total "
            "Allocated\":2048}}]}",
            type);
        command_write("other.json", text, strlen(text));
        command_expect("fallow report other.json --no-times --policy bound",
                       "peak live memory 2 KiB");
    }
}

/* ---- memory from before the recording ---- */

TEST(a_snapshot_without_history_is_a_heap_and_nothing_is_compared)
{
    write_file("still.pickle", "segment 1024M 64M large\nblock 1024M 10M active_allocated\n"
                               "block 1034M 54M inactive\n"
                               "segment 1152M 20M large\nblock 1152M 20M active_allocated\n"
                               "segment 1280M 32M large\nblock 1280M 32M inactive\n");
    command_expect("fallow report still.pickle --no-times --json still.json --html still.html "
                   "--fail-on-oom",
                   "\n2 blocks in 3 segments, 1 stream; no history\n",
                   "      20  66.7       1  before the recording, up to 32 MiB\n",
                   "still.pickle: 30 MiB live of 116 MiB that PyTorch reserved; 86 MiB free in 2 "
                   "holes, the largest of\n    54 MiB\n");
    assert_null(strstr(out_text, "expandable"));
    assert_null(strstr(out_text, "requested"));
    command_expect("cat still.json", "\"has_history\": false",
                   "\"type\": null, \"saved_bytes\": null");
    assert_null(strstr(out_text, "\"name\": \"fallow\""));
    assert_int_equal(command_number("\"policies\"", "peak_reserved_bytes"), 116 * MIB);
    command_expect(
        "grep -c '; no history</p>' still.html && grep -c '\"has_history\":false' still.html");
    command_expect_error("fallow report still.pickle --no-times --max-reserved 100M >screen", 1,
                         "still.pickle: policy recorded reserves 121,634,816 bytes");
    command_expect("fallow replay still.pickle --no-times --policy pytorch");
    command_expect_one_line(
        "still.pickle: has no history: policies are given its live blocks alone");
    /* Together with a snapshot that has a history. */
    write_devices("two.pickle");
    command_expect("fallow report still.pickle two.pickle --no-times --policy pytorch,recorded "
                   "--html both.html && grep -c still.pickle both.html");
    command_expect("fallow report still.pickle two.pickle --no-times --policy pytorch,recorded",
                   "    30        -     3.867\n");
}

/* 100 MiB are reserved at the start; the recording uses 40 of these and releases 20 before the peak. */
TEST(what_a_late_recording_never_used_is_left_out_of_the_comparison)
{
    write_file("late.pickle",
               "segment 1024M 80M large\nblock 1024M 80M inactive\n"
               "segment 1280M 10M large\nblock 1280M 10M active_allocated\n"
               "alloc 1024M 40M\nsegment_free 1152M 20M\nfree_requested 1024M 40M\n"
               "free_completed 1024M 40M\nsegment_alloc 1280M 10M\nalloc 1280M 10M\n");
    command_expect(
        "fallow report late.pickle --no-times --json late.json | tr -s ' \\n' ' '",
        "PyTorch reserved 50 MiB (without 50 MiB from before the recording, which it did "
        "not use)");
    /* Only the replay of PyTorch's model contains the earlier holes. */
    write_file("holes.pickle", "segment 1024M 60M large\nblock 1024M 20M active_allocated\n"
                               "block 1044M 40M inactive\n"
                               "segment 1152M 60M large\nblock 1152M 20M active_allocated\n"
                               "block 1172M 40M inactive\noom 0 60M device_free 10M\n");
    command_expect(
        "fallow report holes.pickle --no-times | tr -s ' \\n' ' '",
        "expandable_segments:True; it fits from 102 MiB on; the recording began late, and "
        "memory from before is replayed without its holes ");
    command_expect("cat late.json");
    assert_int_equal(command_number("traces", "unused_from_before_bytes"), 50 * MIB);
    assert_int_equal(command_number("\"name\": \"recorded\"", "peak_reserved_bytes"), 100 * MIB);
}

/* Some blocks have only frames of torch. */
TEST(torch_frames_are_better_than_nothing)
{
    static const char trace[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields none\n"
                                "L 7 \"_flat_weight\" \"/site-packages/torch/x.py\"\n"
                                "L 9 \"step\" \"/site-packages/torch/y.py\"\nW 0 1\n"
                                "A 0 0 1048576 0 stack=1\nO 0 4096 0 stack=1\n";
    command_write("torch.ftext", trace, sizeof trace - 1);
    command_expect("fallow report torch.ftext --no-times --policy bound --json torch.json",
                   "100.0       1  _flat_weight (x.py:7)\n");
    command_expect_error(
        "fallow report torch.ftext --no-times --policy bound --fail-on-oom >screen", 1,
        "4,096 bytes requested by _flat_weight (x.py:7)");
    command_expect("grep -c '\"owner\": \"_flat_weight (x.py:7)\"' torch.json");
}

/* The page first shows the last operation before the failure, with the blocks live at the failure. */
TEST(the_page_opens_on_the_out_of_memory)
{
    static const char trace[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields none\n"
                                "A 0 0 4194304 0\nA 0 1 2097152 0\nF 0 1 0\nO 0 8388608 0 free=0\n"
                                "A 0 2 1048576 0\nF 0 0 0\n";
    command_write("opens.ftext", trace, sizeof trace - 1);
    command_expect("fallow report opens.ftext --no-times --policy driver --html - | "
                   "grep -o '\"ops\":6,\"unit\":[0-9]*,\"peak_op\":[0-9],\"oom_op\":2,'");
}

/* ---- freed and not reusable yet ---- */

/* A block of 100 bytes in a unit of 512, one of 10 MiB that record_stream keeps, and 53 MiB free after that. */
TEST(what_waits_for_other_streams_is_counted_and_rounding_is_not_idle)
{
#define WAITING "block 1025M 10M active_awaiting_free\nblock 1035M 53M inactive\n"
    write_file("waits.pickle", "segment 1024M 64M large\nblock 1024M 100 active_allocated\n" WAITING
                               "segment_alloc 1024M 64M\nalloc 1024M 100\nalloc 1025M 10M\n"
                               "free_requested 1025M 10M\noom 0 200M device_free 0\n");
    command_expect(
        "fallow report waits.pickle --no-times --policy recorded --json waits.json "
        "--html waits.html | tr -s ' \\n' ' '",
        " reserved and unused 54.0 MiB largest hole 53 MiB freed 10 MiB in 1 block, waiting "
        "for other streams (record_stream)");
    command_expect("cat waits.json");
    assert_int_equal(command_number("out_of_memory", "idle_bytes"), 54 * MIB - 512);
    assert_int_equal(command_number("out_of_memory", "pending_bytes"), 10 * MIB);
    assert_int_equal(command_number("traces", "pending_at_end_bytes"), 10 * MIB);
    /* On the page: segment, bytes before the block, requested, rounding, owner, pending, to the base of 36. */
    command_expect("grep -c ';0 mh34 68qv4 0 [0-9] 1\"' waits.html");
    /* The same heap without a history. */
    write_file("still.pickle",
               "segment 1024M 64M large\nblock 1024M 1M active_allocated\n" WAITING);
    command_expect("fallow report still.pickle --no-times | tr -s ' \\n' ' '",
                   ": 1 MiB live, 10 MiB freed and waiting for other streams (record_stream) of 64 "
                   "MiB that PyTorch reserved; 53 MiB free in 1 hole, the largest of 53 MiB ");
}

/* The driver alone would hold less, but is not a policy to advise. */
TEST(the_driver_is_not_passed_over)
{
    write_file(
        "driver.pickle",
        "segment_alloc 1024M 40M\nalloc 1024M 20M\nalloc 1044M 2M\nfree_requested 1024M 20M\n"
        "free_completed 1024M 20M\nalloc 1046M 12M\n");
    command_expect(
        "fallow report driver.pickle --no-times --lag 0 --policy driver,recorded,pytorch:roundup_power2_divisions=1",
        "; only the driver alone would reserve less: 22 MiB, waiting at each free.\n");
}

/* ---- advice ---- */

/* Write four segments, each with a block of 60 MiB and 40 MiB free, and a request of 120 MiB. `conf` NULL: the snapshot
 * has no settings. */
static void write_split(const char *variable, const char *conf, bool is_private)
{
    static const char *const lines[] = {
        ("segment %1$uM 100M large segment_pool_id (0 %2$d)\nblock %1$uM 60M active_allocated\n"
         "block %3$uM 40M inactive\n"),
        "segment_alloc %1$uM 100M pool_id (0 %2$d)\nalloc %1$uM 100M pool_id (0 %2$d)\n",
        "free_requested %1$uM 100M pool_id (0 %2$d)\nfree_completed %1$uM 100M pool_id (0 %2$d)\n",
        "alloc %1$uM 60M pool_id (0 %2$d)\n"};
    char text[4096];
    int bytes = 0;
    for (unsigned i = 0; i < 16; i++) {
        unsigned address = 1024 + i % 4 * 256;
        bytes += snprintf(text + bytes, sizeof text - (size_t)bytes, lines[i / 4], address,
                          is_private, address + 60);
    }
    bytes += snprintf(text + bytes, sizeof text - (size_t)bytes,
                      "oom 0 120M device_free 10M pool_id (0 %d)\n", is_private);
    if (conf != NULL) {
        snprintf(text + bytes, sizeof text - (size_t)bytes, "settings %s \"%s\"\n", variable, conf);
    }
    write_file("split.pickle", text);
}

/* Check that the advice contains `text`, and the setting in the JSON. */
static void expect_advice(const char *text, const char *type)
{
    char member[256];
    command_expect("fallow report split.pickle --no-times --json advice.json | "
                   "tr -s ' \\n' ' '; grep -o '\"type\": [^,]*' advice.json",
                   text);
    snprintf(member, sizeof member, "\"type\": %s", type);
    flw_test_expect_in(out_text, member);
}

TEST(no_advice_is_set_already_or_breaks_the_program)
{
    static const char cuda[] = "PYTORCH_CUDA_ALLOC_CONF";
    static const char serve[] = "to serve the failed request with the 410 MiB there were, ";
    char text[256];
    write_split(cuda, NULL, false);
    snprintf(text, sizeof text, "%sset PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True;", serve);
    expect_advice(text, "\"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\"");
    snprintf(text, sizeof text, "%suse import fallow; fallow.enable_torch();", serve);
    write_split(cuda, "expandable_segments:True", false);
    expect_advice(text, "\"import fallow; fallow.enable_torch()\"");
    flw_test_expect_in(out_text,
                       "(Fallow has not run on a GPU yet; it turns off PyTorch's memory snapshots");
    /* vLLM's sleep mode and torch.cuda.MemPool fail with expandable segments. */
    write_split(cuda, NULL, true);
    expect_advice(text, "\"import fallow; fallow.enable_torch()\"");
    write_split(cuda, "backend:cudaMallocAsync", false);
    expect_advice(text, "\"import fallow; fallow.enable_torch()\"");
    write_split(cuda, "garbage_collection_threshold:0.8", false);
    expect_advice("set", "\"PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.8");
    flw_test_expect_in(out_text, "expandable_segments:True");
    write_split("PYTORCH_NPU_ALLOC_CONF", "", false);
    expect_advice("set PYTORCH_NPU_ALLOC_CONF=expandable_segments:True;",
                  "\"PYTORCH_NPU_ALLOC_CONF=expandable_segments:True\"");
}

FLW_TEST_MAIN(command_make_folder, command_remove_folder)
