/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how a test starts a program of this build. Cross-built, the build defines FLW_EMULATOR as the
 * words that stand before such a program's path, each with a comma behind it; natively there are none.
 *
 *   const char *words[] = {FLW_EMULATOR path, "argument", NULL};
 *   execv(words[0], ...);
 *
 * FLW_IS_EMULATED is for what no emulator does: it stands beside the reason.
 */
#ifndef FLW_TESTS_SUPPORT_EMULATOR_H
#define FLW_TESTS_SUPPORT_EMULATOR_H

#ifdef FLW_EMULATOR
#define FLW_IS_EMULATED 1
#else
#define FLW_EMULATOR
#define FLW_IS_EMULATED 0
#endif

#endif
