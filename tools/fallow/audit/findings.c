/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/findings.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/compare.h"
#include "common/command.h"
#include "common/frame.h"
#include "common/tool_host.h"

struct flw_finding *flw_findings_site(const struct flw_findings *findings, uint64_t id)
{
    for (size_t i = 0; i < findings->site_count; i++) {
        if (findings->sites[i].site.id == id) {
            return &findings->sites[i];
        }
    }
    return NULL;
}

static void add_site(struct flw_findings *findings, const struct flw_auditpage *page,
                     const struct flw_audit_site *from)
{
    struct flw_finding *finding = flw_findings_site(findings, from->id);
    if (finding != NULL) {
        struct flw_audit_site *site = &finding->site;
        site->fill_count += from->fill_count;
        site->bytes += from->bytes;
        site->unread_value_count += from->unread_value_count;
        site->unread_range_count += from->unread_range_count;
        site->poisoned_count += from->poisoned_count;
        return;
    }
    FLW_HOST_GROW(findings->sites, findings->site_room, findings->site_count + 1);
    finding = &findings->sites[findings->site_count];
    *finding = (struct flw_finding){.site = *from};
    for (uint32_t i = 0; i < from->frame_count; i++) {
        uint32_t *module = &finding->site.frames[i].module;
        if (*module != FLW_AUDIT_NO_MODULE) {
            const char *path = page->modules[*module].path;
            *module = (uint32_t)flw_modules_add(&findings->modules, path, strlen(path));
        }
    }
    findings->site_count++;
}

void flw_findings_add(struct flw_findings *findings, const struct flw_auditpage *page)
{
    findings->process_count++;
#define ADD(name, sentence) findings->counts.name += page->counts.name;
    FLW_AUDIT_COUNT_LIST(ADD)
#undef ADD
    uint32_t count = atomic_load_explicit(&page->site_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        add_site(findings, page, &page->sites[i]);
    }
}

void flw_findings_visit(const char *folder, const char *prefix,
                        void (*visit)(void *context, const char *path), void *context)
{
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && length < (int)sizeof path) {
            visit(context, path);
        }
    }
    if (entries != NULL) {
        closedir(entries);
    }
}

static void read_page(void *context, const char *path)
{
    struct flw_findings *findings = context;
    FLW_LOCAL struct flw_auditpage *page = flw_host_alloc(1, sizeof *page);
    if (flw_auditpage_read(path, page)) {
        flw_findings_add(findings, page);
    } else {
        findings->unreadable_count++;
    }
}

void flw_findings_read(struct flw_findings *findings, const char *folder, const char *name)
{
    flw_findings_visit(folder, name, read_page, findings);
}

/* ---- frames */

const char *flw_findings_module(const struct flw_findings *findings,
                                const struct flw_audit_frame *frame)
{
    return frame->module < findings->modules.count
               ? flw_frame_base_name(findings->modules.list[frame->module].path)
               : "?";
}

const char *flw_findings_function(struct flw_findings *findings,
                                  const struct flw_audit_frame *frame, uint64_t *out_offset)
{
    struct flw_symbols *symbols = flw_modules_open(&findings->modules, frame->module);
    if (symbols == NULL) {
        return NULL;
    }
    /* A call may be the last instruction of its function, so find the byte before the return address. */
    const char *name = flw_symbols_find(symbols, frame->offset - 1, out_offset);
    ++*out_offset;
    return name;
}

/* True for frames of the CUDA runtime, which is a library or linked into the program: such frames did not request the fill. */
static bool is_runtime(struct flw_findings *findings, const struct flw_audit_frame *frame)
{
    static const char *const modules[] = {"libcudart", "libcuda.", NULL};
    static const char *const functions[] = {
        "cudaM", "cudaL", "cudart", "__cudart", "libcudart_static", NULL};
    uint64_t offset;
    if (flw_begins_with_any(flw_findings_module(findings, frame), modules)) {
        return true;
    }
    const char *function = flw_findings_function(findings, frame, &offset);
    return function != NULL && flw_begins_with_any(function, functions);
}

static int compare_sites(const void *a, const void *b)
{
    const struct flw_finding *x = a, *y = b;
    int order = (x->site.bytes < y->site.bytes) - (x->site.bytes > y->site.bytes);
    return order != 0 ? order : (x->site.id > y->site.id) - (x->site.id < y->site.id);
}

/* Sort by bytes, because the estimated time is proportional to the bytes. */
void flw_findings_sort(struct flw_findings *findings)
{
    FLW_SORT(findings->sites, findings->site_count, compare_sites);
    for (size_t i = 0; i < findings->site_count; i++) {
        struct flw_finding *finding = &findings->sites[i];
        finding->where = 0;
        while (finding->where < finding->site.frame_count &&
               is_runtime(findings, &finding->site.frames[finding->where])) {
            finding->where++;
        }
        finding->where = finding->where == finding->site.frame_count ? 0 : finding->where;
    }
}

void flw_findings_finish(struct flw_findings *findings)
{
    flw_modules_finish(&findings->modules);
    flw_host_free(findings->sites);
    *findings = (struct flw_findings){0};
}
