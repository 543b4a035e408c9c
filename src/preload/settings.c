/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/settings.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/setting.h"
#include "preload/log.h"
#include "record/callstack.h"

struct flw_settings flw_settings;

#define KEYS \
    "mode, trace, stacks, enter_python, stats, poison, limit, reserve, one_handle, ipc, top, audit, trial, only, skip"

#define SITE_DIGITS 12

static const struct flw_setting_word switches[] = {{"0", false}, {"1", true}, {NULL, 0}};
static const struct flw_setting_word modes[] = {
    {"off", FLW_MODE_OFF},       {"trace", FLW_MODE_TRACE}, {"cache", FLW_MODE_CACHE},
    {"strict", FLW_MODE_STRICT}, {"audit", FLW_MODE_AUDIT}, {NULL, 0}};

#define FIELD(field) FLW_SETTING_FIELD(struct flw_settings, field)
#define TEXT(field)  FLW_SETTING_IS_TEXT, FIELD(field), .expected = "give a name"
#define BYTES(field)                                        \
    FLW_SETTING_IS_BYTES, FIELD(field), .most = UINT64_MAX, \
                                        .expected = "give bytes (8G, 512M, 1048576)"
#define SWITCH(field) \
    FLW_SETTING_IS_WORD, FIELD(field), .words = switches, .expected = "give 0 or 1"

static const struct flw_setting list[] = {
    {"mode", FLW_SETTING_IS_WORD, FIELD(mode), .words = modes,
     .expected = "give off, trace, cache, strict or audit"},
    {"trace", TEXT(trace_file)},
    {"stacks", FLW_SETTING_IS_NUMBER, FIELD(stack_depth), .most = FLW_CALLSTACK_DEPTH_MOST,
     .expected = "give a number of frames, up to 64"},
    {"enter_python", SWITCH(enters_python)},
    {"stats", TEXT(stats_file)},
    {"audit", TEXT(audit_prefix)},
    {"poison", FLW_SETTING_IS_NUMBER, FIELD(poison), .most = 255,
     .expected = "give a byte (0xa5, 165)"},
    {"limit", BYTES(limit_bytes)},
    {"reserve", BYTES(reserve_bytes)},
    {"one_handle", BYTES(one_handle_bytes)},
    {"large", BYTES(one_handle_bytes)}, /* the name until 0.1 */
    {"ipc", SWITCH(is_ipc)},
    {"top", SWITCH(is_top)},
    {.name = NULL}};

struct parse {
    struct flw_settings *settings;
    const char *program;
    const char *key, *value;
    char *message;
    bool has_only, is_only; /* has_only: a program was named; is_only: this one was */
    bool is_skipped;
};

static bool refuse(struct parse *parse, const char *expected)
{
    snprintf(parse->message, FLW_SETTINGS_MESSAGE_BYTES, "FALLOW: '%.80s:%.160s': %s", parse->key,
             parse->value, expected);
    return false;
}

/* Read a site in the audit's format, optionally with a byte. */
static bool take_trial(struct parse *parse)
{
    struct flw_settings *settings = parse->settings;
    const char *rest = parse->value + strspn(parse->value, "0123456789abcdef");
    uint64_t byte = (uint64_t)settings->trial_byte;
    settings->trial_id = strtoull(parse->value, NULL, 16);
    bool is_site = rest - parse->value == SITE_DIGITS && settings->trial_id != 0;
    if (*rest == '=') {
        rest = flw_number_read(rest + 1, 0, &byte);
    }
    settings->trial_byte = (int)byte;
    return (is_site && rest != NULL && *rest == '\0' && byte <= 255) ||
           refuse(parse, "give a site, 12 digits of 0-9 a-f, and perhaps =BYTE");
}

static bool take_setting(struct parse *parse, const struct flw_setting *setting)
{
    if (flw_setting_read(setting, parse->value, 0, parse->settings)) {
        return true;
    }
    bool is_long = setting->form == FLW_SETTING_IS_TEXT && parse->value[0] != '\0';
    return refuse(parse, is_long ? "give a shorter name (1023 bytes)" : setting->expected);
}

