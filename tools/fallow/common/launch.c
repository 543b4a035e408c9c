/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the text of FALLOW, and the child of flw_launch. The parent only waits and passes signals on. The child is this
 * program until it becomes the command, so it changes its own environment. Then the parent writes the statistics of
 * processes that wrote none at exit, from the counts that they posted to the page.
 */
#include "common/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/bits.h"
#include "base/sealed_file.h"
#include "common/command.h"
#include "common/figures.h"
#include "preload/settings.h"
#include "trace/io/codec.h"

#define LIBRARY           "libfallow-preload.so"
#define ENVIRONMENT_BYTES (32 * 1024)
#define STATE_BYTES       64
#define LOOKED_BYTES      (3 * FLW_LAUNCH_PATH_BYTES)

#ifndef FLW_LIBRARY_DIR /* from the folder of programs to that of libraries, as installed */
#define FLW_LIBRARY_DIR "../lib"
#endif

/* ---- the settings */

bool flw_settings_inherit(struct flw_settings_text *settings)
{
    const char *given = getenv("FALLOW");
    size_t length = given != NULL ? strlen(given) : 0;
    if (length >= sizeof settings->text) {
        return flw_complain(
            "FALLOW in the environment has %zu bytes, too many for this command, which takes "
            "%zu; shorten it, or preload the library without the command",
            length, sizeof settings->text - 1);
    }
    memcpy(settings->text, given != NULL ? given : "", length + 1);
    return true;
}

/* Refuse a name for a packed file: the program writes these files itself, and a record must survive a crash. */
static bool check_name(const char *path)
{
    if (flw_packer_tell(path) != FLW_CODEC_PLAIN) {
        return flw_complain("'%s': the program writes records and statistics unpacked; give a name "
                            "without %s, and pack the file afterwards",
                            path, strrchr(path, '.'));
    }
    return true;
}

/* True if the preload library accepts all settings; otherwise an error has been printed. */
static bool check_settings(const struct flw_settings_text *settings)
{
    char message[FLW_SETTINGS_MESSAGE_BYTES];
    struct flw_settings read;
    if (!flw_settings_parse(&read, settings->text, "", message)) {
        return flw_complain("%s", message);
    }
    return check_name(read.trace_file) && check_name(read.stats_file);
}

/* Return the comma after the item at `at`, or the end; a backslash quotes the next character. */
static char *end_of_item(char *at)
{
    while (*at != '\0' && *at != ',') {
        at += *at == '\\' && at[1] != '\0' ? 2 : 1;
    }
    return at;
}

/* Remove all items `key:...`, and a comma at the end. */
static void drop(char *text, const char *key)
{
    size_t length = strlen(key), has_comma = 0;
    char *to = text;
    for (char *at = text, *end, *next; *at != '\0'; at = next) {
        end = end_of_item(at);
        next = end + (*end == ',');
        if (strncmp(at, key, length) != 0 || (at[length] != ':' && at + length != end)) {
            has_comma = *end == ',';
            memmove(to, at, (size_t)(next - at));
            to += next - at;
        }
    }
    to -= has_comma;
    *to = '\0';
}

bool flw_settings_put(struct flw_settings_text *settings, const char *key, const char *value)
{
    char item[FLW_SETTINGS_BYTES];
    size_t length = (size_t)snprintf(item, sizeof item, "%s:", key);
    if (value == NULL) {
        return true;
    }
    for (const char *at = value; *at != '\0' && length + 3 < sizeof item; at++) {
        if (*at == ',' || *at == '\\') {
            item[length++] = '\\';
        }
        item[length++] = *at;
    }
    item[length] = '\0';
    if (*value == '\0') {
        return flw_complain("%s: give it a value", key);
    }
    drop(settings->text, key);
    size_t used = strlen(settings->text), room = sizeof settings->text - used;
    if (length + 3 >= sizeof item || length + 2 > room) {
        return flw_complain("%s '%.80s...': FALLOW has room for %zu bytes", key, value,
                            sizeof settings->text);
    }
    snprintf(settings->text + used, room, "%s%s", used > 0 ? "," : "", item);
    return true;
}

