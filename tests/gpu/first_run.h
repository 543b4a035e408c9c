/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the checks of first_run, and their lines of answers.
 */
#ifndef FLW_TESTS_GPU_FIRST_RUN_H
#define FLW_TESTS_GPU_FIRST_RUN_H

#include "bed.h"

/* "4a: ..." One answer. */
void answer(const char *number, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same of something that the design relies on; a false one is counted. */
void rely(struct bed *bed, const char *number, bool holds, const char *what);
void check_addresses(struct bed *bed); /* 2 */
void check_epochs(struct bed *bed);    /* 4, 5 */
void check_modes(struct bed *bed);     /* 6 */
void check_free(struct bed *bed);      /* 7 */
void check_queue(struct bed *bed);     /* 13 */
void check_contexts(struct bed *bed);  /* 8 */
void check_pointers(struct bed *bed);  /* 9 */

#endif
