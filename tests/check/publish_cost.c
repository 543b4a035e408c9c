/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the check that a viewer does not slow down a hit: the number of instructions for the same
 * pairs is equal while `fallow top`'s reader queries, without a viewer, and without publishing.
 *
 *   parent  runs this program again under callgrind, which counts instructions inside measured(), and
 *           requests a stats page in each round
 *   child   rounds of pairs; begins a round on request, so that each has a query beside it
 *
 * To show that the check can fail, with `planted` a pair does extra work while a viewer is
 * attached. Exit status 77 without valgrind. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/driver.h"
#include "publish/stats_file.h"
#include "publish/stats_page.h"

#include "fallow/publish.h"

#define SKIPPED   77
#define ROUNDS    20
#define PAIRS     2000
#define LIVE      16
#define ANSWER_NS UINT64_C(60000000000) /* valgrind is slow, and the machine may be */

enum variant {
    QUIET,   /* nothing is published */
    ALONE,   /* published, nobody looks */
    WATCHED, /* a stats page a round */
    PLANTED, /* the same, with pairs that do extra work */
    VARIANTS
};
static const char *const variant_names[] = {"quiet", "alone", "watched", "planted"};

/* ---- child ---- */

static fallow_pool *pool;
static void *blocks[LIVE];
static uint64_t failures;
static bool is_planted;
static volatile uint64_t planted;

static void run_pairs(fallow_stream stream)
{
    static const size_t sizes[] = {512, 4096, 65536, 700};
    for (unsigned i = 0; i < PAIRS; i++) {
        unsigned at = i % LIVE;
        failures += fallow_free(pool, blocks[at], stream) != FALLOW_OK;
        failures += fallow_alloc(pool, sizes[at % 4], stream, &blocks[at]) != FALLOW_OK;
        if (is_planted) {
            planted++;
        }
    }
}

/* callgrind counts from the entry to the return, in the calling thread. */
__attribute__((noinline)) void measured(fallow_stream stream);

void measured(fallow_stream stream)
{
    run_pairs(stream);
}

static uint64_t hit_count(void)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    return fallow_pool_get_stats(pool, &stats) == FALLOW_OK ? stats.hit_count : 0;
}

static int run_rounds(void)
{
    char byte = 'r';
    fallow_stream stream = NULL;
    for (unsigned at = 0; at < LIVE; at++) { /* warm */
        failures += fallow_alloc(pool, 512 << at % 4, stream, &blocks[at]) != FALLOW_OK;
    }
    run_pairs(stream);
    run_pairs(stream);
    uint64_t before = hit_count();
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (write(STDOUT_FILENO, &byte, 1) != 1) { /* a round begins: request a page */
            return 1;
        }
        measured(stream);
        if (read(STDIN_FILENO, &byte, 1) != 1) { /* there was an answer */
            return 1;
        }
        is_planted = byte == 'p';
    }
    uint64_t hits = hit_count() - before;
    if (failures != 0 || hits != (uint64_t)ROUNDS * PAIRS) {
        fprintf(stderr, "publish_cost: %llu failures, %llu hits of %d\n",
                (unsigned long long)failures, (unsigned long long)hits, ROUNDS * PAIRS);
        return 1;
    }
    return 0;
}

static void complain(void *nothing, fallow_log_level level, const char *line)
{
    (void)nothing;
    (void)level;
    fprintf(stderr, "publish_cost: %s\n", line);
}

static int be_child(const char *variant, const char *folder)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    struct flw_driver driver;
    CUcontext context = NULL;
    fallow_pool_config config;
    fallow_publish_config publishing;
    fallow_publish_config_init(&publishing);
    publishing.directory = folder;
    publishing.log = complain;
    if (strcmp(variant, variant_names[QUIET]) != 0 &&
        fallow_publish_start(&publishing) != FALLOW_OK) {
        return 1;
    }
    fallow_pool_config_init(&config);
    config.driver = "sim";
    if (flw_driver_open(&driver, "sim", message) != FALLOW_OK ||
        driver.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        driver.cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        fallow_pool_create(&config, &pool) != FALLOW_OK) {
        fprintf(stderr, "publish_cost: no pool on the simulated device\n");
        return 1;
    }
    int failed = run_rounds();
    fallow_publish_stop();
    return failed; /* the process ends; the pool's state no longer matters */
}

/* ---- parent ---- */

struct child {
    pid_t process;
    int to, from;
};

