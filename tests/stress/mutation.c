/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the mutation suite: the scenarios, or random programs under the rule checker, must catch
 * every planted fault of base/mutant.h within a bounded number of operations, and pass without a
 * fault. A fault that survives fails the test.
 *
 *   mutation [--only NAME] [--rounds N]
 *
 * Seeds are fixed, so a run can be repeated; with several threads the interleaving is not. Does
 * not: contain a fault. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mutant.h"

#define MOST_WORDS   24
#define MOST_SECONDS 60

static const struct {
    const char *name, *text;
} mutants[] = {{"NONE", "no fault"},
#define X(name, text) {#name, text},
               FLW_MUTANT_LIST(X)
#undef X
};
#define MUTANTS (sizeof mutants / sizeof *mutants)
_Static_assert(MUTANTS == FLW_MUTANT_COUNT, "one line a mutant");

/* Cheap ones first. Each is run once a round, with another seed. */
static const char *const profiles[] = {
    "scenario",
    "arena --ops 3000 --threads 2",
    "quiescence --ops 30000 --threads 2 --contexts 2",
    "--threads 1 --ops 20000 --validate 200",
    "--threads 1 --ops 20000 --validate 500 --streams 8 --live 400",
    "--threads 2 --ops 20000 --streams 4",
    "--threads 4 --ops 20000 --schedule random",
    "--threads 2 --ops 20000 --economy 1 --limit 200000000",
    "--threads 2 --ops 20000 --streams 10 --live 600 --most 65536",
    "--threads 1 --ops 8000 --limit 60000000",
    "--threads 3 --ops 30000 --sleep --foreign",
};
#define PROFILES (sizeof profiles / sizeof *profiles)

struct outcome {
    bool is_caught;
    char how[200]; /* a line that describes the detection */
};

static char program[4096];
static char log_path[64] = "/tmp/fallow-mutation-XXXXXX";

static void find_program(void)
{
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 32);
    program[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(program, '/');
    strcpy(slash != NULL ? slash + 1 : program, "stress_mutant");
}

/* The first line that names a broken rule; else the last one. */
static void read_reason(char *out, size_t room)
{
    FILE *in = fopen(log_path, "r");
    char line[512];
    bool is_found = false;
    static const char *const marks[] = {"scenario:", "violation", "invariant",
                                        "overlap:",  "answered",  "left behind",
                                        "stats:",    "failed:",   "is allocated while"};
    while (in != NULL && !is_found && fgets(line, sizeof line, in) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        for (size_t i = 0; i < sizeof marks / sizeof *marks && !is_found; i++) {
            is_found = strstr(line, marks[i]) != NULL && strstr(line, "out of memory") == NULL;
        }
        if (is_found) {
            snprintf(out, room, "%.*s", (int)room - 1, line);
        }
    }
    if (in != NULL) {
        fclose(in);
    }
}

static void start_child(char **words)
{
    int out = open(log_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(out, 1);
    dup2(out, 2);
    alarm(MOST_SECONDS); /* survives exec: a program that hangs is ended */
    execv(program, words);
    _exit(126);
}

static struct outcome run(size_t mutant, size_t profile, unsigned round)
{
    struct outcome outcome = {.is_caught = false};
    static char flag[] = "--mutant", seed_flag[] = "--seed";
    char text[256], number[16], seed[16], *words[MOST_WORDS] = {program, flag, number};
    size_t count = 3;
    snprintf(text, sizeof text, "%s", profiles[profile]);
    snprintf(number, sizeof number, "%zu", mutant);
    snprintf(seed, sizeof seed, "%zu", 1000 * (round + 1) + profile);
    char *rest = NULL;
    for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        words[count++] = word;
    }
    if (profile > 0) {
        words[count++] = seed_flag;
        words[count++] = seed;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        start_child(words);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(status)) {
        outcome.is_caught = true;
        snprintf(outcome.how, sizeof outcome.how, "ended by signal %d (%s)", WTERMSIG(status),
                 WTERMSIG(status) == SIGALRM ? "it hung" : "a crash or an assertion");
    } else if (WEXITSTATUS(status) == 126 || WEXITSTATUS(status) == 2) {
        read_reason(outcome.how, sizeof outcome.how);
        fprintf(stderr, "mutation: cannot run %s %s: %s\n", program, profiles[profile],
                outcome.how);
        exit(1);
    } else if (WEXITSTATUS(status) != 0) {
        outcome.is_caught = true;
        snprintf(outcome.how, sizeof outcome.how, "exit %d", WEXITSTATUS(status));
    }
    if (outcome.is_caught) {
        read_reason(outcome.how, sizeof outcome.how);
    }
    return outcome;
}

/* True if the library without a fault passes the same tests. */
static bool is_clean_without_fault(unsigned rounds)
{
    for (unsigned round = 0; round < rounds; round++) {
        for (size_t profile = 0; profile < PROFILES; profile++) {
            struct outcome outcome = run(0, profile, round);
            if (outcome.is_caught) {
                printf("NOT CLEAN  without any fault, '%s', round %u: %s\n", profiles[profile],
                       round, outcome.how);
                return false;
            }
        }
    }
    printf("clean      without a fault: %u rounds of %zu programs\n", rounds, PROFILES);
    return true;
}

static bool is_caught(size_t mutant, unsigned rounds)
{
    for (unsigned round = 0; round < rounds; round++) {
        for (size_t profile = 0; profile < PROFILES; profile++) {
            struct outcome outcome = run(mutant, profile, round);
            if (outcome.is_caught) {
                printf("caught     %-26s '%s', round %u: %s\n", mutants[mutant].name,
                       profiles[profile], round, outcome.how);
                return true;
            }
        }
    }
    printf("SURVIVED   %-26s %s\n", mutants[mutant].name, mutants[mutant].text);
    return false;
}

int main(int argc, char **argv)
{
    const char *only = NULL;
    unsigned rounds = 6, failures = 0, tried = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--only") == 0) {
            only = argv[i + 1];
        } else if (strcmp(argv[i], "--rounds") == 0) {
            rounds = (unsigned)strtoul(argv[i + 1], NULL, 10);
        } else {
            fprintf(stderr, "usage: mutation [--only NAME] [--rounds N]\n");
            return 2;
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    find_program();
    int file = mkstemp(log_path);
    if (file < 0) {
        fprintf(stderr, "mutation: cannot make %s\n", log_path);
        return 1;
    }
    close(file);
    if (only == NULL || strcmp(only, "NONE") == 0) {
        failures += !is_clean_without_fault(rounds < 2 ? rounds : 2);
    }
    for (size_t mutant = 1; mutant < MUTANTS; mutant++) {
        if (only == NULL || strcmp(only, mutants[mutant].name) == 0) {
            tried++;
            failures += !is_caught(mutant, rounds);
        }
    }
    unlink(log_path);
    printf("%u planted faults, %u failures\n", tried, failures);
    return failures > 0;
}
