/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the parts of a conformance case: the row, the bed, and checks that record a failure and
 * continue.
 * Does not: use a test framework, because a GPU machine may have only a compiler, CMake and the
 * toolkit.
 *
 * A case may rely on an initialised driver, the primary context of device 0 current in the thread,
 * global capture mode and an idle device; it releases everything that bed_release does not. */
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
    const char *program;         /* argv[0], to run the importing side in another process */
    bool is_sim;
    CUcontext context;
    CUdevice device;
    unsigned failures; /* of this case */
    /* Of this case, oldest first. */
    struct bed_object {
        enum {
            BED_STREAM,
            BED_EVENT,
            BED_MEMORY,
            BED_PINNED
        } kind;
        uintptr_t handle;
    } objects[8];
    size_t object_count;
    const char *skip;  /* if set: the reason why this machine cannot run the case */
    char profile[256]; /* of the simulated driver: the one to be judged; "": none */
    char message[512]; /* the first failure */
};

struct conformance_case {
    const char *module, *name; /* the name is a sentence with underscores */
    const char *quote; /* of cuda.h, word for word; NULL for a case of the simulated driver alone */
    void (*run)(struct bed *b);
    bool is_risky; /* passes dead objects to the driver, or ends a context: a real driver may
                      crash */
    struct conformance_case *next;
};

/* Add a case at the end of the list. Called before main. */
void conformance_add(struct conformance_case *c);

/* A case: a line of these macros, then the body of a function of `struct bed *b`. Each file defines
 * MODULE first. */
#define CASE(name, quote, is_risky)                                                      \
    static void name(struct bed *b);                                                     \
    __attribute__((constructor)) static void add_##name(void)                            \
    {                                                                                    \
        static struct conformance_case c = {MODULE, #name, quote, name, is_risky, NULL}; \
        conformance_add(&c);                                                             \
    }                                                                                    \
    static void name(struct bed *b)
/* True by the header's own words. */
#define HEADER(name, quote) CASE(name, quote, false)
/* The same, to be run after all others. */
#define RISKY(name, quote) CASE(name, quote, true)
/* True of the simulated driver alone. */
#define OURS(name) CASE(name, NULL, false)
/* Leave the case if the condition is false. */
#define NEED(condition) \
    if (!(condition)) { \
        return;         \
    }                   \
    (void)0

/* True if a case of this name exists that may run on a real driver. */
bool conformance_is_case(const char *name);

/* The result of a case on a GPU. */
struct conformance_sight {
    char name[160];
    char where[160]; /* "device, driver, date" */
    bool is_contradicted;
};

/* Read a file of results, with lines "name seen|contradicted where" and comments after '#'.
 * Returns false, with a line on stderr, if it cannot be read or names an unknown case. */
bool conformance_sights_read(const char *path);
/* Return the result of a case on a GPU, or NULL. */
const struct conformance_sight *conformance_sight_of(const char *name);

/* Record a failure with the place and let the case continue. Return true on success. */
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

/* Objects that are released after the case. A stream's capture is ended first. */
CUstream bed_stream(struct bed *b);
CUevent bed_event(struct bed *b);
CUdeviceptr bed_alloc(struct bed *b, size_t bytes);
void *bed_pinned(struct bed *b, size_t bytes);
void bed_release(struct bed *b);

/* Work that stays unfinished on a stream until the gate opens: on the simulated driver the
 * scheduler is held, on a real one a host function waits. close may be called for several streams.
 */
void bed_gate_close(struct bed *b, CUstream stream);
void bed_gate_open(struct bed *b);

/* Return the configuration of most simulated cases; make a new world. */
flw_sim_config bed_world(void);
void bed_restart(struct bed *b, const flw_sim_config *config);

/* Run f in another thread with the context current, and wait for it. */
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

/* Run the importing side of conformance_share in another process; return the exit status. */
int conformance_import_child(struct bed *b, int file);

#endif
