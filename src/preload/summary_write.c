/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the destination of a summary: standard error, or a file that appears whole. */
#include "preload/summary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/filename.h"
#include "preload/log.h"

#define LINE_BYTES 900

/* True for a pipe or a device, which is written directly. */
static bool is_written_in_place(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && !S_ISREG(facts.st_mode);
}

static bool write_file(const struct flw_summary *summary, const char *path)
{
    char beside[FLW_FILENAME_BYTES + 16];
    bool is_in_place = is_written_in_place(path);
    snprintf(beside, sizeof beside, "%s%s", path, is_in_place ? "" : ".new");
    int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return false;
    }
    bool is_written = flw_summary_print_json(summary, fd);
    int error = errno;
    if (close(fd) != 0 && is_written) {
        is_written = false;
        error = errno;
    }
    if (is_written && !is_in_place && rename(beside, path) != 0) {
        is_written = false;
        error = errno;
    }
    if (!is_written && !is_in_place) {
        (void)unlink(beside);
    }
    errno = error;
    return is_written;
}

void flw_summary_write(const struct flw_summary *summary, const char *place, bool ours)
{
    char path[FLW_FILENAME_BYTES], line[LINE_BYTES];
    if (strcmp(place, "-") == 0) {
        flw_summary_print_line(summary, line, sizeof line);
        flw_log_line("%s", line);
    } else if (!flw_filename_of_process(place, ours, summary->process, path)) {
        flw_log_line("cannot write statistics: the file's name is too long");
    } else if (!write_file(summary, path)) {
        flw_log_line("cannot write statistics to %s: %s", path, strerror(errno));
    }
}
