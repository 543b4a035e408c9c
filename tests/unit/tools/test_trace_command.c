/* SPDX-License-Identifier: Apache-2.0
 *
 * `fallow trace` from outside: the output and files of each verb, and the messages for wrong
 * command lines, damaged files, full disks and pipes that nobody reads. FALLOW_COMMAND names the
 * program. */
#include "support/test_command.h"

#define BIG_EVENTS  20000
#define CHUNK_BYTES 64 /* of a chunk's header, and of the file's */
#define LINE_BYTES  1024

static const char tiny_trace[] = "#fallow-trace 1\n"
                                 "device 1\n"
                                 "stream 0\n"
                                 "stream 7\n"
                                 "fields times addresses segments\n"
                                 "origin a test\n"
                                 "S 0 2097152 0 small @4096\n"
                                 "P 0 0 1048576 0 @4096\n"
                                 "K 0 \"max_split_size 1\"\n"
                                 "B 0 \"step\"\n"
                                 "A 1000 1 512 0 @1052672 tag=4\n"
                                 "S+ 2000 20971520 1 @8388608\n"
                                 "A 2000 2 2097152 1 @8388608\n"
                                 "U 3000 1 1\n"
                                 "F 4000 1 0\n"
                                 "C 5000 1 0\n"
                                 "O 5000 99999999 0 free=100\n"
                                 "E 500000000 \"step\"\n";

static const char tiny_info[] =
    "tiny.ftext: text, device 1\n"
    "  file             336 bytes, 33.60 an event\n"
    "  events           10 in 0.5 s; with times, with addresses, with segments\n"
    "  allocations      2, 2 sizes from 512 B to 2 MiB\n"
    "  at the start     1 block, 1 MiB; 1 segment, 2 MiB\n"
    "  at the end       2 blocks, 3 MiB\n"
    "  peak live        3.00 MiB (3,146,240 bytes)\n"
    "  peak reserved    22 MiB (23,068,672 bytes)\n"
    "  segment events   1\n"
    "  streams          2: 0, 7\n"
    "  uses             1 of blocks by other streams\n"
    "  out of memory    1\n"
    "  phases           1\n"
    "  contexts         2 changes of thread, tag or pool\n"
    "  setting          max_split_size 1\n"
    "  header           origin a test\n";

static const char tiny_json[] = "{\"schema\": 1,\n"
                                " \"source\": \"tiny.ftext\",\n"
                                " \"format\": \"text\",\n"
                                " \"file_bytes\": 336,\n"
                                " \"device\": 1,\n"
                                " \"devices\": [1],\n"
                                " \"truncation\": null,\n"
                                " \"events\": 10,\n"
                                " \"duration_ns\": 500000000,\n"
                                " \"has_times\": true,\n"
                                " \"has_addresses\": true,\n"
                                " \"has_segments\": true,\n"
                                " \"allocations\": 2,\n"
                                " \"distinct_sizes\": 2,\n"
                                " \"smallest_bytes\": 512,\n"
                                " \"largest_bytes\": 2097152,\n"
                                " \"start_blocks\": 1,\n"
                                " \"start_bytes\": 1048576,\n"
                                " \"start_segments\": 1,\n"
                                " \"start_reserved_bytes\": 2097152,\n"
                                " \"end_blocks\": 2,\n"
                                " \"end_bytes\": 3145728,\n"
                                " \"peak_requested_bytes\": 3146240,\n"
                                " \"peak_reserved_bytes\": 23068672,\n"
                                " \"segment_events\": 1,\n"
                                " \"uses\": 1,\n"
                                " \"out_of_memory\": 1,\n"
                                " \"marks\": 0,\n"
                                " \"phases\": 1,\n"
                                " \"waits\": 0,\n"
                                " \"captures\": 0,\n"
                                " \"cache_emptied\": 0,\n"
                                " \"context_changes\": 2,\n"
                                " \"missing_events\": 0,\n"
                                " \"unknown_frees\": 0,\n"
                                " \"lost_frees\": 0,\n"
                                " \"stacks\": 0,\n"
                                " \"frames\": 0,\n"
                                " \"records_with_stacks\": 0,\n"
                                " \"streams\": [0, 7],\n"
                                " \"settings\": [\"max_split_size 1\"],\n"
                                " \"header\": [\"origin a test\"]}\n";

