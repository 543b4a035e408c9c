/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the child of flw_launch. A parent only waits and passes signals on; the child is this program
 * until it becomes the command, so its environment is changed there.
 */
#include "common/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/sealed_file.h"
#include "common/command.h"

#define LIBRARY           "libfallow-preload.so"
#define ENVIRONMENT_BYTES (32 * 1024)
#define STATE_BYTES       64

#ifndef FLW_LIBRARY_DIR /* from the folder of programs to that of libraries, as installed */
#define FLW_LIBRARY_DIR "../lib"
#endif

/* ---- the library */

static bool is_nameable(const char *path)
{
    return strpbrk(path, " :\t\n") == NULL; /* LD_PRELOAD has no way to quote */
}

static bool find_library(const struct flw_launch *launch, char *out)
{
    static const char *const places[] = {FLW_LIBRARY_DIR, "../lib", "."};
    char program[FLW_LAUNCH_PATH_BYTES], path[FLW_LAUNCH_PATH_BYTES], *found = NULL;
    char looked[3 * sizeof path];
    if (launch->library != NULL) {
        found = realpath(launch->library, out);
    }
    snprintf(looked, sizeof looked, "%s", launch->library != NULL ? launch->library : "");
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(program, '/');
    bool goes_on = launch->library == NULL && slash != NULL;
    for (size_t i = 0; goes_on && found == NULL && i < sizeof places / sizeof *places; i++) {
        size_t used = strlen(looked);
        bool is_new = i != 1 || strcmp(places[0], places[1]) != 0;
        int written = snprintf(path, sizeof path, "%.*s/%s/" LIBRARY, (int)(slash - program),
                               program, places[i]);
        if (is_new && written > 0 && written < (int)sizeof path) {
            found = realpath(path, out);
            snprintf(looked + used, sizeof looked - used, "%s%s", used > 0 ? ", " : "", path);
        }
    }
    if (found == NULL) {
        flw_complain("cannot find the library to preload; looked for %s; --library PATH names it",
                     looked);
        return false;
    }
    if (!is_nameable(out)) {
        flw_complain("cannot preload %s: LD_PRELOAD cannot name a path with a blank or a colon in "
                     "it; move it, or link to it from elsewhere and say --library PATH",
                     out);
        return false;
    }
    return true;
}

/* ---- the environment */

/* A sanitizer's runtime insists on being first. */
static bool is_sanitizer(const char *name, size_t length)
{
    static const char *const marks[] = {"libasan", "libtsan", "libubsan", "liblsan",
                                        "libclang_rt."};
    char copy[FLW_LAUNCH_PATH_BYTES];
    snprintf(copy, sizeof copy, "%.*s", (int)length, name);
    bool is_one = false;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        is_one |= strstr(copy, marks[i]) != NULL;
    }
    return is_one;
}

/* Sanitizers' runtimes, the library, then what else was to be preloaded: another one that stands in
 * front of the driver is still called, by ours. False: too long. */
static bool join_preloads(const char *library, char *out)
{
    const char *given = getenv("LD_PRELOAD");
    size_t used = 0;
    for (int pass = 0; pass < 3; pass++) {
        const char *at = pass == 1 ? library : given;
        while (at != NULL && *at != '\0') {
            size_t length = strcspn(at, pass == 1 ? "\n" : ": ");
            bool is_ours = length == strlen(library) && memcmp(at, library, length) == 0;
            if (length > 0 &&
                (pass == 1 || (!is_ours && is_sanitizer(at, length) == (pass == 0)))) {
                if (used + length + 2 > ENVIRONMENT_BYTES) {
                    return false;
                }
                out[used] = ':';
                memcpy(out + used + (used > 0), at, length);
                used += length + (used > 0);
            }
            at += length;
            at += strspn(at, ": \n");
        }
    }
    out[used] = '\0';
    return true;
}

/* False: `environment` does not hold it. */
static bool set_environment(const char *library, const char *settings, const char *state)
{
    char preloads[ENVIRONMENT_BYTES];
    char text[FLW_SETTINGS_BYTES + STATE_BYTES];
    snprintf(text, sizeof text, "%s%s%s", settings, *settings != '\0' && *state != '\0' ? "," : "",
             state);
    return join_preloads(library, preloads) && setenv("LD_PRELOAD", preloads, 1) == 0 &&
           setenv("FALLOW", text, 1) == 0;
}

/* ---- the page */

/* Open until the command has ended; its path names it for the processes below. NULL: the system has
 * none, and nothing will be known of the hooks. */
