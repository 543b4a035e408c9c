/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the mapping from a seed to settings, and the command line that repeats them. */
#include "stress_run.h"

#include <stdio.h>

#include "base/bits.h"

#include "fallow/fallow.h"

static uint64_t next(uint64_t *state)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

static bool has_luck(uint64_t *state, unsigned percent)
{
    return next(state) % 100 < percent;
}

/* One of those given; some are there twice. */
#define PICK(state, ...) \
    ((const uint64_t[]){ \
        __VA_ARGS__}[next(state) % (sizeof(const uint64_t[]){__VA_ARGS__} / sizeof(uint64_t))])

static void draw_size(struct stress_settings *settings, uint64_t *state)
{
    settings->threads = PICK(state, 1, 2, 2, 3, 5);
    settings->streams = PICK(state, 2, 3, 4, 6);
    settings->live = PICK(state, 50, 200, 200, 400);
    settings->limit_bytes = PICK(state, 0, 0, 24 << 20, 100 << 20, 200 << 20, 400 << 20);
    settings->most_bytes =
        settings->limit_bytes == 24 << 20 ? 4 << 20 : PICK(state, 65536, 16 << 20);
    settings->schedule =
        (flw_sim_schedule)PICK(state, FLW_SIM_RANDOM, FLW_SIM_CLOCK, FLW_SIM_HELD, FLW_SIM_HELD);
    settings->lag_ns = PICK(state, 1000, 100000, 1000000);
    settings->validate_every = PICK(state, 0, 0, 1000);
}

/* Only with stream order. */
static void draw_streams(struct stress_settings *settings, uint64_t *state)
{
    settings->reuse = PICK(state, 0, 0, 0, 1, 2);
    settings->dies = PICK(state, 0, 0, 0, 0, 1, 1, 1);
    settings->without_vmm = has_luck(state, 20);
    uint64_t debug = 2 * (next(state) % 16); /* any of the four debug checks */
    settings->checks = PICK(state, 0, 0, 0, 0, 0, 0, debug);
    if (settings->checks != 0) { /* each call is a dozen */
        settings->ops /= 20;
        settings->most_bytes = 256 << 10;
        settings->threads = flw_max(settings->threads, 2);
    }
    settings->share = !settings->without_vmm && has_luck(state, 40);
    settings->sleep = !settings->without_vmm && settings->checks == 0 && has_luck(state, 50);
}

void stress_draw(struct stress_settings *settings)
{
    uint64_t state = settings->seed;
    draw_size(settings, &state);
    settings->economy = PICK(&state, 0, 1, 2);
    /* On a small device, allow little memory to be reused without a wait. */
    settings->device_bytes =
        PICK(&state, settings->device_bytes, settings->device_bytes, 1ull << 30);
    settings->order = has_luck(&state, 12);
    if (settings->order == 0) {
        draw_streams(settings, &state);
    }
    settings->decay_ms = PICK(&state, 0, 1);
    settings->faults = has_luck(&state, 30) ? 5 + next(&state) % 50 : 0;
    settings->foreign = settings->order == 0 && has_luck(&state, 35);
    settings->helper = has_luck(&state, 20);
    settings->oom = has_luck(&state, 35);
    settings->reset = has_luck(&state, 10);
    settings->one_handle_bytes = settings->order == 0 ? PICK(&state, 0, 0, 2 << 20, 6 << 20) : 0;
    bool may_cap = settings->order == 0 && !settings->without_vmm;
    settings->range_bytes = may_cap ? PICK(&state, 0, 0, 64 << 20) : 0;
    settings->draw = false;
    settings->rounds = 1;
}

#undef PICK

static void print_number(const char *name, uint64_t value, uint64_t usual)
{
    if (value != usual) {
        fprintf(stderr, " %s %llu", name, (unsigned long long)value);
    }
}

static void print_switch(const char *name, bool is_set)
{
    if (is_set) {
        fprintf(stderr, " %s", name);
    }
}

void stress_print(const struct stress_settings *settings)
{
    static const char *const schedules[] = {"random", "clock", "held"};
    fprintf(stderr,
            "stress_pool --seed %llu --ops %llu --threads %llu --streams %llu --live %llu "
            "--most %llu --schedule %s --lag %llu",
            (unsigned long long)settings->seed, (unsigned long long)settings->ops,
            (unsigned long long)settings->threads, (unsigned long long)settings->streams,
            (unsigned long long)settings->live, (unsigned long long)settings->most_bytes,
            schedules[settings->schedule], (unsigned long long)settings->lag_ns);
    print_number("--limit", settings->limit_bytes, 0);
    print_number("--device", settings->device_bytes, 8ull << 30);
    print_number("--economy", settings->economy, 0);
    print_number("--reuse", settings->reuse, 0);
    print_number("--checks", settings->checks, 0);
    print_number("--validate", settings->validate_every, 0);
    print_number("--order", settings->order, 0);
    print_number("--decay", settings->decay_ms, 0);
    print_number("--dies", settings->dies, 0);
    print_number("--faults", settings->faults, 0);
    print_number("--one-handle", settings->one_handle_bytes, 0);
    print_number("--range", settings->range_bytes, 0);
    print_switch("--no-capture", !settings->capture);
    print_switch("--no-retire", !settings->retire);
    print_switch("--no-check", !settings->check);
    print_switch("--without-vmm", settings->without_vmm);
    print_switch("--sleep", settings->sleep);
    print_switch("--share", settings->share);
    print_switch("--foreign", settings->foreign);
    print_switch("--helper", settings->helper);
    print_switch("--oom", settings->oom);
    print_switch("--reset", settings->reset);
    fprintf(stderr, "\n");
}
