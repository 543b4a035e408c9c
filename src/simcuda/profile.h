/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: profiles: which drivers, of those that programs meet, the world plays; each by its name.
 * Does not: play them: a module asks for the trait that concerns it.
 * Synchronization: the world's lock; what was chosen is read without it too, by the loader.
 */
#ifndef FLW_SIMCUDA_PROFILE_H
#define FLW_SIMCUDA_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/driver_types.h"

#define FLW_REFUSAL_MAX   16
#define FLW_PROFILE_BYTES 256 /* of the names, the end included */

/* An entry point answers an error from its n-th call on. */
struct flw_refusal {
    unsigned entry;
    uint64_t from; /* 1: always */
    CUresult error;
};

struct flw_profile {
    bool is_vgpu;      /* no virtual memory management, no managed memory, no IPC, no RDMA */
    bool is_old;       /* 12.0: without later entry points */
    bool is_slow;      /* cuMemCreate and cuMemUnmap take time and wait for the device */
    bool reads_host;   /* a device can read all memory that the process has mapped */
    bool has_contents; /* memory of a world that no program configured has contents */
    uint64_t
        no_fabric_from; /* the n-th handle for fabric is not permitted, nor a later one; 0: all are */
    unsigned refusal_count;
    struct flw_refusal refusal[FLW_REFUSAL_MAX];
    char names[FLW_PROFILE_BYTES]; /* as given; "": none */
};

struct flw_call;
struct flw_device;

/* Apply the chosen profiles to the world's config and faults. `is_default`: no program gave the config. */
void flw_profile_begin(bool is_default);
/* FALLOW_SIMCUDA names none that is known: no world may be used. */
bool flw_profile_is_wrong(void);

/* What a slow driver does inside a call that makes or unmakes memory of `device` (NULL: nothing): waits
 * for its work and takes its time. The lock may be dropped on the way; the host has seen nothing. */
void flw_profile_stall(struct flw_call *call, struct flw_device *device);
/* May one more handle for fabric be made? Without an IMEX channel none may. */
bool flw_profile_permits_fabric(void);
/* Is there memory of the process at the address, and do devices read it? */
bool flw_profile_reads(uint64_t address);

/* For the loader: worlds that begin are an old driver's. */
extern __attribute__((visibility("hidden"))) bool flw_profile_is_chosen_old;

/* Defines an entry point that an old driver lacks: dlsym then answers NULL while the profile is chosen.
 * `symbol` is defined by what follows, under the name symbol##_since. The resolver runs in the loader,
 * where nothing of a sanitizer may be called. */
#define FLW_SIM_NEWER(symbol, parameters)                                                  \
    static CUresult symbol##_since parameters;                                             \
    typedef CUresult symbol##_type parameters;                                             \
    __attribute__((used, no_sanitize("address"), no_sanitize("thread"),                    \
                   no_sanitize("undefined"))) static symbol##_type *resolve_##symbol(void) \
    {                                                                                      \
        return flw_profile_is_chosen_old ? NULL : symbol##_since;                          \
    }                                                                                      \
    CUresult CUDAAPI symbol parameters __attribute__((ifunc("resolve_" #symbol)));         \
    static CUresult symbol##_since parameters

#endif
