/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the `fallow` command's front door: the list of subcommands, which of them, version.
 * Does not: any work of its own.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fallow/fallow.h"
#include "trace/gen/gen.h"

#include "common/command.h"
#include "common/tool_host.h"

static const char *report_word(size_t index)
{
    static const char *const words[] = {"diff", "merge"};
    return index < sizeof words / sizeof *words ? words[index] : NULL;
}

#if defined(FLW_HAS_KERNELS)
static const char *bench_word(size_t index)
{
    return index == 0 ? "kernels" : NULL;
}
#else
#define bench_word NULL
#endif

static const struct flw_subcommand subcommands[] = {
    {"replay", "run an allocation trace through policies and compare the memory they hold",
     flw_command_replay, NULL},
    {"report", "report the owners of a trace's memory, and the memory of other policies",
     flw_command_report, report_word},
    {"view", "write the page of a trace and open it in a browser", flw_command_view, NULL},
    {"trace", "inspect, verify and convert traces", flw_command_trace, flw_verb_name},
    {"gen", "make allocation traces: serve, train, streams, random, adversarial", flw_command_gen,
     flw_gen_name},
    {"run", "run an unmodified CUDA program on Fallow", flw_command_run, NULL},
    {"record", "run a CUDA program and record its allocations", flw_command_record, NULL},
    {"audit", "find zero-fills of a CUDA program that may be unnecessary", flw_command_audit, NULL},
    {"layout", "show the workspace of a step: regions, shared bytes, smallest size",
     flw_command_layout, NULL},
    {"top", "watch the pools of a running process", flw_command_top, NULL},
#if defined(FLW_HAS_BENCH)
    {"bench", "measure the cost of the allocator's operations", flw_command_bench, bench_word},
#endif
    {"doctor", "check the driver and the devices, and recommend settings", flw_command_doctor,
     NULL},
    {"help", "print the help of a subcommand, or its man page", flw_command_help, NULL},
    {.name = NULL}};

static void print_version(void)
{
    printf("fallow %d.%d.%d (host memory: %s)\n", FALLOW_VERSION_MAJOR, FALLOW_VERSION_MINOR,
           FALLOW_VERSION_PATCH, flw_host_name());
}

static int finish(int code)
{
    return !flw_flush_output() && code == FLW_EXIT_OK ? FLW_EXIT_FAILED : code;
}

static const char *option_name(size_t index)
{
    static const char *const names[] = {"--help", "--version", NULL};
    return names[index];
}

/* Does `--` stand between a subcommand and its verb? No option has come that it could end. */
static bool leads_to_verb(int argc, char **argv)
{
    static const char *const with_verbs[] = {"trace", "gen", "bench", NULL};
    return argc > 3 && strcmp(argv[2], "--") == 0 && argv[3][0] != '-' &&
           flw_is_one_of(argv[1], with_verbs);
}

/* Where a standard descriptor is closed the next file would get its number, and what is printed would go there. (A
 * program that is started has it closed again.) */
static void hold_standard(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) { /* the lowest that is free; to write to it is an error */
            (void)!open("/dev/null", O_RDONLY | O_CLOEXEC);
        }
    }
}

int main(int argc, char **argv)
{
    flw_subcommands = subcommands;
    hold_standard();
    flw_signals_keep();
    signal(SIGPIPE, SIG_IGN); /* a reader that has gone is an error of writing, told in one line */
    signal(SIGXFSZ, SIG_IGN); /* and so is a file that may not grow */
    if (argc < 2) {
        flw_complain("no subcommand is given");
        flw_subcommand_print_help(stderr);
        return FLW_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        flw_subcommand_print_help(stdout);
        return finish(FLW_EXIT_OK);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        print_version();
        return finish(FLW_EXIT_OK);
    }
    if (argv[1][0] == '-') {
        (void)flw_choose(argv[1], option_name, "there is no option", "see fallow --help");
        return FLW_EXIT_USAGE;
    }
#if !defined(FLW_HAS_BENCH)
    if (strcmp(argv[1], "bench") == 0) {
        return flw_refuse(
            FLW_EXIT_FAILED,
            "this fallow was built without its bench; configure with -DFALLOW_BENCH=ON");
    }
#endif
    if (leads_to_verb(argc, argv)) {
        argv[2] = argv[1];
        argv++;
        argc--;
    }
    const struct flw_subcommand *subcommand = flw_subcommand_find(argv[1]);
    return subcommand == NULL ? FLW_EXIT_USAGE : finish(subcommand->run(argc - 1, argv + 1));
}
