/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the interface of sharing for the rest of the pool. */
#ifndef FLW_POOL_SHARE_H
#define FLW_POOL_SHARE_H

#include "pool/state/extension.h"

/* Added by the first export or import. */
extern const struct flw_extension flw_share_extension;

#endif
