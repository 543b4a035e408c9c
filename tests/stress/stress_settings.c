/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the settings of a stress run, from the command line and FALLOW_TEST_SEED.
 */
#include "stress_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t number(const char *name, const char *text)
{
    char *end = NULL;
    uint64_t value = text != NULL ? strtoull(text, &end, 0) : 0;
    if (text == NULL || end == text || *end != '\0') {
        fprintf(stderr, "stress_pool: %s needs a number\n", name);
        exit(2);
    }
    return value;
}

static void read_words(struct stress_settings *settings, int count, char **words)
{
    const struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {
        {"--seed", &settings->seed},
        {"--ops", &settings->ops},
        {"--threads", &settings->threads},
        {"--streams", &settings->streams},
        {"--live", &settings->live},
        {"--limit", &settings->limit_bytes},
        {"--most", &settings->most_bytes},
        {"--device", &settings->device_bytes},
        {"--lag", &settings->lag_ns},
        {"--economy", &settings->economy},
        {"--reuse", &settings->reuse},
        {"--checks", &settings->checks},
        {"--validate", &settings->validate_every},
        {"--trace", &settings->trace_address},
        {"--order", &settings->order},
        {"--decay", &settings->decay_ms},
        {"--dies", &settings->dies},
        {"--faults", &settings->faults},
        {"--rounds", &settings->rounds},
        {"--one-handle", &settings->one_handle_bytes},
        {"--range", &settings->range_bytes},
    };
    const struct {
        const char *name;
        bool *value;
        bool set;
    } switches[] = {
        {"--no-capture", &settings->capture, false},
        {"--no-retire", &settings->retire, false},
        {"--no-check", &settings->check, false},
        {"--without-vmm", &settings->without_vmm, true},
        {"--sleep", &settings->sleep, true},
        {"--share", &settings->share, true},
        {"--foreign", &settings->foreign, true},
        {"--helper", &settings->helper, true},
        {"--oom", &settings->oom, true},
        {"--reset", &settings->reset, true},
        {"--draw", &settings->draw, true},
    };
    for (int i = 1; i < count; i++) {
        const char *word = words[i], *next = i + 1 < count ? words[i + 1] : NULL;
        bool known = false;
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers && !known; k++) {
            if (strcmp(word, numbers[k].name) == 0) {
                *numbers[k].value = number(word, next);
                known = true;
                i++;
            }
        }
        for (size_t k = 0; k < sizeof switches / sizeof *switches && !known; k++) {
            if (strcmp(word, switches[k].name) == 0) {
                *switches[k].value = switches[k].set;
                known = true;
            }
        }
        if (!known && next != NULL && strcmp(word, "--record") == 0) {
            settings->record = words[++i];
            known = true;
        } else if (!known && next != NULL && strcmp(word, "--schedule") == 0) {
            const char *schedule = words[++i];
            settings->schedule = strcmp(schedule, "clock") == 0  ? FLW_SIM_CLOCK
                                 : strcmp(schedule, "held") == 0 ? FLW_SIM_HELD
                                                                 : FLW_SIM_RANDOM;
            known = settings->schedule != FLW_SIM_RANDOM || strcmp(schedule, "random") == 0;
        }
        if (!known) {
            fprintf(stderr, "stress_pool: '%s' is not understood; see stress_pool.c\n", word);
            exit(2);
        }
    }
    if (settings->threads == 0 || settings->threads > STRESS_MOST_THREADS ||
        settings->streams < 2 || settings->streams + STRESS_SHARED_STREAMS > FLW_CLIENT_STREAMS ||
        settings->most_bytes == 0) {
        fprintf(stderr, "stress_pool: 1 to %d threads, 2 to %d streams, --most above 0\n",
                STRESS_MOST_THREADS, FLW_CLIENT_STREAMS - STRESS_SHARED_STREAMS);
        exit(2);
    }
}

struct stress_settings stress_parse(int count, char **words)
{
    const char *seed = getenv("FALLOW_TEST_SEED");
    struct stress_settings settings = {.seed = seed != NULL ? number("FALLOW_TEST_SEED", seed) : 1,
                                       .ops = 100000,
                                       .threads = 2,
                                       .streams = 3,
                                       .live = 200,
                                       .most_bytes = 16 << 20,
                                       .device_bytes = 8ull << 30,
                                       .schedule = FLW_SIM_HELD,
                                       .lag_ns = 100000,
                                       .rounds = 1,
                                       .capture = true,
                                       .retire = true,
                                       .check = true};
    read_words(&settings, count, words);
    return settings;
}
