/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the temporary file, the mode, and replacing the final file.
 */
#include "trace/io/output.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/io/codec.h"
#include "trace/io/input.h"
#include "trace/io/progress.h"

#define BUFFER_BYTES (1u << 16)
#define COPY_BYTES   (1u << 30)
#define NO_FD        (-1)

static bool fail(const struct flw_output *output, char *message, const char *what, int error)
{
    flw_input_message(message, output->name, "%s: %s", what, strerror(error));
    return false;
}

/* Writes below the stream, so that the first error is kept whatever the stream does later. */
struct flw_output_sink {
    int fd;
    int error;        /* 0: none */
    bool is_synced;   /* sync before closing, because the file replaces another one */
    const char *name; /* borrowed; name of the final file */
    uint64_t written_bytes;
};

/* Write all bytes. Returns 0 or an error. */
static int write_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t written = write(fd, bytes, count);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0 && errno == EAGAIN) { /* an inherited descriptor may be non-blocking */
            (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
            continue;
        }
        if (written <= 0) {
            return written < 0 ? errno : EIO;
        }
        bytes += written;
        count -= (size_t)written;
    }
    return 0;
}

static ssize_t sink_write(void *cookie, const char *bytes, size_t count)
{
    struct flw_output_sink *sink = cookie;
    sink->error = sink->error == 0 ? write_all(sink->fd, bytes, count) : sink->error;
    sink->written_bytes += sink->error == 0 ? count : 0;
    flw_trace_tell(&(struct flw_trace_progress){
        .verb = "writing", .name = sink->name, .unit = "bytes", .done = sink->written_bytes});
    return sink->error == 0 ? (ssize_t)count : 0;
}

static int sink_close(void *cookie)
{
    struct flw_output_sink *sink = cookie;
    if (sink->is_synced && sink->error == 0 && fsync(sink->fd) != 0) {
        sink->error = errno;
    }
    if (sink->fd != STDOUT_FILENO && close(sink->fd) != 0 && sink->error == 0) {
        sink->error = errno;
    }
    return sink->error == 0 ? 0 : EOF;
}

/* Begin on a descriptor. Returns false if that fails: the descriptor is closed, and errno is set. */
static bool begin_on(struct flw_output *output, int fd)
{
    static const cookie_io_functions_t functions = {.write = sink_write, .close = sink_close};
    output->sink = calloc(1, sizeof(*output->sink));
    if (output->sink != NULL) {
        *output->sink = (struct flw_output_sink){.fd = fd, .name = output->name};
        output->file = fopencookie(output->sink, "w", functions);
    }
    if (output->file == NULL) {
        if (fd != STDOUT_FILENO) {
            close(fd);
        }
        errno = ENOMEM;
        return false;
    }
    (void)setvbuf(output->file, NULL, _IOFBF, BUFFER_BYTES); /* on failure writing is only slower */
    return true;
}

void flw_output_abandon(struct flw_output *output)
{
    if (output->file != NULL) {
        fclose(output->file);
    }
    if (output->packed != NULL) {
        fclose(output->packed);
    }
    if (output->temporary != NULL) {
        unlink(output->temporary);
    }
    free(output->sink);
    free(output->temporary);
    free(output->path);
    *output = (struct flw_output){0};
}

/* Give the new file the owner and group of the old one if possible, and return its mode. If the group cannot be kept,
 * the group gets no access. */
static mode_t hand_over(int fd, const struct stat *old)
{
    bool has_group =
        fchown(fd, old->st_uid, old->st_gid) == 0 || fchown(fd, (uid_t)-1, old->st_gid) == 0;
    return old->st_mode & (has_group ? 0777 : 0707);
}

/* Begin a file that will replace `path`, or the target of a link there, for the same readers. A dangling link is
 * replaced itself. `old`: status of the old file; NULL: none. Returns false and errno if that fails. */
