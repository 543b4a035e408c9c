/* SPDX-License-Identifier: Apache-2.0
 *
 * `fallow report` from outside: the numbers for a trace small enough to know by heart, golden text,
 * JSON and CSV of a generated one, thresholds, baselines, folders, and what it says to wrong command
 * lines, files and outputs. FALLOW_COMMAND names the program, FALLOW_GOLDEN the folder of golden
 * files, FALLOW_DEMO the demo trace, FALLOW_CORPUS the corpus of the fuzzers. Builds with FALLOW_CHECK_LEVEL 2 recompute every analysis's
 * invariants as they go.
 *
 * When a golden file has to change: `fallow report pin.ftext PIN_OPTIONS` with the options below,
 * beside the trace of `fallow gen PIN_TRACE`, and read the difference.
 */
#include "support/test.h"

#include "support/test_command.h"

#define PIN_TRACE   "adversarial pin-small-between-large --cycles 4"
#define PIN_OPTIONS "--no-times --lag 8 --policy pytorch,driver,recorded,bound"

/* With addresses and segments, so that `recorded` has a heap: 4 MiB taken, 2 of them allocated, a block in the middle
 * that is kept, then 6 MiB more. */
static const char heap_trace[] = "#fallow-trace 1\n"
                                 "device 0\n"
                                 "stream 0\n"
                                 "fields times addresses segments\n"
                                 "S+ 0 4194304 0 @268435456\n"
                                 "A 10 0 1048576 0 @268435456\n"
                                 "A 20 1 1048576 0 @269484032\n"
                                 "F 30 0 0\n"
                                 "S+ 40 6291456 0 @536870912\n"
                                 "A 50 2 6291456 0 @536870912\n"
                                 "F 60 2 0\n";

static int make_traces(void **state)
{
    if (command_make_folder(state) != 0) {
        return -1;
    }
    command_write("tiny.ftext", command_trace, sizeof command_trace - 1);
    command_write("heap.ftext", heap_trace, sizeof heap_trace - 1);
    return command_run("fallow gen " PIN_TRACE " -o pin.ftext");
}

/* --- numbers -------------------------------------------------------------------------------------
 */

TEST(the_numbers_of_a_known_trace_are_the_known_ones)
{
    command_expect("fallow report tiny.ftext --no-times --policy driver,bound --json -",
                   "\"ops\": 9, \"allocs\": 3, \"frees\": 3, \"initial_blocks\": 1",
                   "\"bound_bytes\": 8388608, \"without_wait_bytes\": 10485760",
                   "{\"name\": \"driver\", \"label\": \"driver\", \"allocates\": true, "
                   "\"peak_requested_bytes\": 8388608");
    /* The driver gives 3 MiB as 4 of the pages, and 1 MiB as 2: at the peak 4 + 2 + 4. */
    flw_test_expect_in(out_text, "\"peak_reserved_bytes\": 10485760");
    flw_test_expect_in(out_text, "{\"owner\": \"stream 7\", \"bytes\": 5242880, \"blocks\": 2}");
    flw_test_expect_in(out_text, "{\"owner\": \"stream 0\", \"bytes\": 3145728, \"blocks\": 1}");
    flw_test_expect_in(out_text, "\"internal_waste_bytes\": 2097152, \"external_waste_bytes\": 0");
    flw_test_expect_in(out_text, "\"calls\": {\"alloc\": 4, \"free\": 3, \"create\": 0");
    flw_test_expect_in(out_text, "\"ns_per_op\": null");
    command_expect("fallow report tiny.ftext --policy bound --html - | "
                   "grep -o '\"bound_bytes\":8388608,\"without_wait_bytes\":10485760'");
}

TEST(the_recorded_heap_is_the_traces_own)
{
    command_expect("fallow report heap.ftext --no-times --policy recorded --json -",
                   "\"peak_reserved_bytes\": 10485760, \"end_reserved_bytes\": 10485760");
    /* At the peak: 1 MiB free below the block that is kept, 2 above, none in the second segment. */
    flw_test_expect_in(out_text,
                       "\"segments\": 2, \"blocks\": 2, \"holes\": 2, \"hole_bytes\": 3145728, "
                       "\"largest_hole_bytes\": 2097152");
    flw_test_expect_in(out_text, "\"fragmentation\": 0.333333");
}

