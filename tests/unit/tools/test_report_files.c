/* SPDX-License-Identifier: Apache-2.0
 *
 * `fallow report` and the files around it: which device of one is read, nothing that a run reads
 * is lost by what it writes, and unwritable files are reported before a replay. FALLOW_COMMAND
 * names the program. */
#include "support/test.h"

#include "support/test_command.h"

static int make_traces(void **state)
{
    if (command_make_folder(state) != 0) {
        return -1;
    }
    command_write("tiny.ftext", command_trace, sizeof command_trace - 1);
    return command_run(
        "fallow report tiny.ftext --no-times --policy driver,bound --json then.json >screen && "
        "sed 's/\"peak_reserved_bytes\": 10485760/\"peak_reserved_bytes\": 8388608/' "
        "then.json >less.json");
}

/* ---- a baseline ---- */

TEST(a_baseline_that_is_replaced_is_held_to_as_it_was)
{
    assert_int_equal(command_run("cp less.json kept.json; ln -s kept.json link.json; "
                                 "fallow report tiny.ftext --no-times --policy driver "
                                 "--baseline kept.json --json ./link.json >screen"),
                     1);
    flw_test_expect_in(error_text, "policy driver has peak_reserved_bytes of 10485760, above the "
                                   "baseline's 8388608 (+25.00 %)\n"
                                   "fallow: ./link.json: the baseline was not replaced\n");
    command_expect("cmp kept.json less.json && test -L link.json");
    /* One that is held to is replaced; another file is written in any case. */
    command_expect("cp then.json kept.json; "
                   "fallow report tiny.ftext --no-times --policy bound "
                   "--baseline kept.json --json kept.json >screen && "
                   "! grep -q '\"name\": \"driver\"' kept.json");
    assert_int_equal(command_run("fallow report tiny.ftext --policy driver --baseline less.json "
                                 "--json now.json >screen"),
                     1);
    command_expect("grep -q 10485760 now.json");
}

/* Reported before the trace is read: the missing trace is not mentioned. */
TEST(a_baseline_that_is_not_there_is_said_first)
{
    command_expect_error("fallow report no.ftext --baseline no.json", 1, "no.json");
}

/* ---- existing files ---- */

TEST(a_trace_is_not_replaced_by_what_is_written_of_it)
{
    static const char *const lines[] = {
        "report one.ftext --html one.ftext",
        "report one.ftext --csv ./one.ftext",
        "report then.json one.ftext --json link.ftext",
        "report one.ftext --chrome \"$PWD/one.ftext\"",
        "report one.ftext --csv-owners hard.ftext",
        "report - --folded one.ftext <one.ftext",
        "trace pack one.ftext -o one.ftext",
        "trace import one.ftext -o link.ftext",
        "trace export one.ftext --to rmm -o one.ftext",
        "replay one.ftext --json one.ftext",
        "replay - --json link.ftext <one.ftext",
    };
    command_expect("cp tiny.ftext one.ftext && ln -s one.ftext link.ftext && "
                   "ln one.ftext hard.ftext");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        command_expect_error(command_line("fallow %s", lines[i]), 2,
                             ".ftext is the trace itself; name another file");
    }
    command_expect("cmp one.ftext tiny.ftext");
    /* The traces of a folder are found by reading the files; an earlier run's output there is no trace. */
    assert_int_equal(
        command_run(
            "mkdir two && cp tiny.ftext two/a.ftext && cp tiny.ftext two/b.ftext && "
            "fallow report two --policy bound --json two/out.json --html two/b.ftext >screen"),
        2);
    command_expect_one_line("--html two/b.ftext is the trace itself; name another file");
    command_expect("cmp two/b.ftext tiny.ftext && test ! -e two/out.json");
    for (int again = 0; again < 2; again++) {
        command_expect("fallow report two --policy bound --json two/out.json >screen");
        assert_string_equal(error_text, "");
    }
}

TEST(records_are_not_replaced_by_what_is_written_of_them)
{
    command_expect("fallow report tiny.ftext --json-lines >r.jsonl; cp r.jsonl r");
    command_expect_error("fallow report merge r.jsonl --json ./r.jsonl", 2,
                         "--json ./r.jsonl is a file of records; name another file");
    command_expect("cmp r r.jsonl");
}

