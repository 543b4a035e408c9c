/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the temporary file, its mode and its way to its place.
 */
#include "trace/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/input.h"

static bool fail(const struct flw_output *output, char *message, const char *what, int error)
{
    flw_input_message(message, output->name, "%s: %s", what, strerror(error));
    return false;
}

static void release(struct flw_output *output)
{
    if (output->file != NULL && output->file != stdout) {
        fclose(output->file);
    }
    if (output->temporary != NULL) {
        unlink(output->temporary);
    }
    free(output->temporary);
    free(output->path);
    *output = (struct flw_output){0};
}

/* A file that replaces `path`, or the file that a link there leads to. */
static bool begin_beside(struct flw_output *output, const char *path, bool exists, char *message)
{
    static const char suffix[] = ".XXXXXX";
    output->path = exists ? realpath(path, NULL) : strdup(path);
    if (output->path == NULL) {
        return fail(output, message, "cannot write", errno);
    }
    output->temporary = calloc(1, strlen(output->path) + sizeof(suffix));
    if (output->temporary == NULL) {
        return fail(output, message, "cannot write", errno);
    }
    strcpy(output->temporary, output->path);
    strcat(output->temporary, suffix);
    int fd = mkstemp(output->temporary);
    if (fd < 0) {
        int error = errno;
        free(output->temporary);
        output->temporary = NULL;
        return fail(output, message, "cannot create a file there", error);
    }
    mode_t mask = umask(0);
    umask(mask);
    output->file = fchmod(fd, 0666 & ~mask) == 0 ? fdopen(fd, "w") : NULL;
    if (output->file == NULL) {
        fail(output, message, "cannot write", errno);
        close(fd);
        return false;
    }
    return true;
}

bool flw_output_begin(struct flw_output *output, const char *path, char *message)
{
    struct stat status;
    *output = (struct flw_output){.name = path};
    message[0] = '\0';
    if (strcmp(path, "-") == 0) {
        output->file = stdout;
        return true;
    }
    bool exists = stat(path, &status) == 0;
    if (exists && !S_ISREG(status.st_mode)) {
        output->file = fopen(path, "w");
        return output->file != NULL || fail(output, message, "cannot write", errno);
    }
    if (!begin_beside(output, path, exists, message)) {
        release(output);
        return false;
    }
    return true;
}

bool flw_output_commit(struct flw_output *output, char *message)
{
    message[0] = '\0';
    errno = 0;
    bool is_written = fflush(output->file) == 0 && !ferror(output->file);
    int error = errno;
    if (output->file != stdout) {
        bool is_closed = fclose(output->file) == 0;
        error = is_written && !is_closed ? errno : error;
        is_written = is_written && is_closed;
        output->file = NULL;
    }
    if (is_written && output->temporary != NULL) {
        is_written = rename(output->temporary, output->path) == 0;
        error = errno;
        if (is_written) {
            free(output->temporary);
            output->temporary = NULL;
        }
    }
    if (!is_written) {
        fail(output, message, "cannot write", error != 0 ? error : EIO);
    }
    release(output);
    return is_written;
}

void flw_output_abandon(struct flw_output *output)
{
    release(output);
}
