/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the program of the arenas' stress runs (stress_arena.h).
 */
#include "stress_arena.h"

int main(int count, char **words)
{
    return stress_arena(count, words);
}
