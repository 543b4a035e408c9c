/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the command words that start a program of this build. In a cross build FLW_EMULATOR holds
 * the emulator's words, each followed by a comma; in a native build it is empty.
 *
 *   const char *words[] = {FLW_EMULATOR path, "argument", NULL};
 *   execv(words[0], ...);
 *
 * FLW_IS_EMULATED marks tests that no emulator supports, with the reason beside it. */
#ifndef FLW_TESTS_SUPPORT_EMULATOR_H
#define FLW_TESTS_SUPPORT_EMULATOR_H

#ifdef FLW_EMULATOR
#define FLW_IS_EMULATED 1
#else
#define FLW_EMULATOR
#define FLW_IS_EMULATED 0
#endif

#endif
