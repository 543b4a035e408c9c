/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how a command line is read: a table of the options that a command has, walked by getopt_long,
 * and what is said of one that is wrong, in the same words for every command.
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
    FLW_OPTION_SCALED, /* the same; K, M, G or T may stand behind it (powers of 1,024) */
    FLW_OPTION_BYTES,  /* uint64_t: above 0, K, M, G, T as well */
    FLW_OPTION_CHOICE, /* uint64_t: the index of one of `words` */
    FLW_OPTION_DEVICE, /* int: a GPU's number, or FLW_OPTION_SIM */
    FLW_OPTION_TAKE    /* what `take` makes of its value */
};

#define FLW_OPTION_SIM (-1)

struct flw_option {
    const char *name;          /* behind two hyphens */
    enum flw_option_kind kind; /* of the member that it sets */
    size_t offset;             /* of that member in the command's settings */
    uint64_t least, most;
    const char *const *words;                      /* ends with NULL */
    bool (*take)(void *member, const char *value); /* false: it has complained */
    bool may_stand_alone; /* FLW_OPTION_TAKE: `value` is NULL where it has none behind '=' */
    char letter;          /* behind one hyphen, where it is to have one; --help has h */
};

/* An option that sets a member of the type, as {FLW_OPTION(struct order, "json", SET, is_json)}. */
#define FLW_OPTION(type, word, kind_, member) \
    .name = word, .kind = FLW_OPTION_##kind_, .offset = offsetof(type, member)

struct flw_options {
    const char *command;           /* as messages name it: "bench kernels" */
    const char *help;              /* what --help prints, or ... */
    void (*print_help)(void);      /* ... what does it */
    const struct flw_option *list; /* one without a name behind the last */
    bool ends_at_operand;          /* what follows the first operand is not for this command */
};

#define FLW_OPTIONS_READ (-1)

/* FLW_OPTIONS_READ: `settings` are set, and the operands are argv[optind] to the end. Else it is the
 * command's exit code: help was printed, or a line to standard error says what is wrong. argv[0] is
 * the command. */
int flw_options_read(const struct flw_options *options, void *settings, int argc, char **argv);

/* Set the option's member from a value. False: an error has been printed. */
bool flw_option_take(const struct flw_options *options, const struct flw_option *option,
                     void *settings, const char *value);

/* For FLW_OPTION_TAKE, of an int: which device of a recording. */
bool flw_option_take_trace_device(void *member, const char *value);

#endif
