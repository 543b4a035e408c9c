/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the two tables. Names are few and searched linearly. */
#include "record/names.h"

#include <stdlib.h>
#include <string.h>

#include "record/array.h"
#include "record/ring.h"

void flw_names_init(struct flw_names *names)
{
    *names = (struct flw_names){0};
    flw_lock_init(&names->lock, FLW_RANK_RECORD);
}

void flw_names_finish(struct flw_names *names)
{
    for (size_t i = 0; i < names->name_count; i++) {
        free(names->names[i]);
    }
    free(names->names);
    free(names->handles);
    flw_addressmap_finish(&names->streams);
}

uint32_t flw_names_stream(struct flw_names *names, uint64_t handle)
{
    flw_lock_acquire(&names->lock);
    uint32_t number = flw_addressmap_find(&names->streams, handle);
    if (number == FLW_ADDRESSMAP_ABSENT) {
        number = (uint32_t)names->stream_count;
        if (number < FLW_RING_STREAMS &&
            FLW_ARRAY_FITS(names->handles, number, names->stream_room) &&
            flw_addressmap_put(&names->streams, handle, number)) {
            names->handles[number] = handle;
            names->stream_count++;
        } else {
            number = number > 0 ? number - 1 : 0;
        }
    }
    flw_lock_release(&names->lock);
    return number;
}

bool flw_names_name(struct flw_names *names, const char *name, uint32_t *out)
{
    char *copy = flw_array_copy_text(name);
    flw_lock_acquire(&names->lock);
    size_t number = 0;
    while (number < names->name_count && strcmp(names->names[number], name) != 0) {
        number++;
    }
    bool is_known = number < names->name_count;
    if (!is_known && copy != NULL && FLW_ARRAY_FITS(names->names, number, names->name_room)) {
        names->names[names->name_count++] = copy;
        is_known = true;
        copy = NULL;
    }
    flw_lock_release(&names->lock);
    free(copy);
    *out = (uint32_t)number;
    return is_known;
}

/* Return the next entry of a table. Names never move; the arrays may. */
static bool next_stream(struct flw_names *names, size_t number, uint64_t *out)
{
    flw_lock_acquire(&names->lock);
    bool is_there = number < names->stream_count;
    *out = is_there ? names->handles[number] : 0;
    flw_lock_release(&names->lock);
    return is_there;
}

static const char *next_name(struct flw_names *names, size_t number)
{
    flw_lock_acquire(&names->lock);
    const char *name = number < names->name_count ? names->names[number] : NULL;
    flw_lock_release(&names->lock);
    return name;
}

bool flw_names_write(struct flw_names *names, struct flw_ftrace_writer *writer,
                     size_t *stream_count, size_t *name_count)
{
    bool is_written = true;
    const char *name;
    for (uint64_t handle; is_written && next_stream(names, *stream_count, &handle);) {
        is_written = flw_ftrace_writer_add_stream(writer, handle);
        ++*stream_count;
    }
    while (is_written && (name = next_name(names, *name_count)) != NULL) {
        is_written = flw_ftrace_writer_add_name(writer, name);
        ++*name_count;
    }
    return is_written;
}
