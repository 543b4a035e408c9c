/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the list of allocating calls that no pool serves, with reasons. */
#ifndef FLW_PRELOAD_BYPASS_H
#define FLW_PRELOAD_BYPASS_H

/* X(name, reason) */
#define FLW_BYPASS_LIST(X)                                 \
    X(cuMemAlloc, "during a capture, or without a pool")   \
    X(cuMemAllocPitch, "pitched memory")                   \
    X(cuMemAllocManaged, "managed memory")                 \
    X(cuMemAllocAsync, "the driver's stream-ordered pool") \
    X(cuMemAllocFromPoolAsync, "a pool of the program's")  \
    X(cuMemCreate, "memory that the program maps itself")  \
    X(cuArrayCreate, "an array")                           \
    X(cuArray3DCreate, "an array")                         \
    X(cuMipmappedArrayCreate, "an array")
enum flw_bypass {
#define X(name, reason) FLW_BYPASS_##name,
    FLW_BYPASS_LIST(X)
#undef X
    FLW_BYPASS_COUNT
};

#endif
