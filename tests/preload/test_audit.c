/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tests of the audit without a program: verdicts, fill kernels, sites, and the page that
 * stores them. */
#include "support/test.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/audit/audit.h"
#include "preload/audit/auditpage.h"
#include "preload/audit/callsite.h"
#include "preload/audit/scriptframes.h"

#define BASE 0x7f0000000000ull
#define MIB  (1ull << 20)

/* ---- kernels that fill ---- */

#define TORCH_FILL                                                                               \
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEvi" \
    "T0_T1_"
#define TORCH_STRIDED_FILL                                                                        \
    "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastINS0_11FillFunctor" \
    "IfEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_"
#define TORCH_ADD                                                                                  \
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEE" \
    "viT0_T1_"
#define GGML_FILL "_ZL11fill_kernelIfEvPT_lS0_"

#define PARAMETER(variable)                                  \
    {                                                        \
        (const unsigned char *)&(variable), sizeof(variable) \
    }

TEST(known_fill_kernels_are_read_and_others_are_not)
{
    int32_t count = 1000;
    int64_t wide_count = 500;
    float zero = 0.0f, one = 1.0f;
    uint64_t pointer = BASE + 64;
    struct {
        uint64_t data;
        int64_t size, shape, stride;
    } array = {BASE, 250, 250, 8};
    struct flw_parameter torch[] = {PARAMETER(count), PARAMETER(zero), PARAMETER(pointer)};
    struct flw_parameter torch_one[] = {PARAMETER(count), PARAMETER(one), PARAMETER(pointer)};
    struct flw_parameter cupy[] = {PARAMETER(zero), PARAMETER(array)};
    struct flw_parameter ggml[] = {PARAMETER(pointer), PARAMETER(wide_count), PARAMETER(one)};

    const struct flw_fillkernel *kernel = flw_fillkernel_find(TORCH_FILL);
    assert_non_null(kernel);
    struct flw_fillkernel_reading reading = flw_fillkernel_read(kernel, torch, 3);
    assert_true(reading.address == pointer && reading.bytes == 4000);
    assert_true(reading.is_value_read && reading.is_zero);
    assert_false(flw_fillkernel_read(kernel, torch_one, 3).is_zero);
    assert_int_equal(flw_fillkernel_read(kernel, torch, 2).address, 0); /* not the argument list */

    reading = flw_fillkernel_read(flw_fillkernel_find("cupy_fill__float32"), cupy, 2);
    assert_true(reading.address == BASE && reading.bytes == 1000 && reading.is_zero);
    reading = flw_fillkernel_read(flw_fillkernel_find(GGML_FILL), ggml, 3);
    assert_true(reading.address == pointer && reading.bytes == 2000 && !reading.is_zero);

    kernel = flw_fillkernel_find(TORCH_STRIDED_FILL);
    assert_non_null(kernel);
    assert_false(flw_fillkernel_read(kernel, torch, 3).is_value_read);
    assert_non_null(flw_fillkernel_find("loop_broadcast_fusion_3"));
    assert_null(flw_fillkernel_find(TORCH_ADD));
    assert_null(flw_fillkernel_find("prefill_kernel"));
    assert_null(flw_fillkernel_find(""));
}

/* ---- verdicts ---- */

static char folder[] = "/tmp/fallow_audit_XXXXXX";
static struct flw_auditpage *page;

/* Run `body` with an audit in a child, since a process has one, and check the page. */
static void in_a_child(void (*body)(void), const struct flw_audit_config *config)
{
    struct flw_audit_config own = config != NULL ? *config : (struct flw_audit_config){0};
    char prefix[128], path[160];
    snprintf(prefix, sizeof prefix, "%s/page", folder);
    own.prefix = prefix;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        flw_audit_ask(&own);
        if (!flw_audit_is_on()) {
            _exit(3);
        }
        body();
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    snprintf(path, sizeof path, "%s.%d", prefix, (int)child);
    if (page == NULL) {
        page = malloc(sizeof *page);
    }
    assert_true(flw_auditpage_read(path, page));
    assert_int_equal(page->pid, child);
    unlink(path);
}

