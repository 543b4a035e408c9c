/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading the settings of a policy from its name on the command line, by the policy's own table.
 */
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

#include "common/command.h"
#include "policies/policy.h"

#define TEXT_SHOWN "%.31s" /* of a name or value in a message */

/* True for a further setting of the policy before: it has '=' and no ':'. */
static bool is_setting(const char *text)
{
    size_t length = strcspn(text, ",");
    return memchr(text, '=', length) != NULL && memchr(text, ':', length) == NULL;
}

size_t flw_policy_length(const char *list)
{
    size_t length = strcspn(list, ",");
    bool has_settings = memchr(list, ':', length) != NULL;
    while (has_settings && list[length] == ',' && is_setting(list + length + 1)) {
        length += 1 + strcspn(list + length + 1, ",");
    }
    return length;
}

void flw_policy_say_allowed(const struct flw_policy_setting *setting,
                            char out[FLW_POLICY_ALLOWED_BYTES])
{
    static const char *const allowed[] = {
        [FLW_SETTING_COUNT] = "a whole number from %llu to %llu",
        [FLW_SETTING_POWER] = "a power of two from %llu to %llu",
        [FLW_SETTING_BYTES] = "a number of bytes, such as 0 or 512M, or max",
        [FLW_SETTING_SHARE] = "a share above 0 and below 1, such as 0.8",
        [FLW_SETTING_FLAG] = "0 or 1",
    };
    snprintf(out, FLW_POLICY_ALLOWED_BYTES, allowed[setting->kind],
             (unsigned long long)setting->least, (unsigned long long)setting->most);
}

/* Parse "0.8" or ".8", with at most six digits, into millionths. */
static bool parse_share(const char *text, uint64_t *out_value)
{
    uint64_t value = 0;
    uint64_t scale = FLW_SETTING_ONE;
    text += *text == '0';
    if (*text++ != '.') {
        return false;
    }
    for (; *text >= '0' && *text <= '9' && scale > 1; text++) {
        scale /= 10;
        value += scale * (uint64_t)(*text - '0');
    }
    *out_value = value;
    return *text == '\0' && value > 0;
}

static bool parse_flag(const char *text, uint64_t *out_value)
{
    bool is_on = strcmp(text, "1") == 0 || strcmp(text, "True") == 0;
    *out_value = is_on;
    return is_on || strcmp(text, "0") == 0 || strcmp(text, "False") == 0;
}

static bool parse_value(const struct flw_policy_setting *setting, const char *text,
                        uint64_t *out_value)
{
    switch (setting->kind) {
    case FLW_SETTING_BYTES:
        *out_value = UINT64_MAX;
        return strcmp(text, "max") == 0 || flw_parse_bytes(text, out_value);
    case FLW_SETTING_SHARE:
        return parse_share(text, out_value);
    case FLW_SETTING_FLAG:
        return parse_flag(text, out_value);
    default:
        return flw_parse_count(text, out_value) && *out_value >= setting->least &&
               *out_value <= setting->most &&
               (setting->kind == FLW_SETTING_COUNT || flw_is_pow2(*out_value));
    }
}

static void say_settings(const struct flw_policy *base, const char *name, char *message)
{
    int length = snprintf(message, FLW_POLICY_MESSAGE_BYTES,
                          "policy %s has no setting '" TEXT_SHOWN "'; it has %s", base->name, name,
                          base->setting_count == 0 ? "none" : "");
    for (size_t i = 0; i < base->setting_count && length < FLW_POLICY_MESSAGE_BYTES; i++) {
        length += snprintf(message + length, (size_t)(FLW_POLICY_MESSAGE_BYTES - length), "%s%s",
                           i == 0 ? "" : ", ", base->settings[i].name);
    }
}

/* Set "NAME=VALUE", and cut the text. */
static bool set_one(struct flw_policy *policy, char *text, char *message)
{
    char *value = text;
    const char *name = strsep(&value, "=");
    size_t i = 0;
    while (i < policy->setting_count && strcmp(policy->settings[i].name, name) != 0) {
        i++;
    }
    if (i == policy->setting_count) {
        say_settings(policy, name, message);
        return false;
    }
    const struct flw_policy_setting *setting = &policy->settings[i];
    if (value == NULL || !parse_value(setting, value, &policy->values[i])) {
        char allowed[FLW_POLICY_ALLOWED_BYTES];
        flw_policy_say_allowed(setting, allowed);
        snprintf(message, FLW_POLICY_MESSAGE_BYTES, "policy %s: %s=" TEXT_SHOWN " is not %s",
                 policy->name, name, value == NULL ? "" : value, allowed);
        return false;
    }
    if ((policy->value_mask >> i & 1) != 0) {
        snprintf(message, FLW_POLICY_MESSAGE_BYTES, "policy %s: %s is given twice", policy->name,
                 name);
        return false;
    }
    policy->value_mask |= 1u << i;
    return true;
}

bool flw_policy_set(const struct flw_policy *base, const char *text, size_t length,
                    struct flw_policy_choice *out, char *message)
{
    char copy[FLW_POLICY_NAME_BYTES], *next = copy, *piece;
    *out = (struct flw_policy_choice){.policy = *base};
    message[0] = '\0';
    if (length == 0) {
        return true;
    }
    if (strlen(base->name) + 1 + length >= sizeof out->name) {
        snprintf(message, FLW_POLICY_MESSAGE_BYTES,
                 "policy %s: more than %d characters of settings", base->name,
                 FLW_POLICY_NAME_BYTES);
        return false;
    }
    snprintf(copy, sizeof copy, "%.*s", (int)length, text);
    snprintf(out->name, sizeof out->name, "%s:%.*s", base->name, (int)length, text);
    while ((piece = strsep(&next, ",")) != NULL) {
        if (!set_one(&out->policy, piece, message)) {
            return false;
        }
    }
    out->policy.name = out->name;
    if (base->sim_label != NULL) { /* "async (model)" */
        snprintf(out->sim_label, sizeof out->sim_label, "%s%s", out->name,
                 base->sim_label + strlen(base->name));
        out->policy.sim_label = out->sim_label;
    }
    return true;
}
