/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/audit/auditpage.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SAME_PID_MAX 16 /* images of one process, replaced by exec */

static int open_new(const char *prefix, char *path)
{
    int file = -1;
    for (int i = 0; i < SAME_PID_MAX && file < 0; i++) {
        int length = i == 0 ? snprintf(path, PATH_MAX, "%s.%d", prefix, (int)getpid())
                            : snprintf(path, PATH_MAX, "%s.%d.%d", prefix, (int)getpid(), i);
        if (length < 0 || length >= PATH_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0 && errno != EEXIST) {
            return -1;
        }
    }
    return file;
}

struct flw_auditpage *flw_auditpage_create(const char *prefix)
{
    char path[PATH_MAX];
    struct flw_auditpage *page = MAP_FAILED;
    int file = open_new(prefix, path);
    if (file < 0) {
        return NULL;
    }
    int error = posix_fallocate(file, 0, sizeof *page);
    if (error == 0) {
        page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        error = page == MAP_FAILED ? errno : 0;
    }
    close(file);
    if (error != 0) {
        unlink(path);
        errno = error;
        return NULL;
    }
    page->page_bytes = sizeof *page;
    page->pid = (uint64_t)getpid();
    ssize_t length = readlink("/proc/self/exe", page->program, sizeof page->program - 1);
    page->program[length > 0 ? length : 0] = '\0';
    atomic_store_explicit(&page->magic, FLW_AUDIT_MAGIC, memory_order_release);
    return page;
}

bool flw_auditpage_read(const char *path, struct flw_auditpage *out)
{
    size_t done = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    while (done < sizeof *out) {
        ssize_t n = read(file, (unsigned char *)out + done, sizeof *out - done);
        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            break;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    close(file);
    return done == sizeof *out && flw_auditpage_is_valid(out);
}

uint32_t flw_auditpage_module(struct flw_auditpage *page, const char *path)
{
    uint32_t count = atomic_load_explicit(&page->module_count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(page->modules[i].path, path) == 0) {
            return i;
        }
    }
    size_t length = strlen(path);
    if (count == FLW_AUDIT_MODULES || length >= FLW_AUDIT_PATH_BYTES) {
        return FLW_AUDIT_NO_MODULE;
    }
    memcpy(page->modules[count].path, path, length + 1);
    atomic_store_explicit(&page->module_count, count + 1, memory_order_release);
    return count;
}

struct flw_audit_site *flw_auditpage_site(struct flw_auditpage *page,
                                          const struct flw_audit_site *site)
{
    uint32_t count = atomic_load_explicit(&page->site_count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        if (page->sites[i].id == site->id) {
            return &page->sites[i];
        }
    }
    if (count == FLW_AUDIT_SITES) {
        return NULL;
    }
    page->sites[count] = *site;
    atomic_store_explicit(&page->site_count, count + 1, memory_order_release);
    return &page->sites[count];
}

static bool ends(const char *text, size_t bytes)
{
    return memchr(text, '\0', bytes) != NULL;
}

static bool is_site_valid(const struct flw_auditpage *page, uint32_t index, uint32_t module_count)
{
    const struct flw_audit_site *site = &page->sites[index];
    for (uint32_t i = 0; i < index; i++) {
        if (page->sites[i].id == site->id) {
            return false;
        }
    }
    if (site->id == 0 || site->frame_count > FLW_AUDIT_FRAMES ||
        !ends(site->call, sizeof site->call) || !ends(site->script, sizeof site->script)) {
        return false;
    }
    for (uint32_t i = 0; i < site->frame_count; i++) {
        uint32_t module = site->frames[i].module;
        if (module >= module_count && module != FLW_AUDIT_NO_MODULE) {
            return false;
        }
    }
    return true;
}

bool flw_auditpage_is_valid(const struct flw_auditpage *page)
{
    uint32_t site_count = atomic_load_explicit(&page->site_count, memory_order_acquire);
    uint32_t module_count = atomic_load_explicit(&page->module_count, memory_order_acquire);
    if (atomic_load_explicit(&page->magic, memory_order_acquire) != FLW_AUDIT_MAGIC ||
        page->page_bytes != sizeof *page || site_count > FLW_AUDIT_SITES ||
        module_count > FLW_AUDIT_MODULES || !ends(page->program, sizeof page->program)) {
        return false;
    }
    for (uint32_t i = 0; i < module_count; i++) {
        if (!ends(page->modules[i].path, FLW_AUDIT_PATH_BYTES)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < site_count; i++) {
        if (!is_site_valid(page, i, module_count)) {
            return false;
        }
    }
    return true;
}
