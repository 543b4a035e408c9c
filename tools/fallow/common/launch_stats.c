/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the statistics of processes that wrote none at exit, taken from the counts that they posted to the page.
 */
#include "common/launch.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "preload/settings.h"

/* True if the process is running. A zombie is not. */
static bool is_running(int process)
{
    char path[32], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    size_t length = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    text[length] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end != NULL && strncmp(name_end, ") Z", 3) != 0 && strncmp(name_end, ") X", 3) != 0;
}

static enum flw_summary_end end_of(const struct flw_runpage *page, size_t number, size_t count)
{
    const struct flw_runpage_place *place = &page->places[number];
    int32_t process = atomic_load(&place->pid);
    if ((atomic_load(&place->flags) & FLW_RUNPAGE_LEFT) != 0) {
        return FLW_SUMMARY_LEFT;
    }
    for (size_t i = number + 1; i < count; i++) {
        if (atomic_load(&page->places[i].pid) == process) {
            return FLW_SUMMARY_KILLED; /* replaced by exec */
        }
    }
    return is_running(process) ? FLW_SUMMARY_RUNS_ON : FLW_SUMMARY_KILLED;
}

void flw_launch_tell_stats(const struct flw_launch *launch, struct flw_runpage *page)
{
    static struct flw_settings settings;
    static struct flw_summary summary;
    char message[FLW_SETTINGS_MESSAGE_BYTES];
    size_t count = atomic_load(&page->place_count);
    count = count < FLW_RUNPAGE_PLACES ? count : FLW_RUNPAGE_PLACES;
    if (!flw_settings_parse(&settings, launch->settings->text, "", message) ||
        settings.stats_file[0] == '\0') {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        struct flw_runpage_place *place = &page->places[i];
        uint32_t posted = atomic_load(&place->posted);
        if (posted != 0 && flw_runpage_tell(place)) {
            summary = place->summaries[posted % 2];
            summary.end = end_of(page, i, count);
            /* Clamp: other processes may write the page. */
            summary.mode = flw_min(summary.mode, FLW_MODE_AUDIT);
            summary.program[sizeof summary.program - 1] = '\0';
            flw_summary_write(&summary, settings.stats_file,
                              flw_runpage_claim(page, FLW_RUNPAGE_STATS, summary.process));
        }
    }
}
