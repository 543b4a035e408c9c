/* SPDX-License-Identifier: Apache-2.0 */
#include "common/options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "common/command.h"

#define OPTIONS    32 /* limit for a command */
#define MOST_BYTES (UINT64_C(1) << 62)
#define FIRST      256 /* getopt_long's value of the first option, above all letters */

/* Return getopt_long's kind of argument. */
static int has_value(const struct flw_option *option)
{
    bool is_alone = option->kind == FLW_OPTION_SET || option->kind == FLW_OPTION_CLEAR;
    return is_alone ? no_argument : option->may_stand_alone ? optional_argument : required_argument;
}

/* Complain of a word after two hyphens that getopt_long refused: it has a superfluous value, or is ambiguous, or
 * unknown. */
static void complain_of_word(const struct flw_options *options, const char *refused)
{
    const char *text = refused + 2;
    size_t length = strcspn(text, "="), meant_count = 0;
    struct flw_guess guess = {.word = text, .length = length};
    const struct flw_option *meant = NULL;
    bool is_exact = false;
    char hint[FLW_GUESS_BYTES];
    for (const struct flw_option *option = options->list; option->name != NULL; option++) {
        flw_guess_offer(&guess, option->name);
        if (!is_exact && length > 0 && strncmp(option->name, text, length) == 0) {
            meant = option;
            is_exact = strlen(option->name) == length;
            meant_count = is_exact ? 1 : meant_count + 1;
        }
    }
    flw_guess_offer(&guess, "help");
    if (meant_count == 1 && text[length] == '=' && !has_value(meant)) {
        flw_complain("--%s takes no value; see fallow %s --help", meant->name, options->command);
    } else {
        flw_complain("%s %s '%s'%ssee fallow %s --help", options->command,
                     meant_count > 1 ? "has several options that begin with" : "has no option",
                     refused, meant_count > 1 ? "; " : flw_guess_say(&guess, "--", hint),
                     options->command);
    }
}

/* Complain of an option that getopt_long refused, with '?' or ':'. */
static void complain(const struct flw_options *options, char *const *argv, int answer)
{
    char letter[3] = {'-', (char)optopt, '\0'};
    const char *refused = argv[optind - 1];
    bool is_word = strncmp(refused, "--", 2) == 0;
    /* Name an unknown letter alone, because others may follow in the same word. */
    if (!is_word && optopt > ' ' && optopt <= '~') {
        refused = letter;
    }
    if (answer == ':') {
        flw_complain("%s needs a value; see fallow %s --help", refused, options->command);
    } else if (is_word) {
        complain_of_word(options, refused);
    } else {
        flw_complain("%s has no option '%s'; see fallow %s --help", options->command, refused,
                     options->command);
    }
}

static bool take_number(const struct flw_option *option, const char *text, uint64_t *out)
{
    bool is_number =
        option->kind == FLW_OPTION_COUNT ? flw_parse_count(text, out) : flw_parse_bytes(text, out);
    if (option->kind != FLW_OPTION_BYTES) {
        return (is_number && *out >= option->least && *out <= option->most) ||
               flw_complain("--%s '%s' is not a whole number from %llu to %llu", option->name, text,
                            (unsigned long long)option->least, (unsigned long long)option->most);
    }
    if (!is_number || *out == 0) {
        return flw_complain("--%s '%s' is not a number of bytes above 0, such as 40G", option->name,
                            text);
    }
    return *out <= MOST_BYTES ||
           flw_complain("--%s '%s' is above 4096 PiB, more than any memory", option->name, text);
}

static bool take_device(const char *text, int *out)
{
    uint64_t number = 0;
    bool is_sim = strcmp(text, "sim") == 0;
    bool is_right = is_sim || (flw_parse_count(text, &number) && number <= 1023);
    *out = is_sim ? FLW_OPTION_SIM : (int)number;
    return is_right || flw_complain("--device '%s' is neither 'sim' nor the number of a GPU", text);
}

bool flw_option_take_trace_device(void *member, const char *value)
{
    uint64_t number = 0;
    bool is_right = flw_parse_count(value, &number) && number <= INT32_MAX;
    *(int *)member = (int)number;
    return is_right || flw_complain("--trace-device '%s' is not the number of a device", value);
}

static bool take_choice(const struct flw_options *options, const struct flw_option *option,
                        const char *text, uint64_t *out)
{
    struct flw_guess guess = {.word = text, .length = strlen(text)};
    char hint[FLW_GUESS_BYTES];
    for (*out = 0; option->words[*out] != NULL; ++*out) {
        if (strcmp(option->words[*out], text) == 0) {
            return true;
        }
        flw_guess_offer(&guess, option->words[*out]);
    }
    return flw_complain("--%s has no '%s'%sfallow %s --help lists the options", option->name, text,
                        flw_guess_say(&guess, "", hint), options->command);
}

bool flw_option_take(const struct flw_options *options, const struct flw_option *option,
                     void *settings, const char *value)
{
    void *member = (char *)settings + option->offset;
    switch (option->kind) {
    case FLW_OPTION_SET:
    case FLW_OPTION_CLEAR:
        *(bool *)member = option->kind == FLW_OPTION_SET;
        return true;
    case FLW_OPTION_TEXT:
        *(const char **)member = value;
        return value[0] != '\0' || flw_complain("--%s '' is empty; give it a value", option->name);
    case FLW_OPTION_COUNT:
    case FLW_OPTION_SCALED:
    case FLW_OPTION_BYTES:
        return take_number(option, value, member);
    case FLW_OPTION_CHOICE:
        return take_choice(options, option, value, member);
    case FLW_OPTION_DEVICE:
        return take_device(value, member);
    case FLW_OPTION_TAKE:
        break;
    }
    return option->take(member, value);
}

/* Convert the table for getopt_long. */
static void translate(const struct flw_options *options, struct option *words, char *letters)
{
    letters += sprintf(letters, options->ends_at_operand ? "+:h" : ":h");
    words[0] = (struct option){.name = "help", .val = 'h'};
    for (int i = 0; options->list[i].name != NULL; i++) {
        const struct flw_option *option = &options->list[i];
        words[i + 1] =
            (struct option){.name = option->name, .has_arg = has_value(option), .val = FIRST + i};
        if (option->letter != '\0') {
            letters += sprintf(letters, has_value(option) ? "%c:" : "%c", option->letter);
        }
    }
}

static const struct flw_option *find(const struct flw_options *options, int answer)
{
    const struct flw_option *option = options->list;
    while (answer < FIRST && option->letter != answer) {
        option++;
    }
    return answer < FIRST ? option : &options->list[answer - FIRST];
}

int flw_options_read(const struct flw_options *options, void *settings, int argc, char **argv)
{
    struct option words[OPTIONS + 2] = {0};
    char letters[2 * OPTIONS + 4];
    translate(options, words, letters);
    optind = 0; /* restart getopt */
    for (int answer; (answer = getopt_long(argc, argv, letters, words, NULL)) != -1;) {
        if (answer == '?' || answer == ':') {
            complain(options, argv, answer);
            return FLW_EXIT_USAGE;
        }
        if (answer == 'h') {
            if (options->help != NULL) {
                fputs(options->help, stdout);
            } else {
                options->print_help();
            }
            return FLW_EXIT_OK;
        }
        if (!flw_option_take(options, find(options, answer), settings, optarg)) {
            return FLW_EXIT_USAGE;
        }
    }
    return FLW_OPTIONS_READ;
}
