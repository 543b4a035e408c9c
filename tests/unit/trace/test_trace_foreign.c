/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of a profiler's trace, of the JSON under it, and of RMM's log: the traces that are read (as text),
 * and the errors of bad ones.
 */
#include "test_trace_bed.h"

/* ---- profiles ---- */

#define GOOD                                                                                     \
    "{\"name\":\"[memory]\",\"ts\":1,\"args\":{\"Device Type\":1,\"Device Id\":0,\"Addr\":4096," \
    "\"Bytes\":512,\"Total Allocated\":512,\"Total Reserved\":512}}"

/* The JSON of one line each, with bars between the fields, or of an event in JSON already. */
static char *make_profile(const char *text)
{
    static const struct {
        const char *word, *json;
    } kinds[] = {
        {"memory", /* time, device, address, bytes, allocated, reserved */
         "{'ph':'i','name':'[memory]','pid':1,'tid':2,'ts':$,'args':{'Ev Idx':7,'Device Type':1,"
         "'Device Id':$,'Addr':$,'Bytes':$,'Total Allocated':$,'Total Reserved':$}}"},
        {"op", /* name, time, duration */
         "{'ph':'X','cat':'cpu_op','name':'$','pid':1,'tid':2,'ts':$,'dur':$,'args':{}}"},
        {"old", /* name, time, duration, call stack */
         "{'ph':'X','cat':'Operator','name':'$','pid':1,'tid':2,'ts':$,'dur':$,'args':{'Call stack':'$'}}"},
        {"python", /* name, time, duration, place of the call */
         "{'ph':'X','cat':'python_function','name':'$','pid':1,'tid':2,'ts':$,'dur':$,"
         "'args':{'CallFrom':'$'}}"},
    };
    char *json = NULL;
    size_t bytes;
    FILE *file = open_memstream(&json, &bytes);
    assert_non_null(file);
    fputs("\n{\"schemaVersion\":1,\"traceEvents\":[", file);
    for (const char *line = text; *line != '\0'; line += *line == '\n') {
        size_t kind = 0, word = strcspn(line, "|\n");
        fputs(line == text ? "" : ",", file);
        while (kind < COUNT_OF(kinds) && strncmp(kinds[kind].word, line, word) != 0) {
            kind++;
        }
        for (const char *at = kind < COUNT_OF(kinds) ? kinds[kind].json : "$"; *at != '\0'; at++) {
            if (*at == '$') {
                line += kind < COUNT_OF(kinds) ? strcspn(line, "|\n") + 1 : 0;
                fprintf(file, "%.*s", (int)strcspn(line, "|\n"), line);
            } else {
                putc(*at == '\'' ? '"' : *at, file);
            }
        }
        line += strcspn(line, "\n");
    }
    fputs("],\"traceName\":\"a\"} \n", file);
    assert_int_equal(fclose(file), 0);
    return json;
}

static struct flw_trace *read_profile(const char *text)
{
    char *json = make_profile(text);
    struct flw_trace *trace = read_text(json);
    assert_string_equal(trace->format, "kineto json");
    free(json);
    return trace;
}

#define HEAD "#fallow-trace 1\ndevice 0\nstream 0\nfields times addresses segments\n"
#define KINETO(events)                                                                \
    HEAD "origin kineto trace\nkineto_events " events "\nkineto_total_mismatches 0\n" \
         "kineto_skipped_memory_events 0\n"