/* Under a limit a request fails, and the report contains the size of the largest hole. */
TEST(a_failure_is_told_with_the_largest_hole)
{
    command_expect("fallow report tiny.ftext --no-times --lag 0 --limit 9M "
                   "--policy driver --json -",
                   "\"failures\": 1, \"first_failure\": {\"op\": 5, \"bytes\": 4194304, "
                   "\"largest_hole_bytes\": 0, \"hole_bytes\": 0}",
                   "\"bound_bytes\": 8388608, \"without_wait_bytes\": 8388608, "
                   "\"packed_bytes\": 8388608",
                   "Every policy failed a request");
}

/* --- golden files --------------------------------------------------------------------------------
 */

static void expect_golden(const char *arguments, const char *name)
{
    command_expect(command_line("fallow report pin.ftext " PIN_OPTIONS " %s", arguments));
    assert_string_equal(error_text, "");
    char path[512];
    static char golden[COMMAND_TEXT_BYTES];
    snprintf(path, sizeof path, "%s/%s", getenv("FALLOW_GOLDEN"), name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    golden[fread(golden, 1, sizeof golden - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(out_text, golden);
}

TEST(text_json_and_csv_are_the_golden_ones)
{
    if (getenv("FALLOW_GOLDEN") == NULL) {
        skip();
    }
    expect_golden("--ascii", "pin.txt");
    expect_golden("--json -", "pin.json");
    expect_golden("--csv -", "pin.csv");
}

TEST(the_screen_fits_80_columns_of_ascii)
{
    static const char *const traces[] = {"pin.ftext", "plain.ftext"}; /* one stream, and two */
    char line[512];
    if (getenv("FALLOW_DEMO") == NULL) {
        skip();
    }
    command_expect("fallow trace dump \"$FALLOW_DEMO\" | "
                   "sed '/^[LW] /d; s/ stack=.*//' >plain.ftext");
    for (size_t i = 0; i < 2; i++) {
        snprintf(line, sizeof line,
                 "COLUMNS=80 fallow report %s --ascii >screen; wc -l screen; "
                 "LC_ALL=C awk 'length > 80' screen; LC_ALL=C grep -c '[^ -~]' screen; true",
                 traces[i]);
        command_expect(line);
        long lines = strtol(out_text, NULL, 10);
        assert_in_range(lines, 12, 50);
        assert_string_equal(strchr(out_text, ' '), " screen\n0\n"); /* no long line, all of ASCII */
    }
    command_expect("grep '^bound' screen", "\nbound, no wait          13.01     1.000 ");
}

TEST(the_screen_of_the_demo_begins_with_its_owners)
{
    if (getenv("FALLOW_DEMO") == NULL) {
        skip();
    }
    command_expect_text("fallow report \"$FALLOW_DEMO\" --no-times --policy "
                        "fallow-memory-first,pytorch >screen && sed -n '1p;4,15p' screen",
                        "demo.ftrace: peak live memory 13.0 GiB after 377 ms; largest owners: 4 "
                        "GiB allocate_kv_cache\n"
                        "\n"
                        "Live memory at the peak, by owner\n"
                        "     GiB     %  blocks  owner\n"
                        "    4.00  30.7      32  allocate_kv_cache (kv_cache.py:45)\n"
                        "    3.50  26.9      32  load_gate_up (mlp.py:17)\n"
                        "    1.75  13.5      32  load_down (mlp.py:22)\n"
                        "    0.98   7.5       2  load_vocabulary (model.py:18)\n"
                        "    0.88   6.7       1  gate_up (mlp.py:33)\n"
                        "    0.75   5.8      32  load_qkv (attention.py:24)\n"
                        "    0.50   3.8      32  load_out (attention.py:30)\n"
                        "    0.44   3.4       1  silu_and_multiply (mlp.py:39)\n"
                        "    0.22   1.7     217  the rest\n");
    command_expect("! grep -q ' ns' screen && tail -3 screen",
                   "pytorch would reserve 15.0 GiB (13.3 GiB with expandable segments); "
                   "fallow-memory-first would\n    reserve 13.1 GiB, 1.89 GiB (12.6 %) less.\n");
    command_expect("fallow report tiny.ftext --times --policy driver", "median\n");
}

/* Colour on a terminal, unless NO_COLOR is set. `script` makes the terminal. */
TEST(a_terminal_has_colour_unless_it_is_refused)
{
    if (system(
            "command -v script >/dev/null && script -qec true /dev/null >/dev/null </dev/null") !=
        0) {
        skip();
    }
    const char *line = "%s script -qec \"'$F' report tiny.ftext --no-times --policy driver\" "
                       "/dev/null </dev/null";
    command_expect(command_line(line, "env -u NO_COLOR"), "\033[1m");
    command_expect(command_line(line, "env NO_COLOR=1"), "driver");
    assert_null(strstr(out_text, "\033"));
}

TEST(every_analysis_of_the_demo_and_of_generated_traces_is_valid)
{
    if (getenv("FALLOW_DEMO") == NULL) {
        skip();
    }
    command_expect("fallow report \"$FALLOW_DEMO\" --csv demo.csv --html demo.html "
                   "--json demo.json && wc -l <demo.csv && "
                   "grep -c '</html>' demo.html");
    assert_string_equal(error_text, "");
    command_expect("for g in 'train --steps 1' 'random --count 2000' "
                   "'adversarial comb' 'adversarial sawtooth'; do "
                   "fallow gen $g -o g.ftext 2>/dev/null || continue; "
                   "fallow report g.ftext --no-times --json g.json >/dev/null || exit 9; "
                   "echo done; done",
                   "done\n");
    command_expect("fallow report \"$FALLOW_DEMO\" --limit 13G --html - | grep -c html");
}

/* Small and odd traces, most of which are broken: the readable ones are reported. */
TEST(what_the_fuzzers_found_worth_keeping_is_reported)
{
    if (getenv("FALLOW_CORPUS") == NULL) {
        skip();
    }
    command_expect("for form in ftrace json pickle rmm text; do "
                   "fallow report \"$FALLOW_CORPUS/$form\" --no-times --html c.html "
                   "--json c.json >screen || exit 9; "
                   "grep -c '\"title\"' c.json; done");
}

/* --- several traces ------------------------------------------------------------------------------
 */

TEST(a_folder_is_a_table_with_a_page_a_trace)
{
    command_expect("mkdir -p many/sub && cp tiny.ftext many/a.ftext && "
                   "cp heap.ftext 'many/b c.ftext' && echo no >many/notes.md && "
                   "cd many && fallow report . --no-times --html ../all.html "
                   "--json ../all.json && cd .. && ls all*.html",
                   "\na.ftext  ", "\nb c.ftext ");
    for (const char *line = out_text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        assert_true(strcspn(line, "\n") <= 100);
    }
    command_expect("cd many && fallow report a.ftext 'b c.ftext' --no-times "
                   "--policy driver,bound",
                   "\na.ftext       8   1");
    command_expect("cd many && fallow report . --no-times --html ../all.html "
                   "--json ../all.json && cd .. && ls all*.html",
                   "all-1-a.ftext.html\nall-2-b_c.ftext.html\nall.html\n");
    flw_test_expect_in(error_text, "notes.md");
    flw_test_expect_in(error_text, "left out");
    command_expect_text("grep -o 'href=\"*all-[^\" >]*' all.html | sort -u | wc -l; "
                        "grep -o '\"title\": \"[^\"]*\"' all.json",
                        "2\n\"title\": \"a.ftext\"\n\"title\": \"b c.ftext\"\n");
}

/* --- thresholds ----------------------------------------------------------------------------------
 */

TEST(a_broken_threshold_is_one_line_and_exit_code_1)
{
    const char *line = "fallow report tiny.ftext --no-times --policy driver,bound %s >screen";
    command_expect(command_line(line, "--max-reserved 10M --max-fragmentation 0.5"));
    command_expect_error(command_line(line, "--max-reserved 9M"), 1,
                         "tiny.ftext: policy driver reserves 10,485,760 bytes, 1,048,576 more");
    command_expect("fallow report heap.ftext --no-times --policy recorded "
                   "--max-fragmentation 0.34 >screen");
    command_expect_error("fallow report heap.ftext --no-times --policy recorded "
                         "--max-fragmentation 0.3 >screen",
                         1, "policy recorded has a fragmentation of 0.333 at its peak, 0.033 more");
    /* If a block has no segment, the fragmentation is unknown. */
    static const char missing[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields addresses segments\n"
                                  "S+ 0 4194304 0 @4194304\nA 0 0 1048576 0 @5242880\n"
                                  "A 0 1 8388608 0 @67108864\n";
    command_write("missing.ftext", missing, sizeof missing - 1);
    command_expect("fallow report missing.ftext --no-times --policy recorded "
                   "--max-fragmentation 0.1 >screen");
}

TEST(an_out_of_memory_on_record_is_told_and_may_fail)
{
    static const char trace[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields none\n"
                                "A 0 0 1048576 0\nA 0 1 2097152 0\nF 0 0 0\n"
                                "O 0 8388608 0 free=1048576\nO 0 4096 0\nF 0 1 0\n";
    command_write("oom.ftext", trace, sizeof trace - 1);
    command_expect("fallow report oom.ftext --no-times --policy driver --json oom.json "
                   "--html oom.html >screen");
    command_expect("head -3 screen | tr -s ' \\n' ' ' | grep -q '^oom.ftext: out of memory at "
                   "event 4: unknown code requested 8 MiB with 2 MiB live free on the device 1 "
                   "MiB failed requests 2 $'");
    command_expect(
        "grep -q '\"out_of_memory\": {\"count\": 2, \"event\": 4, "
        "\"asked_bytes\": 8388608, \"live_bytes\": 2097152, "
        "\"device_free_bytes\": 1048576, \"idle_bytes\": null, "
        "\"largest_hole_bytes\": null, \"owner\": null, "
        "\"limit_bytes\": 3145728, \"limit_given\": false, \"pending_bytes\": 0, \"pending_blocks\": 0,$' oom.json");
    command_expect(
        "grep -q '\"asked_bytes\":8388608,\"live_bytes\":2097152,\"device_free_bytes\":1048576' oom.html");
    command_expect_error("fallow report oom.ftext --no-times --policy driver --fail-on-oom >screen",
                         1,
                         "oom.ftext: ran out of memory at event 4: 8,388,608 bytes requested by");
    command_expect("fallow report tiny.ftext --no-times --policy driver --fail-on-oom "
                   ">screen");
}

/* A program of three lines that runs out of memory: the owners at each moment, on the screen and on the page. */
TEST(the_screen_tells_owners_at_each_moment)
{
    static const char trace[] =
        "#fallow-trace 1\ndevice 0\nstream 0\nfields none\n"
        "L 7 \"empty\" \"/site-packages/torch/x.py\"\nL 12 \"load\" \"/run/weights.py\"\n"
        "W 0 1\nP 0 0 2097152 0 stack=1\nP 0 1 1048576 0\n"
        "L 30 \"forward\" \"/run/model.py\"\nW 0 2 1\nA 0 2 4194304 0 stack=2\n"
        "L 40 \"step\" \"/run/train.py\"\nW 3\nO 0 8388608 0 free=0 stack=3\n"
        "A 0 3 1048576 0 stack=3\nF 0 2 0 stack=3\nA 0 4 65536 0 stack=2\n"
        "A 0 5 1024 0\n";
    command_write("code.ftext", trace, sizeof trace - 1);
    command_expect(
        "fallow report code.ftext --no-times --policy bound --ascii --html "
        "code.html",
        "code.ftext: out of memory at event 2: step (train.py:40) requested 8 MiB with "
        "7 MiB live; largest\n    owners: 4 MiB forward (model.py:30), ",
        "Live memory when it ran out, by owner\n"
        "     MiB     %  blocks  owner\n"
        "       4  57.1       1  forward (model.py:30)\n"
        "       2  28.6       1  load (weights.py:12)\n"
        "       1  14.3       1  before the recording, up to 1 MiB\n"
        "\nWhat to do: reduce live memory, since no allocator setting would have avoided this: the "
        "program\n    needs 15 MiB live and had 7 MiB; most is held by forward (model.py:30) (4 MiB), "
        "load\n    (weights.py:12) (2 MiB), before the recording, up to 1 MiB (1 MiB)\n",
        "\nLive memory at the peak, by owner\n"
        "     MiB     %  blocks  owner\n"
        "       4  50.0       1  forward (model.py:30)\n"
        "       2  25.0       1  load (weights.py:12)\n"
        "       1  12.5       1  step (train.py:40)\n"
        "       1  12.5       1  before the recording, up to 1 MiB\n"
        "\nAllocated during the recording and not freed, by owner\n"
        "     KiB     %  blocks  by tenths   owner\n"
        "   1,024  94.0       1     @        step (train.py:40)\n"
        "      64   5.9       1        @     forward (model.py:30)\n"
        "       1   0.1       1          @   code that is not known\n"
        "by tenths: when it was allocated, from the first to the last tenth of the recording\n"
        "owner: the innermost Python frame outside of torch, packages and the standard library; ");
    command_expect(
        "grep -A1 'Owners at out of memory</caption>' code.html",
        "<th>MiB</th><th>blocks</th></tr>\n<tr><th>forward (model.py:30)</th><td>4</td><td>1</td></tr>\n");
    command_expect_text(
        "fallow report code.ftext --no-times --policy bound --skip model.py "
        "--owner 'torch/x[.]py:7' --folded - --at oom",
        "load (/run/weights.py:12);empty (/site-packages/torch/x.py:7) 2097152\n"
        "load (/run/weights.py:12);forward (/run/model.py:30);empty "
        "(/site-packages/torch/x.py:7) 4194304\nbefore the recording, up to 1 MiB 1048576\n");
}

/* The line in a long name is whole. */
TEST(a_long_owner_is_cut_in_the_middle)
{
    static const char trace[] =
        "#fallow-trace 1\ndevice 0\nstream 0\nfields none\n"
        "L 1234 \"custom_scaled_dot_product_attention_of_a_layer\" \"/run/attention_layer.py\"\n"
        "W 0\nA 0 0 1048576 0 stack=1\nF 0 0 0\n";
    command_write("long.ftext", trace, sizeof trace - 1);
    command_expect("fallow report long.ftext --no-times --policy bound",
                   "1  custom_scaled_dot_product_attention...(attention_layer.py:1234)\n");
}

/* Twenty owners share the peak; an owner that once held more than each of these is gone by then and still has a band. A
 * private pool is named after the code that allocated most in that pool. */
TEST(what_is_large_at_any_time_has_a_band_of_its_own)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    fputs("#fallow-trace 1\ndevice 0\nstream 0\nfields none\nL 1 \"early\" \"/run/a.py\"\nW 0\n"
          "A 0 0 8388608 0 stack=1\nF 0 0 0\n",
          file);
    for (int i = 1; i <= 20; i++) {
        fprintf(file, "L %d \"late_%d\" \"/run/b.py\"\nW %d\nA 0 %d 1048576 0%s stack=%d\n", i, i,
                i, i, i <= 2 ? " pool=7" : "", i + 1);
    }
    fputs("A 0 21 4096 0 pool=7 stack=3\n", file);
    assert_int_equal(fclose(file), 0);
    command_write("bands.ftext", text, bytes);
    free(text);
    command_expect("fallow report bands.ftext --no-times --policy bound --html - | "
                   "grep -o '{\"name\":\"[^\"]*\",\"most_bytes\":[0-9]*'",
                   "{\"name\":\"early (a.py:1)\",\"most_bytes\":8388608\n",
                   "{\"name\":\"pool 7: late_2 (b.py:2)\",\"most_bytes\":2101248\n");
}

/* Twelve steps that each keep 1 MiB of their allocations, after one block of 5 MiB that is kept: six stretches of two
 * steps, and the rest. Without stacks the survivors are reported by size, and not on the screen. */
TEST(survivors_are_told_by_the_steps_that_left_them)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    fputs("#fallow-trace 1\ndevice 0\nstream 0\nfields none\nP 0 0 3145728 0\n"
          "P 0 1 3145728 0\nF 0 1 0\nA 0 2 5242880 0\n",
          file);
    for (int i = 0; i < 12; i++) {
        fprintf(file, "B 0 \"ProfilerStep#%d\"\nB 0 \"forward\"\nA 0 %d 1048576 0\n", i + 9,
                3 + 2 * i);
        fprintf(file, "A 0 %d 65536 0\nE 0 \"forward\"\nF 0 %d 0\nE 0 \"ProfilerStep#%d\"\n",
                4 + 2 * i, 4 + 2 * i, i + 9);
    }
    fputs("A 0 27 4096 0\n", file);
    assert_int_equal(fclose(file), 0);
    command_write("steps.ftext", text, bytes);
    free(text);
    command_expect(
        "fallow report steps.ftext --no-times --policy bound --json - && ! fallow report "
        "steps.ftext --no-times --policy bound | grep -q owner");
    static const char *const parts[] = {
        "\"holders\": {\"rule\": \"the size, since the recording has no call stacks\",",
        "\"at_out_of_memory\": null,",
        "\"at_end\": {\"bytes\": 20975616, \"blocks\": 15, \"rest_bytes\": 0, \"rest_blocks\": 0, ",
        "    {\"owner\": \"before the recording, up to 4 MiB\", \"bytes\": 3145728, \"blocks\": 1}",
        "\"survivors\": {\"bytes\": 17829888, \"blocks\": 14, ",
        ("    {\"owner\": \"up to 1 MiB\", \"bytes\": 12582912, \"blocks\": 12, \"left_bytes\": "
         "[2097152, 2097152, 2097152, 2097152, 2097152, 2097152, 0], "
         "\"left_blocks\": [2, 2, 2, 2, 2, 2, 0]}"),
        "{\"name\": \"steps 1 to 2\", \"end_op\": 10, \"left_bytes\": 7340032, \"left_blocks\": 3}",
        "{\"name\": \"after step 12\", \"end_op\": 42, \"left_bytes\": 4096, \"left_blocks\": 1}]"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        flw_test_expect_in(out_text, parts[i]);
    }
    command_expect(
        "fallow report steps.ftext --no-times --policy bound --by phase "
        "--ascii",
        "Allocated during the recording and not freed, by owner\n"
        "     MiB     %  blocks  by steps  owner\n"
        "      12  70.6      12  @@@@@@    forward\n"
        "       5  29.4       2  @     .   neither in a phase nor with a call stack\n"
        "by steps: when it was allocated, from the first to the last step of the recording\n"
        "owner: the innermost open phase of the recording; else, by the");
}

/* property.owners reads these files and checks the sums; here, the files' places and the contents for a trace without
 * stacks. */
TEST(what_other_tools_read_goes_where_it_is_wanted)
{
    static const char trace[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields none\n"
                                "P 0 0 3145728 0\nA 0 1 1048576 0\nA 0 2 2097152 0\nF 0 1 0\n"
                                "O 0 8388608 0\nA 0 3 4096 0\nF 0 0 0\nA 0 4 1048576 0\n";
    command_write("forms.ftext", trace, sizeof trace - 1);
    command_expect_text(
        "fallow report forms.ftext --no-times --policy bound --folded - "
        "--csv-owners owners.csv --chrome chrome.json && cat owners.csv",
        "before the recording, up to 4 MiB 3145728\nup to 1 MiB 1048576\nup to 2 MiB 2097152\n"
        "owner,peak_bytes,peak_blocks,oom_bytes,oom_blocks,end_bytes,end_blocks,survivor_bytes,"
        "survivor_blocks,all_bytes,all_blocks\n"
        "\"before the recording, up to 4 MiB\",3145728,1,3145728,1,0,0,0,0,3145728,1\n"
        "\"up to 1 MiB\",1048576,1,0,0,1048576,1,1048576,1,2097152,2\n"
        "\"up to 2 MiB\",2097152,1,2097152,1,2097152,1,2097152,1,2097152,1\n"
        "\"up to 4 KiB\",0,0,0,0,4096,1,4096,1,4096,1\n");
    command_expect_text("fallow report forms.ftext --no-times --policy bound --folded - "
                        "--at oom; fallow report forms.ftext --no-times --policy bound "
                        "--at end --folded -",
                        "before the recording, up to 4 MiB 3145728\nup to 2 MiB 2097152\n"
                        "up to 1 MiB 1048576\nup to 2 MiB 2097152\nup to 4 KiB 4096\n");
    command_expect("grep 'out of memory' chrome.json",
                   "{\"ph\":\"i\",\"cat\":\"memory\",\"name\":\"out of memory\",\"pid\":0,"
                   "\"tid\":0,\"ts\":4.000");
    command_expect_error("fallow report tiny.ftext --folded x.txt --at oom", 1,
                         "tiny.ftext: did not run out of memory; ");
    command_expect_error("fallow report tiny.ftext --folded x.txt --at start", 2,
                         "--at 'start' is none of peak, oom and end");
    command_expect_error("fallow report tiny.ftext --folded - --json -", 2, "only one of");
    command_expect_error("fallow report tiny.ftext heap.ftext --folded x.txt", 2,
                         "--folded is of one trace, and there are 2");
    command_expect_error("fallow report tiny.ftext --chrome no/where.json", 1, "no/where.json");
    if (access("/dev/full", W_OK) == 0) {
        command_expect_error("fallow report tiny.ftext --chrome /dev/full", 1, "/dev/full");
    }
}

TEST(a_wrong_rule_of_owners_is_told_in_one_line)
{
    command_expect_error("fallow report tiny.ftext --owner 'model('", 2, "--owner 'model(': ");
    command_expect_error("fallow report tiny.ftext --owner model --skip '[a'", 2, "--skip '[a': ");
    command_expect_error("fallow report tiny.ftext --skip", 2, "--skip needs a value");
    command_expect_error("fallow report tiny.ftext --by line", 2,
                         "--by 'line' is none of frame, file, module and phase");
    command_expect_error("fallow report tiny.ftext --by phase --skip x", 2, "--by phase uses none");
}

TEST(a_baseline_is_held_to)
{
    command_expect("fallow report tiny.ftext --no-times --policy driver,bound "
                   "--json then.json >screen && "
                   "fallow report tiny.ftext --no-times --policy driver,bound "
                   "--baseline then.json >screen");
    command_expect("sed 's/\"peak_reserved_bytes\": 10485760/"
                   "\"peak_reserved_bytes\": 8388608/' then.json >less.json");
    command_expect_error("fallow report tiny.ftext --policy driver --baseline less.json >screen", 1,
                         "tiny.ftext: policy driver has peak_reserved_bytes of 10485760, above the "
                         "baseline's 8388608 (+25.00 %)");
    command_expect_error("fallow report heap.ftext --policy driver --baseline then.json >screen", 1,
                         "no trace and policy in common");
    command_expect_error("fallow report tiny.ftext --policy driver --baseline no.json >screen", 1,
                         "no.json");
}

TEST(diff_says_which_numbers_differ)
{
    command_expect_text("fallow report pin.ftext " PIN_OPTIONS " --json a.json >screen && "
                        "fallow report diff a.json a.json",
                        "no number differs\n");
    command_expect("fallow report pin.ftext --no-times --lag 8 --policy driver "
                   "--limit 120M --json b.json >screen && "
                   "fallow report diff a.json b.json",
                   "pin.ftext driver\n", "\nfailures ", "only in the first: pin.ftext pytorch\n");
    command_expect_error("fallow report diff a.json", 2, "two files");
    command_expect_error("fallow report diff a.json b.json c.json", 2, "two files");
    command_expect_error("echo no >no.txt; fallow report diff a.json no.txt", 1, "no.txt: byte ");
    command_expect("sed 's/\"schema\": 1/\"schema\": 9/' a.json >c.json");
    command_expect_error("fallow report diff a.json c.json", 1,
                         "schema 9, and this fallow reads 1");
    command_expect("head -c 700 a.json >d.json");
    command_expect_error("fallow report diff a.json d.json", 1, "d.json: byte ");
}

/* Of traces and of reports alike, whatever the files' names. */
TEST(diff_says_who_holds_more)
{
    static const char head[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields none\n";
    static const char expected[] = "before.ftext, by owner, at the peak\n"
                                   "before MiB  after MiB  change  owner\n"
                                   "         2         15     +13  forward\n"
                                   "         9          3      -6  Optimizer.step\n"
                                   "         1          1      +0  the others\n"
                                   "        12         19      +7  all\n"
                                   "before.ftext, by owner, at the end\n"
                                   "before MiB  after MiB  change  owner\n"
                                   "         1         15     +14  forward\n"
                                   "         9          3      -6  Optimizer.step\n"
                                   "         1          1      +0  the others\n"
                                   "        11         19      +8  all\n"
                                   "before.ftext, by owner, allocated in the recording, not freed\n"
                                   "before MiB  after MiB  change  owner\n"
                                   "         1         15     +14  forward\n"
                                   "         9          3      -6  Optimizer.step\n"
                                   "        10         18      +8  all\n";
    char text[512];
    snprintf(
        text, sizeof text,
        "%sP 0 0 1048576 0\nB 0 \"forward\"\nA 0 1 1048576 0\nA 0 2 1048576 0\nE 0 \"forward\"\n"
        "B 0 \"Optimizer.step\"\nA 0 3 9437184 0\nE 0 \"Optimizer.step\"\nF 0 1 0\n",
        head);
    command_write("before.ftext", text, strlen(text));
    snprintf(text, sizeof text,
             "%sP 0 0 1048576 0\nB 0 \"forward\"\nA 0 1 15728640 0\nE 0 \"forward\"\n"
             "B 0 \"Optimizer.step\"\nA 0 2 3145728 0\nE 0 \"Optimizer.step\"\n",
             head);
    command_write("after.ftext", text, strlen(text));
    command_expect("fallow report diff before.ftext after.ftext --by phase", expected);
    assert_null(strstr(out_text, "only in"));
    command_expect("fallow report after.ftext --by phase --no-times --policy bound "
                   "--json after.json >screen; "
                   "fallow report diff before.ftext after.json --by phase",
                   expected);
    /* a report of before there were owners */
    command_expect("sed 's/\"holders\"/\"others\"/' after.json >old.json; "
                   "fallow report diff before.ftext old.json --by phase");
    assert_null(strstr(out_text, "by owner"));
    command_expect_error("fallow report diff before.ftext none.ftext", 1, "none.ftext");
    command_expect_error("fallow report diff before.ftext after.ftext --skip '('", 2,
                         "--skip '(': ");
    command_expect_error("fallow report diff before.ftext after.ftext --json x", 2,
                         "no option '--json'");
}

/* --- wrong ones ----------------------------------------------------------------------------------
 */

TEST(wrong_command_lines_are_told_in_one_line)
{
    command_expect_error("fallow report", 2, "needs a trace");
    command_expect_error("fallow report tiny.ftext --policy nobody", 2, "no policy 'nobody'");
    command_expect_error("fallow report tiny.ftext --wrong", 2, "no option '--wrong'");
    command_expect_error("fallow report tiny.ftext --csv", 2, "--csv needs a value");
    command_expect_error("fallow report tiny.ftext --max-fragmentation 2", 2, "from 0 to 1");
    command_expect_error("fallow report tiny.ftext --max-fragmentation x", 2, "from 0 to 1");
    command_expect_error("fallow report tiny.ftext --max-reserved many", 2,
                         "--max-reserved 'many'");
    command_expect_error("fallow report tiny.ftext --lag -1", 2, "--lag '-1'");
    command_expect_error("fallow report tiny.ftext --json - --csv -", 2, "only one of");
    command_expect_error("fallow report tiny.ftext heap.ftext --csv x.csv", 2, "--csv is of one");
}

TEST(what_cannot_be_read_or_written_is_told_in_one_line)
{
    command_expect_error("fallow report none.ftext", 1, "none.ftext");
    command_expect_error("mkdir -p empty && fallow report empty", 1, "'empty' has no files");
    command_expect_error("fallow report tiny.ftext --json no/where.json", 1, "no/where.json");
    command_expect_error("fallow report tiny.ftext --html no/where.html", 1, "no/where.html");
    command_expect_error("fallow report tiny.ftext --csv no/where.csv", 1, "no/where.csv");
    if (access("/dev/full", W_OK) == 0) {
        command_expect_error("fallow report tiny.ftext --html /dev/full", 1, "/dev/full");
        command_expect_error("fallow report tiny.ftext --json /dev/full", 1, "/dev/full");
        command_expect_error("fallow report tiny.ftext >/dev/full", 1, "standard output");
    }
    assert_int_equal(command_run("mkdir -p wrong && echo no >wrong/a && fallow report wrong"), 1);
    flw_test_expect_in(error_text, "none of the files is a trace");
}

FLW_TEST_MAIN(make_traces, command_remove_folder)
