/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the recording of what passes the wrappers. Nothing is recorded yet.
 * Does not: define wrappers.
 */
#include "preload/life.h"

const struct flw_part flw_part_trace = {0};