/* A child cannot use the framework's assertions. */
#define MUST(x)                                                     \
    do {                                                            \
        if (!(x)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
            _exit(4);                                               \
        }                                                           \
    } while (0)

static __attribute__((noinline)) struct flw_audit_judgement fill(uint64_t address, uint64_t bytes,
                                                                 bool is_zero)
{
    struct flw_audit_judgement judgement;
    struct flw_audit_fill fill = {.address = address,
                                  .bytes = bytes,
                                  .span = bytes,
                                  .is_zero = is_zero,
                                  .call = "cuMemsetD8_v2",
                                  .caller = (uintptr_t)__builtin_return_address(0)};
    flw_audit_judge_fill(&fill, &judgement);
    flw_audit_count(&judgement, judgement.is_on_trial);
    return judgement;
}

static void launch_of(const char *name, const struct flw_parameter *parameters, uint32_t count,
                      struct flw_audit_judgement *out)
{
    struct flw_audit_launch launch = {.name = name,
                                      .parameters = parameters,
                                      .parameter_count = count,
                                      .is_read = parameters != NULL,
                                      .caller = (uintptr_t)__builtin_return_address(0)};
    flw_audit_judge_launch(&launch, out);
    flw_audit_count(out, false);
}

static void fills_in_order(void)
{
    flw_audit_alloc(BASE, MIB);
    MUST(fill(BASE, MIB / 2, true).verdict == FLW_AUDIT_CANDIDATE);
    MUST(fill(BASE + MIB / 2, MIB / 2, true).verdict == FLW_AUDIT_CANDIDATE); /* the other half */
    MUST(fill(BASE, 16, true).verdict == FLW_AUDIT_REUSED);                   /* filled before */
    flw_audit_free(BASE);
    MUST(fill(BASE, 16, true).verdict == FLW_AUDIT_FOREIGN);
    flw_audit_alloc(BASE, MIB);
    MUST(fill(BASE, 16, false).verdict == FLW_AUDIT_NONZERO);
    MUST(fill(BASE + 8, 16, true).verdict == FLW_AUDIT_REUSED); /* a fill with other bytes is a
                                                                    use */
    MUST(fill(BASE + 64, 16, true).verdict == FLW_AUDIT_CANDIDATE);
    flw_audit_touch(BASE + MIB - 1);
    MUST(fill(BASE + 128, 16, true).verdict == FLW_AUDIT_REUSED);
    MUST(fill(BASE, 0, true).verdict == FLW_AUDIT_NO_FILL);
}

TEST(only_fills_of_untouched_memory_are_candidates)
{
    in_a_child(fills_in_order, NULL);
    assert_int_equal(page->counts.blocks, 2);
    assert_int_equal(page->counts.fills, 8);
    assert_int_equal(page->counts.candidates, 3);
    assert_int_equal(page->counts.reused, 3);
    assert_int_equal(page->counts.foreign, 1);
    assert_int_equal(page->counts.nonzero, 1);
    uint64_t fill_count = 0, bytes = 0;
    for (uint32_t i = 0; i < page->site_count; i++) {
        fill_count += page->sites[i].fill_count;
        bytes += page->sites[i].bytes;
        assert_string_equal(page->sites[i].call, "cuMemsetD8_v2");
    }
    assert_int_equal(page->site_count, 3); /* one a line above */
    assert_int_equal(fill_count, 3);
    assert_int_equal(bytes, MIB + 16);
}

