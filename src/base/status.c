/* SPDX-License-Identifier: Apache-2.0 */
#include "fallow/status.h"

const char *fallow_status_name(fallow_status status)
{
    switch (status) {
#define X(name, value, text) \
    case FALLOW_##name:      \
        return "FALLOW_" #name;
        FALLOW_STATUS_LIST(X)
#undef X
    }
    return "FALLOW_UNKNOWN";
}

const char *fallow_status_message(fallow_status status)
{
    switch (status) {
#define X(name, value, text) \
    case FALLOW_##name:      \
        return text;
        FALLOW_STATUS_LIST(X)
#undef X
    }
    return "no version of Fallow has this status";
}