TEST(two_outputs_are_two_files)
{
    command_expect_error("fallow report tiny.ftext --html new --json ./new", 2,
                         "--html new is the file of --json; name another file");
    command_expect_error("fallow report tiny.ftext --baseline then.json --csv then.json", 2,
                         "--csv then.json is the baseline; name another file");
    command_expect("test ! -e new");
    command_expect("fallow report tiny.ftext --policy bound --json /dev/null "
                   "--html /dev/null >screen");
}

/* ---- pipes as input ---- */

/* Each line prints the same as the two files, except the name of a trace without a name. */
TEST(a_side_of_diff_may_be_a_pipe)
{
    static const char *const lines[] = {
        "cat tiny.ftext | fallow report diff - then.json",
        "cat then.json | fallow report diff tiny.ftext -",
        "cat then.json >fifo & cat tiny.ftext | fallow report diff /dev/fd/5 fifo 5<&0",
        "fallow report diff - then.json <tiny.ftext",
    };
    command_expect_text("mkfifo fifo; fallow report diff tiny.ftext then.json",
                        "only in the second: tiny.ftext driver\nno number differs\n");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        command_expect(lines[i]);
        assert_string_equal(error_text, "");
        flw_test_expect_in(out_text, " driver\nno number differs\n");
    }
    command_expect_error("echo no | fallow report diff - then.json", 1,
                         "/dev/stdin: byte 0: neither");
    command_expect_error("head -c 300 then.json | fallow report diff - then.json", 1,
                         "/dev/stdin: ");
}

/* ---- input ---- */

TEST(which_device_of_several_is_read_is_told)
{
    static const char log[] =
        "{\"traceEvents\":["
        "{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":1,\"ts\":1,\"args\":"
        "{\"Device Type\":1,\"Device Id\":0,\"Addr\":512,\"Bytes\":512,\"Total Allocated\":512}},"
        "{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":1,\"ts\":2,\"args\":"
        "{\"Device Type\":1,\"Device Id\":2,\"Addr\":512,\"Bytes\":1024,\"Total Allocated\":1024}}]}";
    static const char told[] = "device 2 of 0 2; --trace-device chooses";
    command_write("two.json", log, strlen(log));
    command_expect("fallow report two.json --trace-device 2 --html two.html", told);
    command_expect("cat two.html", told);
    command_expect("fallow report two.json --json -", "\"recorded_device\": 0,");
    command_expect("cp two.json again.json; fallow report two.json again.json "
                   "--trace-device 2 --json -",
                   "\"recorded_device\": 2,");
    assert_null(strstr(out_text, "\"recorded_device\": 0,"));
    command_expect("fallow report two.json tiny.ftext",
                   "\ntwo.json\ndevice 0 of 0 2; --trace-device chooses\n");
    command_expect("fallow report tiny.ftext");
    assert_null(strstr(out_text, "--trace-device"));
}

/* Functions with long names that differ only in the last letter are separate owners. */
TEST(long_names_are_told_apart)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    fputs("#fallow-trace 1\ndevice 0\nstream 0\nfields none\n", file);
    for (int i = 0; i < 2; i++) {
        fprintf(file, "L 0 \"%07900d%c\" \"/a.cpp\"\nW %d\nA 0 %d %d 0 stack=%d\n", 0, 'a' + i, i,
                i, 1024 << i, i + 1);
    }
    assert_int_equal(fclose(file), 0);
    command_write("long.ftext", text, bytes);
    free(text);
    command_expect("fallow report long.ftext --no-times --policy bound --owner a.cpp "
                   "--csv-owners - | cut -d, -f 2-",
                   "\n1024,1,,,1024,1,1024,1,1024,1\n2048,1,,,2048,1,2048,1,2048,1\n");
}

/* The C library is built with relative paths, and so are many programs. */
TEST(a_relative_path_may_be_the_programs)
{
    static const char text[] =
        "#fallow-trace 1\ndevice 0\nstream 0\nfields none\nrecorder fallow 0.2\n"
        "L 0 \"clone3\" \"./misc/../sysdeps/unix/clone3.S\"\n"
        "L 0 \"call_init\" \"./csu/../csu/libc-start.c\"\n"
        "L 7 \"load\" \"../src/main.cpp\"\nW 0 1 2\nA 0 0 1024 0 stack=1\n";
    command_write("relative.ftext", text, sizeof text - 1);
    command_expect("fallow report relative.ftext --no-times --policy bound --csv-owners -",
                   "\n\"load (../src/main.cpp:7)\",1024,1,");
}

