/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what every conformance case is made of: its row, the bed that it lies in and the checks
 * that record a failure and go on. Does not: use a test framework: a GPU machine may have only a
 * compiler, CMake and the toolkit.
 *
 * A case may rely on an initialised driver, the primary context of device 0 current in its thread,
 * global capture mode and no work under way; it releases everything.
 */
#ifndef FLW_TESTS_CONFORMANCE_H
#define FLW_TESTS_CONFORMANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "support/sim.h"

struct bed {
    struct flw_sim sim;          /* controls are NULL on a real driver */
    const struct flw_driver *cu; /* &sim.cu */
    const char *driver_name;     /* as given on the command line; NULL = default */
    const char *program;         /* argv[0], to run the importing side in a process of its own */
    bool is_sim;
    CUcontext context;
    CUdevice device;
    unsigned failures; /* of this case */
    const char *skip;  /* set: why this machine cannot tell */
    char profile[256]; /* of the simulated driver: the one to be judged; "": none */
    char message[512]; /* the first failure */
};

struct conformance_case {
    const char *name; /* a sentence with underscores */
    const char
        *quote; /* of cuda.h, word for word; NULL in the table of the simulated driver's own */
    void (*run)(struct bed *b);
    bool
        is_risky; /* hands the driver what is dead, or ends a context: a real one may not survive */
};

/* clang-format off */
/* A row of a table of cases, true by the header's own words. */
#define HEADER(name, quote) {#name, quote, name, false}
/* One that runs after all others. */
#define RISKY(name, quote) {#name, quote, name, true}
/* A row of the simulated driver's own. */
#define OURS(name) {#name, NULL, name, false}
/* clang-format on */

struct conformance_table {
    const char *module;
    const struct conformance_case *cases;
    size_t count;
};

extern const struct conformance_table conformance_context, conformance_device, conformance_vmm,
    conformance_share, conformance_memory, conformance_stream, conformance_event, conformance_copy,
    conformance_capture, conformance_capture_modes, conformance_graph, conformance_mempool,
    conformance_forms, conformance_sim, conformance_profile;

/* Is there a case of this name that a real driver can be asked? */
bool conformance_is_case(const char *name);

/* What a GPU has said about a case. */
struct conformance_sight {
    char name[160];
    char where[160]; /* "device, driver, date" */
    bool is_contradicted;
};

/* Read a file of sights: "name seen|contradicted where" a line, '#' begins a comment. False, and a line on
 * stderr, when it cannot be read or names no case. */
bool conformance_sights_read(const char *path);
/* NULL: nothing is known but the header. */
const struct conformance_sight *conformance_sight_of(const char *name);

/* Each records a failure with its place and lets the case go on; true when as wanted. */
bool bed_that(struct bed *b, bool holds, const char *text, int line);
bool bed_result(struct bed *b, CUresult got, CUresult want, const char *text, int line);
bool bed_refused(struct bed *b, CUresult got, const char *text, int line);

/* False: the case is skipped, as the driver has no such entry point. */
static inline bool bed_has(struct bed *b, bool is_there)
{
    if (!is_there) {
        b->skip = "no such entry point";
    }
    return is_there;
}

/* The same of a feature of the device: `without` is why. */
bool bed_has_attribute(struct bed *b, CUdevice_attribute attribute, const char *without);

#define THAT(holds)    bed_that(b, (holds), #holds, __LINE__)
#define OK(call)       bed_result(b, (call), CUDA_SUCCESS, #call, __LINE__)
#define IS(want, call) bed_result(b, (call), (want), #call, __LINE__)
#define REFUSED(call)  bed_refused(b, (call), #call, __LINE__)

/* Work that stays unfinished on a stream until the gate opens: on the simulated driver the
 * scheduler is held, on a real one a host function waits. close may be called for several streams.
 */
void bed_gate_close(struct bed *b, CUstream stream);
void bed_gate_open(struct bed *b);

/* Of the simulated driver: the world that most of its own cases begin with, and a new world. */
flw_sim_config bed_world(void);
void bed_restart(struct bed *b, const flw_sim_config *config);

/* Another thread with the context current runs f to its end. */
void bed_on_thread(struct bed *b, void (*f)(struct bed *b, void *argument), void *argument);

/* A reservation of `count` grains with `count` handles mapped and accessible. */
struct bed_mapping {
    CUdeviceptr address;
    size_t grain_bytes, count;
    CUmemGenericAllocationHandle handle[4];
};
bool bed_map(struct bed *b, struct bed_mapping *mapping, size_t count, unsigned handle_types);
void bed_unmap(struct bed *b, struct bed_mapping *mapping);
CUmemAllocationProp bed_properties(const struct bed *b, unsigned handle_types);
CUmemAccessDesc bed_access(const struct bed *b, CUmemAccess_flags flags);
size_t bed_grain(struct bed *b);

/* The 4 bytes at a device address, through a synchronous copy. */
uint32_t bed_peek(struct bed *b, CUdeviceptr address);
void bed_poke(struct bed *b, CUdeviceptr address, uint32_t value);

/* The importing side of conformance_share in a process of its own: the program's exit status. */
int conformance_import_child(struct bed *b, int file);

#endif
