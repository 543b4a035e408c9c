/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the trace tests share, which is the tests' common header.
 */
#ifndef FLW_TESTS_UNIT_TRACE_H
#define FLW_TESTS_UNIT_TRACE_H

#include "support/test.h"

#endif
