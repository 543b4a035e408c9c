/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the questions about a real driver that the documentation leaves open and the preload
 * library relies on, answered by the entry points: those that a C program can answer. clients.sh
 * has the rest. The numbers are those of the list.
 *
 *   first_run [--device N|sim]
 *
 * Prints a line "number: answer" for each. Exit: 0 all answered, and every assumption holds; 1 one
 * does not; 77 no such device. Does not: use the library; on the simulated device it tests only
 * itself. */
#include "first_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void answer(const char *number, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s: ", number);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    fflush(stdout);
}

void rely(struct bed *bed, const char *number, bool holds, const char *what)
{
    answer(number, "%s: %s", what, holds ? "yes" : "NO, and the preload library relies on it");
    bed->wrong_count += !holds;
}

int main(int argc, char **argv)
{
    struct bed bed;
    const char *device = "0";
    if (argc == 3 && strcmp(argv[1], "--device") == 0) {
        device = argv[2];
    } else if (argc != 1) {
        fprintf(stderr, "usage: first_run [--device N|sim]\n");
        return 2;
    }
    if (bed_open(&bed, device) != 0) {
        return 77;
    }
    answer("0", "driver %d%s", bed.cu->version,
           bed.is_sim ? ", SIMULATED: these are answers of a model" : "");
    check_addresses(&bed);
    check_epochs(&bed);
    check_modes(&bed);
    check_free(&bed);
    check_pointers(&bed);
    check_queue(&bed);
    check_contexts(&bed); /* last: it resets the context */
    printf("%u of the things relied on do not hold\n", bed.wrong_count);
    return bed.wrong_count != 0;
}
