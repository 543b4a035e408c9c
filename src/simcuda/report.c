/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the messages about violations, and the names that callers gave to ranges.
 * Does not: find violations. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/check.h"
#include "simcuda/host.h"
#include "simcuda/shadow.h"

/* All are counted, the first ones are kept. */
#define KEPT_MAX 4096

struct name {
    struct flw_tree_node node;
    char *text;
};

FLW_SIM_EXPORT const char *flw_sim_violation(uint64_t i);
FLW_SIM_EXPORT void flw_sim_name(uint64_t address, uint64_t bytes, const char *name);
FLW_SIM_EXPORT void flw_sim_forget(uint64_t address, uint64_t bytes);
FLW_SIM_EXPORT void flw_sim_forbid(uint64_t address, uint64_t bytes);

void flw_check_violation(const char *format, ...)
{
    struct flw_world *w = &flw_world;
    w->violation_count++;
    if (w->violation_kept_count == KEPT_MAX) {
        return;
    }
    char text[768];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    FLW_HOST_FIT(w->violation, w->violation_kept_count, w->violation_capacity);
    size_t length = strlen(text) + 1;
    w->violation[w->violation_kept_count] = flw_host_get(length);
    memcpy(w->violation[w->violation_kept_count++], text, length);
}

#define PRINTED_MAX 20u

void flw_report_print(void)
{
    const struct flw_world *w = &flw_world;
    if (!w->is_initialised) {
        return; /* the process did not use CUDA */
    }
    fprintf(stderr, "simcuda: rule checker: %llu violations in %llu calls%s\n",
            (unsigned long long)w->violation_count, (unsigned long long)w->call_count,
            w->violation_count > PRINTED_MAX ? "; the first are:" : "");
    for (uint64_t i = 0; i < w->violation_kept_count && i < PRINTED_MAX; i++) {
        fprintf(stderr, "simcuda:   %s\n", w->violation[i]);
    }
}

static void drop_name(struct name *name)
{
    flw_tree_remove(&flw_world.names, &name->node);
    free(name->text);
    free(name);
}

void flw_report_finish(void)
{
    for (uint64_t i = 0; i < flw_world.violation_kept_count; i++) {
        free(flw_world.violation[i]);
    }
    free(flw_world.violation);
    while (flw_world.names.root != NULL) {
        drop_name(FLW_CONTAINER(flw_world.names.root, struct name, node));
    }
}

void flw_check_describe(uint64_t address, char *text, size_t bytes)
{
    struct flw_tree_node *node = flw_tree_find(&flw_world.names, address);
    text[0] = '\0';
    if (node != NULL) {
        snprintf(text, bytes, " (%s + %llu)", FLW_CONTAINER(node, struct name, node)->text,
                 (unsigned long long)(address - node->begin));
    }
}

const char *flw_sim_violation(uint64_t i)
{
    pthread_mutex_lock(&flw_world.lock);
    const char *text = i < flw_world.violation_kept_count ? flw_world.violation[i] : NULL;
    pthread_mutex_unlock(&flw_world.lock);
    return text;
}

void flw_sim_name(uint64_t address, uint64_t bytes, const char *text)
{
    pthread_mutex_lock(&flw_world.lock);
    flw_world_make_ready();
    for (struct flw_tree_node *node = flw_tree_from(&flw_world.names, address);
         node != NULL && node->begin < address + bytes;
         node = flw_tree_from(&flw_world.names, address)) {
        drop_name(FLW_CONTAINER(node, struct name, node));
    }
    if (text != NULL && bytes > 0) {
        struct name *name = flw_host_get(sizeof *name);
        name->node.begin = address;
        name->node.end = address + bytes;
        name->text = flw_host_get(strlen(text) + 1);
        memcpy(name->text, text, strlen(text) + 1);
        flw_tree_insert(&flw_world.names, &name->node);
    }
    pthread_mutex_unlock(&flw_world.lock);
}

void flw_sim_forget(uint64_t address, uint64_t bytes)
{
    pthread_mutex_lock(&flw_world.lock);
    flw_world_make_ready();
    flw_shadow_set(address, bytes, FLW_SHADOW_UNWRITTEN);
    pthread_mutex_unlock(&flw_world.lock);
}

void flw_sim_forbid(uint64_t address, uint64_t bytes)
{
    pthread_mutex_lock(&flw_world.lock);
    flw_world_make_ready();
    flw_shadow_set(address, bytes, FLW_SHADOW_RED);
    pthread_mutex_unlock(&flw_world.lock);
}