static bool begin_beside(struct flw_output *output, const char *path, const struct stat *old,
                         char *message)
{
    char *temporary = NULL;
    output->path = old != NULL ? realpath(path, NULL) : strdup(path);
    if (output->path == NULL || asprintf(&temporary, "%s.XXXXXX", output->path) < 0) {
        return false;
    }
    int fd = mkstemp(temporary);
    if (fd < 0) {
        fail(output, message, "cannot create a file there", errno);
        free(temporary);
        return false;
    }
    output->temporary = temporary;
    mode_t mask = umask(0);
    umask(mask);
    if (fchmod(fd, old != NULL ? hand_over(fd, old) : 0666 & ~mask) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return false;
    }
    bool is_begun = begin_on(output, fd);
    if (is_begun) {
        output->sink->is_synced = old != NULL;
    }
    return is_begun;
}

#define LINKS_MOST 40

/* True if a folder, which is a real path, has the system's names of this process's descriptors. */
static bool is_of_descriptors(const char *folder)
{
    char own[PATH_MAX];
    return (realpath("/proc/self/fd", own) != NULL && strcmp(folder, own) == 0) ||
           (realpath("/proc/thread-self/fd", own) != NULL && strcmp(folder, own) == 0);
}

/* Return the descriptor of this process that a path or link names, as a container's log may, or NO_FD. Opening such a
 * path would overwrite the file from its beginning. */
static int fd_of(const char *path)
{
    char at[2 * PATH_MAX], folder[PATH_MAX], target[PATH_MAX];
    ssize_t count = snprintf(at, sizeof at, "%s", path);
    if (strcmp(path, "-") == 0) {
        return STDOUT_FILENO;
    }
    for (unsigned links = 0; count > 0 && count < PATH_MAX && links < LINKS_MOST; links++) {
        const char *slash = strrchr(at, '/'), *name = slash == NULL ? at : slash + 1;
        memcpy(target, at, (size_t)count + 1);
        if (realpath(dirname(target), folder) == NULL) {
            break;
        }
        if (is_of_descriptors(folder) && *name != '\0' && strlen(name) < 8 &&
            strspn(name, "0123456789") == strlen(name)) {
            return (int)strtol(name, NULL, 10);
        }
        count = readlink(at, target, sizeof target - 1);
        target[count > 0 ? count : 0] = '\0';
        if (count > 0) {
            bool is_whole = target[0] == '/';
            count = snprintf(at, sizeof at, "%s%s%s", is_whole ? "" : folder, is_whole ? "" : "/",
                             target);
        }
    }
    return NO_FD;
}

/* True if the path is not replaced: no regular file, or a descriptor of a process. */
static bool is_in_place(const char *path, const struct stat *status)
{
    return !S_ISREG(status->st_mode) || strncmp(path, "/proc/", 6) == 0;
}

/* Begin writing directly to a device, a pipe or a descriptor. Returns false and errno if that fails. */
static bool begin_in_place(struct flw_output *output, const char *path, int fd)
{
    if (fd == STDOUT_FILENO) {
        fflush(stdout);
    } else if (fd != NO_FD) {
        fd = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    } else {
        struct stat status; /* a file of another process is not truncated */
        bool is_file = stat(path, &status) == 0 && S_ISREG(status.st_mode);
        fd = open(path, O_WRONLY | (is_file ? O_APPEND : O_TRUNC) | O_CLOEXEC);
    }
    return fd >= 0 && begin_on(output, fd);
}

/* Add a packer if the path requires one. */
static bool begin_packing(struct flw_output *output, const char *path, char *message)
{
    const char *problem = "";
    enum flw_codec_kind kind = flw_packer_tell(path);
    if (kind == FLW_CODEC_PLAIN) {
        return true;
    }
    output->packed = output->file;
    output->file = flw_packer_open(output->packed, kind, &problem);
    if (output->file == NULL) {
        flw_input_message(message, output->name, "cannot write: %s", problem);
    }
    return output->file != NULL;
}

bool flw_output_is_stdout(const char *path)
{
    return path != NULL && fd_of(path) == STDOUT_FILENO;
}