static void launches_in_order(void)
{
    uint64_t pointer = BASE + 256, other = BASE + 4 * MIB;
    int32_t count = 100;
    float zero = 0.0f;
    struct {
        uint32_t flags[2];
        uint64_t inner;
    } object = {{1, 2}, BASE + 2 * MIB};
    struct flw_parameter uses[] = {PARAMETER(count), PARAMETER(object)};
    struct flw_parameter fills[] = {PARAMETER(count), PARAMETER(zero), PARAMETER(pointer)};
    struct flw_parameter fill_and_read[] = {PARAMETER(count), PARAMETER(other), PARAMETER(pointer)};
    struct flw_audit_judgement judgement;
    for (uint64_t i = 0; i < 3; i++) {
        flw_audit_alloc(BASE + 2 * i * MIB, MIB);
    }
    launch_of("any_kernel", uses, 2, &judgement); /* the address is inside a struct */
    MUST(judgement.verdict == FLW_AUDIT_NO_FILL);
    MUST(fill(BASE + 2 * MIB, MIB, true).verdict == FLW_AUDIT_REUSED);
    launch_of(TORCH_FILL, fills, 3, &judgement);
    MUST(judgement.verdict == FLW_AUDIT_CANDIDATE && judgement.bytes == 400);
    MUST(judgement.address == pointer && judgement.is_value_read && judgement.is_range_read);
    launch_of(TORCH_STRIDED_FILL, fill_and_read, 3, &judgement); /* two blocks: not only a fill */
    MUST(judgement.verdict == FLW_AUDIT_NO_FILL);
    MUST(fill(other, MIB, true).verdict == FLW_AUDIT_REUSED);
    flw_audit_alloc(BASE + 6 * MIB, MIB);
    uint64_t last = BASE + 6 * MIB;
    struct flw_parameter strided[] = {PARAMETER(count), PARAMETER(last)};
    launch_of(TORCH_STRIDED_FILL, strided, 2, &judgement);
    MUST(judgement.verdict == FLW_AUDIT_CANDIDATE && judgement.bytes == MIB);
    MUST(!judgement.is_value_read && !judgement.is_range_read);
    flw_audit_alloc(BASE + 8 * MIB, MIB);
    flw_audit_alloc(BASE + 10 * MIB, MIB);
    launch_of("any_kernel", NULL, 0, &judgement); /* not readable: every block counts as touched */
    MUST(fill(BASE + 8 * MIB, MIB, true).verdict == FLW_AUDIT_REUSED);
    flw_audit_alloc(BASE + 12 * MIB, MIB); /* later allocations are not affected */
    MUST(fill(BASE + 12 * MIB, MIB, true).verdict == FLW_AUDIT_CANDIDATE);
    flw_audit_alloc(BASE + 14 * MIB, MIB);
    flw_audit_touch_all(FLW_AUDIT_GRAPH);
    MUST(fill(BASE + 14 * MIB, MIB, true).verdict == FLW_AUDIT_REUSED);
}

TEST(launches_touch_what_their_arguments_point_into)
{
    in_a_child(launches_in_order, NULL);
    assert_int_equal(page->counts.launches, 5);
    assert_int_equal(page->counts.unread_launches, 1);
    assert_int_equal(page->counts.graph_launches, 1);
    assert_int_equal(page->counts.candidates, 3);
    uint64_t unread_value_count = 0, unread_range_count = 0;
    for (uint32_t i = 0; i < page->site_count; i++) {
        unread_value_count += page->sites[i].unread_value_count;
        unread_range_count += page->sites[i].unread_range_count;
    }
    assert_int_equal(unread_value_count, 1);
    assert_int_equal(unread_range_count, 1);
}

static void captured_fills(void)
{
    struct flw_audit_judgement judgement;
    struct flw_audit_fill fill_later = {.address = BASE,
                                        .bytes = 64,
                                        .span = 64,
                                        .is_zero = true,
                                        .is_captured = true,
                                        .call = "x"};
    flw_audit_alloc(BASE, MIB);
    flw_audit_judge_fill(&fill_later, &judgement);
    flw_audit_count(&judgement, false);
    MUST(judgement.verdict == FLW_AUDIT_CAPTURED);
    MUST(fill(BASE + 128, 64, true).verdict == FLW_AUDIT_REUSED);
}

TEST(a_fill_in_a_capture_is_no_candidate_and_touches)
{
    in_a_child(captured_fills, NULL);
    assert_int_equal(page->counts.captured, 1);
    assert_int_equal(page->counts.candidates, 0);
}

