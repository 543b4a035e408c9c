/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: properties of the host: membarrier(2), address space, overcommit; what the kernels were built for.
 */
#include "doctor/doctor.h"

#include "common/machine.h"
#if defined(FLW_HAS_KERNELS)
#include "fallow/kernels.h"
#endif

#include <errno.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

/* A pool reserves eight times the card's memory in addresses. */
#define COMFORTABLE_ADDRESSES ((uint64_t)4 << 40)

static void see_membarrier(struct flw_doctor_sheet *sheet)
{
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    bool is_there = commands >= 0 && (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 &&
                    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    flw_doctor_number(sheet, "membarrier", FLW_DOCTOR_BOOL, is_there);
    if (!is_there) {
        flw_doctor_advise(sheet,
                          "membarrier(2) is refused (%s): every hit pays a fence; allow it in the "
                          "container's seccomp profile, or use Linux 4.14 or newer",
                          commands < 0 ? strerror(errno) : "no private expedited command");
    }
}

static void see_address_space(struct flw_doctor_sheet *sheet)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        flw_doctor_number(sheet, "address_space_limit", FLW_DOCTOR_BYTES, limit.rlim_cur);
        if (limit.rlim_cur < COMFORTABLE_ADDRESSES) {
            flw_doctor_advise(
                sheet,
                "the address space is limited (ulimit -v): a pool reserves 8 times the "
                "card's memory in addresses, and its tables shrink until they take a quarter "
                "of what is left, so that fewer blocks fit; run with ulimit -v unlimited");
        }
    } else {
        flw_doctor_text(sheet, "address_space_limit", "none");
    }
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        if (limit.rlim_cur == RLIM_INFINITY) {
            flw_doctor_text(sheet, "locked_memory_limit", "none");
        } else {
            flw_doctor_number(sheet, "locked_memory_limit", FLW_DOCTOR_BYTES, limit.rlim_cur);
        }
    }
}

static void see_overcommit(struct flw_doctor_sheet *sheet)
{
    char text[32] = "", *end = text;
    uint64_t mode = 0;
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "re");
    if (file != NULL) {
        if (fgets(text, sizeof text, file) != NULL) {
            mode = strtoull(text, &end, 10);
        }
        fclose(file);
    }
    if (end == text) {
        flw_doctor_text(sheet, "overcommit_memory", "unknown");
        return;
    }
    flw_doctor_number(sheet, "overcommit_memory", FLW_DOCTOR_COUNT, mode);
    if (mode == 2) {
        flw_doctor_advise(sheet,
                          "vm.overcommit_memory is 2: large reservations of addresses may be "
                          "refused; set it to 0 (sysctl vm.overcommit_memory=0)");
    }
}

#if defined(FLW_HAS_KERNELS)
static void see_kernels(struct flw_doctor_sheet *sheet)
{
    const char *generations = fallow_kernels_generations();
    flw_doctor_text(sheet, "kernels", "%s",
                    generations[0] != '\0'
                        ? generations
                        : "no device code (built without nvcc): simulated device only");
}
#else
static void see_kernels(struct flw_doctor_sheet *sheet)
{
    flw_doctor_text(sheet, "kernels", "not built");
}
#endif

void flw_doctor_see_host(struct flw_doctor_sheet *sheet)
{
    char cpu[128];
    struct utsname name;
    flw_doctor_begin(sheet, "host");
    flw_machine_cpu_name(cpu, sizeof cpu);
    flw_doctor_text(sheet, "cpu", "%s", cpu);
    flw_doctor_number(sheet, "cpus", FLW_DOCTOR_COUNT, flw_machine_cpu_count());
    if (uname(&name) == 0) {
        flw_doctor_text(sheet, "system", "%s %s", name.sysname, name.release);
    }
    flw_doctor_number(sheet, "page_bytes", FLW_DOCTOR_BYTES, (uint64_t)sysconf(_SC_PAGESIZE));
    see_membarrier(sheet);
    see_address_space(sheet);
    see_overcommit(sheet);
    see_kernels(sheet);
}
