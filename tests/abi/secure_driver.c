/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: an attacker's driver: code that runs as soon as it is opened. */
#include <unistd.h>

__attribute__((constructor)) static void run(void)
{
    static const char line[] = "the caller's code runs\n";
    ssize_t written = write(STDOUT_FILENO, line, sizeof line - 1);
    (void)written;
}
