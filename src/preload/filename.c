/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/filename.h"

#include <stdio.h>
#include <string.h>

bool flw_filename_compose(const char *given, const char *insert, int process,
                          char out[FLW_FILENAME_BYTES])
{
    const char *slash = strrchr(given, '/');
    const char *name = slash != NULL ? slash + 1 : given;
    const char *dot = strrchr(name, '.');
    const char *end = dot != NULL && dot != name ? dot : name + strlen(name);
    const char *mark = strstr(given, "%p");
    size_t used = 0;
    for (const char *at = given;; at++) {
        char piece[64] = {*at, '\0'};
        if (at == end) {
            snprintf(piece, sizeof piece, "%s%c", insert, *at);
        } else if (at == mark) {
            snprintf(piece, sizeof piece, "%d", process);
            at++;
        }
        size_t length = strlen(piece);
        if (used + length + 1 > FLW_FILENAME_BYTES) {
            return false;
        }
        memcpy(out + used, piece, length + 1);
        used += length;
        if (*at == '\0') {
            return true;
        }
    }
}

bool flw_filename_of_process(const char *given, bool ours, int process,
                             char out[FLW_FILENAME_BYTES])
{
    char insert[16] = "";
    if (!ours && strstr(given, "%p") == NULL) {
        snprintf(insert, sizeof insert, ".%d", process);
    }
    return flw_filename_compose(given, insert, process, out);
}
