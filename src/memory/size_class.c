/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/size_class.h"

unsigned flw_class_of_aligned(uint64_t size_bytes, uint64_t align_bytes)
{
    if (size_bytes > FLW_CLASS_MAX_BYTES || align_bytes > FLW_UNIT_BYTES) {
        return FLW_CLASS_COUNT;
    }
    for (unsigned i = flw_class_of(size_bytes); i < FLW_CLASS_COUNT; i++) {
        if (flw_class_bytes(i) % align_bytes == 0) {
            return i;
        }
    }
    return FLW_CLASS_COUNT;
}