TEST(a_profile_is_this_trace)
{
    static const struct {
        const char *profile, *text;
    } rows[] = {
        /* threads ordered by time; blocks freed but never allocated existed before */
        {"{\"name\":\"aten::mm\",\"ts\":3.5,\"args\":{\"Bytes\":\"x\","
         "\"Shapes\":[[2],{}],\"Call \\\"stack\\\"\":\"C:\\\\a \\u00e9 {[\"}}\n"
         "memory|10.5|0|4096|512|1024|2048\nmemory|30|0|4096|-512|512|2048\n"
         "{\"name\":\"[memory]\",\"ts\":1,\"args\":{\"Device Type\":0,\"Device Id\":-1,\"Addr\":5,\"Bytes\":9}}\n"
         "memory|20.25|0|8192|512|1024|4096\nmemory|15.125|0|8192|-512|512|2048\n",
         HEAD "origin kineto trace\nkineto_events 4\nkineto_total_mismatches 0\n"
              "kineto_skipped_memory_events 1\nS 0 2048 0 small expandable @0\nP 0 0 512 0 @8192\n"
              "A 0 1 512 0 @4096\nF 4625 0 0\nM+ 9750 2048 0 @2048\nA 9750 2 512 0 @8192\n"
              "M- 19500 2048 0 @2048\nF 19500 1 0\n"},
        /* before and never freed: one block */
        {"memory|1|0|4096|512|5632|0\nmemory|2|0|9216|-1024|4608|0\n",
         KINETO("2") "P 0 0 4096 0 @0\nP 0 1 1024 0 @9216\nA 0 2 512 0 @4096\nF 1000 1 0\n"},
        {"memory|1|0|4096|512|512|512\nmemory|2|3|4096|1024|1024|2048\n"
         "memory|3|3|4096|-1024|0|2048\n",
         "#fallow-trace 1\ndevice 3\nstream 0\nfields times addresses segments\n"
         "origin kineto trace\nkineto_events 2\nkineto_total_mismatches 0\n"
         "kineto_skipped_memory_events 0\nrecorded_devices 0 3\nS 0 2048 0 small expandable @0\n"
         "A 0 0 1024 0 @4096\nF 1000 0 0\n"},
        /* totals and gaps that do not fit */
        {"memory|1|0|4096|512|512|512\nmemory|2|0|4096|512|2048|512\n"
         "memory|3|0|4096|-512|1536|512\nmemory|4|0|4096|-512|9|512\n",
         HEAD "gaps 1 1\norigin kineto trace\nkineto_events 4\nkineto_total_mismatches 2\n"
              "kineto_skipped_memory_events 0\nS 0 512 0 small expandable @0\nA 0 0 512 0 @4096\n"
              "F 1000 0 0\nA 1000 1 512 0 @4096\nF 2000 1 0\n"},
        {"memory|1669783687464300.123|0|\"18446744073709551000\"|512|512|18446744073709551615\n",
         KINETO("1") "S 0 18446744073709551615 0 small expandable @0\n"
                     "A 0 0 512 0 @18446744073709551000\n"},
        /* the stack of the slices around an event, on the same thread */
        {"memory|15|0|4096|512|512|0\nop|aten::mm|14.5|2\n"
         "python|<built-in method mm of type object at 0x7f12aB>|14|4|train.py:12\n"
         "python|train.py(9): step|12|10|train.py:30\npython|train.py(25): <module>|10|90|\n"
         "python|b.py(1): f|40|5|else.py:7\n"
         "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::other\",\"pid\":1,\"tid\":3,\"ts\":1,\"dur\":99}\n"
         "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm\",\"pid\":1,\"tid\":2,\"ts\":1,\"dur\":99}\n"
         "memory|21.5|0|4096|-512|0|0\nmemory|23|0|8192|512|512|0\n"
         "memory|42|0|16384|512|1024|0\nmemory|200|0|12288|512|1536|0\n",
         KINETO("5") "L 0 \"aten::mm\" \"\"\nL 0 \"<built-in method mm of type object>\" \"\"\n"
                     "L 12 \"step\" \"train.py\"\nL 30 \"<module>\" \"train.py\"\nW 0 1 2 3\n"
                     "A 0 0 512 0 @4096 stack=1\nL 9 \"step\" \"train.py\"\nW 4 3\n"
                     "F 6500 0 0 stack=2\nL 25 \"<module>\" \"train.py\"\nW 5\n"
                     "A 8000 1 512 0 @8192 stack=3\nL 1 \"f\" \"b.py\"\nW 6 5\n"
                     "A 27000 2 512 0 @16384 stack=4\nA 185000 3 512 0 @12288\n"},
        /* of two that share a microsecond the second has begun */
        {"op|outer|10|10\nop|first|10|2\nop|second|12|3\nmemory|11|0|2048|512|512|0\nmemory|12|0|4096|512|1024|0\n"
         "memory|15|0|8192|512|1536|0\nmemory|20|0|12288|512|2048|0\n",
         KINETO("4") "L 0 \"first\" \"\"\nL 0 \"outer\" \"\"\nW 0 1\nA 0 0 512 0 @2048 stack=1\n"
                     "L 0 \"second\" \"\"\nW 2 1\nA 1000 1 512 0 @4096 stack=2\n"
                     "A 4000 2 512 0 @8192 stack=2\nW 1\nA 9000 3 512 0 @12288 stack=3\n"},
        /* older profiles have no slice for a call of Python */
        {"old|aten::linear|10|9|C:\\\\a\\\\caf\\u00e9.py(3): f\\u0022;run.py(70): \\ud83d\\ude00\n"
         "old|aten::mm|11|3|b.py(1): g;;odd\nmemory|12|0|4096|512|512|0\n"
         "memory|16|0|8192|512|1024|0\n",
         KINETO("2") "L 0 \"aten::mm\" \"\"\nL 0 \"aten::linear\" \"\"\nL 1 \"g\" \"b.py\"\n"
                     "L 0 \"odd\" \"\"\nW 0 1 2 3\nA 0 0 512 0 @4096 stack=1\n"
                     "L 3 \"f\\\"\" \"C:\\\\a\\\\café.py\"\nL 70 \"😀\" \"run.py\"\nW 1 4 5\n"
                     "A 4000 1 512 0 @8192 stack=2\n"},
        /* slices without sense */
        {"memory|15|0|4096|512|512|0\n"
         "op|short|14|-2\nop|a7): b|13|5\nop|late|\"x\"|9\nop|ever|10|99999999999999999\n"
         "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"nowhere\",\"ts\":1,\"dur\":50}\n"
         "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":7,\"pid\":1,\"tid\":2,\"ts\":1,\"dur\":50}\n"
         "{\"ph\":\"X\",\"cat\":[],\"name\":\"x\",\"pid\":1,\"tid\":2,\"ts\":1,\"dur\":50}\n"
         "python|a.py(99999999999): f|12|9|a.py:99999999999\npython|a.py(7): f(int): g|11|20|:5\n",
         KINETO("1") "L 0 \"a7): b\" \"\"\nL 0 \"a.py(99999999999): f\" \"\"\n"
                     "L 7 \"f(int): g\" \"a.py\"\nW 0 1 2\n"
                     "A 0 0 512 0 @4096 stack=1\n"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        expect_text(read_profile(rows[i].profile), rows[i].text);
    }
}

TEST(devices_of_a_profile_are_told_apart)
{
    char *json = make_profile("memory|1|0|4096|512|512|512\nmemory|2|3|4096|1024|1024|2048\n");
    for (int device = 0; device < 2; device++) {
        struct flw_trace *trace = read_device(json, strlen(json), device);
        assert_int_equal(trace != NULL, device == 0);
        flw_trace_destroy(trace);
    }
    flw_test_expect_in(message, "has no [memory] event of device 1, most are of 0");
    free(json);
}

/* The frames "NAME0" or, where `step` is below 0, "NAME1499" ... that the first record has. */
static uint32_t count_frames(const struct flw_trace *trace, const char *name, int first, int step)
{
    struct flw_stack_walk walk = flw_stacks_walk(&trace->stacks, flw_trace_stack(trace, 0));
    uint32_t number, depth = 0;
    for (; flw_stacks_next(&walk, &number); depth++) {
        char wanted[32];
        snprintf(wanted, sizeof wanted, "%s%d", name, first + step * (int)depth);
        uint32_t function = flw_stacks_frame(&trace->stacks, number)->function;
        assert_string_equal(flw_stacks_text(&trace->stacks, function), wanted);
    }
    return depth;
}

/* Deep stacks lose their outermost frames; a call stack beyond the kept text ends with a complete frame. */
TEST(stacks_of_a_profile_have_an_end)
{
    char *deep = malloc(64 * 1500), *at = deep;
    assert_non_null(deep);
    for (int i = 0; i < 1500; i++) {
        at += sprintf(at, "op|op%d|%d|%d\n", i, i, 4000 - 2 * i);
    }
    strcpy(at, "memory|2000|0|4096|512|512|0\n");
    struct flw_trace *trace = read_profile(deep);
    assert_int_equal(count_frames(trace, "op", 1499, -1), FLW_STACK_DEPTH_MOST);
    flw_trace_destroy(trace);
    at =
        deep +
        sprintf(deep, "{\"name\":\"[memory]\",\"ts\":1,\"args\":{\"Device Type\":1,\"Device Id\":0,"
                      "\"Addr\":1,\"Bytes\":5,\"Total Allocated\":5,\"Call stack\":\"");
    for (int i = 0; i < 900; i++) {
        at += sprintf(at, "a_file_of_some_name.py(1): abcdefghijkl%d;", i);
    }
    strcpy(at, "\"}}");
    trace = read_profile(deep);
    assert_in_range(count_frames(trace, "abcdefghijkl", 0, 1), 300, 899);
    flw_trace_destroy(trace);
    free(deep);
}

TEST(deep_and_long_values_cost_no_memory)
{
    size_t count = 3u << 20;
    char *text = malloc(count + sizeof GOOD + 8);
    assert_non_null(text);
    memset(text, '[', count);
    expect_refused(text, count, "byte 256: not JSON: nested deeper than 256 levels");
    memset(text + 250, ']', 249);
    strcpy(text + 499, "," GOOD "]");
    flw_trace_destroy(read_text(text));
    for (int is_number = 0; is_number < 2; is_number++) { /* longer than the window */
        memset(text, '7', count);
        const char *begin = is_number ? "[{\"pid\":" : "[\"";
        memcpy(text, begin, strlen(begin));
        strcpy(text + count, is_number ? "}," GOOD "]" : "\"," GOOD "]");
        flw_trace_destroy(read_text(text));
    }
    free(text);
}

/* Unknown values are not printed. */
TEST(an_out_of_memory_says_what_was_free)
{
    struct flw_trace *trace = read_text("#fallow-trace 1\ndevice 0\nstream 0\nfields none\n"
                                        "O 0 5 0 free=12345\nO 0 6 0\n");
    size_t count;
    char *text = write_file(trace, "chrome", &count);
    char *first = strstr(text, "\"oom\""), *second = strstr(first + 1, "\"oom\"");
    assert_non_null(second);
    assert_null(strstr(second, "device_free"));
    *second = '\0';
    flw_test_expect_in(first, ",\"device_free\":12345}");
    assert_null(strstr(first, "largest_free"));
    free(text);
    flw_trace_destroy(trace);
}

/* ---- RMM ---- */

#define RMM "Thread,Time,Action,Pointer,Size,Stream\n"

static const char clocks[] = "#fallow-trace 1\ndevice 0\nstream 0\nstream 5603755\n"
                             "fields times addresses\norigin rmm log\nP 0 0 64 0 @139637976727808\n"
                             "A 0 1 100 0 @139637976728064\nA 1000 2 200 1 @139637976728320\n"
                             "F 1000 1 0\nO 500000000 1048576 0\n"
                             "A 1000000000 3 300 0 @139637976728576\nF 1000001000 0 0\n";

TEST(a_log_is_this_trace)
{
    static const struct {
        const char *log, *text;
    } rows[] = {
        /* both spellings; clocks of threads may be written out of order, and midnight passes */
        {RMM "140,23:59:59.500000,allocate,0x7f0000000200,100,0\n"
             "141,23:59:59.500001,allocate,0x7f0000000300,200,0x5581ab\n"
             "140,23:59:59.500000,free,0x7f0000000200,100,0x0\n"
             "141,00:00:00.000000,allocate failure,(nil),1048576,0\n"
             "141,00:00:00.500000,allocate,0x7f0000000400,300,0\n"
             "140,00:00:00.500001,free,0x7f0000000100,64,0\n",
         clocks},
        {RMM "140,1669783687.5,allocate,7f0000000200,100,0\r\n"
             "141,1669783687.500001,allocate,0x7F0000000300,200,5603755\r\n"
             "140,1669783687.5,deallocate,0x7f0000000200,100,0\r\n"
             "141,1669783688,allocate failure,(nil),1048576,0\r\n\r\n"
             "141,1669783688.50000000,allocate,0x7f0000000400,300,(nil)\r\n"
             "140,1669783688.500001,deallocate,0x7f0000000100,64,0\r\n",
         clocks},
        /* gaps; null pointers */
        {RMM "1,1,allocate,0x10,8,0\n1,1,allocate,0x10,16,0\n1,1,free,0x10,16,0\n"
             "1,1,free,0x10,16,0\n1,1,allocate,(nil),0,0\n1,1,free,0x0,0,0\n",
         "#fallow-trace 1\ndevice 0\nstream 0\nfields times addresses\ngaps 1 1\norigin rmm log\n"
         "rmm_null_pointer_rows 2\nA 0 0 8 0 @16\nF 0 0 0\nA 0 1 16 0 @16\nF 0 1 0\n"},
        {RMM, "#fallow-trace 1\ndevice 0\nfields times addresses\norigin rmm log\n"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct flw_trace *trace = read_text(rows[i].log);
        assert_string_equal(trace->format, "rmm csv");
        expect_text(trace, rows[i].text);
    }
}

TEST(a_log_is_written_and_read_back)
{
    static const char log[] = RMM "0,00:00:00.000000,allocate,0x100,64,0\n"
                                  "0,00:00:00.000000,allocate,0x200,100,0x5581ab\n"
                                  "0,00:00:00.000001,free,0x200,100,0x5581ab\n"
                                  "0,01:02:03.000004,allocate failure,(nil),1048576,0\n"
                                  "0,30:02:03.000004,free,0x100,64,0\n";
    size_t count;
    struct flw_trace *trace = read_text(log);
    char *text = write_file(trace, "rmm", &count);
    assert_string_equal(text, log);
    free(text);
    assert_false(flw_trace_write(trace, "rmm", "/dev/full", message));
    flw_test_expect_in(message, "/dev/full: cannot write: No space left");
    flw_trace_destroy(trace);
    /* Blocks of the start are first; without addresses each is given by number. */
    trace = read_text("#fallow-trace 1\ndevice 0\nstream 9\nfields none\nP 0 0 5 0\nA 0 1 6 0\n"
                      "F 0 0 0\nC 0 0 0\n");
    text = write_file(trace, "rmm", &count);
    assert_string_equal(text, RMM "0,00:00:00.000000,allocate,0x1,5,0x9\n"
                                  "0,00:00:00.000000,allocate,0x2,6,0x9\n"
                                  "0,00:00:00.000000,free,0x1,5,0x9\n");
    free(text);
    flw_trace_destroy(trace);
}

/* ---- bad ones ---- */

#define MEMORY "memory|1|0|4096|512|512|512\n"
#define CPU                                                                                    \
    "{\"name\":\"[memory]\",\"ts\":1,\"args\":{\"Device Type\":0,\"Device Id\":-1,\"Addr\":5," \
    "\"Bytes\":9}}"

TEST(a_bad_file_is_named_with_its_place_and_reason)
{
    static const struct {
        const char *text, *wanted;
    } rows[] = {
        {"{}", "byte 0: JSON, but not a profiler's trace: no \"traceEvents\""},
        {"[]", "no [memory] event of a CUDA device"},
        {"{\"traceEvents\":7}", "no \"traceEvents\""},
        {"[" CPU "]", "no [memory] event of a CUDA device"},
        {"[", "byte 1: the file ends inside the JSON text: it is truncated"},
        {"[" GOOD, "the file ends inside the JSON text"},
        {"[" GOOD ",", "the file ends inside the JSON text"},
        {"[{\"name\":\"[mem", "byte 14: the file ends inside the JSON text"},
        {"[{\"name\\", "the file ends inside the JSON text"},
        {"[" GOOD "] x", "not JSON: more than one value"},
        {"[" GOOD "}", "not JSON: \",\" or \"]\" expected"},
        {"{\"a\" 1}", "byte 5: not JSON: \":\" expected"},
        {"{\"a\":1 \"b\"", "not JSON: \",\" or \"}\" expected"},
        {"{1", "byte 1: not JSON: a key expected"},
        {"[-]", "not JSON: a number without digits"},
        {"[nul]", "byte 1: not JSON: a value expected"},
        {"memory|NaN|0|1|1|1|1\n", "not JSON: a value expected"},
        {"memory|-5|0|1|1|1|1\n", "byte 35: \"ts\" of a [memory] event is negative"},
        {MEMORY "memory|-5|0|1|1|1|1\n", "; 1 events before it were read"},
        {"memory|1e15|0|1|1|1|1\n", "\"ts\" of a [memory] event is not a number"},
        {"memory|1.2.3|0|1|1|1|1\n", "\"ts\" of a [memory] event is not a number"},
        {"memory|99999999999999999999|0|1|1|1|1\n", "\"ts\" of a [memory]"},
        {"memory|1|1024|1|1|1|1\n", "\"Device Id\" of a [memory] event is not a"},
        {"memory|1|-1|1|1|1|1\n", "\"Device Id\" of a [memory] event is negative"},
        {"memory|1|0|true|1|1|1\n", "\"Addr\" of a [memory] event is not a number"},
        {"memory|1|0|18446744073709551616|1|1|1\n", "at most 64 bits"},
        {"memory|1|0|18446744073709551615|1|1|1\n", "exceeds 64 bits"},
        {"memory|1|0|1|1.5|1|1\n", "\"Bytes\" of a [memory] event is not a number"},
        {"memory|1|0|1|1|-1|1\n", "\"Total Allocated\" of a [memory] event is neg"},
        {"memory|1|0|1|1|1|[]\n", "\"Total Reserved\" of a [memory] event is not"},
        {"[{\"name\":\"[memory]\",\"ts\":1,\"args\":{\"Device Type\":1,\"Device Id\":0,\"Bytes\":1}}]",
         "\"Addr\" of a [memory] event is missing, as in profiles of PyTorch 1.12"},
        {"[{\"name\":\"[memory]\",\"ts\":1,\"args\":{\"Device Type\":\"x\"}}]",
         "\"Device Type\" of a [memory] event is not a number"},
        {"[{\"name\":\"[memory]\"}]", "\"ts\" of a [memory] event is missing"},
        {"memory|1|0|1|18446744073709551615|18446744073709551615|1\n", "exceeds 64 bits"},
        {"Thread,Time,Action,Pointer,Size,Streams\n", "byte 0: line 1: the header is not Thread,"},
        {"Thread,Time,Action,Pointer,Size,Stream", "does not end in a newline: truncated"},
        {RMM "1,1,allocate,0x10,8,0", "byte 39: line 2: does not end in a newline: truncated"},
        {RMM "1,1,allocate,0x10,8,0\n2,x\n", "line 3: the time is neither HH:MM:SS"},
        {RMM "1,1,allocate,0x10,8,0\n2,x\n", "; 1 rows before it were read"},
        {RMM "1,-1,allocate,0x10,8,0\n", "the time is neither"},
        {RMM "1,nan,allocate,0x10,8,0\n", "the time is neither"},
        {RMM "1,1:2,allocate,0x10,8,0\n", "the time is neither"},
        {RMM "1,18446744073709551615:59:59,allocate,0x10,8,0\n", "the time is neither"},
        {RMM "1,1:2:61.5,allocate,0x10,8,0\n", "the time is neither"},
        {RMM "1,1:2:3.x,allocate,0x10,8,0\n", "the time is neither"},
        {RMM "1,18446744073709551615,allocate,0x10,8,0\n", "the time is neither"},
        {RMM "one,1,allocate,0x10,8,0\n", "the thread is not a number"},
        {RMM "1\n", "the time is neither"},
        {RMM "1,1\n", "there is no action"},
        {RMM "1,1,realloc,0x10,8,0\n", "the action is none of"},
        {RMM "1,1,allocate,0xg,8,0\n", "the pointer is not a hexadecimal number"},
        {RMM "1,1,allocate,0x10,-8,0\n", "the size is not a number of bytes"},
        {RMM "1,1,allocate,0x10,18446744073709551616,0\n", "the size is not a number of bytes"},
        {RMM "1,1,allocate,0x10,18446744073709551615,0\n", "exceed 64 bits"},
        {RMM "1,1,allocate,0x10,8\n", "the stream is not a number"},
        {RMM "1,1,allocate,0x10,8,\n", "the stream is not a number"},
        {RMM "1,1,allocate,0x10,8,0,1\n", "more than six columns"},
        {"2 0x10 8 0\n", "neither a pickled PyTorch snapshot nor"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        bool is_line = strncmp(rows[i].text, "memory|", 7) == 0;
        char *text = is_line ? make_profile(rows[i].text) : strdup(rows[i].text);
        expect_refused(text, strlen(text), rows[i].wanted);
        assert_int_equal(strncmp(message, "name: byte ", 11), 0);
        free(text);
    }
}

FLW_TEST_MAIN(NULL, NULL)
