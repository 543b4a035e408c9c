/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the list of generators.
 */
#include <string.h>

#include "trace/gen/gen.h"

static const struct flw_gen_kind *const kinds[] = {&flw_gen_serve_kind, &flw_gen_train_kind,
                                                   &flw_gen_streams_kind, &flw_gen_random_kind,
                                                   &flw_gen_adversarial};

#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

const struct flw_gen_kind *flw_gen_get(size_t index)
{
    return index < KIND_COUNT ? kinds[index] : NULL;
}

const struct flw_gen_kind *flw_gen_find(const char *name)
{
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (strcmp(kinds[i]->name, name) == 0) {
            return kinds[i];
        }
    }
    return NULL;
}