/* Terminals obey control characters: of one byte, and of two in UTF-8. */
TEST(names_move_no_terminal)
{
    static const char *const lines[] = {
        "fallow report \"$n.ftext\" --policy bound",
        "fallow report \"$n.ftext\" tiny.ftext --policy bound",
        "fallow report tiny.ftext --policy \"$n\"",
        "fallow report \"$n\"",
        "fallow \"$n\"",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        (void)command_run(command_line(
            "n=$(printf 'a\\033[31m\\302\\233b'); cp tiny.ftext \"$n.ftext\"; { %s; } 2>&1",
            lines[i]));
        flw_test_expect_in(out_text, "a?[31m");
        assert_null(strchr(out_text, '\033'));
        assert_null(strstr(out_text, "\302\233"));
    }
    command_expect("rm a*b.ftext");
}

/* The page's blocks name their owners by line, so an owner without letters would shift all later ones. */
TEST(an_owner_without_a_name_is_a_line_of_the_page)
{
    static const char trace[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields none\n"
                                "L 5 \"f\" \"dir/\"\nW 0\nA 0 0 4194304 0 stack=1\n"
                                "L 6 \"\" \"??\"\nW 1\nA 0 1 2097152 0 stack=2\n"
                                "L 7 \"g\" \"b.py\"\nW 2\nA 0 2 1048576 0 stack=3\n";
    command_write("nameless.ftext", trace, sizeof trace - 1);
    command_expect_text("fallow report nameless.ftext --no-times --policy fallow "
                        "--by file --owner . --html - | "
                        "grep -ao '\"owners\":\\[\"[^]]*'",
                        "\"owners\":[\"code that is not known\",\"?\",\"?\",\"b.py\"\n");
    command_expect("fallow report nameless.ftext --no-times --policy bound "
                   "--by file --owner . --csv-owners -",
                   "\n\"dir/\",4194304,1,,,", "\n\"?\",2097152,1,,,");
}

/* A spreadsheet must not evaluate a recorded function or file name as a formula. */
TEST(no_cell_of_a_table_is_a_formula)
{
    static const char *const starts[] = {"=", "+", "-", "@", "\\t", "\\x0d"};
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    fputs("#fallow-trace 1\ndevice 0\nstream 0\nfields none\n", file);
    for (int i = 0; i < 6; i++) {
        fprintf(file, "L 0 \"f\" \"%s1+1.py\"\nW %d\nA 0 %d 1024 0 stack=%d\n", starts[i], i, i,
                i + 1);
    }
    assert_int_equal(fclose(file), 0);
    command_write("formula.ftext", text, bytes);
    free(text);
    command_expect_text("fallow report formula.ftext --no-times --policy bound --by file "
                        "--owner 1 --csv-owners - | grep -c \"^.'\"",
                        "6\n");
}

/* Strict readers reject half of a surrogate pair, which represents such a byte where this program reads the text
 * again. */
TEST(what_others_read_is_utf8)
{
    static const char trace[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields times\n"
                                "B 0 \"caf\303\251\377\"\nA 1 0 8 0\nE 2 \"caf\303\251\377\"\n"
                                "N 3 \"n\377\"\n";
    static const char *const lines[] = {
        "fallow report odd.ftext --policy bound --no-times --chrome -",
        "fallow trace export odd.ftext --to chrome",
    };
    command_write("odd.ftext", trace, sizeof trace - 1);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        command_expect(lines[i], "\"caf\303\251?\"");
        assert_null(strstr(out_text, "\\ud"));
    }
}

TEST(figures_are_told_as_they_are)
{
    command_expect("fallow report tiny.ftext --policy bound --limit 1 --lag 1",
                   ", limit 1 B, kernels 1 event late)\n");
    command_expect_error("fallow report tiny.ftext --limit 4611686018427387905", 2,
                         "--limit '4611686018427387905' is above 4096 PiB");
    command_expect("fallow report tiny.ftext --policy bound --limit 4611686018427387904",
                   ", limit 4 EiB, ");
}

TEST(one_is_not_several)
{
    static const char *const lines[][2] = {
        {"trace verify one.ftext", ": whole, text, 1 event, 1 allocation\n"},
        {"replay --policy driver --lag 1 --limit 2M one.ftext",
         ": 1 event, 1 allocation, 1 stream\ndevice  simulated device, 80 GiB, limit 2 MiB, "
         "kernels 1 event late, rule checker on\n"},
        {"report --policy bound one.ftext", "\n1 event, 1 block, 1 stream\n"},
    };
    static const char trace[] =
        "#fallow-trace 1\ndevice 0\nstream 0\nfields none\nA 0 0 524288 0\n";
    command_write("one.ftext", trace, sizeof trace - 1);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        command_expect(command_line("COLUMNS=200 fallow %s", lines[i][0]), lines[i][1]);
    }
}

