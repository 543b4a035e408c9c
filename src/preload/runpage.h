/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the page in which the processes under `fallow run` record the progress of the hooks, the
 * process that writes each requested file, and their statistics.
 *
 * `fallow run` creates the page and passes the path with `state:PATH` in FALLOW; the preload
 * library takes a place in the page when loaded. A program image has a place: an image that
 * replaces itself by exec takes another place with the same pid. Without the page everything
 * works, but nothing is reported.
 *
 * Synchronization: atomics only. A place belongs to the process that took it. The process writes
 * the one of the two summaries that is not posted, then posts it, so that a whole summary exists
 * whenever the process is killed. */
#ifndef FLW_PRELOAD_RUNPAGE_H
#define FLW_PRELOAD_RUNPAGE_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sealed_file.h"
#include "preload/summary.h"

#define FLW_RUNPAGE_MAGIC      UINT64_C(0x0032656761706e72) /* "rnpage2" */
#define FLW_RUNPAGE_PLACES     512
#define FLW_RUNPAGE_NAME_BYTES 24

enum flw_runpage_flag {
    FLW_RUNPAGE_LOADED = 1, /* the preload library has been loaded */
    FLW_RUNPAGE_DRIVER =
        2, /* the driver's entry points were found, or the driver is linked behind the hooks */
    FLW_RUNPAGE_REACHED = 4, /* a hook was called, or the address returned */
    FLW_RUNPAGE_ENDED = 8,   /* by exit or by returning from main */
    FLW_RUNPAGE_PASSED =
        16, /* at the end the driver is in memory but not linked, and no hook was reached */
    FLW_RUNPAGE_OFF = 32,    /* mode off, or the settings were refused and logged */
    FLW_RUNPAGE_LEFT = 64,   /* by _exit, with the last statistics posted */
    FLW_RUNPAGE_TOLD = 128,  /* the statistics were written, or are being written */
    FLW_RUNPAGE_UNKEPT = 256 /* the audit could not be stored, which was logged */
};

/* Files of which a run has one, the first process's. */
enum flw_runpage_file {
    FLW_RUNPAGE_TRACE,
    FLW_RUNPAGE_STATS,
    FLW_RUNPAGE_FILE_COUNT
};

struct flw_runpage_place {
    _Atomic int32_t pid;
    _Atomic uint32_t flags;
    char name[FLW_RUNPAGE_NAME_BYTES]; /* as in /proc/PID/comm; written before the flags */
    _Atomic uint32_t posted; /* summaries posted so far; the last one is summaries[posted % 2] */
    struct flw_summary summaries[2];
};

struct flw_runpage {
    uint64_t magic;
    _Atomic uint32_t place_count; /* requested places; beyond FLW_RUNPAGE_PLACES processes have
                                      none */
    _Atomic int32_t writers[FLW_RUNPAGE_FILE_COUNT]; /* pids; 0: none yet */
    struct flw_runpage_place places[FLW_RUNPAGE_PLACES];
};

/* Open the page at `path`. NULL: there is none, or another process could shorten the file. */
static inline struct flw_runpage *flw_runpage_open(const char *path)
{
    struct stat facts;
    void *memory = MAP_FAILED;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && flw_sealed_file_is_one(fd) && fstat(fd, &facts) == 0 &&
        facts.st_size == (off_t)sizeof(struct flw_runpage)) {
        memory = mmap(NULL, sizeof(struct flw_runpage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    struct flw_runpage *page = memory == MAP_FAILED ? NULL : memory;
    if (page != NULL && page->magic != FLW_RUNPAGE_MAGIC) {
        (void)munmap(memory, sizeof(struct flw_runpage));
        page = NULL;
    }
    return page;
}

/* NULL: no page, or no place is left. */
static inline struct flw_runpage_place *flw_runpage_join(struct flw_runpage *page, const char *name)
{
    uint32_t number = page != NULL ? atomic_fetch_add(&page->place_count, 1) : FLW_RUNPAGE_PLACES;
    if (number >= FLW_RUNPAGE_PLACES) {
        return NULL;
    }
    struct flw_runpage_place *place = &page->places[number];
    size_t length = strnlen(name, FLW_RUNPAGE_NAME_BYTES - 1);
    memcpy(place->name, name, length);
    atomic_store(&place->pid, (int32_t)getpid());
    atomic_fetch_or(&place->flags, FLW_RUNPAGE_LOADED);
    return place;
}

/* For the owner, one thread at a time. */
static inline void flw_runpage_post(struct flw_runpage_place *place,
                                    const struct flw_summary *summary)
{
    if (place != NULL) {
        uint32_t next = atomic_load(&place->posted) + 1;
        place->summaries[next % 2] = *summary;
        atomic_store(&place->posted, next);
    }
}

/* Return true for the first caller of all processes, which must write the statistics
 * of the place. */
static inline bool flw_runpage_tell(struct flw_runpage_place *place)
{
    return place == NULL ||
           (atomic_fetch_or(&place->flags, FLW_RUNPAGE_TOLD) & FLW_RUNPAGE_TOLD) == 0;
}

static inline void flw_runpage_say(struct flw_runpage_place *place, enum flw_runpage_flag flag)
{
    if (place != NULL) {
        atomic_fetch_or(&place->flags, (uint32_t)flag);
    }
}

/* Return true if the process writes the run's file: the first process to request the file does;
 * without a page every process. */
static inline bool flw_runpage_claim(struct flw_runpage *page, enum flw_runpage_file file,
                                     int32_t pid)
{
    int32_t none = 0;
    return page == NULL || atomic_compare_exchange_strong(&page->writers[file], &none, pid) ||
           none == pid;
}

#endif
