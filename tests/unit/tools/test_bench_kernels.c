/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tests of `fallow bench kernels`: the calls, the bytes moved at full size, rejected options, and that a broken
 * call is reported. Times are not checked.
 */
#include "support/test_command.h"

#include "bench/kernels.h"

#include "common/kernel_list.h"

/* variant NULL: the first. Fails if there is none. */
static const struct flw_kernel_case *find_case(const char *module, const char *variant,
                                               const struct flw_kernel_module **out_module)
{
    for (const struct flw_kernel_module *at = flw_kernel_modules; at->name != NULL; at++) {
        for (const struct flw_kernel_case *of = at->cases; of->variant != NULL; of++) {
            if (strcmp(at->name, module) == 0 &&
                (variant == NULL || strcmp(of->variant, variant) == 0)) {
                *out_module = at;
                return of;
            }
        }
    }
    fail_msg("%s: no case in tools/fallow/bench/kernels_table.c", module);
    return NULL;
}

TEST(every_kernel_has_a_case)
{
    const struct flw_kernel_module *module;
#define X(name) (void)find_case(#name, NULL, &module);
    FLW_KERNEL_LIST(X)
#undef X
}

/* Bytes computed from the shapes by hand. */
TEST(cases_at_full_size_move_the_bytes_of_their_shapes)
{
    static const struct {
        const char *module, *variant;
        uint64_t bytes;
    } rows[] = {
        {"cu_seqlens", "decode", 4 * 512 + 4 * 513},
        {"merge_states", "deepseek-v3", 817889280},
        {"merge_states", "deepseek-v3, tp 8", 102236160},
        {"page_table", "long, pages of 1", 2 * 4 * 512 * 131072ull + 5 * 4 * 512 + 2 * 4},
        {"kv_indices", "131,072 tokens", 8 * 131072 + 4 * 513 + 12 * 512},
        {"padded_copy", "512 of 1,024", 4 * (512 + 1024)},
        {"gather_kv", "bf16", 150994944},
        {"gather_kv", "flashmla", 1808 * 65536},
        {"scale_padding", "nvfp4, one token", 65536 - 512 + 4},
        {"chunk_plan", "8 of 32,768", 4 * 8 + 4 * 4 * (8 + 8 + 9 + 2 + 65536) + 4},
        {"concat_kv", "deepseek-v3", 5368709120 + 8388608},
        {"route", "qwen3-30b-a3b", 8192 * (2 * 128 + 8 * 8)},
        {"route", "deepseek-v3", 8192 * (2 * 256 + 8 * 8) + 4 * 256},
        {"align_blocks", "deepseek-v3", 4 * (65536 + 81664 + 1276 + 1)},
        {"expert_counts", "deepseek-v3", 4 * (65536 * 2 + 98048 + 256 * 10 + 1)},
        {"silu_and_mul", "qwen3-30b-a3b", 301989888},
        {"silu_and_mul", "mixtral-8x7b", 1409286144},
        {"silu_and_mul", "deepseek-v3", 805306368},
        {"permute", "qwen3-30b-a3b", 9ull * 8192 * 2048 * 2 + 4 * 65536},
        {"permute", "deepseek-v3", 1056964608 + 4 * 65536},
        {"combine", "qwen3-30b-a3b", 302514176},
        {"combine", "mixtral-8x7b", 201457664},
        {"combine", "deepseek-v3", 1057488896},
    };
    struct flw_bench bench = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct flw_kernel_module *module;
        const struct flw_kernel_case *of = find_case(rows[i].module, rows[i].variant, &module);
        struct flw_kernel_call call;
        fallow_workspace_need need;
        assert_true(flw_kernel_call_make(&call, module, of, &bench, true));
        fallow_workspace_need_init(&need);
        assert_ok(module->query(call.params, &need));
        if (need.read_bytes + need.write_bytes != rows[i].bytes) {
            fail_msg("%s, %s: %llu bytes, not %llu", module->name, of->variant,
                     (unsigned long long)(need.read_bytes + need.write_bytes),
                     (unsigned long long)rows[i].bytes);
        }
    }
}

