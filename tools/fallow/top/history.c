/* SPDX-License-Identifier: Apache-2.0 */
#include "top/history.h"

#include <string.h>

#include "base/bits.h"
#include "common/tool_host.h"

#define PLACE(second) ((second) % FLW_TOP_SECONDS)

static struct flw_top_series *find(const struct flw_top_history *history, pid_t process,
                                   const char *label)
{
    for (size_t i = 0; i < history->count; i++) {
        struct flw_top_series *series = &history->series[i];
        if (series->process == process && strcmp(series->label, label) == 0) {
            return series;
        }
    }
    return NULL;
}

static struct flw_top_series *add(struct flw_top_history *history, pid_t process, const char *label,
                                  uint64_t second)
{
    history->series = flw_host_grow(history->series, &history->capacity, history->count + 1,
                                    sizeof *history->series);
    struct flw_top_series *series = &history->series[history->count++];
    *series =
        (struct flw_top_series){.process = process, .first_second = second, .last_second = second};
    memcpy(series->label, label, strlen(label) + 1);
    return series;
}

/* What was seen last held until `second`, inclusive. */
static void hold(struct flw_top_series *series, uint64_t second)
{
    uint64_t last = PLACE(series->last_second), live_bytes = series->live_bytes[last],
             reserved_bytes = series->reserved_bytes[last];
    for (uint64_t i = 1; i <= FLW_TOP_SECONDS && series->last_second < second; i++) {
        /* No more than there are places, the newest among them. */
        uint64_t left = second - series->last_second;
        series->last_second += left > FLW_TOP_SECONDS ? left - FLW_TOP_SECONDS + 1 : 1;
        series->live_bytes[PLACE(series->last_second)] = live_bytes;
        series->reserved_bytes[PLACE(series->last_second)] = reserved_bytes;
    }
}

static void note(struct flw_top_history *history, pid_t process, const char *label, uint64_t second,
                 uint64_t live_bytes, uint64_t reserved_bytes)
{
    struct flw_top_series *series = find(history, process, label);
    if (series == NULL) {
        series = add(history, process, label, second);
    }
    uint64_t at = PLACE(second);
    if (second > series->last_second) {
        hold(series, second);
        series->live_bytes[at] = series->reserved_bytes[at] = 0;
    }
    series->live_bytes[at] = flw_max(series->live_bytes[at], live_bytes);
    series->reserved_bytes[at] = flw_max(series->reserved_bytes[at], reserved_bytes);
}

static void forget(struct flw_top_history *history, uint64_t second)
{
    size_t kept = 0;
    for (size_t i = 0; i < history->count; i++) {
        if (history->series[i].last_second + FLW_TOP_SECONDS > second) {
            history->series[kept++] = history->series[i];
        }
    }
    history->count = kept;
}

void flw_top_history_note(struct flw_top_history *history, const struct flw_top_look *look,
                          uint64_t second)
{
    char label[FLW_TOP_LABEL_BYTES];
    uint64_t live_bytes = 0, reserved_bytes = 0;
    forget(history, second);
    for (uint32_t i = 0; i < look->pool_count; i++) {
        const uint64_t *value = flw_top_pool(look, i, label)->value;
        note(history, look->process, label, second, value[FLW_VALUE_live_bytes],
             value[FLW_VALUE_reserved_bytes]);
        live_bytes += value[FLW_VALUE_live_bytes];
        reserved_bytes += value[FLW_VALUE_reserved_bytes];
    }
    note(history, look->process, "", second, live_bytes, reserved_bytes);
}

void flw_top_history_drop(struct flw_top_history *history)
{
    flw_host_free(history->series);
    *history = (struct flw_top_history){0};
}

uint64_t flw_top_history_line(const struct flw_top_history *history, pid_t process,
                              const char *label, uint64_t second, uint32_t columns, bool is_ascii,
                              char line[FLW_TOP_HISTORY_BYTES])
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const letters[] = {" ", ".", ":", "-", "=", "+", "*", "#", "@"};
    const struct flw_top_series *found = find(history, process, label);
    uint64_t top_bytes = 0;
    line[0] = '\0';
    if (found == NULL || columns == 0) {
        return 0;
    }
    struct flw_top_series series = *found;
    hold(&series, second);
    columns = (uint32_t)flw_min(columns, FLW_TOP_SECONDS);
    for (uint64_t ago = 0; ago < FLW_TOP_SECONDS && ago <= second - found->first_second; ago++) {
        top_bytes = flw_max(top_bytes, series.reserved_bytes[PLACE(second - ago)]);
    }
    for (uint32_t c = 0; c < columns; c++) {
        /* Seconds ago, the oldest first. */
        uint64_t begin = FLW_TOP_SECONDS - (uint64_t)c * FLW_TOP_SECONDS / columns;
        uint64_t end = FLW_TOP_SECONDS - (uint64_t)(c + 1) * FLW_TOP_SECONDS / columns;
        uint64_t live_bytes = 0;
        for (uint64_t ago = end; ago < begin && ago <= second - found->first_second; ago++) {
            live_bytes = flw_max(live_bytes, series.live_bytes[PLACE(second - ago)]);
        }
        double share = top_bytes == 0 ? 0 : (double)live_bytes / (double)top_bytes;
        size_t level = live_bytes == 0 ? 0 : 1 + (size_t)(7.0 * (share < 1 ? share : 1) + 0.5);
        strcat(line, is_ascii ? letters[level] : blocks[level]);
    }
    return top_bytes;
}
