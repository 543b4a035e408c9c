/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the file with an audited process's findings, and the format. The file is mapped and
 * shared, so that findings survive any end of the process; the space is allocated before it is
 * mapped, so that a full disk refuses the audit and never kills the program.
 * Does not: decide which fills are candidates; read symbols.
 *
 * The magic number is written last: a file without it is not a page.
 *
 * INVARIANTS (flw_auditpage_is_valid)
 *   1. site_count and module_count are within their tables
 *   2. a frame's module is one of the table, or FLW_AUDIT_NO_MODULE; texts end
 *   3. a site has been filled at least once; the id is not 0 and no other site's
 *
 * Synchronization: one writer at a time (the audit's lock); a reader loads counts with acquire. */
#ifndef FLW_PRELOAD_AUDIT_AUDITPAGE_H
#define FLW_PRELOAD_AUDIT_AUDITPAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FLW_AUDIT_MAGIC        0x3165676170445541ull /* "AUDpage1" in memory */
#define FLW_AUDIT_SITES        2048
#define FLW_AUDIT_MODULES      256
#define FLW_AUDIT_FRAMES       12 /* that distinguish sites */
#define FLW_AUDIT_PATH_BYTES   512
#define FLW_AUDIT_CALL_BYTES   160
#define FLW_AUDIT_SCRIPT_BYTES 512
#define FLW_AUDIT_NO_MODULE    UINT32_MAX

struct flw_audit_frame {
    uint64_t offset; /* of the return address from the module's load address; 0: no module */
    uint32_t module;
    uint32_t reserved;
};

struct flw_audit_site {
    uint64_t id; /* of call, frames and script; 48 bits, equal in every run of the same files */
    uint64_t fill_count;
    uint64_t bytes;              /* written by the fills */
    uint64_t unread_value_count; /* fills with an unreadable value, which may not be 0 */
    uint64_t unread_range_count; /* fills with an unreadable range: bytes up to the end of the
                                     block */
    uint64_t poisoned_count;     /* fills replaced by poison (the site on trial) */
    uint32_t frame_count;
    uint32_t reserved;
    struct flw_audit_frame frames[FLW_AUDIT_FRAMES];
    char call[FLW_AUDIT_CALL_BYTES];     /* the driver's entry point, or the kernel */
    char script[FLW_AUDIT_SCRIPT_BYTES]; /* of a Python program, see scriptframes.h; "": none */
};

struct flw_audit_module {
    char path[FLW_AUDIT_PATH_BYTES];
};

/* All counts of the audit: name, and the sentence of a report. */
#define FLW_AUDIT_COUNT_LIST(X)                                                               \
    X(blocks, "blocks allocated")                                                             \
    X(unfollowed_blocks, "blocks not followed for want of host memory")                       \
    X(fills, "fills by memset or by a known fill kernel")                                     \
    X(candidates, "fills that are candidates")                                                \
    X(reused, "fills over a block accessed since its allocation")                             \
    X(nonzero, "fills with another value than zero")                                          \
    X(foreign, "fills of memory that the audit does not follow (VMM, managed, module, host)") \
    X(captured, "memsets while a stream was being captured")                                  \
    X(launches, "kernel launches")                                                            \
    X(unread_launches, "launches with unreadable arguments")                                  \
    X(graph_launches, "graph launches")                                                       \
    X(hidden_work, "other calls that may touch any block, and ends of contexts")              \
    X(lost_sites, "candidates at sites beyond the table")                                     \
    X(poisoned, "fills replaced by poison")                                                   \
    X(unpoisoned, "fills of the site on trial that could not be replaced")

struct flw_audit_counts {
#define FIELD(name, sentence) uint64_t name;
    FLW_AUDIT_COUNT_LIST(FIELD)
#undef FIELD
};

struct flw_auditpage {
    _Atomic uint64_t magic;
    uint64_t page_bytes; /* sizeof, so that another version's page is refused */
    uint64_t pid;
    uint64_t trial_id; /* 0: none */
    char program[FLW_AUDIT_PATH_BYTES];
    struct flw_audit_counts counts;
    _Atomic uint32_t site_count;
    _Atomic uint32_t module_count;
    struct flw_audit_module modules[FLW_AUDIT_MODULES];
    struct flw_audit_site sites[FLW_AUDIT_SITES];
};

/* Create PREFIX.PID, or PREFIX.PID.N if that exists. NULL, with errno set, on failure. */
struct flw_auditpage *flw_auditpage_create(const char *prefix);
/* Read a page into the caller's memory of sizeof *out. False: not a page, or incomplete. */
bool flw_auditpage_read(const char *path, struct flw_auditpage *out);

/* Return the number of a module; FLW_AUDIT_NO_MODULE: the table is full or the path too long. */
uint32_t flw_auditpage_module(struct flw_auditpage *page, const char *path);
/* Return the site with that id, created from `site` if new; NULL: the table is full. */
struct flw_audit_site *flw_auditpage_site(struct flw_auditpage *page,
                                          const struct flw_audit_site *site);

bool flw_auditpage_is_valid(const struct flw_auditpage *page);

#endif