static __attribute__((noinline)) void fill_here(int i)
{
    flw_audit_alloc(BASE, MIB);
    fill(BASE, MIB, true);
    (void)i;
}

static __attribute__((noinline)) void fill_there(int i)
{
    flw_audit_alloc(BASE, MIB);
    fill(BASE, MIB / 2, true); /* not the same code as above */
    (void)i;
}

static void two_sites(void)
{
    volatile int count = 3; /* not unrolled into three places */
    for (int i = 0; i < count; i++) {
        fill_here(i);
    }
    fill_there(0);
}

TEST(a_site_on_trial_is_the_same_in_the_next_run)
{
    struct flw_audit_config config = {.poison = 0xff};
    uint64_t here = 0, there = 0;
    volatile int runs = 2; /* one source line, since sites are identified by callers */
    for (int i = 0; i < runs; i++) {
        config.trial_id = there;
        in_a_child(two_sites, &config);
        assert_int_equal(page->trial_id, there);
        assert_int_equal(page->site_count, 2);
        assert_int_equal(page->counts.poisoned, i);
        here = i == 0 ? page->sites[0].id : here;
        there = i == 0 ? page->sites[1].id : there;
    }
    assert_int_equal(page->sites[0].fill_count, 3);
    assert_in_range(page->sites[0].frame_count, 1, FLW_AUDIT_FRAMES);
    assert_true(page->sites[0].frames[0].module != FLW_AUDIT_NO_MODULE);
    assert_string_equal(page->modules[page->sites[0].frames[0].module].path, page->program);
    assert_int_equal(page->sites[0].id, here);
    assert_int_equal(page->sites[0].poisoned_count, 0);
    assert_int_equal(page->sites[1].id, there);
    assert_int_equal(page->sites[1].poisoned_count, 1);
}

static void *fill_from_a_thread(void *argument)
{
    uint64_t base = BASE + (uint64_t)(uintptr_t)argument * 64 * MIB;
    for (int i = 0; i < 500; i++) {
        flw_audit_alloc(base, MIB);
        MUST(fill(base, MIB, true).verdict == FLW_AUDIT_CANDIDATE);
        flw_audit_touch(base + 77);
        MUST(fill(base, MIB, true).verdict == FLW_AUDIT_REUSED);
        flw_audit_free(base);
    }
    return NULL;
}

