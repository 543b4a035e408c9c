/* SPDX-License-Identifier: Apache-2.0 */
#include "common/draft.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/command.h"
#include "common/tool_host.h"

#define MESSAGE_BYTES 512

static bool write_all(int file, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t n = write(file, text, length);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        text += n;
        length -= (size_t)n;
    }
    return true;
}

static bool say(char *message, const char *path)
{
    snprintf(message, MESSAGE_BYTES,
             "cannot write '%.300s': %s; nothing was left there, choose another place", path,
             strerror(errno));
    return false;
}

static bool write_in_place(const char *path, const char *text, size_t length, char *message)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0) {
        return say(message, path);
    }
    bool is_done = write_all(file, text, length);
    return (close(file) == 0 && is_done) || say(message, path);
}

static bool write_and_rename(const char *path, const char *text, size_t length, char *message)
{
    char temporary[PATH_MAX];
    int n = snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    if (n < 0 || (size_t)n >= sizeof temporary) {
        errno = ENAMETOOLONG;
        return say(message, path);
    }
    int file = mkstemp(temporary);
    if (file < 0) {
        return say(message, path);
    }
    mode_t mask = umask(0);
    umask(mask);
    bool is_done =
        write_all(file, text, length) && fchmod(file, 0666 & ~mask) == 0 && fsync(file) == 0;
    is_done = close(file) == 0 && is_done && rename(temporary, path) == 0;
    if (!is_done) {
        say(message, path);
        unlink(temporary);
    }
    return is_done;
}

/* False: the message names the file and what to do; the file is as it was before. */
static bool write_text(const char *path, const char *text, size_t length, char *message)
{
    struct stat about;
    message[0] = '\0';
    if (strcmp(path, "-") == 0) {
        return write_all(STDOUT_FILENO, text, length) || say(message, "standard output");
    }
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) {
        return write_in_place(path, text, length, message);
    }
    return write_and_rename(path, text, length, message);
}

void flw_draft_begin(struct flw_draft *draft, const char *prefix)
{
    *draft = (struct flw_draft){.prefix = prefix};
    draft->file = open_memstream(&draft->text, &draft->length);
    if (draft->file == NULL) {
        flw_host_refuse(1, BUFSIZ);
    }
}

bool flw_draft_end(struct flw_draft *draft, bool is_good, const char *path)
{
    char message[MESSAGE_BYTES] = "out of host memory";
    bool is_whole = fclose(draft->file) == 0 && is_good;
    draft->file = NULL;
    bool is_done =
        is_whole && (path == NULL || write_text(path, draft->text, draft->length, message));
    if (!is_done) {
        flw_complain("%s%s", draft->prefix, message);
    }
    if (path != NULL || !is_done) {
        free(draft->text);
        draft->text = NULL;
    }
    return is_done;
}

bool flw_draft_write(struct flw_draft *draft, const char *path)
{
    char message[MESSAGE_BYTES] = "out of host memory";
    bool is_done =
        fflush(draft->file) == 0 && write_text(path, draft->text, draft->length, message);
    if (!is_done) {
        flw_complain("%s%s", draft->prefix, message);
    }
    return is_done;
}

void flw_draft_abandon(struct flw_draft *draft)
{
    if (draft->file != NULL) {
        fclose(draft->file);
        free(draft->text);
    }
    *draft = (struct flw_draft){0};
}