bool flw_settings_put_file(struct flw_settings_text *settings, const char *key, const char *path)
{
    char whole[FLW_LAUNCH_PATH_BYTES], here[FLW_LAUNCH_PATH_BYTES];
    if (path == NULL || *path == '/' || strcmp(path, "-") == 0 || *path == '\0') {
        return flw_settings_put(settings, key, path);
    }
    if (getcwd(here, sizeof here) == NULL ||
        snprintf(whole, sizeof whole, "%s/%s", here, path) >= (int)sizeof whole) {
        return flw_complain("%s '%s': cannot determine the absolute path; give one", key, path);
    }
    return flw_settings_put(settings, key, whole);
}

bool flw_settings_take(void *member, const char *text)
{
    char key[32];
    const char *colon = strchr(text, ':');
    if (colon == NULL || colon == text || (size_t)(colon - text) >= sizeof key) {
        return flw_complain("--set '%s': it takes a key, a colon and a value", text);
    }
    snprintf(key, sizeof key, "%.*s", (int)(colon - text), text);
    return flw_settings_put(member, key, colon + 1);
}

/* ---- the library */

/* Resolve the library's path. Returns false if there is no file, and appends the path to `looked`, for the error. */
static bool try_library(const char *path, char *out, char *looked)
{
    if (realpath(path, out) != NULL) {
        return true;
    }
    flw_append(looked, LOOKED_BYTES, "%s%s", *looked != '\0' ? ", " : "", path);
    return false;
}

/* Find a library of ours beside this program or as installed. `looked`: as try_library. */
static bool find_ours(const char *name, char *out, char *looked)
{
    static const char *const places[] = {FLW_LIBRARY_DIR, "../lib", "."};
    char program[FLW_LAUNCH_PATH_BYTES], path[FLW_LAUNCH_PATH_BYTES + 128];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    bool is_found = false;
    program[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(program, '/');
    for (size_t i = 0; slash != NULL && !is_found && i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%.*s/%s/%s", (int)(slash - program), program, places[i], name);
        bool is_new = i != 1 || strcmp(places[0], places[1]) != 0;
        is_found = is_new && try_library(path, out, looked);
    }
    return is_found;
}

bool flw_launch_find_simulator(char out[FLW_LAUNCH_PATH_BYTES])
{
    char looked[LOOKED_BYTES] = "";
    return find_ours("libfallow-simcuda.so", out, looked) ||
           flw_complain("--sim: cannot find the simulated driver; looked for %s", looked);
}

static bool find_library(const char *given, char *out)
{
    char looked[LOOKED_BYTES] = "";
    bool is_found =
        given != NULL ? try_library(given, out, looked) : find_ours(LIBRARY, out, looked);
    if (!is_found) {
        flw_complain("cannot find the library to preload; looked for %s; --library PATH names it",
                     looked);
    } else if (strpbrk(out, " :\t\n") != NULL) {
        is_found = false;
        flw_complain("cannot preload %s: LD_PRELOAD cannot name a path with a blank or a colon in "
                     "it; move it, or link to it from elsewhere and set --library PATH",
                     out);
    }
    return is_found;
}

/* ---- the environment */

/* True for the runtime of a sanitizer, which must be the first library. */
static bool is_sanitizer(const char *name, size_t length)
{
    static const char *const marks[] = {"libasan", "libtsan", "libubsan", "liblsan",
                                        "libclang_rt."};
    bool is_one = false;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        is_one |= memmem(name, length, marks[i], strlen(marks[i])) != NULL;
    }
    return is_one;
}