TEST(every_case_runs_on_the_simulated_device_under_a_name_of_its_own)
{
    if (command_run("$F bench kernels") != 0) {
        fail_msg("%s%s", out_text, error_text);
    }
    flw_test_expect_in(out_text, "simulated device: byte and launch counts only");
    assert_null(strstr(out_text, "GB/s")); /* no figure of the simulated device is a GPU's */
    for (const struct flw_kernel_module *at = flw_kernel_modules; at->name != NULL; at++) {
        for (const struct flw_kernel_case *of = at->cases; of->variant != NULL; of++) {
            const struct flw_kernel_module *module;
            flw_test_expect_in(out_text, of->variant);
            assert_ptr_equal(find_case(at->name, of->variant, &module), of);
        }
    }
}

TEST(the_json_is_one_object_with_every_size)
{
    command_expect("$F bench kernels --only combine --json");
    assert_int_equal(strncmp(out_text, "{\"bench\":\"kernels\"", 18), 0);
    assert_non_null(strstr(out_text, "\"sizes\":{\"tokens\":8192,\"width\":7168,\"top_k\":8},"
                                     "\"goal_of_copy\":0.85,\"ok\":true,\"message\":\"\","
                                     "\"read_bytes\":940048384,\"write_bytes\":117440512,"
                                     "\"launches\":1,\"launch_goal\":null}"));
    assert_null(strstr(out_text, "\"us\""));
    assert_null(strstr(out_text, "silu_and_mul"));
    assert_non_null(strstr(out_text, "\"failures\":0,"));
}

TEST(mistakes_on_the_command_line_are_refused)
{
    command_expect_error("$F bench kernels --only nothing", 2, "no module 'nothing'");
    command_expect_error("$F bench kernels --device x", 2, "--device 'x'");
    command_expect_error("$F bench kernels --device -1", 2, "--device '-1'");
    command_expect_error("$F bench kernels more", 2, "unknown argument 'more'");
    assert_int_equal(command_run("$F bench kernels --frobnicate"), 2);
}

/* ---- broken calls */

static void make_broken(struct flw_kernel_call *call, const int *sizes)
{
    (void)flw_kernel_output(call, (int64_t)sizes[0] << 30);
}

static void open_bench(struct flw_bench *bench)
{
    static const struct flw_bench_options on_sim = {
        .stream_count = 1, .device = -1, .world = &flw_bench_kernel_world};
    static struct flw_bench_options options;
    options = on_sim;
    options.policy = flw_bench_policy_find("fallow");
    *bench = (struct flw_bench){.options = &options};
    if (!flw_bench_open(bench) || !flw_kernel_load(bench)) {
        fail_msg("%s", bench->message);
    }
}

TEST(a_call_without_its_memory_is_broken_and_says_so)
{
    const struct flw_kernel_module module = {
        .name = "broken", .make = make_broken, .sizes = {{"gigabytes", 1024}}};
    const struct flw_kernel_case large = {.sizes = {1 << 20}}, small = {.sizes = {0}};
    struct flw_bench bench;
    struct flw_kernel_call call;
    open_bench(&bench);
    assert_false(flw_kernel_call_make(&call, &module, &large, &bench, false));
    flw_test_expect_in(bench.message, "no buffer of 1099511627776 bytes");
    flw_kernel_call_finish(&call);
    assert_true(flw_kernel_call_make(&call, &module, &small, &bench, false));
    assert_true(flw_kernel_wait(&bench));
    flw_kernel_call_finish(&call);
    flw_kernel_unload(&bench);
    flw_bench_close(&bench);
}

/* An input that was never written: the rule checker detects the read, and the bed reports the fault. */
TEST(a_call_that_reads_unwritten_bytes_is_told)
{
    const struct flw_kernel_module *module;
    const struct flw_kernel_case *of = find_case("cu_seqlens", "decode", &module);
    struct flw_bench bench;
    struct flw_kernel_call call;
    open_bench(&bench);
    assert_true(flw_kernel_call_make(&call, module, of, &bench, false));
    void *unwritten = flw_kernel_output(&call, 65536);
    memcpy(call.params + sizeof(size_t), &unwritten, sizeof unwritten); /* params.lengths */
    assert_ok(module->launch(bench.kernels, call.params, bench.streams[0]));
    assert_false(flw_kernel_wait(&bench));
    flw_test_expect_in(bench.message, "lengths");
    assert_true(flw_kernel_wait(&bench)); /* reported once: the next call is another */
    flw_kernel_call_finish(&call);
    flw_kernel_unload(&bench);
    flw_bench_close(&bench);
}

FLW_TEST_MAIN(command_make_folder, command_remove_folder)
