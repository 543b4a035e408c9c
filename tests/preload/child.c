/* SPDX-License-Identifier: Apache-2.0 */
#include "child.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/emulator.h"

#define SECONDS    60
#define MOST_WORDS 32

static void read_all(int file, char *text)
{
    ssize_t bytes = pread(file, text, CHILD_TEXT_BYTES - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
}

/* False: there are none, or too many. */
static bool collect_words(const char *const *argv, const char **words)
{
    static const char *const emulator[] = {FLW_EMULATOR NULL};
    unsigned count = 0;
    for (const char *const *word = emulator; *word != NULL; word++) {
        words[count++] = *word;
    }
    while (*argv != NULL && count < MOST_WORDS - 1) {
        words[count++] = *argv++;
    }
    words[count] = NULL;
    return *argv == NULL && words[0] != NULL;
}

bool child_run(struct child *child, const char *const *argv, const char *const *environment)
{
    const char *words[MOST_WORDS];
    if (!collect_words(argv, words)) {
        return false;
    }
    int out = memfd_create("out", MFD_CLOEXEC), err = memfd_create("err", MFD_CLOEXEC);
    int status = 0;
    pid_t pid = out < 0 || err < 0 ? -1 : fork();
    if (pid == 0) {
        alarm(SECONDS);
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        execve(words[0], (char *const *)(uintptr_t)words, (char *const *)(uintptr_t)environment);
        _exit(126);
    }
    bool has_run = pid > 0 && waitpid(pid, &status, 0) == pid;
    if (has_run) {
        child->status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
        read_all(out, child->out);
        read_all(err, child->err);
    }
    close(out);
    close(err);
    return has_run;
}

void child_without(const char *text, const char *prefix, char *kept)
{
    size_t length = strlen(prefix);
    while (*text != '\0') {
        const char *end = strchr(text, '\n');
        size_t bytes = end != NULL ? (size_t)(end - text) + 1 : strlen(text);
        if (strncmp(text, prefix, length) != 0) {
            memcpy(kept, text, bytes);
            kept += bytes;
        }
        text += bytes;
    }
    *kept = '\0';
}

unsigned child_count(const char *text, const char *part)
{
    unsigned count = 0;
    for (const char *line = text; (line = strstr(line, part)) != NULL; count++) {
        line += strcspn(line, "\n");
        line += *line != '\0';
    }
    return count;
}