TEST(what_would_have_no_effect_is_refused)
{
    command_expect_error("fallow report tiny.ftext --at peak", 2, "--at needs --folded");
    command_expect_error("fallow report tiny.ftext --policy bound,driver,bound", 2,
                         "--policy has 'bound' twice");
    command_expect_error("fallow replay tiny.ftext --policy pytorch:expandable_segments=1,async,"
                         "pytorch:expandable_segments=1",
                         2, "--policy has 'pytorch:expandable_segments=1' twice");
    command_expect("fallow report tiny.ftext --policy "
                   "pytorch:expandable_segments=1,pytorch");
}

/* ---- how files are written ---- */

static const char *const options[] = {"--html",       "--json",   "--csv",
                                      "--csv-owners", "--folded", "--chrome"};
#define OPTION_COUNT (sizeof options / sizeof *options)

TEST(an_output_is_packed_as_its_name_says)
{
    if (!FLW_HAS_ZLIB) {
        skip();
    }
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        command_expect(
            command_line("for n in plain packed.gz; do "
                         "fallow report tiny.ftext --no-times %s $n >/dev/null || exit 1; done && "
                         "test -s plain && gzip -dc packed.gz | cmp - plain",
                         options[i]));
    }
    command_expect("fallow report tiny.ftext --policy bound --no-times --json p.json.gz && "
                   "fallow report tiny.ftext --policy bound --no-times --baseline p.json.gz");
}

/* The target of a link is replaced, not the link; users without access still have none. */
TEST(a_replaced_file_keeps_its_place_and_its_readers)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        command_expect_text(
            command_line(
                "rm -f link there; echo old >there && chmod 600 there && ln -s there link && "
                "fallow report tiny.ftext %s link >/dev/null && stat -c %%a%%F link there && "
                "! grep -qx old there",
                options[i]),
            "777symbolic link\n600regular file\n");
    }
}

/* Standard output opened again would be written from the beginning, and a file would be replaced. */
TEST(standard_output_has_other_names)
{
    static const char *const names[] = {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
    static const char *const lines[] = {
        "report tiny.ftext --policy bound --no-times --json",
        "report tiny.ftext --policy bound --no-times --html",
        "report tiny.ftext --policy bound --no-times --csv",
        "replay tiny.ftext --policy bound --no-times --json",
        "trace export tiny.ftext --to text -o",
        "gen serve --requests req -o",
    };
    char line[512];
    command_expect("echo '{\"timestamp\": 0, \"input_length\": 60, "
                   "\"output_length\": 2}' >req");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            snprintf(
                line, sizeof line,
                "{ echo before; fallow %s -; } >plain && echo before >log && ln -f log same && "
                "fallow %s %s >>log && cmp plain log && cmp log same",
                lines[i], lines[i], names[n]);
            if (command_run(line) != 0) {
                fail_msg("%s %s: %s%s", lines[i], names[n], out_text, error_text);
            }
        }
    }
    command_expect_error("fallow report tiny.ftext --json - --csv /dev/stdout", 2,
                         "standard output");
}