static bool start_child(struct child *child, const char *self, enum variant variant,
                        const char *folder)
{
    int in[2], out[2];
    char log[128];
    snprintf(log, sizeof log, "--log-file=%s/log", folder);
    if (pipe(in) != 0 || pipe(out) != 0) {
        return false;
    }
    child->process = fork();
    if (child->process == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        close(in[1]);
        close(out[0]);
        execlp("valgrind", "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
               "--toggle-collect=measured", log, self, variant_names[variant], folder,
               (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    child->to = in[1];
    child->from = out[0];
    return child->process > 0;
}

/* Ask once. False: a line was printed. */
static bool look(pid_t process, const char *folder)
{
    static unsigned char bytes[FLW_STATS_FILE_BODY_BYTES];
    struct flw_stats_file_name name = {.user = geteuid(), .process = process};
    struct flw_stats_file_reader reader;
    struct flw_stats_page stats_page;
    size_t count = 0;
    enum flw_stats_file_state state = flw_stats_file_open(&reader, folder, &name);
    if (state == FLW_STATS_FILE_OK) {
        state = flw_stats_file_ask(&reader, ANSWER_NS);
        if (state == FLW_STATS_FILE_OK) {
            state = flw_stats_file_read(&reader, bytes, &count);
        }
        flw_stats_file_close(&reader);
    }
    bool is_read = state == FLW_STATS_FILE_OK && flw_stats_page_read(&stats_page, bytes, count);
    bool is_told = is_read && stats_page.pool_count == 1;
    if (is_read) {
        flw_stats_page_drop(&stats_page);
    }
    if (!is_told) {
        fprintf(stderr, "publish_cost: no bulletin of the pool (%d)\n", (int)state);
    }
    return is_told;
}

/* Read the number of instructions from callgrind's output. */
static bool read_count(const char *folder, uint64_t *out_count)
{
    char path[128], line[512];
    bool is_found = false;
    snprintf(path, sizeof path, "%s/log", folder);
    FILE *log = fopen(path, "r");
    while (log != NULL && fgets(line, sizeof line, log) != NULL) {
        const char *at = strstr(line, "Collected : ");
        if (at != NULL) {
            *out_count = strtoull(at + strlen("Collected : "), NULL, 10);
            is_found = true;
        }
    }
    if (log != NULL) {
        fclose(log);
    }
    (void)unlink(path);
    return is_found;
}

static bool count_variant(const char *self, enum variant variant, const char *folder,
                          uint64_t *out_count)
{
    struct child child = {.process = -1};
    char byte = 'g';
    int status = 0;
    bool is_ok = true;
    if (!start_child(&child, self, variant, folder)) {
        return false;
    }
    for (unsigned i = 0; is_ok && i < ROUNDS; i++) {
        is_ok =
            read(child.from, &byte, 1) == 1 && (variant < WATCHED || look(child.process, folder));
        byte = variant == PLANTED ? 'p' : 'g';
        is_ok = is_ok && write(child.to, &byte, 1) == 1;
    }
    close(child.to);
    is_ok = waitpid(child.process, &status, 0) == child.process && is_ok && WIFEXITED(status) &&
            WEXITSTATUS(status) == 0;
    close(child.from);
    is_ok = read_count(folder, out_count) && is_ok;
    if (!is_ok) {
        fprintf(stderr, "publish_cost: the run '%s' failed (%d)\n", variant_names[variant], status);
    }
    return is_ok;
}

int main(int argc, char **argv)
{
    char self[4096], folder[] = "/tmp/fallow-cost-XXXXXX";
    uint64_t counts[VARIANTS] = {0};
    bool is_ok = true;
    if (argc == 3) {
        return be_child(argv[1], argv[2]);
    }
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0 || mkdtemp(folder) == NULL) {
        return 1;
    }
    self[length] = '\0';
    if (system("valgrind --tool=callgrind --help >/dev/null 2>&1") != 0) {
        printf("skipped: valgrind's callgrind is missing (apt-get install valgrind)\n");
        rmdir(folder);
        return SKIPPED;
    }
    for (int v = 0; is_ok && v < VARIANTS; v++) {
        is_ok = count_variant(self, (enum variant)v, folder, &counts[v]);
        printf("%-8s %llu instructions for %d pairs\n", variant_names[v],
               (unsigned long long)counts[v], ROUNDS * PAIRS);
    }
    (void)rmdir(folder);
    if (is_ok && (counts[ALONE] != counts[QUIET] || counts[WATCHED] != counts[QUIET])) {
        fprintf(stderr, "publish_cost: a pair pays for publishing\n");
        is_ok = false;
    }
    if (is_ok && (counts[PLANTED] == counts[QUIET] || counts[QUIET] == 0)) {
        fprintf(stderr, "publish_cost: the planted cost was not found\n");
        is_ok = false;
    }
    return is_ok ? 0 : 1;
}