static size_t read_bytes(const char *name, char *bytes, size_t room)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t count = fread(bytes, 1, room, file);
    assert_int_equal(fclose(file), 0);
    return count;
}

static bool has_file(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* `fallow trace ARGUMENTS` in the folder; returns the exit code. */
static int run(const char *arguments)
{
    char line[LINE_BYTES + sizeof "fallow trace "];
    int length = snprintf(line, sizeof line, "fallow trace %s", arguments);
    assert_true(length > 0 && (size_t)length < sizeof line);
    return command_run(line);
}

static void expect_success(const char *arguments)
{
    if (run(arguments) != 0) {
        fail_msg("trace %s: %s", arguments, error_text);
    }
    assert_string_equal(error_text, "");
}

static void expect_error(const char *arguments, int code, const char *what)
{
    char line[LINE_BYTES];
    snprintf(line, sizeof line, "fallow trace %s", arguments);
    command_expect_error(line, code, what);
}

/* ---- output ---- */

TEST(every_verb_has_help_with_an_example)
{
    static const char *const verbs[] = {"info", "dump", "pack", "import", "export", "verify"};
    char line[64];
    expect_success("--help");
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        snprintf(line, sizeof line, "  %s ", verbs[i]);
        expect_success("--help");
        assert_non_null(strstr(out_text, line));
        snprintf(line, sizeof line, "%s --help", verbs[i]);
        expect_success(line);
        snprintf(line, sizeof line, "example: fallow trace %s ", verbs[i]);
        assert_non_null(strstr(out_text, line));
    }
}

TEST(info_is_as_written_here)
{
    command_write("tiny.ftext", tiny_trace, strlen(tiny_trace));
    expect_success("info tiny.ftext");
    assert_string_equal(out_text, tiny_info);
    expect_success("pack tiny.ftext -o tiny.ftrace");
    expect_success("info tiny.ftrace");
    assert_non_null(strstr(out_text, "tiny.ftrace: ftrace, device 1\n"));
    assert_string_equal(strstr(out_text, "  events"), strstr(tiny_info, "  events"));
}

/* The keys of an object, a line each. */
static void take_keys(const char *json, char *keys, size_t room)
{
    size_t count = 0;
    for (const char *at = strchr(json, '"'); at != NULL; at = strstr(at, "\n \"")) {
        at += *at == '"' ? 1 : 3;
        size_t bytes = strcspn(at, "\"");
        assert_true(count + bytes + 2 < room);
        memcpy(keys + count, at, bytes);
        count += bytes;
        keys[count++] = '\n';
    }
    keys[count] = '\0';
}

TEST(info_as_json_is_as_written_here)
{
    char keys[2048], others[2048];
    command_write("tiny.ftext", tiny_trace, strlen(tiny_trace));
    expect_success("info tiny.ftext --json");
    assert_string_equal(out_text, tiny_json);
    expect_success("info --json tiny.ftext");
    assert_string_equal(out_text, tiny_json);
    take_keys(out_text, keys, sizeof keys);
    expect_success("info --help");
    for (const char *key = keys; *key != '\0'; key = strchr(key, '\n') + 1) {
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)strcspn(key, "\n"), key);
        if (strstr(out_text, word) == NULL) {
            fail_msg("the help does not name %s", word);
        }
    }
    command_write("lines", "#fallow-trace 1\ndevice 0\nstream 0\nfields none\nA 0 0 4096 0\n", 59);
    expect_success("info lines --json");
    assert_non_null(strstr(out_text, "\"duration_ns\": null,\n"));
    assert_non_null(strstr(out_text, "\"peak_reserved_bytes\": null,\n"));
    take_keys(out_text, others, sizeof others);
    assert_string_equal(others, keys);
}

