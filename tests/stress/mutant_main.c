/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the program that carries a planted fault: stress_pool over the mutation build of the
 * library, or the scenarios of mutant_scenario.c.
 *
 *   stress_mutant --mutant N scenario | arena <arguments of stress_arena>
 *                            | quiescence <arguments of stress_quiescence> | <arguments of stress_pool>
 *
 * Exit: as theirs; 3: a scenario found the fault. Does not: judge; mutation.py does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutant.h"
#include "quiescence.h"
#include "stress_arena.h"
#include "stress_run.h"

unsigned flw_mutant;

int flw_mutant_scenarios(void);
int flw_mutant_arena_scenarios(void);

int main(int count, char **words)
{
    if (count < 4 || strcmp(words[1], "--mutant") != 0) {
        fprintf(
            stderr,
            "usage: stress_mutant --mutant N scenario | arena ... | quiescence ... | <arguments of "
            "stress_pool>\n");
        return 2;
    }
    flw_mutant = (unsigned)strtoul(words[2], NULL, 10);
    if (strcmp(words[3], "scenario") == 0) {
        int found = flw_mutant_scenarios();
        return found != 0 ? found : flw_mutant_arena_scenarios();
    }
    if (strcmp(words[3], "arena") == 0) {
        words[3] = words[0];
        return stress_arena(count - 3, words + 3);
    }
    if (strcmp(words[3], "quiescence") == 0) {
        words[3] = words[0];
        return stress_quiescence(count - 3, words + 3);
    }
    words[2] = words[0];
    struct stress_settings settings = stress_parse(count - 2, words + 2);
    return stress_run(&settings);
}
