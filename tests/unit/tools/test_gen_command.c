/* SPDX-License-Identifier: Apache-2.0
 *
 * `fallow gen` as a command: its output, the replay of its traces, and the messages for wrong command
 * lines. FALLOW_COMMAND names the program.
 */
#include "support/test_command.h"

TEST(help_has_an_example_of_each_generator_that_works)
{
    command_expect("fallow gen --help");
    command_expect("for g in $(fallow gen --help | sed -n 's/^  \\([a-z]*\\)  .*/\\1/p'); do"
                   "  e=$(fallow gen $g --help | sed -n 's/^example: fallow //p');"
                   "  [ -n \"$e\" ] && fallow $e 2>>log && echo $g; done",
                   "serve\n", "train\n", "streams\n", "random\n", "adversarial\n");
    assert_string_equal(error_text, "");
}

TEST(the_list_has_every_scenario)
{
    command_expect_text("fallow gen adversarial --list",
                        "sawtooth\npin-small-between-large\ncomb-free\n"
                        "alternating-streams\nhalf-max\nbatch-size-change\n");
}

TEST(a_bare_word_names_the_scenario)
{
    command_expect("fallow gen adversarial comb-free --cycles 2 --size 256M -o a && "
                   "fallow gen adversarial --size 268435456 --scenario comb-free --cycles 2 "
                   ">b && cmp a b");
}

TEST(the_command_in_the_header_makes_the_same_bytes)
{
    command_expect("fallow gen random multi-stream --count 90 --seed 12 -o a && "
                   "fallow $(sed -n 's/^command fallow //p' a) -o b && cmp a b && "
                   "fallow gen random multi-stream --count 90 --seed 13 -o b && ! cmp -s a b");
}

TEST(the_name_decides_the_form)
{
    command_expect("o='gen random --count 60'; fallow $o -o a.ftext 2>log && "
                   "fallow $o -o a.ftrace 2>log && "
                   "fallow trace dump a.ftrace -o b.ftext 2>log && "
                   "cmp a.ftext b.ftext && ! cmp -s a.ftext a.ftrace");
}

TEST(wrong_options_are_named_in_one_line)
{
    command_expect_error("fallow gen nix", 2, "no generator 'nix'; fallow gen --help");
    command_expect_error("fallow gen random --foo 3", 2,
                         "no option '--foo'; see fallow gen random --help");
    command_expect_error("fallow gen random --seed", 2, "--seed needs a value");
    command_expect_error("fallow gen random --seed -1", 2,
                         "--seed '-1' is not a whole number from 0 to");
    command_expect_error("fallow gen random --count 0", 2,
                         "--count '0' is not a whole number from 1 to");
    command_expect_error("fallow gen random --max 3Q", 2, "--max '3Q' is not a whole number from");
    command_expect_error("fallow gen adversarial nix", 2,
                         "--scenario has no 'nix'; fallow gen adversarial");
    command_expect_error("fallow gen adversarial half-max comb-free", 2, "cannot use 'comb-free'");
    command_expect_error("fallow gen random multi-stream --count 3 --threads 64", 1,
                         "--count 3 is not one block for each of 64 threads");
    command_expect_error("fallow gen streams nix", 2, "--workload has no 'nix'");
    command_expect_error("fallow gen streams --bytes 1M", 2,
                         "--bytes '1M' is not a whole number from");
    command_expect_error("fallow gen streams images --streams 65", 2,
                         "--streams '65' is not a whole");
    command_expect_error("fallow gen streams --steps 0", 2, "--steps '0' is not a whole number");
    command_expect_error("fallow gen streams shard --streams 4", 1,
                         "gen streams: --streams 4: shard has 3; leave it out");
    command_expect_error("fallow gen streams offload --streams 2", 1, "offload needs 3 to 64");
    command_expect_error("fallow gen random --cap 1", 1, "these options leave no allocation");
    command_expect_error("fallow gen random -o /nowhere/at/all", 1, "/nowhere/at/all");
    command_expect_error("fallow gen random >/dev/full", 1, "cannot write");
}

TEST(a_failure_leaves_no_file)
{
    command_expect_text("mkdir d && fallow gen random --count 0 -o d/x; ls d", "");
}

/* One of each kind. */
static const char *const generated[] = {
    "random rmm --count 300",
    "random multi-stream --count 300",
    "random kernels --count 300",
    "random query --count 20",
    "adversarial sawtooth --cycles 10",
    "adversarial pin-small-between-large --cycles 10",
    "adversarial comb-free --cycles 4",
    "adversarial alternating-streams --cycles 4",
    "adversarial half-max --cycles 4",
    "adversarial batch-size-change --cycles 9",
    "streams serving --steps 20",
    "streams offload --steps 4 --streams 5",
    "streams shard --steps 4",
    "streams images --steps 30",
    "streams experts --steps 4 --bytes 1G",
    "train --layers 2 --steps 2",
    "serve llama-3-8b --steps 10",
    "serve llama-3-8b --steps 10 --mode graph --max-seqs 16 --kv pages",
    "serve qwen3-30b-a3b --steps 8 --ep 8 --expert-skew 80",
    "serve deepseek-v3 --steps 4 --tp 8 --ep 32 --mla flashmla --traffic code",
    "train --layers 4 --zero3 4 --prefetch 2 --vary conversation --attention flash --steps 2",
    "train --layers 4 --stages 2 --rank 0 --recompute full --steps 2",
};
#define GENERATED (sizeof generated / sizeof *generated)

TEST(what_is_read_is_not_replaced)
{
    static const char requests[] =
        "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 20}\n";
    command_write("requests", requests, sizeof requests - 1);
    command_expect("cp requests kept; ln -s requests link");
    command_expect_error("fallow gen serve --requests requests -o ./requests", 2,
                         "-o ./requests is the input of --requests; name another file");
    command_expect_error("fallow gen train --lengths requests -o link", 2,
                         "-o link is the input of --lengths; name another file");
    command_expect("cmp requests kept && test -L link");
}

TEST(every_generated_trace_is_the_same_as_text_and_as_a_file)
{
    char line[640];
    for (size_t i = 0; i < GENERATED; i++) {
        snprintf(line, sizeof line,
                 "fallow gen %s -o a.ftext 2>log && fallow gen %s -o a.ftrace 2>log && "
                 "fallow trace pack a.ftext -o b.ftrace 2>log && cmp a.ftrace b.ftrace && "
                 "fallow trace dump b.ftrace -o b.ftext 2>log && cmp a.ftext b.ftext",
                 generated[i], generated[i]);
        if (command_run(line) != 0) {
            fail_msg("gen %s: %s%s", generated[i], out_text, error_text);
        }
    }
}

static void replayed(const char *arguments)
{
    char line[512];
    snprintf(line, sizeof line,
             "fallow gen %s -o t && fallow replay t --policy fallow,pytorch --no-times --json -",
             arguments);
    if (command_run(line) != 0) {
        fail_msg("gen %s: %s", arguments, error_text);
    }
    size_t policies = 0;
    for (const char *at = out_text; (at = strstr(at, "\"failures\": ")) != NULL; at++) {
        assert_memory_equal(at, "\"failures\": 0,", 14);
        policies++;
    }
    assert_int_equal(policies, 2);
}

TEST(every_generated_trace_replays)
{
    for (size_t i = 0; i < GENERATED; i++) {
        replayed(generated[i]);
    }
}

FLW_TEST_MAIN(command_make_folder, command_remove_folder)