TEST(a_header_cannot_break_the_json)
{
    static const char trace[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields none\n"
                                "x recorded_devices 7\nrecorded_devices 1],\"a\":[\"\n"
                                "D 0 18446744073709551615\nD 0 9\n";
    command_write("odd.ftext", trace, strlen(trace));
    expect_success("info odd.ftext --json");
    assert_non_null(strstr(out_text, "\"devices\": [0],\n"));
    assert_non_null(strstr(out_text, "\"missing_events\": 18446744073709551615,\n"));
    assert_non_null(strstr(out_text, "\"header\": [\"x recorded_devices 7\", "
                                     "\"recorded_devices 1],\\\"a\\\":[\\\"\"]}\n"));
}

TEST(text_packed_and_dumped_is_the_same_text)
{
    command_write("tiny.ftext", tiny_trace, strlen(tiny_trace));
    expect_success("pack tiny.ftext -o tiny.ftrace");
    assert_string_equal(out_text, "");
    expect_success("dump tiny.ftrace");
    assert_string_equal(out_text, tiny_trace);
    expect_success("dump tiny.ftrace -o again.ftext");
    command_read("again.ftext", out_text);
    assert_string_equal(out_text, tiny_trace);
    expect_success("dump - <tiny.ftrace");
    assert_string_equal(out_text, tiny_trace);
    expect_success("verify tiny.ftrace tiny.ftext");
    assert_string_equal(out_text, "tiny.ftrace: whole, ftrace, 10 events, 2 allocations\n"
                                  "tiny.ftext: whole, text, 10 events, 2 allocations\n");
}

/* The checksums are of files written before stacks were supported. */
TEST(what_has_no_stacks_is_written_as_ever)
{
    command_write("tiny.ftext", tiny_trace, strlen(tiny_trace));
    expect_success("pack tiny.ftext -o tiny.ftrace");
    command_expect_text("cksum <tiny.ftrace", "3117083093 540\n");
    expect_success("export tiny.ftext --to pytorch -o tiny.pickle");
    command_expect_text("cksum <tiny.pickle", "640121169 845\n");
}

TEST(stacks_are_counted_and_come_back)
{
    static const char trace[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields none\n"
                                "L 7 \"step\" \"a.py\"\nL 9 \"main\" \"a.py\"\nW 0 1\n"
                                "A 0 0 8 0 stack=1\nA 0 1 8 0\nW 1\nF 0 0 0 stack=2\n"
                                "F 0 1 0 stack=1\n";
    command_write("stacks.ftext", trace, strlen(trace));
    expect_success("info stacks.ftext");
    assert_non_null(strstr(out_text, "  stacks           2 of 2 frames, on 3 records\n"));
    expect_success("info stacks.ftext --json");
    assert_non_null(
        strstr(out_text, " \"stacks\": 2,\n \"frames\": 2,\n \"records_with_stacks\": 3,\n"));
    expect_success("pack stacks.ftext -o stacks.ftrace");
    expect_success("verify stacks.ftrace");
    expect_success("dump stacks.ftrace");
    assert_string_equal(out_text, trace);
}

TEST(what_generators_make_comes_back_the_same)
{
    static const char *const generators[] = {"adversarial sawtooth", "adversarial comb-free",
                                             "random multi-stream --count 500", "train"};
    char line[LINE_BYTES];
    for (size_t i = 0; i < sizeof generators / sizeof *generators; i++) {
        snprintf(line, sizeof line,
                 "fallow gen %s -o a 2>log && fallow trace pack a -o b && "
                 "fallow trace dump b | cmp - a && "
                 "fallow replay a --policy bound >c && fallow replay b --policy bound >d && "
                 "sed 1d c >e && sed 1d d | cmp - e",
                 generators[i]);
        command_expect_text(line, "");
    }
}

TEST(info_names_the_devices_of_a_recording)
{
    static const char log[] =
        "{\"traceEvents\":["
        "{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":1,\"ts\":1,\"args\":"
        "{\"Device Type\":1,\"Device Id\":0,\"Addr\":512,\"Bytes\":512,\"Total Allocated\":512}},"
        "{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":1,\"ts\":2,\"args\":"
        "{\"Device Type\":1,\"Device Id\":2,\"Addr\":512,\"Bytes\":1024,\"Total Allocated\":1024}}]}";
    command_write("two.json", log, strlen(log));
    expect_success("info two.json");
    assert_non_null(strstr(out_text, "two.json: kineto json, device 0\n"));
    assert_non_null(strstr(out_text, "  devices          0 2; --trace-device chooses\n"));
    expect_success("info two.json --json");
    assert_non_null(strstr(out_text, "\"devices\": [0, 2],\n"));
    expect_success("info two.json --trace-device 2");
    assert_non_null(strstr(out_text, ", 1 size from 1 KiB to 1 KiB\n"));
}

TEST(import_says_what_it_read)
{
    static const char log[] = "Thread,Time,Action,Pointer,Size,Stream\n"
                              "1,00:00:01.000000,allocate,0x100,64,0\n"
                              "1,00:00:01.000010,allocate,0x200,64,0x7\n"
                              "1,00:00:01.000020,free,0x100,64,0\n"
                              "1,00:00:01.000030,free,0x900,64,0\n";
    command_write("rmm.csv", log, strlen(log));
    expect_success("import rmm.csv -o rmm.ftrace");
    assert_non_null(strstr(out_text, "rmm.ftrace: rmm csv, 4 events, 2 allocations, 1 block at "
                                     "the start; "));
    expect_success("dump rmm.ftrace");
    assert_non_null(strstr(out_text, "\nP 0 0 64 0 @2304\n"));
    assert_non_null(strstr(out_text, "\nF 20000 1 0\n"));
}

TEST(every_form_that_is_exported_is_read_again)
{
    static const char *const forms[][2] = {{"text", "text"},
                                           {"chrome", "kineto json"},
                                           {"rmm", "rmm csv"},
                                           {"pytorch", "pytorch pickle"},
                                           {"ftrace", "ftrace"}};
    char line[256];
    command_write("tiny.ftext", tiny_trace, strlen(tiny_trace));
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        snprintf(line, sizeof line, "export tiny.ftext --to %s -o exported", forms[i][0]);
        expect_success(line);
        expect_success("info exported");
        snprintf(line, sizeof line, "exported: %s, device", forms[i][1]);
        assert_non_null(strstr(out_text, line));
        /* the same through standard output */
        snprintf(line, sizeof line, "export tiny.ftext --to %s", forms[i][0]);
        expect_success(line);
        snprintf(line, sizeof line, "cmp -s '%s/out' '%s/exported'", folder, folder);
        assert_int_equal(system(line), 0);
    }
}

/* ---- errors ---- */

TEST(a_wrong_command_line_is_told_in_one_line)
{
    expect_error("", 2, "trace needs a verb");
    expect_error("look x", 2, "trace has no verb 'look'");
    expect_error("info", 2, "trace info needs a file");
    expect_error("info a b", 2, "trace info needs one file, not several");
    expect_error("pack a", 2, "trace pack needs -o FILE");
    expect_error("import a", 2, "trace import needs -o FILE");
    expect_error("dump a --json", 2, "trace dump has no option '--json'");
    expect_error("info a -o b", 2, "trace info has no option '-o'");
    expect_error("dump a -o", 2, "-o needs a value");
    expect_error("export tiny.ftext", 2, "export needs --to text");
    expect_error("export tiny.ftext --to vcd", 2, "export needs --to text");
    expect_error("info a --trace-device x", 2, "--trace-device 'x' is not");
}

TEST(what_is_no_trace_is_told_in_one_line)
{
    command_write("empty", "", 0);
    command_write("words", "hello\n", 6);
    expect_error("info nothing", 1, "nothing: cannot open");
    expect_error("info empty", 1, "empty: byte 0: the file is empty");
    expect_error("info words", 1, "words: byte 0: neither");
    expect_error("info .", 1, ".: is a directory");
    expect_error("verify empty", 1, "empty: byte 0: the file is empty");
    expect_error("info tiny.ftext --trace-device 0", 1, "has no device 0, only 1");
    expect_error("pack words -o out.ftrace", 1, "words: byte 0: neither");
    assert_false(has_file("out.ftrace"));
    expect_error("pack tiny.ftext -o nowhere/out.ftrace", 1, "nowhere/out.ftrace: cannot");
}

TEST(a_cut_file_is_read_up_to_there_and_not_verified)
{
    static char bytes[4096];
    command_write("tiny.ftext", tiny_trace, strlen(tiny_trace));
    expect_success("pack tiny.ftext -o tiny.ftrace");
    size_t count = read_bytes("tiny.ftrace", bytes, sizeof bytes);
    command_write("cut.ftrace", bytes, count - CHUNK_BYTES); /* inside the end chunk */
    expect_error("verify cut.ftrace", 1, "cut.ftrace: truncated after event 10: byte ");
    command_expect("fallow trace dump cut.ftrace -o cut.ftext");
    command_expect_one_line("cut.ftrace: truncated after event 10: byte ");
    command_read("cut.ftext", out_text);
    assert_non_null(strstr(out_text, "\ntruncated_after_event 10\n"));
    assert_non_null(strstr(out_text, "E 500000000 \"step\"\n"));
    bytes[count / 2] ^= 1;
    command_write("bad.ftrace", bytes, count);
    assert_int_equal(run("verify bad.ftrace tiny.ftrace"), 1);
    command_expect_one_line("bad.ftrace: truncated after event 0: byte ");
    assert_string_equal(out_text, "tiny.ftrace: whole, ftrace, 10 events, 2 allocations\n");
    command_expect("fallow trace info bad.ftrace --damaged");
    command_expect_one_line("bad.ftrace: damaged after event 0: byte ");
}

/* Two events were recorded, a free in between was not; three more are missing after the second. */
TEST(a_file_that_lacks_events_is_told_from_a_whole_and_a_broken_one)
{
    static const char lacking[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields times\ngaps 0 1\n"
                                  "A 1000 0 512 0\nD 2000 1\nF 3000 0 0\nA 3000 1 512 0\n"
                                  "D 4000 3\n";
    command_write("lacking.ftext", lacking, strlen(lacking));
    command_write("tiny.ftext", tiny_trace, strlen(tiny_trace));
    command_write("empty", "", 0);
    expect_success("pack lacking.ftext -o lacking.ftrace");
    expect_error("verify lacking.ftrace", 3,
                 "lacking.ftrace: 4 of 6 events (66.7 %) are missing: the file is whole");
    assert_non_null(strstr(error_text, "FALLOW_RECORD_BLOCK_WHEN_FULL"));
    assert_string_equal(out_text, "");
    assert_int_equal(run("verify lacking.ftext tiny.ftext"), 3);
    assert_string_equal(out_text, "tiny.ftext: whole, text, 10 events, 2 allocations\n");
    assert_int_equal(run("verify tiny.ftext lacking.ftext"), 3);
    assert_int_equal(run("verify lacking.ftext empty"), 1);
    assert_int_equal(run("verify empty lacking.ftext"), 1);
}

/* Long enough to fill a pipe. */
static void write_big_trace(void)
{
    char path[256];
    snprintf(path, sizeof path, "%s/big.ftext", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("#fallow-trace 1\ndevice 0\nstream 0\nfields times\n", file);
    for (int i = 0; i < BIG_EVENTS; i++) {
        fprintf(file, "A %d %d %d 0\n", i, i, 512 * i);
    }
    assert_int_equal(fclose(file), 0);
}

TEST(a_full_disk_and_a_closed_pipe_are_told_in_one_line)
{
    static const char *const commands[] = {"dump big.ftext", "pack big.ftext -o -",
                                           "export big.ftext --to chrome",
                                           "export big.ftext --to pytorch", "info big.ftext"};
    size_t count = sizeof commands / sizeof *commands;
    char line[LINE_BYTES];
    write_big_trace();
    for (size_t i = 0; access("/dev/full", W_OK) == 0 && i < count; i++) {
        snprintf(line, sizeof line, "%s >/dev/full", commands[i]);
        assert_int_equal(run(line), 1);
        command_expect_one_line("standard output");
    }
    for (size_t i = 0; i + 1 < count; i++) { /* info fits a pipe that is closed only later */
        snprintf(line, sizeof line, "{ fallow trace %s; echo $? >code; } | true; cat code",
                 commands[i]);
        command_expect(line);
        command_expect_one_line("standard output: cannot write: Broken pipe");
        assert_string_equal(out_text, "1\n");
    }
    if (access("/dev/full", W_OK) == 0) {
        expect_error("pack big.ftext -o /dev/full", 1, "/dev/full: cannot write");
    }
}

TEST(a_file_that_may_not_grow_is_told_and_not_left_behind)
{
    write_big_trace();
    command_expect("mkdir limited && (ulimit -f 16; fallow trace pack big.ftext -o "
                   "limited/big.ftrace); echo $?; ls -A limited");
    command_expect_one_line("limited/big.ftrace: cannot write: File too large");
    assert_string_equal(out_text, "1\n");
}

FLW_TEST_MAIN(command_make_folder, command_remove_folder)
