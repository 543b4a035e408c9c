/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: profiles: the real drivers that the world imitates, by name.
 * Does not: imitate them: a module queries the property that concerns it.
 * Synchronization: the world's lock; the loader reads the choice without it. */
#ifndef FLW_SIMCUDA_PROFILE_H
#define FLW_SIMCUDA_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/driver_types.h"

#define FLW_REFUSAL_MAX   16
#define FLW_PROFILE_BYTES 256 /* of the names, including the terminator */

/* An entry point fails from the n-th call on. */
struct flw_refusal {
    unsigned entry;
    uint64_t from; /* 1: always */
    CUresult error;
};

struct flw_profile {
    bool is_vgpu;    /* no virtual memory management, no managed memory, no IPC, no RDMA */
    bool is_old;     /* 12.0: without later entry points */
    bool is_slow;    /* cuMemCreate and cuMemUnmap take time and wait for the device */
    bool reads_host; /* a device can read all memory that the process has mapped */
    /* for worlds that no program configured */
    bool has_contents, has_no_contents;
    bool is_checked;       /* by the rule checker, which prints a report at the end */
    uint64_t device_bytes; /* 0: the default */
    int device_count;      /* 0: the default */
    uint64_t
        no_fabric_from; /* the n-th and later handles for fabric are not permitted; 0: all are */
    unsigned refusal_count;
    struct flw_refusal refusal[FLW_REFUSAL_MAX];
    char names[FLW_PROFILE_BYTES]; /* as given; "": none */
};

struct flw_call;
struct flw_device;

/* Apply the chosen profiles to the world's config and faults. `is_default`: the config is not a
 * program's. */
void flw_profile_begin(bool is_default);
/* True if FALLOW_SIMCUDA has an unknown name: no world may be used. */
bool flw_profile_is_wrong(void);

/* Wait as a slow driver does inside a call that creates or releases memory of `device` (NULL: no
 * wait): for the device's work and a fixed time. The lock may be released meanwhile; the host
 * observes nothing. */
void flw_profile_stall(struct flw_call *call, struct flw_device *device);
/* True if one more handle for fabric is permitted; without an IMEX channel none is. */
bool flw_profile_permits_fabric(void);
/* True if the process has memory at the address and devices can read it. */
bool flw_profile_reads(uint64_t address);

/* For the loader: new worlds are an old driver's. */
extern __attribute__((visibility("hidden"))) bool flw_profile_is_chosen_old;

/* Define an entry point that an old driver lacks: dlsym then returns NULL while the profile is
 * chosen. The following code defines `symbol` under the name symbol##_since. The resolver runs in
 * the loader, which must not call a sanitizer. */
#define FLW_SIM_NEWER(symbol, parameters) FLW_SIM_NEWER_AS(symbol, parameters, )
/* The same with the exported name in `label`, __asm__("..."). */
#define FLW_SIM_NEWER_AS(symbol, parameters, label)                                        \
    static CUresult symbol##_since parameters;                                             \
    typedef CUresult symbol##_type parameters;                                             \
    __attribute__((used, no_sanitize("address"), no_sanitize("thread"),                    \
                   no_sanitize("undefined"))) static symbol##_type *resolve_##symbol(void) \
    {                                                                                      \
        return flw_profile_is_chosen_old ? NULL : symbol##_since;                          \
    }                                                                                      \
    __attribute__((visibility("default"))) CUresult CUDAAPI symbol parameters label        \
        __attribute__((ifunc("resolve_" #symbol)));                                        \
    static CUresult symbol##_since parameters

#endif
