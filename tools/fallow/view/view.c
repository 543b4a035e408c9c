/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow view`: write the page of a trace and open it in a browser.
 * Does not: make the page; `fallow report` does.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/command.h"

#define PATH_BYTES 4096

static const char help[] =
    "usage: fallow view FILE [OPTIONS of fallow report]\n\n"
    "Write the page of a trace as fallow report --html does, and open it with xdg-open if there is a\n"
    "display (DISPLAY or WAYLAND_DISPLAY). FILE is a trace or a finished page (NAME.html). The path of\n"
    "the page is always printed; without a display, the command that copies the page to another\n"
    "machine is printed too.\n\n"
    "  --html PAGE           where to write the page; default a new private folder in TMPDIR or /tmp\n\n"
    "example: fallow view snapshot.pickle\n";

static bool is_page(const char *file)
{
    size_t length = strlen(file);
    return length > 5 && strcasecmp(file + length - 5, ".html") == 0;
}

/* Return a variable of the environment, or NULL if it is empty or unset. */
static const char *get_variable(const char *name)
{
    const char *value = getenv(name);
    return value == NULL || value[0] == '\0' ? NULL : value;
}

/* Returns false if xdg-open is missing or found no browser. */
static bool open_browser(const char *page)
{
    const char *arguments[] = {"xdg-open", page, NULL};
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        flw_signals_restore();
        execvp(arguments[0], (char *const *)arguments);
        _exit(127);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

static int show(const char *page)
{
    char path[PATH_MAX], host[256] = "HOST";
    if (realpath(page, path) == NULL) {
        return flw_refuse(FLW_EXIT_FAILED, "cannot open '%.300s': %s", page, strerror(errno));
    }
    printf("page: %s\n", path);
    fflush(stdout); /* before the browser prints anything */
    bool has_display = get_variable("DISPLAY") != NULL || get_variable("WAYLAND_DISPLAY") != NULL;
    if (!has_display || !open_browser(path)) {
        gethostname(host, sizeof host - 1);
        printf("no browser was opened; to copy the page to another machine, run there:\n  scp '%s:",
               host);
        for (const char *c = path; *c != '\0'; c++) { /* in quotes of a shell */
            fputs(*c == '\'' ? "'\\''" : (char[]){*c, '\0'}, stdout);
        }
        puts("' .");
    }
    return FLW_EXIT_OK;
}

int flw_command_view(int argc, char **argv)
{
    char folder[PATH_BYTES], chosen[PATH_BYTES + 16];
    const char *page = chosen, *place = get_variable("TMPDIR");
    if (argc == 2 && is_page(argv[1])) {
        return show(argv[1]);
    }
    place = place == NULL ? "/tmp" : place;
    bool is_short = snprintf(folder, PATH_BYTES, "%s/fallow-view-XXXXXX", place) < PATH_BYTES;
    if (!is_short || mkdtemp(folder) == NULL) { /* only its user can read the folder */
        return flw_refuse(FLW_EXIT_FAILED,
                          "cannot make a folder in '%.300s': %s; set TMPDIR to another folder",
                          place, strerror(is_short ? errno : ENAMETOOLONG));
    }
    snprintf(chosen, sizeof chosen, "%s/page.html", folder);
    int code = flw_command_report_page(argc, argv, help, &page);
    (void)rmdir(folder); /* fails if the page is inside */
    return code == FLW_EXIT_OK && page != NULL ? show(page) : code;
}
