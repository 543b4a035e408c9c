/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the word that stands for membarrier under ThreadSanitizer; nothing in any other build.
 */
#include "base/asym.h"

#if defined(FLW_ASYM_FENCED)
_Atomic uint64_t flw_asym_order;
#endif
