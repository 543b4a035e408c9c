/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading a command line by the command's table of options and getopt_long, with the same errors for all commands.
 */
#ifndef FLW_TOOL_OPTIONS_H
#define FLW_TOOL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum flw_option_kind {
    FLW_OPTION_SET,    /* bool: true */
    FLW_OPTION_CLEAR,  /* bool: false */
    FLW_OPTION_TEXT,   /* const char * */
    FLW_OPTION_COUNT,  /* uint64_t: a whole number, least to most */
    FLW_OPTION_SCALED, /* the same with an optional K, M, G or T (powers of 1,024) */
    FLW_OPTION_BYTES,  /* uint64_t above 0, with an optional K, M, G or T */
    FLW_OPTION_CHOICE, /* uint64_t: the index of one of `words` */
    FLW_OPTION_DEVICE, /* int: a GPU's number, or FLW_OPTION_SIM */
    FLW_OPTION_TAKE    /* set by `take` from the value */
};

#define FLW_OPTION_SIM (-1)

struct flw_option {
    const char *name;          /* without the two hyphens */
    enum flw_option_kind kind; /* of the member to set */
    size_t offset;             /* of that member in the command's settings */
    uint64_t least, most;
    const char *const *words;                      /* ends with NULL */
    bool (*take)(void *member, const char *value); /* false: an error has been printed */
    bool may_stand_alone; /* FLW_OPTION_TAKE: `value` is NULL without '=' */
    char letter;          /* the short form, or 0; --help has h */
};

/* An option that sets a member of the type, as {FLW_OPTION(struct order, "json", SET, is_json)}. */
#define FLW_OPTION(type, word, kind_, member) \
    .name = word, .kind = FLW_OPTION_##kind_, .offset = offsetof(type, member)

struct flw_options {
    const char *command;           /* name in messages, as "bench kernels" */
    const char *help;              /* text of --help, or NULL and ... */
    void (*print_help)(void);      /* ... the function that prints the text */
    const struct flw_option *list; /* ends with an option without a name */
    bool ends_at_operand;          /* words after the first operand belong to another command */
};

#define FLW_OPTIONS_READ (-1)

/* Set `settings` from a command line, in which argv[0] is the command. Returns FLW_OPTIONS_READ, and the operands begin
 * at argv[optind]; or the command's exit code, after help or an error has been printed. */
int flw_options_read(const struct flw_options *options, void *settings, int argc, char **argv);

/* Set the option's member from a value. Returns false after an error has been printed. */
bool flw_option_take(const struct flw_options *options, const struct flw_option *option,
                     void *settings, const char *value);

/* A `take` for an int: the device of a recording. */
bool flw_option_take_trace_device(void *member, const char *value);

#endif
