/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the list of generators, apart from gen.c, which generators need.
 */
#include "trace/gen/gen.h"

const struct flw_gen_kind *flw_gen_get(size_t index)
{
    static const struct flw_gen_kind *const kinds[] = {
        &flw_gen_serve_kind,  &flw_gen_train_kind,       &flw_gen_streams_kind,
        &flw_gen_random_kind, &flw_gen_adversarial_kind,
    };
    return index < sizeof kinds / sizeof *kinds ? kinds[index] : NULL;
}

const char *flw_gen_name(size_t index)
{
    const struct flw_gen_kind *kind = flw_gen_get(index);
    return kind == NULL ? NULL : kind->name;
}
