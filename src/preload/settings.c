/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/settings.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "preload/say.h"

struct flw_settings flw_settings;

#define KEYS \
    "mode, trace, stats, poison, limit, reserve, large, page_source, ipc, top, audit, trial, only, skip"

#define SITE_DIGITS 12

struct parse {
    struct flw_settings *settings;
    const char *program;
    const char *key, *value;
    char *message;
    bool has_only, is_only; /* some program was named; this one was */
    bool is_skipped;
};

static bool refuse(struct parse *parse, const char *expected)
{
    snprintf(parse->message, FLW_SETTINGS_MESSAGE_BYTES,
             "FALLOW: '%.80s:%.160s': %s; the program runs without Fallow", parse->key,
             parse->value, expected);
    return false;
}

static bool take_text(struct parse *parse, char to[FLW_SETTING_TEXT_BYTES])
{
    if (parse->value[0] == '\0') {
        return refuse(parse, "give a name");
    }
    if (strlen(parse->value) >= FLW_SETTING_TEXT_BYTES) {
        return refuse(parse, "give a shorter name (1023 bytes)");
    }
    strcpy(to, parse->value);
    return true;
}

static bool take_switch(struct parse *parse, bool *to)
{
    if (strcmp(parse->value, "0") != 0 && strcmp(parse->value, "1") != 0) {
        return refuse(parse, "give 0 or 1");
    }
    *to = parse->value[0] == '1';
    return true;
}

static bool take_bytes(struct parse *parse, uint64_t *to)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(parse->value, &end, 0);
    unsigned shift = 0;
    if (end != parse->value && *end != '\0') {
        const char *unit = strchr(units, *end);
        shift = unit == NULL ? 64 : 10 * (unsigned)(unit - units + 1);
        end++;
    }
    if (errno != 0 || parse->value[0] < '0' || parse->value[0] > '9' || *end != '\0' ||
        shift == 64 || value > UINT64_MAX >> shift) {
        return refuse(parse, "give bytes (8G, 512M, 1048576)");
    }
    *to = (uint64_t)value << shift;
    return true;
}

static bool take_mode(struct parse *parse)
{
    static const char *const names[] = {"off", "trace", "cache", "strict", "audit"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(parse->value, names[i]) == 0) {
            parse->settings->mode = (enum flw_mode)i;
            parse->settings->has_mode = true;
            return true;
        }
    }
    return refuse(parse, "give off, trace, cache, strict or audit");
}

/* A program that calls cudaMalloc may count on anything that holds of its memory. */
static bool take_page_source(struct parse *parse)
{
    return strcmp(parse->value, "automatic") == 0 || strcmp(parse->value, "segments") == 0 ||
           refuse(parse, "give automatic or segments: what is lent in the place of cudaMalloc's "
                         "memory is of cuMemAlloc");
}

static bool read_byte(const char *text, int *to)
{
    char *end = NULL;
    unsigned long value = strtoul(text, &end, 0);
    *to = (int)value;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && value <= 255;
}

static bool take_byte(struct parse *parse, int *to)
{
    return read_byte(parse->value, to) || refuse(parse, "give a byte (0xa5, 165)");
}

/* A site as an audit names it, and perhaps a byte. */
static bool take_trial(struct parse *parse)
{
    struct flw_settings *settings = parse->settings;
    const char *rest = parse->value + strspn(parse->value, "0123456789abcdef");
    settings->trial_id = strtoull(parse->value, NULL, 16);
    bool is_site = rest - parse->value == SITE_DIGITS && settings->trial_id != 0;
    bool is_whole = *rest == '\0' || (*rest == '=' && read_byte(rest + 1, &settings->trial_byte));
    return (is_site && is_whole) ||
           refuse(parse, "give a site, 12 digits of 0-9 a-f, and perhaps =BYTE");
}

static bool take(struct parse *parse)
{
    struct flw_settings *settings = parse->settings;
    const char *key = parse->key;
    if (strcmp(key, "mode") == 0) {
        return take_mode(parse);
    } else if (strcmp(key, "trace") == 0) {
        return take_text(parse, settings->trace_file);
    } else if (strcmp(key, "stats") == 0) {
        return take_text(parse, settings->stats_file);
    } else if (strcmp(key, "audit") == 0) {
        return take_text(parse, settings->audit_prefix);
    } else if (strcmp(key, "trial") == 0) {
        return take_trial(parse);
    } else if (strcmp(key, "state") == 0) {
        return true; /* for runplace.c, also where the rest is refused */
    } else if (strcmp(key, "poison") == 0) {
        return take_byte(parse, &settings->poison);
    } else if (strcmp(key, "limit") == 0) {
        return take_bytes(parse, &settings->limit_bytes);
    } else if (strcmp(key, "reserve") == 0) {
        return take_bytes(parse, &settings->reserve_bytes);
    } else if (strcmp(key, "large") == 0) {
        return take_bytes(parse, &settings->large_bytes);
    } else if (strcmp(key, "page_source") == 0) {
        return take_page_source(parse);
    } else if (strcmp(key, "ipc") == 0) {
        return take_switch(parse, &settings->is_ipc);
    } else if (strcmp(key, "top") == 0) {
        return take_switch(parse, &settings->is_top);
    } else if (strcmp(key, "only") == 0) {
        parse->has_only = true;
        parse->is_only = parse->is_only || strcmp(parse->value, parse->program) == 0;
        return true;
    } else if (strcmp(key, "skip") == 0) {
        parse->is_skipped = parse->is_skipped || strcmp(parse->value, parse->program) == 0;
        return true;
    }
    snprintf(parse->message, FLW_SETTINGS_MESSAGE_BYTES,
             "FALLOW has no key '%.80s' (%s); the program runs without Fallow", key, KEYS);
    return false;
}

/* One item up to a bare comma into `item`; the rest of the text, or NULL: the item is too long. */
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
                                      .large_bytes = 1ull << 20};
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
        flw_say("a privileged program (setuid, setgid or capabilities) runs without Fallow");
    } else if (!flw_settings_parse(&flw_settings, secure_getenv("FALLOW"),
                                   program_invocation_short_name, message)) {
        flw_say("%s", message);
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
    flw_say("%s; the program runs without Fallow", line);
    flw_settings.mode = FLW_MODE_OFF;
}