/* They are open already, and may be anywhere in a file. */
TEST(a_descriptor_is_written_to)
{
    static const char *const names[] = {"/dev/fd/5", "/proc/self/fd/5", "/proc/thread-self/fd/5",
                                        "links/a"};
    char line[512];
    command_expect("mkdir links; ln -s b links/a; ln -s /proc/self/fd/5 links/b");
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            snprintf(line, sizeof line,
                     "rm -f plain; fallow report tiny.ftext --no-times %s plain >/dev/null && "
                     "echo before >log && ln -f log same && exec 5>>log && "
                     "fallow report tiny.ftext --no-times %s %s >/dev/null && echo after >&5 && "
                     "{ echo before; cat plain; echo after; } | cmp - same",
                     options[i], options[i], names[n]);
            if (command_run(line) != 0) {
                fail_msg("%s %s: %s%s", options[i], names[n], out_text, error_text);
            }
        }
    }
    command_expect_text("echo before >log && ln -f log same && "
                        "fallow report tiny.ftext --json /dev/stderr --policy bound "
                        "2>>log >/dev/null && head -1 same && cmp log same",
                        "before\n");
    command_expect_text("echo before >log; exec 5>>log; sleep 20 & fallow report tiny.ftext "
                        "--json /proc/$!/fd/5 --policy bound >/dev/null && kill $! && "
                        "head -1 same && cmp log same",
                        "before\n");
    command_expect_error("fallow report no.ftext --json /dev/fd/5 5<req", 1,
                         "/dev/fd/5: cannot write: Bad file descriptor");
    command_expect_error("fallow report no.ftext --json /dev/fd/77", 1,
                         "/dev/fd/77: cannot write: Bad file descriptor");
}

/* The file would get the number of standard output, and the table would be appended. */
TEST(nothing_is_printed_where_standard_output_was_closed)
{
    command_expect("fallow report tiny.ftext --no-times --policy bound --json a.json >/dev/null && "
                   "! fallow report tiny.ftext --no-times --policy bound --json b.json >&- && "
                   "cmp a.json b.json");
}

/* 20,001 blocks of 2^49 bytes: the stretches of addresses that blocks without a rectangle share are of 2^50 bytes and more. */
TEST(the_page_of_more_than_2_to_the_63_bytes_ends)
{
    command_expect(
        "{ printf '#fallow-trace 1\\ndevice 0\\nstream 0\\nfields times\\n'; "
        "seq 0 20000 | sed 's/.*/A & & 562949953421312 0/'; } >huge.ftext && timeout 120 "
        "fallow report huge.ftext --policy driver --html huge.html >/dev/null");
}

/* As for a single file of the host in a container. */
TEST(a_file_that_is_a_mount_is_filled)
{
    if (command_run("unshare -mr mount --bind req req") != 0) {
        skip(); /* nothing can be mounted here */
    }
    command_expect_text(
        "echo old >mine && echo old >theirs && export F && unshare -mr sh -c 'mount --bind theirs "
        "mine && fallow report tiny.ftext --policy bound --no-times --json mine "
        ">/dev/null' && fallow report tiny.ftext --policy bound --no-times --json "
        "plain >/dev/null && cmp plain theirs && cat mine && ls mine*",
        "old\nmine\n");
    if (sysconf(_SC_PAGESIZE) != 4096) {
        return; /* the file system below would not be full */
    }
    command_expect_error(
        "export F; unshare -mr sh -c 'mkdir -p small && mount -t tmpfs -o size=8k none small && "
        "echo old >small/it && head -c 3000 /dev/zero >small/rest && mount --bind small/it mine && "
        "fallow report tiny.ftext --policy bound --no-times --json mine'",
        1, "mine: cannot write: No space left on device; all of it is in ");
    command_expect("cmp plain mine.*");
}

/* ---- output that cannot be written ---- */

/* Reported before the trace is read: the missing trace is not mentioned. */
TEST(what_cannot_be_written_is_said_first)
{
    char line[256], what[64];
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        command_expect_error(command_line("fallow report no.ftext %s nowhere/x", options[i]), 1,
                             "nowhere/x: cannot create a file there: No such file");
        command_expect_error(command_line("fallow report no.ftext %s .", options[i]), 1,
                             ".: cannot write: Is a directory");
        snprintf(line, sizeof line, "fallow report no.ftext %s ''", options[i]);
        snprintf(what, sizeof what, "%s '' is empty; give it a value", options[i]);
        command_expect_error(line, 2, what);
    }
    command_expect_error("fallow report merge no.jsonl --json nowhere/x", 1,
                         "nowhere/x: cannot create a file there: No such file");
}

/* ---- requirements of a replay ---- */

