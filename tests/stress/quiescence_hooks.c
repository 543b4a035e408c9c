/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the quiescence run through the wrappers linked into the program, where a sanitizer keeps the
 * preload library from being preloaded.
 */
#include "preload/hooks.h"
#include "quiescence.h"

#include "driver/driver.h"

void quiescence_use_hooks(struct flw_driver *cu)
{
    cu->cuMemAlloc_v2 = flw_hook_cuMemAlloc_v2;
    cu->cuMemFree_v2 = flw_hook_cuMemFree_v2;
    cu->cuCtxCreate_v2 = flw_hook_cuCtxCreate_v2;
    cu->cuCtxDestroy_v2 = flw_hook_cuCtxDestroy_v2;
    cu->cuCtxSetCurrent = flw_hook_cuCtxSetCurrent;
    cu->cuCtxPushCurrent_v2 = flw_hook_cuCtxPushCurrent_v2;
    cu->cuCtxSynchronize = flw_hook_cuCtxSynchronize;
    cu->cuStreamBeginCapture_v2 = flw_hook_cuStreamBeginCapture_v2;
    cu->cuStreamEndCapture = flw_hook_cuStreamEndCapture;
    cu->cuStreamDestroy_v2 = flw_hook_cuStreamDestroy_v2;
}
