/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: building the text of FALLOW from a command line.
 * Does not: know the keys (preload/settings.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/command.h"
#include "common/launch.h"
#include "preload/settings.h"
#include "trace/io/codec.h"

bool flw_settings_inherit(struct flw_settings_text *settings)
{
    const char *given = getenv("FALLOW");
    size_t length = given != NULL ? strlen(given) : 0;
    if (length >= sizeof settings->text) {
        return flw_complain(
            "FALLOW in the environment has %zu bytes, too many for this command, which takes "
            "%zu; shorten it, or preload the library without the command",
            length, sizeof settings->text - 1);
    }
    memcpy(settings->text, given != NULL ? given : "", length + 1);
    return true;
}

/* Refuse a name for a packed file: the program writes these files itself, and a record must survive a crash. */
static bool check_name(const char *path)
{
    if (flw_packer_tell(path) != FLW_CODEC_PLAIN) {
        return flw_complain(
            "'%s': a record, and statistics, are written by the program and are not packed; "
            "give a name without %s, and pack the file afterwards",
            path, strrchr(path, '.'));
    }
    return true;
}

bool flw_settings_check(const struct flw_settings_text *settings)
{
    char message[FLW_SETTINGS_MESSAGE_BYTES];
    struct flw_settings read;
    if (!flw_settings_parse(&read, settings->text, "", message)) {
        return flw_complain("%s", message);
    }
    return check_name(read.trace_file) && check_name(read.stats_file);
}

/* Return the comma after the item at `at`, or the end; a backslash quotes the next character. */
static char *end_of_item(char *at)
{
    while (*at != '\0' && *at != ',') {
        at += *at == '\\' && at[1] != '\0' ? 2 : 1;
    }
    return at;
}

/* Remove all items `key:...`, and a comma at the end. */
static void drop(char *text, const char *key)
{
    size_t length = strlen(key), has_comma = 0;
    char *to = text;
    for (char *at = text, *end, *next; *at != '\0'; at = next) {
        end = end_of_item(at);
        next = end + (*end == ',');
        if (strncmp(at, key, length) != 0 || (at[length] != ':' && at + length != end)) {
            has_comma = *end == ',';
            memmove(to, at, (size_t)(next - at));
            to += next - at;
        }
    }
    to -= has_comma;
    *to = '\0';
}

bool flw_settings_put(struct flw_settings_text *settings, const char *key, const char *value)
{
    char item[FLW_SETTINGS_BYTES];
    size_t length = (size_t)snprintf(item, sizeof item, "%s:", key);
    if (value == NULL) {
        return true;
    }
    for (const char *at = value; *at != '\0' && length + 3 < sizeof item; at++) {
        if (*at == ',' || *at == '\\') {
            item[length++] = '\\';
        }
        item[length++] = *at;
    }
    item[length] = '\0';
    if (*value == '\0') {
        return flw_complain("%s: give it a value", key);
    }
    drop(settings->text, key);
    size_t used = strlen(settings->text), room = sizeof settings->text - used;
    if (length + 3 >= sizeof item || length + 2 > room) {
        return flw_complain("%s '%.80s...': FALLOW has room for %zu bytes", key, value,
                            sizeof settings->text);
    }
    snprintf(settings->text + used, room, "%s%s", used > 0 ? "," : "", item);
    return true;
}

bool flw_settings_put_file(struct flw_settings_text *settings, const char *key, const char *path)
{
    char whole[FLW_LAUNCH_PATH_BYTES], here[FLW_LAUNCH_PATH_BYTES];
    if (path == NULL || *path == '/' || strcmp(path, "-") == 0 || *path == '\0') {
        return flw_settings_put(settings, key, path);
    }
    if (getcwd(here, sizeof here) == NULL ||
        snprintf(whole, sizeof whole, "%s/%s", here, path) >= (int)sizeof whole) {
        return flw_complain("%s '%s': the way from / to it cannot be told; give an absolute path",
                            key, path);
    }
    return flw_settings_put(settings, key, whole);
}

bool flw_settings_take(void *member, const char *text)
{
    char key[32];
    const char *colon = strchr(text, ':');
    if (colon == NULL || colon == text || (size_t)(colon - text) >= sizeof key) {
        return flw_complain("--set '%s': it takes a key, a colon and a value", text);
    }
    snprintf(key, sizeof key, "%.*s", (int)(colon - text), text);
    return flw_settings_put(member, key, colon + 1);
}