/* Append the other libraries of LD_PRELOAD, either the sanitizers or the rest. */
static void append_given(char *preloads, const char *library, bool wants_sanitizers)
{
    const char *given = getenv("LD_PRELOAD");
    for (size_t length; given != NULL && *(given += strspn(given, ": \n")) != '\0';
         given += length) {
        length = strcspn(given, ": ");
        bool is_ours = length == strlen(library) && memcmp(given, library, length) == 0;
        if (!is_ours && is_sanitizer(given, length) == wants_sanitizers) {
            flw_append(preloads, ENVIRONMENT_BYTES, "%s%.*s", *preloads != '\0' ? ":" : "",
                       (int)length, given);
        }
    }
}

/* Preload runtimes of sanitizers, the library, then others: our library calls another one in front of the driver.
 * Returns false if a text is too long. */
static bool set_environment(const char *library, const char *settings, const char *state)
{
    char preloads[ENVIRONMENT_BYTES] = "", text[FLW_SETTINGS_BYTES + STATE_BYTES];
    append_given(preloads, library, true);
    flw_append(preloads, sizeof preloads, "%s%s", *preloads != '\0' ? ":" : "", library);
    append_given(preloads, library, false);
    snprintf(text, sizeof text, "%s%s%s", settings, *settings != '\0' && *state != '\0' ? "," : "",
             state);
    return strlen(preloads) + 1 < sizeof preloads && setenv("LD_PRELOAD", preloads, 1) == 0 &&
           setenv("FALLOW", text, 1) == 0;
}

/* ---- the page */

/* Make the page, open until the command ends, and the setting with its path for all processes below. Returns NULL if the
 * system has no such files; then nothing is known of the hooks. */
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

static int refuse(const struct flw_launch *launch, int error)
{
    bool is_missing = error == ENOENT || error == ENOTDIR;
    flw_complain("%s: cannot run '%s': %s", launch->subcommand, launch->command[0],
                 error == ENOENT && strchr(launch->command[0], '/') == NULL
                     ? "no such command in PATH"
                     : strerror(error));
    return is_missing ? FLW_LAUNCH_NOT_FOUND : FLW_LAUNCH_NOT_RUN;
}

static void become(const struct flw_launch *launch, const char *state)
{
    errno = E2BIG;
    if (set_environment(launch->loaded, launch->settings->text, state)) {
        flw_signals_restore();
        (void)execvp(launch->command[0], launch->command);
    }
}

