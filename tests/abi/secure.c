/* SPDX-License-Identifier: Apache-2.0
 *
 * abi.secure: the libraries in a privileged program (setuid root here) ignore the environment:
 * FALLOW_PLUGIN names no driver that would run code as root, FALLOW no file that the preload
 * library would open as root. The same programs without the privilege obey both.
 *
 *   secure <victim> <driver> [<victim that links the preload library>]       77: not root, or no setuid */
#include <fcntl.h>
#include <grp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/runpage.h"

#define COPY   "secure_victim_setuid"
#define NOBODY 65534

static void stop(const char *what)
{
    perror(what);
    exit(1);
}

static int copy_setuid(const char *path)
{
    struct stat facts;
    int from = open(path, O_RDONLY | O_CLOEXEC);
    (void)unlink(COPY);
    int to = open(COPY, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    if (from < 0 || to < 0 || fstat(from, &facts) != 0) {
        stop(path);
    }
    for (off_t left = facts.st_size; left > 0;) {
        ssize_t count = sendfile(to, from, NULL, (size_t)left);
        if (count <= 0) {
            stop(COPY);
        }
        left -= count;
    }
    if (fchown(to, 0, 0) != 0 || fchmod(to, 04755) != 0) {
        stop(COPY);
    }
    close(from);
    close(to); /* a file open for writing cannot be executed */
    int program = open(COPY, O_RDONLY | O_CLOEXEC);
    if (program < 0) {
        stop(COPY);
    }
    return program;
}

/* Return the program's output, run as root or, if `is_other`, by an unprivileged user. By
 * descriptor, because that user may not access the folder. */
static void run(int program, char *setting, bool is_other, char *out, size_t out_bytes)
{
    int ends[2], state = 0;
    size_t length = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        stop("pipe");
    }
    pid_t child = fork();
    if (child == 0) {
        char name[] = "victim";
        char *arguments[] = {name, NULL}, *environment[] = {setting, NULL};
        if (dup2(ends[1], STDOUT_FILENO) < 0 || dup2(ends[1], STDERR_FILENO) < 0 ||
            (is_other && (setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0))) {
            _exit(126);
        }
        fexecve(program, arguments, environment);
        _exit(127);
    }
    close(ends[1]);
    for (ssize_t count; (count = read(ends[0], out + length, out_bytes - 1 - length)) > 0;) {
        length += (size_t)count;
    }
    out[length] = '\0';
    close(ends[0]);
    if (child < 0 || waitpid(child, &state, 0) != child || !WIFEXITED(state) ||
        WEXITSTATUS(state) != 0) {
        fprintf(stderr, "secure: the victim ended with %#x:\n%s", (unsigned)state, out);
        exit(1);
    }
}

static bool has(const char *out, const char *part)
{
    return strstr(out, part) != NULL;
}

/* Leaves with 77 where the system grants no privilege (no_new_privs, a file system without setuid). */
static void run_privileged(const char *victim, char *setting, char *out, size_t out_bytes)
{
    int copy = copy_setuid(victim);
    run(copy, setting, true, out, out_bytes);
    close(copy);
    (void)unlink(COPY);
    if (!has(out, "privileged 1")) {
        printf("setuid gives no privilege here: nothing checked\n");
        exit(77);
    }
}

static void expect(bool holds, const char *what, const char *out)
{
    if (!holds) {
        fprintf(stderr, "secure: %s; the victim says:\n%s", what, out);
        exit(1);
    }
}

static void check_plugin(const char *victim, const char *driver)
{
    char setting[4096], out[4096];
    snprintf(setting, sizeof setting, "FALLOW_PLUGIN=driver:%s", driver);
    int program = open(victim, O_RDONLY | O_CLOEXEC);
    run(program, setting, false, out, sizeof out);
    close(program);
    expect(has(out, "privileged 0") && has(out, "the caller's code runs"),
           "without a privilege the setting is heeded", out);
    run_privileged(victim, setting, out, sizeof out);
    expect(!has(out, "the caller's code runs"), "FALLOW_PLUGIN led a privileged program astray",
           out);
}

static uint32_t places_taken(const struct flw_runpage *page)
{
    return atomic_load(&page->place_count);
}

static void check_preload(const char *victim)
{
    static const uint64_t magic = FLW_RUNPAGE_MAGIC;
    static const char key[] = "FALLOW=state:";
    char setting[64], out[4096];
    int fd = flw_sealed_file_make("page", sizeof(struct flw_runpage));
    if (fd < 0 || pwrite(fd, &magic, sizeof magic, 0) != (ssize_t)sizeof magic) {
        stop("page");
    }
    snprintf(setting, sizeof setting, "%s/proc/%d/fd/%d", key, (int)getpid(), fd);
    const struct flw_runpage *page = flw_runpage_open(setting + sizeof key - 1);
    int program = open(victim, O_RDONLY | O_CLOEXEC);
    run(program, setting, false, out, sizeof out);
    close(program);
    expect(page != NULL && places_taken(page) == 1, "without a privilege the page is joined", out);
    run_privileged(victim, setting, out, sizeof out);
    expect(places_taken(page) == 1, "a privileged program opened the file that FALLOW names", out);
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "secure <victim> <driver> [<victim that links the preload library>]\n");
        return 2;
    }
    if (geteuid() != 0) {
        printf("only root can make a setuid program of another's: nothing checked\n");
        return 77;
    }
    check_plugin(argv[1], argv[2]);
    if (argc == 4) {
        check_preload(argv[3]);
    }
    printf("a privileged program heeds no environment\n");
    return 0;
}
