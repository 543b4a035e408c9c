/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what is written at exit. Nothing is written yet.
 * Does not: define wrappers.
 */
#include "preload/life.h"

const struct flw_part flw_part_summary = {0};
