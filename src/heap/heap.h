/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the layers above see of the heap. Nothing of this folder includes it.
 */
#ifndef FLW_HEAP_HEAP_H
#define FLW_HEAP_HEAP_H

#include "heap/domain.h"
#include "heap/fence.h"
#include "heap/grow.h"
#include "heap/handle.h"
#include "heap/life.h"
#include "heap/pending.h"
#include "heap/run.h"
#include "heap/shrink.h"
#include "heap/slab.h"
#include "heap/sleep.h"
#include "heap/sync.h"
#include "heap/tcache.h"
#include "heap/thread.h"

#endif
