/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the list of a device's memory by address, for those who draw it.
 * Does not: change anything.
 */
#include "simcuda/storage.h"

FLW_SIM_EXPORT size_t flw_sim_get_extents(int device, flw_sim_extent *out, size_t capacity);

struct list {
    flw_sim_extent *extents;
    size_t count, capacity;
};

static void add(struct list *list, const struct flw_tree_node *node, uint32_t kind)
{
    if (list->count < list->capacity) {
        list->extents[list->count] = (flw_sim_extent){
            .address = node->begin, .bytes = node->end - node->begin, .kind = kind};
    }
    list->count++;
}

/* The mappings inside one reservation; those without a gap between them are one stretch. */
static void add_mappings(struct list *list, const struct flw_tree_node *reservation,
                         const struct flw_device *device)
{
    struct flw_tree_node run = {0};
    for (const struct flw_tree_node *node = flw_tree_from(&flw_world.mappings, reservation->begin);
         node != NULL && node->begin < reservation->end;
         node = flw_tree_from(&flw_world.mappings, node->end)) {
        if (FLW_CONTAINER(node, struct flw_mapping, node)->physical->device != device) {
            continue;
        }
        if (run.end != node->begin) {
            if (run.end != 0) {
                add(list, &run, FLW_SIM_EXTENT_MAPPED);
            }
            run.begin = node->begin;
        }
        run.end = node->end;
    }
    if (run.end != 0) {
        add(list, &run, FLW_SIM_EXTENT_MAPPED);
    }
}

static void add_region(struct list *list, const struct flw_region *region,
                       const struct flw_device *device)
{
    if (region->kind == FLW_REGION_RESERVATION) {
        add_mappings(list, &region->node, device);
    } else if (region->device == device && region->kind == FLW_REGION_ALLOCATION) {
        add(list, &region->node, FLW_SIM_EXTENT_ALLOCATION);
    } else if (region->device == device && region->kind == FLW_REGION_POOLED) {
        add(list, &region->node, FLW_SIM_EXTENT_POOLED);
    }
}

size_t flw_sim_get_extents(int device, flw_sim_extent *out, size_t capacity)
{
    struct list list = {.extents = out, .capacity = out == NULL ? 0 : capacity};
    pthread_mutex_lock(&flw_world.lock);
    flw_world_make_ready();
    const struct flw_device *found = flw_device_find(device);
    for (const struct flw_tree_node *node = flw_tree_from(&flw_world.regions, 0);
         found != NULL && node != NULL; node = flw_tree_from(&flw_world.regions, node->end)) {
        add_region(&list, FLW_CONTAINER(node, struct flw_region, node), found);
    }
    pthread_mutex_unlock(&flw_world.lock);
    return list.count;
}