static bool is_writable(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    bool is_readable_only = flags >= 0 && (flags & O_ACCMODE) == O_RDONLY;
    errno = is_readable_only ? EBADF : errno;
    return flags >= 0 && !is_readable_only;
}

/* True if the folder of a path accepts new files. */
static bool has_room(char *path)
{
    char *slash = path == NULL ? NULL : strrchr(path, '/');
    if (slash != NULL) {
        slash[1] = '\0';
    }
    return path != NULL && access(slash == NULL ? "." : path, W_OK | X_OK) == 0;
}

bool flw_output_is_possible(const char *path, char *message)
{
    struct stat status;
    const struct flw_output output = {.name = path};
    int fd = fd_of(path);
    message[0] = '\0';
    bool exists = fd == NO_FD && stat(path, &status) == 0;
    if (fd != NO_FD || (exists && is_in_place(path, &status))) {
        bool is_folder = fd == NO_FD && S_ISDIR(status.st_mode);
        errno = EISDIR;
        return fd == STDOUT_FILENO ||
               (fd != NO_FD ? is_writable(fd) : !is_folder && access(path, W_OK) == 0) ||
               fail(&output, message, "cannot write", errno);
    }
    char *copy = exists ? realpath(path, NULL) : strdup(path);
    bool is_possible =
        has_room(copy) || fail(&output, message, "cannot create a file there", errno);
    free(copy);
    return is_possible;
}

bool flw_output_begin(struct flw_output *output, const char *path, char *message)
{
    struct stat status;
    int fd = fd_of(path);
    *output = (struct flw_output){.name = fd == STDOUT_FILENO ? "standard output" : path};
    message[0] = '\0';
    bool exists = fd == NO_FD && stat(path, &status) == 0;
    bool is_begun = fd != NO_FD || (exists && is_in_place(path, &status))
                        ? begin_in_place(output, path, fd)
                        : begin_beside(output, path, exists ? &status : NULL, message);
    if (!is_begun && message[0] == '\0') {
        fail(output, message, "cannot write", errno);
    }
    is_begun = is_begun && begin_packing(output, path, message);
    if (!is_begun) {
        flw_output_abandon(output);
    }
    return is_begun;
}

/* Copy the temporary file into the final file, which cannot be replaced. Returns 0 or an error; if the old content is
 * lost, the temporary file stays and the message names it. */
static int fill(struct flw_output *output, char *message)
{
    int from = open(output->temporary, O_RDONLY | O_CLOEXEC);
    int to = from < 0 ? -1 : open(output->path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    ssize_t copied = to < 0 ? -1 : 1;
    while (copied > 0) {
        copied = sendfile(to, from, NULL, COPY_BYTES);
    }
    int error = copied == 0 && fsync(to) == 0 ? 0 : errno;
    if (to >= 0 && close(to) != 0 && error == 0) {
        error = errno;
    }
    if (from >= 0) {
        close(from);
    }
    if (to >= 0 && error != 0) {
        flw_input_message(message, output->name, "cannot write: %s; all of it is in %s",
                          strerror(error), output->temporary);
        free(output->temporary);
        output->temporary = NULL;
    }
    return error;
}

bool flw_output_commit(struct flw_output *output, char *message)
{
    message[0] = '\0';
    bool is_closed = fclose(output->file) == 0;
    if (output->packed != NULL) {
        is_closed = fclose(output->packed) == 0 && is_closed;
    }
    int error = output->sink->error;
    error = error == 0 && !is_closed ? EIO : error;
    output->file = output->packed = NULL;
    if (error == 0 && output->temporary != NULL) {
        error = rename(output->temporary, output->path) == 0 ? 0 : errno;
        if (error == 0) {
            free(output->temporary);
            output->temporary = NULL;
        } else if (error == EBUSY) { /* a mount point */
            error = fill(output, message);
        }
    }
    if (error != 0 && message[0] == '\0') {
        fail(output, message, "cannot write", error);
    }
    flw_output_abandon(output);
    return error == 0;
}
