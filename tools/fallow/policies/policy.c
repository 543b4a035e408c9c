/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/policy.h"

#include <stdio.h>
#include <string.h>

#include "common/command.h"

static const struct flw_policy *const policies[] = {
    &flw_policy_fallow,
    &flw_policy_fallow_memory_first,
    &flw_policy_fallow_speed_first,
    &flw_policy_driver,
    &flw_policy_async,
    &flw_policy_pytorch,
    &flw_policy_pytorch_expandable,
    &flw_policy_cub,
    &flw_policy_bfc,
    &flw_policy_recorded,
    &flw_policy_bound,
};

const struct flw_policy *flw_policy_get(size_t i)
{
    return i < sizeof policies / sizeof *policies ? policies[i] : NULL;
}

const struct flw_policy *flw_policy_find(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        if (strlen(policies[i]->name) == length && memcmp(policies[i]->name, name, length) == 0) {
            return policies[i];
        }
    }
    return NULL;
}

bool flw_policy_choose(const char *text, size_t length, struct flw_policy_choice *out,
                       char *message)
{
    const char *colon = memchr(text, ':', length);
    size_t name_length = colon == NULL ? length : (size_t)(colon - text);
    const struct flw_policy *base = flw_policy_find(text, name_length);
    if (base == NULL) {
        struct flw_guess guess = {.word = text, .length = name_length};
        char hint[FLW_GUESS_BYTES];
        for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
            flw_guess_offer(&guess, policies[i]->name);
        }
        snprintf(message, FLW_POLICY_MESSAGE_BYTES,
                 "there is no policy '%.*s'%sfallow replay --help lists them",
                 (int)(name_length < 64 ? name_length : 64), text, flw_guess_say(&guess, "", hint));
        return false;
    }
    if (colon == NULL) {
        return flw_policy_set(base, "", 0, out, message);
    }
    if (name_length + 1 == length) {
        snprintf(message, FLW_POLICY_MESSAGE_BYTES,
                 "policy %s: no setting follows the colon; leave the colon out", base->name);
        return false;
    }
    return flw_policy_set(base, colon + 1, length - name_length - 1, out, message);
}
