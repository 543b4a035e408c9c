/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the interface of the heap for the layers above. No file of this folder includes it. */
#ifndef FLW_HEAP_HEAP_H
#define FLW_HEAP_HEAP_H

#include "heap/caches/tcache.h"
#include "heap/life.h"
#include "heap/order/domain.h"
#include "heap/order/fence.h"
#include "heap/order/sync.h"
#include "heap/physical/handle.h"
#include "heap/physical/physical.h"
#include "heap/space/deferred.h"
#include "heap/space/run.h"
#include "heap/space/slab.h"
#include "heap/state/thread.h"

#endif
