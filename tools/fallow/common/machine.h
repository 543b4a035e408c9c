/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the machine that a measurement runs on: what it is, the processor a thread is bound to, and
 * what disturbs it. Does not: measure anything.
 */
#ifndef FLW_TOOL_MACHINE_H
#define FLW_TOOL_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void flw_machine_cpu_name(char *name, size_t bytes);
const char *flw_machine_compiler(void);
size_t flw_machine_cpu_count(void);
/* Bind the calling thread to the n-th CPU it may use, counting round; false if refused. */
bool flw_machine_pin(size_t n);
/* How often the calling thread lost its processor to another. */
uint64_t flw_machine_switches(void);

#endif