static void many_threads(void)
{
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) {
        MUST(pthread_create(&threads[i], NULL, fill_from_a_thread, (void *)i) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
}

TEST(threads_are_counted_whole)
{
    in_a_child(many_threads, NULL);
    assert_int_equal(page->counts.fills, 4000);
    assert_int_equal(page->counts.candidates, 2000);
    assert_int_equal(page->counts.reused, 2000);
    assert_int_equal(page->site_count, 1);
    assert_int_equal(page->sites[0].fill_count, 2000);
    assert_int_equal(page->sites[0].bytes, 2000 * MIB);
}

TEST(lines_of_a_script_are_read_from_a_traceback)
{
    char lines[64], room[24];
    char text[] = "Stack (most recent call first):\n"
                  "  File \"/home/a b/train.py\", line 31 in step\n"
                  "  File \"<string>\", line 1 in <module>\n"
                  "  ...\n";
    char again[sizeof text], nothing[] = "no traceback\n  File \"half";
    char deep[] = "  File \"a.py\", line 1 in f\n  File \"a.py\", line 2 in f\n"
                  "  File \"a.py\", line 3 in f\n  File \"a.py\", line 4 in f\n"
                  "  File \"a.py\", line 5 in f\n";
    memcpy(again, text, sizeof text);
    flw_scriptframes_parse(text, lines, sizeof lines);
    assert_string_equal(lines, "train.py:31 in step\n<string>:1 in <module>");
    flw_scriptframes_parse(again, room, sizeof room);
    assert_string_equal(room, "train.py:31 in step"); /* whole frames only */
    flw_scriptframes_parse(nothing, lines, sizeof lines);
    assert_string_equal(lines, "");
    flw_scriptframes_parse(deep, lines, sizeof lines);
    assert_string_equal(lines, "a.py:1 in f\na.py:2 in f\na.py:3 in f\na.py:4 in f");
    flw_scriptframes_take(lines, sizeof lines); /* this is no Python */
    assert_string_equal(lines, "");
}

/* ---- the page ---- */

static void sites_run_out(void)
{
    struct flw_audit_judgement judgement = {.verdict = FLW_AUDIT_CANDIDATE, .bytes = 1};
    for (uintptr_t i = 0; i < FLW_AUDIT_SITES + 10; i++) {
        char call[32];
        snprintf(call, sizeof call, "call %u", (unsigned)i);
        judgement.call = call;
        judgement.caller = 4096;
        flw_audit_count(&judgement, false);
    }
}

TEST(a_full_table_of_sites_is_said)
{
    in_a_child(sites_run_out, NULL);
    assert_int_equal(page->site_count, FLW_AUDIT_SITES);
    assert_int_equal(page->counts.lost_sites, 10);
    assert_int_equal(page->counts.candidates, FLW_AUDIT_SITES + 10);
    assert_int_equal(page->sites[0].frame_count, 1); /* of no module */
    assert_true(page->sites[0].frames[0].module == FLW_AUDIT_NO_MODULE);
}

TEST(what_a_killed_program_saw_is_there)
{
    char prefix[128], path[160];
    struct flw_audit_config config = {.prefix = prefix};
    snprintf(prefix, sizeof prefix, "%s/killed", folder);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        flw_audit_ask(&config);
        if (flw_audit_is_on()) {
            fill_here(0);
        }
        kill(getpid(), SIGKILL);
    }
    waitpid(child, NULL, 0);
    snprintf(path, sizeof path, "%s.%d", prefix, (int)child);
    assert_true(flw_auditpage_read(path, page));
    assert_int_equal(page->counts.candidates, 1);
    assert_int_equal(truncate(path, sizeof *page - 1), 0);
    assert_false(flw_auditpage_read(path, page)); /* cut short */
}

TEST(a_page_that_lies_is_refused)
{
    struct flw_auditpage *lie = malloc(sizeof *lie);
    in_a_child(two_sites, NULL);
    assert_true(flw_auditpage_is_valid(page));
    memcpy((void *)lie, (void *)page, sizeof *lie);
    lie->magic = 0;
    assert_false(flw_auditpage_is_valid(lie));
    memcpy((void *)lie, (void *)page, sizeof *lie);
    lie->site_count = FLW_AUDIT_SITES + 1;
    assert_false(flw_auditpage_is_valid(lie));
    memcpy((void *)lie, (void *)page, sizeof *lie);
    lie->sites[0].frames[0].module = 200;
    assert_false(flw_auditpage_is_valid(lie));
    memcpy((void *)lie, (void *)page, sizeof *lie);
    lie->sites[1].id = lie->sites[0].id;
    assert_false(flw_auditpage_is_valid(lie));
    memcpy((void *)lie, (void *)page, sizeof *lie);
    memset(lie->sites[0].call, 'x', sizeof lie->sites[0].call);
    assert_false(flw_auditpage_is_valid(lie));
    free(lie);
}

static int complaint_error;

static void keep_complaint(const char *prefix, int error)
{
    complaint_error = strcmp(prefix, "/nonexistent/folder/page") == 0 ? error : -1;
}

TEST(a_page_that_cannot_be_made_is_said_once_and_the_audit_is_off)
{
    struct flw_audit_config config = {.prefix = "/nonexistent/folder/page",
                                      .complain = keep_complaint};
    assert_false(flw_audit_is_on());
    flw_audit_ask(&config);
    errno = EDOM;
    assert_false(flw_audit_is_on());
    assert_int_equal(errno, EDOM);
    assert_int_equal(complaint_error, ENOENT);
    complaint_error = 0;
    assert_false(flw_audit_is_on());
    assert_int_equal(complaint_error, 0);
}

static int make_folder(void **state)
{
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    char line[128];
    free(page);
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    return system(line);
}

FLW_TEST_MAIN(make_folder, remove_folder)
