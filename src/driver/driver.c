/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/driver.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define SIM_LIBRARY    "libfallow-simcuda.so"
#define OLDEST_VERSION 11040 /* cuStreamGetCaptureInfo_v2, VMM rules */

enum need {
    OPTIONAL,
    REQUIRED
};

static void say(char *message, const char *what, const char *name, const char *advice)
{
    if (message != NULL) {
        snprintf(message, FLW_DRIVER_MESSAGE_BYTES, "%s '%s': %s", what, name, advice);
    }
}

/* Find the file that contains this code. The loader has no path of the main program: dladdr returns argv[0] for it, which
 * the caller chooses, even for a privileged program. So the kernel's link names a program with the static library. */
static bool find_own_file(char *path, size_t room)
{
    Dl_info self;
    void *extra = NULL;
    if (dladdr1((void *)(size_t)&flw_driver_open, &self, &extra, RTLD_DL_LINKMAP) == 0) {
        return false;
    }
    const char *name = ((const struct link_map *)extra)->l_name;
    ssize_t bytes =
        name[0] != '\0' ? snprintf(path, room, "%s", name) : readlink("/proc/self/exe", path, room);
    if (bytes <= 0 || (size_t)bytes >= room) {
        return false;
    }
    path[bytes] = '\0';
    return strchr(path, '/') != NULL;
}

/* Open the simulated driver, which is installed beside this library. */
static void *open_beside_us(const char *file)
{
    char own[4096], path[4096];
    static const char *const folders[] = {"", "/../lib"};
    if (!find_own_file(own, sizeof own)) {
        return NULL;
    }
    *strrchr(own, '/') = '\0';
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        int n = snprintf(path, sizeof path, "%s%s/%s", own, folders[i], file);
        void *object =
            n > 0 && (size_t)n < sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
        if (object != NULL) {
            return object;
        }
    }
    return NULL;
}

static void *open_object(const char *name)
{
    void *object = NULL;
    if (strcmp(name, "sim") == 0) {
        object = open_beside_us(SIM_LIBRARY);
        name = SIM_LIBRARY;
    }
    return object != NULL ? object : dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

/* Remove the file's name from the loader's reason. */
static const char *without_name(const char *reason, const char *name)
{
    size_t length = strlen(name);
    bool has_name = length != 0 && strncmp(reason, name, length) == 0 && reason[length] == ':' &&
                    reason[length + 1] == ' ';
    return reason + (has_name ? length + 2 : 0);
}

/* Write the loader's reason; call right after the attempt. */
static void say_why_not_loaded(char *message, const char *name, bool is_default)
{
    const char *reason = dlerror();
    if (strcmp(name, "sim") == 0) {
        say(message, "cannot load the simulated driver", SIM_LIBRARY,
            "put it beside libfallow, or name its folder in LD_LIBRARY_PATH");
    } else if (is_default) {
        say(message, "cannot load the CUDA driver", name,
            "install the NVIDIA driver, or use the simulated device (driver = \"sim\"; on the command line --device sim)");
    } else {
        say(message, "cannot load the CUDA driver", name,
            reason != NULL ? without_name(reason, name) : "name a driver's library");
    }
}

/* Fill the table. Returns the name of the first required entry point that is missing, or NULL. */
static const char *fill_table(struct flw_driver *driver)
{
    const char *missing = NULL;
#define X(need, symbol, since, before, parameters)                    \
    {                                                                 \
        void *address = dlsym(driver->object, #symbol);               \
        memcpy(&driver->symbol, &address, sizeof address);            \
        if (need == REQUIRED && address == NULL && missing == NULL) { \
            missing = #symbol;                                        \
        }                                                             \
    }
    FLW_DRIVER_ENTRY_POINTS(X)
#undef X
    return missing;
}

fallow_status flw_driver_open(struct flw_driver *driver, const char *name, char *message)
{
    fallow_status status = FALLOW_VERSION;
    bool is_default = name == NULL;
    if (is_default) {
        name = "libcuda.so.1";
    }
    if (message != NULL) {
        message[0] = '\0';
    }
    *driver = (struct flw_driver){0};
    if (name[0] == '\0') { /* the loader would take it for the program itself */
        say(message, "cannot load the CUDA driver", name,
            "name a driver's library, or leave the setting out for libcuda.so.1");
        return FALLOW_NOT_FOUND;
    }
    driver->object = open_object(name);
    if (driver->object == NULL) {
        say_why_not_loaded(message, name, is_default);
        return FALLOW_NOT_FOUND;
    }
    const char *missing = fill_table(driver);
    if (missing != NULL) {
        say(message, "the CUDA driver lacks the entry point", missing,
            is_default ? "install a driver of CUDA 11.4 or newer"
                       : "name a library that is a driver of CUDA 11.4 or newer");
        dlclose(driver->object); /* not called yet, so it can be unloaded */
        goto fail;
    }
    CUresult result = driver->cuInit(0);
    if (result != CUDA_SUCCESS) {
        say(message, "cuInit failed with", flw_driver_error_name(driver, result),
            "check that a device is present and visible (nvidia-smi)");
        status = FALLOW_DRIVER;
        goto fail;
    }
    result = driver->cuDriverGetVersion(&driver->version);
    if (result != CUDA_SUCCESS) {
        say(message, "cuDriverGetVersion failed with", flw_driver_error_name(driver, result),
            "check the driver's installation (nvidia-smi)");
        status = FALLOW_DRIVER;
        goto fail;
    }
    if (driver->version < OLDEST_VERSION) {
        say(message, "a CUDA driver older than 11.4 is not served", name, "install a newer one");
        goto fail;
    }
    return FALLOW_OK;
fail:
    flw_driver_close(driver);
    return status;
}

void flw_driver_close(struct flw_driver *driver)
{
    *driver = (struct flw_driver){0};
}

void *flw_driver_entry(const struct flw_driver *driver, const char *symbol)
{
    return driver->object == NULL ? NULL : dlsym(driver->object, symbol);
}

const char *flw_driver_error_name(const struct flw_driver *driver, CUresult error)
{
    const char *name = NULL;
    if (driver->cuGetErrorName == NULL || driver->cuGetErrorName(error, &name) != CUDA_SUCCESS ||
        name == NULL) {
        return "an unknown driver error";
    }
    return name;
}
