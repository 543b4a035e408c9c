/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the table of driver entry points, one per opened shared object rather than one per
 * process: a program may have a pool on the simulated device and one on a GPU.
 * Does not: interpret results. The driver's binary interface is the only backend interface. */
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
    void *object; /* from dlopen; stays open until the process ends */
    int version;  /* cuDriverGetVersion: 1000 * major + 10 * minor */
};

/* Length of the message of a failed open. */
#define FLW_DRIVER_MESSAGE_BYTES 256

/* Open a driver and fill the table.
 *
 * name     NULL = "libcuda.so.1"; "sim" = libfallow-simcuda.so, searched beside the object that
 *          contains this function, then along the library path; otherwise a path or library name.
 * message  one line for the user on failure, otherwise empty. May be NULL.
 * Errors   NOT_FOUND (no such library), VERSION (a required entry point is missing, or too old),
 *          DRIVER (cuInit failed).
 * After    a library that was called stays in the process even after flw_driver_close: a driver has
 *          threads and exit handlers of its own, and other tables may use it.
 * Cost     dlopen, one dlsym per entry, cuInit. Not for hot paths. */
fallow_status flw_driver_open(struct flw_driver *driver, const char *name, char *message);

/* Clear the table. The object stays open. */
void flw_driver_close(struct flw_driver *driver);

/* Return the address of an entry point by the exported name, in the table or not;
 * NULL if absent. */
void *flw_driver_entry(const struct flw_driver *driver, const char *symbol);

/* Return the name, such as "CUDA_ERROR_OUT_OF_MEMORY"; never NULL. */
const char *flw_driver_error_name(const struct flw_driver *driver, CUresult error);

#endif
