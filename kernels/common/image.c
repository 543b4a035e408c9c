/* SPDX-License-Identifier: Apache-2.0 */
#include "common/image.h"

/* FLW_IMAGE_FOLDER has <name>.fatbin for every kernel; the build creates them first. */
/* clang-format off */
#define X(name)                                                 \
    __asm__(".section .rodata, \"a\"\n"                         \
            ".balign 64\n"                                      \
            ".global flw_image_" #name "\n"                     \
            ".hidden flw_image_" #name "\n"                     \
            "flw_image_" #name ":\n"                            \
            ".incbin \"" FLW_IMAGE_FOLDER "/" #name ".fatbin\"\n" \
            ".previous\n");
/* clang-format on */
FLW_KERNEL_LIST(X)
#undef X