static struct flw_runpage *make_page(char *out_state, int *out_fd)
{
    int fd = flw_sealed_file_make("fallow-run", sizeof(struct flw_runpage));
    void *memory = MAP_FAILED;
    *out_state = '\0';
    *out_fd = fd;
    if (fd >= 0) {
        memory = mmap(NULL, sizeof(struct flw_runpage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (memory == MAP_FAILED) {
        return NULL;
    }
    struct flw_runpage *page = memory;
    page->magic = FLW_RUNPAGE_MAGIC;
    snprintf(out_state, STATE_BYTES, "state:/proc/%d/fd/%d", (int)getpid(), fd);
    return page;
}

/* ---- the child */

static int code_of(int error)
{
    return error == ENOENT || error == ENOTDIR ? FLW_LAUNCH_NOT_FOUND : FLW_LAUNCH_NOT_RUN;
}

static int refuse(const struct flw_launch *launch, int error)
{
    flw_complain("%s: cannot run '%s': %s", launch->subcommand, launch->command[0],
                 error == ENOENT && strchr(launch->command[0], '/') == NULL
                     ? "no such command in PATH"
                     : strerror(error));
    return code_of(error);
}

static void become(const struct flw_launch *launch, const char *library, const char *state)
{
    errno = E2BIG;
    if (set_environment(library, launch->settings->text, state)) {
        flw_signals_restore();
        (void)execvp(launch->command[0], launch->command);
    }
}

/* In the child: errno goes up the pipe where there is no command. */
static void child_main(const struct flw_launch *launch, const char *library, const char *state,
                       const sigset_t *mask, int pipe_end)
{
    bool is_ready = (launch->input == FLW_LAUNCH_KEEP || dup2(launch->input, 0) >= 0) &&
                    (launch->output == FLW_LAUNCH_KEEP || dup2(launch->output, 1) >= 0);
    if (is_ready) {
        (void)sigprocmask(SIG_SETMASK, mask, NULL);
        become(launch, library, state);
    }
    int error = errno;
    ssize_t written = write(pipe_end, &error, sizeof error);
    _exit(written == (ssize_t)sizeof error ? code_of(error) : FLW_LAUNCH_NOT_RUN);
}

/* ---- the parent */

static const int passed_on[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,  SIGUSR1,
                                SIGUSR2, SIGALRM, SIGCONT, SIGWINCH, SIGIO};

static sigset_t wanted_signals(void)
{
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) {
        sigaddset(&wanted, passed_on[i]);
    }
    return wanted;
}

/* What a terminal sends goes to all processes in front of it, the command among them. */
static bool is_from_terminal(const siginfo_t *info)
{
    return info->si_code == SI_KERNEL;
}

static void wait_for(pid_t child, struct flw_launch_outcome *outcome)
{
    sigset_t wanted = wanted_signals();
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        siginfo_t info;
        int signal = sigwaitinfo(&wanted, &info);
        if (signal > 0 && signal != SIGCHLD && !is_from_terminal(&info)) {
            (void)kill(child, signal);
        }
    }
    outcome->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    outcome->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    outcome->pid = child;
}

/* Waits until the child is the command: 0, or its errno. */
static int read_error(int pipe_end)
{
    int error = 0;
    ssize_t length;
    do {
        length = read(pipe_end, &error, sizeof error);
    } while (length < 0 && errno == EINTR);
    return length == (ssize_t)sizeof error ? error : 0;
}

static int run_child(const struct flw_launch *launch, const char *state,
                     struct flw_launch_outcome *outcome)
{
    sigset_t wanted = wanted_signals(), before;
    struct sigaction usual = {.sa_handler = SIG_DFL};
    int ends[2], code = FLW_EXIT_FAILED;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        flw_complain("%s: cannot make a pipe: %s", launch->subcommand, strerror(errno));
        return code;
    }
    (void)sigprocmask(SIG_BLOCK, &wanted, &before);
    (void)sigaction(SIGCHLD, &usual, NULL); /* ignored, it would take the child's end away */
    pid_t child = fork();
    if (child == 0) {
        child_main(launch, outcome->library, state, &before, ends[1]);
    }
    (void)close(ends[1]);
    if (child < 0) {
        flw_complain("%s: cannot make a process: %s", launch->subcommand, strerror(errno));
    } else {
        int error = read_error(ends[0]);
        wait_for(child, outcome);
        code = error != 0 ? refuse(launch, error) : 0;
    }
    (void)close(ends[0]);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return code;
}

int flw_launch(const struct flw_launch *launch, struct flw_launch_outcome *outcome)
{
    char state[STATE_BYTES] = "";
    memset(outcome, 0, sizeof *outcome);
    if (!flw_settings_check(launch->settings)) {
        return FLW_EXIT_USAGE;
    }
    if (!find_library(launch, outcome->library)) {
        return FLW_EXIT_FAILED;
    }
    fflush(stdout);
    fflush(stderr);
    if (launch->replaces) {
        become(launch, outcome->library, state);
        return refuse(launch, errno);
    }
    int fd;
    struct flw_runpage *page = make_page(state, &fd);
    int code = run_child(launch, state, outcome);
    if (page != NULL) {
        flw_launch_tell_stats(launch, page);
        outcome->page = page;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return code;
}

int flw_launch_end_as(const struct flw_launch_outcome *outcome)
{
    if (outcome->signal != 0) {
        struct rlimit none = {0, 0};
        sigset_t one;
        fflush(stdout);
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(outcome->signal, SIG_DFL);
        sigemptyset(&one);
        sigaddset(&one, outcome->signal);
        (void)raise(outcome->signal);
        (void)sigprocmask(SIG_UNBLOCK, &one, NULL);
        return 128 + outcome->signal;
    }
    return outcome->exit_code;
}