static bool take(struct parse *parse)
{
    const struct flw_setting *setting = flw_setting_find(list, parse->key);
    bool is_program = strcmp(parse->value, parse->program) == 0;
    if (setting != NULL) {
        parse->settings->has_mode |= setting == list;
        return take_setting(parse, setting);
    } else if (strcmp(parse->key, "trial") == 0) {
        return take_trial(parse);
    } else if (strcmp(parse->key, "only") == 0) {
        parse->has_only = true;
        parse->is_only |= is_program;
        return true;
    } else if (strcmp(parse->key, "skip") == 0) {
        parse->is_skipped |= is_program;
        return true;
    } else if (strcmp(parse->key, "state") == 0) {
        return true; /* for runplace.c, even if the rest is refused */
    }
    snprintf(parse->message, FLW_SETTINGS_MESSAGE_BYTES, "FALLOW has no key '%.80s' (%s)",
             parse->key, KEYS);
    return false;
}

/* Copy one item up to a bare comma into `item`; return the rest of the text, or NULL: the item is
 * too long. */
static const char *cut_item(const char *text, char *item, size_t room)
{
    size_t length = 0;
    while (*text != '\0' && *text != ',') {
        text += *text == '\\' && text[1] != '\0';
        if (length + 1 == room) {
            return NULL;
        }
        item[length++] = *text++;
    }
    item[length] = '\0';
    return text + (*text == ',');
}

static void set_defaults(struct flw_settings *settings)
{
    *settings = (struct flw_settings){.mode = FLW_MODE_CACHE,
                                      .poison = -1,
                                      .trial_byte = 0xff,
                                      .reserve_bytes = 512ull << 20,
                                      .one_handle_bytes = 1ull << 20};
}

bool flw_settings_parse(struct flw_settings *settings, const char *text, const char *program,
                        char message[FLW_SETTINGS_MESSAGE_BYTES])
{
    char item[FLW_SETTING_TEXT_BYTES + 32];
    struct parse parse = {.settings = settings, .program = program, .message = message};
    message[0] = '\0';
    set_defaults(settings);
    for (const char *rest = text; rest != NULL && *rest != '\0';) {
        rest = cut_item(rest, item, sizeof item);
        char *colon = rest == NULL ? NULL : strchr(item, ':');
        parse.key = item;
        parse.value = "";
        if (colon != NULL) {
            *colon = '\0';
            parse.value = colon + 1;
        } else if (rest == NULL) {
            item[40] = '\0';
            refuse(&parse, "too long");
            goto fail;
        } else if (item[0] == '\0') {
            continue;
        }
        if (!take(&parse)) {
            goto fail;
        }
    }
    if (settings->trace_file[0] != '\0' && !settings->has_mode) {
        settings->mode = FLW_MODE_TRACE;
    } else if (settings->audit_prefix[0] != '\0' && !settings->has_mode) {
        settings->mode = FLW_MODE_AUDIT;
    }
    if ((parse.has_only && !parse.is_only) || parse.is_skipped) {
        settings->mode = FLW_MODE_OFF;
    }
    return true;
fail:
    set_defaults(settings);
    settings->mode = FLW_MODE_OFF;
    return false;
}

/* ---- the process's settings */

enum {
    UNREAD,
    READING,
    READ
};

static _Atomic int reading;

bool flw_settings_ready(void)
{
    char message[FLW_SETTINGS_MESSAGE_BYTES];
    int state = atomic_load_explicit(&reading, memory_order_acquire); /* with the store below */
    if (state == READ) {
        return true;
    }
    state = UNREAD;
    if (!atomic_compare_exchange_strong_explicit(&reading, &state, READING, memory_order_acquire,
                                                 memory_order_acquire)) {
        return state == READ;
    }
    if (getauxval(AT_SECURE) != 0) {
        set_defaults(&flw_settings);
        flw_settings.mode = FLW_MODE_OFF;
        flw_log_line("a privileged program (setuid, setgid or capabilities) runs without Fallow");
    } else if (!flw_settings_parse(&flw_settings, secure_getenv("FALLOW"),
                                   program_invocation_short_name, message)) {
        flw_log_line("%s; the program runs without Fallow", message);
    }
    atomic_store_explicit(&reading, READ, memory_order_release);
    return true;
}

void flw_settings_switch_off(const char *format, ...)
{
    char line[FLW_SETTINGS_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    flw_log_line("%s; the program runs without Fallow", line);
    flw_settings.mode = FLW_MODE_OFF;
}