/* A command that was built or copied without the simulated driver. */
TEST(no_driver_is_loaded_before_there_is_something_to_replay)
{
    if (command_run("head -c 2 \"$F\" | grep -q '#!'") == 0) {
        skip(); /* an emulator's script: a copy runs the command in the folder of the build */
    }
    command_expect("mkdir alone && cp \"$F\" alone/fallow && "
                   ": >alone/libfallow-simcuda.so");
#define ALONE "LD_LIBRARY_PATH=\"$PWD/alone\" alone/fallow "
    command_expect_error(ALONE "report tiny.ftext", 1, "cannot load the simulated driver");
    command_expect_error(ALONE "report no.ftext", 1, "no.ftext: cannot open: No such file");
    command_expect(ALONE "report tiny.ftext --json-lines");
    assert_string_equal(error_text, "");
    flw_test_expect_in(out_text, "{\"fallow_rank\":");
}

/* Four segments of 100 MiB, each with 60 MiB that stay and 40 MiB free. Then a request of 120 MiB, with 10 MiB free on
 * the device: an allocator that cannot join free memory of different segments fails. */
static const char split_trace[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields addresses segments\n"
                                  "S+ 0 104857600 0 @4294967296\nA 0 0 104857600 0 @4294967296\n"
                                  "S+ 0 104857600 0 @4563402752\nA 0 1 104857600 0 @4563402752\n"
                                  "S+ 0 104857600 0 @4831838208\nA 0 2 104857600 0 @4831838208\n"
                                  "S+ 0 104857600 0 @5100273664\nA 0 3 104857600 0 @5100273664\n"
                                  "F 0 0 0\nF 0 1 0\nF 0 2 0\nF 0 3 0\n"
                                  "A 0 4 62914560 0 @4294967296\nA 0 5 62914560 0 @4563402752\n"
                                  "A 0 6 62914560 0 @4831838208\nA 0 7 62914560 0 @5100273664\n";

/* The trace with the last line, as text and as PyTorch's snapshot: split.ftext, split.pickle. */
static void write_split(const char *last_line)
{
    char text[2048];
    int length = snprintf(text, sizeof text, "%s%s\n", split_trace, last_line);
    command_write("split.ftext", text, (size_t)length);
    command_expect("fallow trace export split.ftext --to pytorch -o split.pickle");
}

/* The only answer of that policy, in JSON. */
static void expect_answer(const char *name, const char *outcome, const char *smallest_limit)
{
    char answer[256];
    snprintf(answer, sizeof answer,
             "{\"name\": \"%s\", \"outcome\": \"%s\", \"smallest_limit_bytes\": %s}", name, outcome,
             smallest_limit);
    flw_test_expect_in(out_text, answer);
}

TEST(the_request_that_failed_is_asked_of_every_policy)
{
    write_split("O 0 125829120 0 free=10485760");
    command_expect("fallow report split.pickle --no-times --json -",
                   "\"limit_bytes\": 429916160, \"limit_given\": false");
    expect_answer("pytorch-expandable", "served", "421527552");
    expect_answer("driver", "served", "421527552");
    expect_answer("pytorch", "refused", "545259520"); /* 400 MiB and 120 more */
    /* Figures of the whole program exclude that request. */
    flw_test_expect_in(out_text,
                       "{\"name\": \"pytorch\", \"label\": \"pytorch\", \"allocates\": true, "
                       "\"peak_requested_bytes\": 419430400");
    command_expect(
        "fallow report split.ftext --no-times --html split.html >screen && "
        "grep -c '\"name\":\"pytorch\",\"outcome\":\"refused\",\"smallest_limit_bytes\":545259520' "
        "split.html && tr -s ' \\n' ' ' <screen",
        "with 410 MiB (the memory reserved or free then) policy",
        " pytorch fails 520 MiB pytorch-expandable is served 402 MiB ");
    /* --limit replaces the memory of the recording. */
    command_expect("fallow report split.pickle --no-times --policy pytorch --limit 520M "
                   "--json -",
                   "\"limit_bytes\": 545259520, \"limit_given\": true");
    expect_answer("pytorch", "served", "545259520");
    assert_null(strstr(
        out_text, "max_split_size_mb")); /* for named policies no settings of PyTorch are added */
    /* If the free bytes are unknown, only the smallest limits are found. */
    write_split("O 0 125829120 0");
    command_expect("fallow report split.ftext --no-times --policy pytorch --json -",
                   "\"limit_bytes\": null, \"limit_given\": false");
    expect_answer("pytorch", "not asked", "545259520");
}

/* Runs the report, and looks for the advice in text and JSON. `type` NULL: none. */
static void expect_advice(const char *arguments, const char *text, const char *type)
{
    char member[512];
    command_expect(command_line("fallow report %s --no-times --json advice.json | tr -s ' \\n' ' '",
                                arguments),
                   text);
    snprintf(member, sizeof member, type == NULL ? "\"type\": null" : "\"type\": \"%s\"", type);
    command_expect("cat advice.json", member);
}

TEST(the_advice_is_what_the_replays_say)
{
    write_split("O 0 125829120 0 free=10485760");
    expect_advice("split.pickle",
                  "to serve the failed request with the 410 MiB there were, set "
                  "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; it fits from 402 MiB on",
                  "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    expect_advice(
        "split.pickle --policy fallow",
        "with the 410 MiB there were, use import fallow; fallow.enable_torch(); it fits from 402 MiB on "
        "(Fallow has not run on a GPU yet; it turns off PyTorch's memory snapshots, MemPool and graph trees)",
        "import fallow; fallow.enable_torch()");
    /* A comparison of Fallow with PyTorch always includes expandable segments. */
    expect_advice(
        "split.pickle --policy pytorch,fallow",
        "with the 410 MiB there were, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True;",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    expect_advice("split.ftext", "start it with fallow run -- PROGRAM;", "fallow run -- PROGRAM");
    expect_advice(
        "split.pickle --limit 600M",
        "nothing: PyTorch's own policy, replayed, serves the failed request within 600 MiB", NULL);
    write_split("O 0 629145600 0 free=10485760");
    expect_advice(
        "split.pickle",
        "no allocator setting would have avoided this: the program needs 840 MiB live and had 410 "
        "MiB; record with call stacks to see which lines hold it",
        NULL);
    write_split("O 0 629145600 0");
    expect_advice("split.pickle",
                  "the memory available then is unknown; the failed request needs at least",
                  "import fallow; fallow.enable_torch()");
    expect_advice("split.pickle --policy bound", "unknown: no replayed allocator serves the failed",
                  NULL);
    write_split("O 0 2097152 0 free=20971520");
    expect_advice("split.pickle",
                  "serves the failed request with the 420 MiB there were; look for other users",
                  NULL);
    /* Without an out-of-memory. */
    write_split("F 0 4 0");
    expect_advice(
        "split.pickle",
        "nothing: no replayed setting saves more than 0 B (0.0 %) of the 400 MiB reserved", NULL);
    expect_advice("split.pickle --policy bound",
                  "unknown: no replayed allocator can be chosen by a setting or", NULL);
    command_expect("fallow gen random --count 2000 -o random.ftext && "
                   "fallow trace export random.ftext --to rmm -o random.csv");
    command_write("empty.ftext", "#fallow-trace 1\ndevice 0\nstream 0\nfields none\n", 46);
    expect_advice("empty.ftext", "nothing: the trace allocates no memory", NULL);
    expect_advice("random.csv --policy async,fallow", "use import fallow; fallow.enable_rmm()",
                  "import fallow; fallow.enable_rmm()");
}

TEST(the_advice_of_the_demo_is_a_setting_or_another_allocator)
{
    if (getenv("FALLOW_DEMO") == NULL) {
        skip();
    }
    expect_advice(
        "\"$FALLOW_DEMO\"",
        "to save 1,724 MiB (11.2 %), set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    expect_advice(
        "\"$FALLOW_DEMO\" --policy pytorch,fallow-memory-first",
        "to save 1,724 MiB (11.2 %), set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    expect_advice(
        "\"$FALLOW_DEMO\" --policy pytorch,fallow-memory-first --limit 13420M",
        "to fit into 13,420 MiB, use import fallow; fallow.enable_torch(economy=\"memory_first\"); it "
        "holds 13,3",
        "import fallow; fallow.enable_torch(economy=\\\"memory_first\\\")");
    expect_advice(
        "\"$FALLOW_DEMO\" --limit 2G",
        "no setting that was replayed fits into 2,048 MiB; the program itself needs 13,321 MiB",
        NULL);
}

FLW_TEST_MAIN(make_traces, command_remove_folder)