/* Become the command. If that fails, store errno for the parent. */
_Noreturn static void child_main(const struct flw_launch *launch, const char *state,
                                 const sigset_t *mask, int *shared_error)
{
    if ((launch->input == 0 || dup2(launch->input, 0) >= 0) &&
        (launch->output == 0 || dup2(launch->output, 1) >= 0)) {
        (void)sigprocmask(SIG_SETMASK, mask, NULL);
        become(launch, state);
    }
    *shared_error = errno;
    _exit(FLW_LAUNCH_NOT_RUN);
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

static void wait_for(pid_t child, struct flw_launch *launch)
{
    sigset_t wanted = wanted_signals();
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        siginfo_t info;
        int signal = sigwaitinfo(&wanted, &info);
        /* The command receives a terminal's signals (SI_KERNEL) too. */
        if (signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL) {
            (void)kill(child, signal);
        }
    }
    launch->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    launch->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

static int run_child(struct flw_launch *launch, const char *state)
{
    sigset_t wanted = wanted_signals(), before;
    struct sigaction usual = {.sa_handler = SIG_DFL};
    int code = FLW_EXIT_FAILED;
    int *shared_error =
        mmap(NULL, sizeof *shared_error, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)sigprocmask(SIG_BLOCK, &wanted, &before);
    (void)sigaction(SIGCHLD, &usual, NULL); /* if ignored, waitpid would lose the outcome */
    pid_t child = shared_error != MAP_FAILED ? fork() : -1;
    if (child == 0) {
        child_main(launch, state, &before, shared_error);
    } else if (child < 0) {
        flw_complain("%s: cannot make a process: %s", launch->subcommand, strerror(errno));
    } else {
        wait_for(child, launch);
        code = *shared_error != 0 ? refuse(launch, *shared_error) : 0;
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    if (shared_error != MAP_FAILED) {
        (void)munmap(shared_error, sizeof *shared_error);
    }
    return code;
}

/* ---- statistics of processes that wrote none */

/* True if the process is running. A zombie is not. */
static bool is_running(int process)
{
    char path[32], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    size_t length = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    text[length] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end != NULL && strncmp(name_end, ") Z", 3) != 0 && strncmp(name_end, ") X", 3) != 0;
}

size_t flw_launch_place_count(const struct flw_runpage *page)
{
    return flw_min(atomic_load(&page->place_count), FLW_RUNPAGE_PLACES);
}

bool flw_launch_is_replaced(const struct flw_runpage *page, size_t number)
{
    bool is_replaced = false;
    for (size_t i = number + 1; i < flw_launch_place_count(page); i++) {
        is_replaced |= atomic_load(&page->places[i].pid) == atomic_load(&page->places[number].pid);
    }
    return is_replaced;
}

static enum flw_summary_end end_of(const struct flw_runpage *page, size_t number)
{
    const struct flw_runpage_place *place = &page->places[number];
    return (atomic_load(&place->flags) & FLW_RUNPAGE_LEFT) != 0 ? FLW_SUMMARY_LEFT
           : !flw_launch_is_replaced(page, number) && is_running(atomic_load(&place->pid))
               ? FLW_SUMMARY_RUNS_ON
               : FLW_SUMMARY_KILLED;
}

/* Write the statistics of processes that did not write their own: killed, ended by _exit, or still running. */
static void write_stats(const struct flw_launch *launch, struct flw_runpage *page)
{
    static struct flw_settings settings;
    static struct flw_summary summary;
    char message[FLW_SETTINGS_MESSAGE_BYTES];
    bool has_file = flw_settings_parse(&settings, launch->settings->text, "", message) &&
                    settings.stats_file[0] != '\0';
    for (size_t i = 0; has_file && i < flw_launch_place_count(page); i++) {
        struct flw_runpage_place *place = &page->places[i];
        uint32_t posted = atomic_load(&place->posted);
        if (posted != 0 && flw_runpage_tell(place)) {
            summary = place->summaries[posted % 2];
            summary.end = end_of(page, i);
            /* Clamp: other processes may write the page. */
            summary.mode = flw_min(summary.mode, FLW_MODE_AUDIT);
            summary.program[sizeof summary.program - 1] = '\0';
            flw_summary_write(&summary, settings.stats_file,
                              flw_runpage_claim(page, FLW_RUNPAGE_STATS, summary.process));
        }
    }
}

/* ---- together */

int flw_launch(struct flw_launch *launch)
{
    char state[STATE_BYTES] = "";
    if (!check_settings(launch->settings)) {
        return FLW_EXIT_USAGE;
    }
    if (!find_library(launch->library, launch->loaded)) {
        return FLW_EXIT_FAILED;
    }
    fflush(stdout);
    fflush(stderr);
    if (launch->replaces) {
        become(launch, state);
        return refuse(launch, errno);
    }
    int fd;
    struct flw_runpage *page = make_page(state, &fd);
    int code = run_child(launch, state);
    if (page != NULL) {
        write_stats(launch, page);
        launch->page = page;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return code;
}

int flw_launch_end_as(const struct flw_launch *launch)
{
    if (launch->signal != 0) {
        struct rlimit none = {0, 0};
        sigset_t one;
        fflush(stdout);
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(launch->signal, SIG_DFL);
        sigemptyset(&one);
        sigaddset(&one, launch->signal);
        (void)raise(launch->signal);
        (void)sigprocmask(SIG_UNBLOCK, &one, NULL);
        return 128 + launch->signal;
    }
    return launch->exit_code;
}
