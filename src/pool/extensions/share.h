/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the rest of the pool knows of sharing.
 */
#ifndef FLW_POOL_SHARE_H
#define FLW_POOL_SHARE_H

#include "pool/state/extension.h"

/* Enlisted by the first export or import. */
extern const struct flw_extension flw_share_extension;

#endif
