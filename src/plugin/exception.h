/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the C++ exception of a failed allocation for PyTorch, whose C++ code never checks the
 * result of a pluggable allocator. Does not: link a C++ library, or load one. Every symbol is
 * found at run time. */
#ifndef FLW_PLUGIN_EXCEPTION_H
#define FLW_PLUGIN_EXCEPTION_H

#include <stdbool.h>

/* Throw c10::OutOfMemoryError, or c10::Error if the failure was not missing memory, with the message; without
 * libc10 std::bad_alloc. Returns if no caller up the stack handles the exception, as in a process without a C++
 * runtime; errno is kept. No lock may be held, and every frame up to the C++ caller must be compiled with
 * -fexceptions. */
void flw_plugin_throw(bool is_memory, const char *message);

#endif
