/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the initialisation of public structs: the caller's struct_size, then zeros, which mean the
 * defaults in configs and requests. */
#ifndef FLW_BASE_SIZED_H
#define FLW_BASE_SIZED_H

#include <string.h>

/* Define type_init_sized, which the public type_init calls with the caller's size. */
#define FLW_DEFINE_INIT_SIZED(type)                          \
    void type##_init_sized(type *object, size_t struct_size) \
    {                                                        \
        memset(object, 0, struct_size);                      \
        object->struct_size = struct_size;                   \
    }

#endif
