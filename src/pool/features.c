/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the list of a pool's possible features, the only place with all their names. A build
 * without a feature omits the feature's line (FLW_WITHOUT_) and files. */
#include "pool/extensions/debug/debug.h"
#include "pool/extensions/recording.h"
#include "pool/extensions/share.h"
#include "pool/extensions/sleep/sleep.h"
#include "pool/state/extension.h"

const struct flw_extension *const flw_features[] = {
#ifndef FLW_WITHOUT_DEBUG
    &flw_debug_extension,
#endif
#ifndef FLW_WITHOUT_RECORDING
    &flw_recording_extension,
#endif
#ifndef FLW_WITHOUT_SHARE
    &flw_share_extension,
#endif
#ifndef FLW_WITHOUT_SLEEP
    &flw_sleep_extension,
#endif
    NULL};
