/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the run-time table of driver entry points, one per shared object opened, never one per
 * process: a program may hold a pool on the simulated device beside one on a GPU.
 * Does not: interpret results. The driver ABI is the seam; there is no second backend interface.
 */
#ifndef FLW_DRIVER_DRIVER_H
#define FLW_DRIVER_DRIVER_H

#include <stddef.h>

#include "driver/driver_types.h"
#include "driver/entry_points.h"

#include "fallow/status.h"

struct flw_driver {
#define X(need, symbol, since, before, parameters) CUresult(*symbol) parameters;
    FLW_DRIVER_ENTRY_POINTS(X)
#undef X
    void *object; /* from dlopen, open for as long as the process lives */
    int version;  /* cuDriverGetVersion: 1000 * major + 10 * minor */
};

/* Room for one line that names what failed and what to do about it. */
#define FLW_DRIVER_MESSAGE_BYTES 256

/* Open a driver and fill the table.
 *
 * name     NULL = "libcuda.so.1"; "sim" = libfallow-simcuda.so, looked for beside the object that
 *          contains this function, then along the library path; else a path or library name.
 * message  on failure one line for the user; else empty. May be NULL.
 * Errors   NOT_FOUND (no such library), VERSION (a required entry point is missing, or too old),
 *          DRIVER (cuInit failed).
 * After    A library that was called stays in the process, whatever becomes of the table: a driver has
 *          threads and handlers of exit of its own, and other tables may lead to it.
 * Cost     dlopen and one dlsym an entry; cuInit. Not for hot paths. */
fallow_status flw_driver_open(struct flw_driver *driver, const char *name, char *message);

/* Forget the table. The object stays open. */
void flw_driver_close(struct flw_driver *driver);

/* The address of an entry point by its exported name, whether or not the table has it; NULL:
 * absent. */
void *flw_driver_entry(const struct flw_driver *driver, const char *symbol);

/* "CUDA_ERROR_OUT_OF_MEMORY", never NULL. */
const char *flw_driver_error_name(const struct flw_driver *driver, CUresult error);

#endif
