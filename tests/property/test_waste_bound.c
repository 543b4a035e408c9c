/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the published bound on waste and the promises of the size classes, checked for every size
 * from 1 B to 64 MiB, every class and every alignment. Nothing is sampled.
 */
#include <stdio.h>

#include "memory/size_class.h"

#define LARGEST_BYTES (64 * FLW_MIB)

static unsigned failures;

static void expect(bool good, const char *sentence, uint64_t value)
{
    if (!good && failures++ < 20) {
        fprintf(stderr, "waste_bound: FALSE for %llu: %s\n", (unsigned long long)value, sentence);
    }
}

static void check_waste_of_every_size(void)
{
    uint64_t before = 0;
    for (uint64_t size = 1; size <= LARGEST_BYTES; size++) {
        uint64_t usable = flw_request_usable_bytes(size);
        uint64_t waste = usable - size;
        expect(usable >= size, "what is given holds what was asked", size);
        expect(usable >= before, "a larger request never gets less", size);
        expect(size > 4096 || waste <= 511, "to 4 KiB at most 511 B are lost", size);
        expect(size <= 4096 || size > FLW_MIB || waste * 8 <= size,
               "to 1 MiB at most an eighth of the request is lost", size);
        expect(size <= FLW_MIB || waste < 65536, "above 1 MiB less than 64 KiB is lost", size);
        before = usable;
    }
}

static void check_classes(void)
{
    for (unsigned i = 0; i < FLW_CLASS_COUNT; i++) {
        uint64_t bytes = flw_class_bytes(i);
        expect(flw_class_of(bytes) == i, "a class serves its own size", bytes);
        expect(i == 0 || flw_class_of(flw_class_bytes(i - 1) + 1) == i,
               "the next byte goes to the next class", bytes);
        expect(i == 0 ? bytes == 256 : bytes % 512 == 0, "classes are multiples of 512 B", bytes);
        uint64_t slab_bytes = flw_class_slab_units(i) * FLW_UNIT_BYTES;
        expect(slab_bytes >= bytes && (slab_bytes % bytes) * 100 <= slab_bytes * 3,
               "the tail of a slab is at most 3 %", bytes);
        expect(flw_class_slab_units(i) <= FLW_SLAB_MAX_UNITS, "a smallest slab is within 4 MiB",
               bytes);
        for (unsigned step = 1; step < FLW_SLAB_STEPS; step++) {
            uint64_t grown = slab_bytes << step;
            expect((grown % bytes) * 100 <= grown * 3, "and of a grown one", bytes);
        }
    }
    expect(flw_class_bytes(FLW_CLASS_COUNT - 1) == FLW_CLASS_MAX_BYTES, "the last class is 1 MiB",
           FLW_CLASS_MAX_BYTES);
}

/* Every size that a class could serve, every power of two up to a unit. */
static void check_aligned_classes(void)
{
    for (uint64_t align = 1; align <= FLW_UNIT_BYTES; align *= 2) {
        for (uint64_t size = 1; size <= FLW_CLASS_MAX_BYTES; size++) {
            unsigned found = flw_class_of_aligned(size, align);
            if (found < FLW_CLASS_COUNT) {
                expect(flw_class_bytes(found) >= size, "an aligned class holds the size", size);
                expect(flw_class_bytes(found) % align == 0, "an aligned class is aligned", size);
            }
            size = found < FLW_CLASS_COUNT ? flw_class_bytes(found) - 1 : FLW_CLASS_MAX_BYTES;
            if (found < FLW_CLASS_COUNT) {
                expect(flw_class_of_aligned(size + 1, align) == found,
                       "the largest size of a class stays in it", size + 1);
                size++;
            }
        }
    }
}

int main(void)
{
    check_waste_of_every_size();
    check_classes();
    check_aligned_classes();
    printf("%llu sizes, %u classes: %u failures\n", (unsigned long long)LARGEST_BYTES,
           (unsigned)FLW_CLASS_COUNT, failures);
    return failures != 0;
}
