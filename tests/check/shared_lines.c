/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the check that a hit shares no cache line: two threads, each on its own stream, allocate
 * from and free to their thread caches, and no line that one of them writes is written or read by
 * the other.
 *
 *   parent  runs this program again under `valgrind --tool=lackey --trace-mem=yes` and reads every
 *           store and load of it
 *   child   warms two threads, then lets one run alone, then the other; stores to a page at a
 *           fixed address mark the turns for the parent
 *
 * The threads take turns because lackey's output has no thread. A hit reads nothing but its own
 * cache, so the accesses do not depend on when the other thread runs.
 *
 * To show that the check can fail, the child with `planted` also increments a counter of both
 * threads. Exit status 77 without valgrind. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/driver.h"

#include "fallow/fallow.h"

#define SKIPPED    77
#define MARKS      0x4a5a5a0000ull /* a page that nothing else is at */
#define THREADS    2
#define LINE_LOG2  6
#define LIVE       16
#define OPERATIONS 400
#define TABLE_LOG2 16
#define LINE_CHARS 256

/* ---- child ---- */

struct worker {
    _Alignas(128) pthread_t thread;
    size_t index;
    fallow_stream stream;
    void *slots[LIVE];
    uint64_t failures;
    uint64_t hits;
};

static fallow_pool *pool;
static pthread_barrier_t turn;
static bool is_planted;
static volatile uint64_t planted; /* written by both threads on request */

/* Mark that thread `index` begins (1) or ends (2) its turn. */
static void mark(size_t index, uint64_t what)
{
    volatile uint64_t *marks = (volatile uint64_t *)(uintptr_t)MARKS;
    __asm__ volatile("" : : : "memory");
    marks[8 * (2 * index + what - 1)] = what;
    __asm__ volatile("" : : : "memory");
}

/* Run pairs and replacements of a few classes, all hits once warm. */
static void work(struct worker *worker)
{
    static const size_t sizes[] = {512, 4096, 65536, 700};
    uint64_t random = worker->index + 1;
    for (int i = 0; i < OPERATIONS; i++) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        size_t at = (size_t)(random >> 33) % LIVE, size_bytes = sizes[at % 4];
        worker->failures += fallow_free(pool, worker->slots[at], worker->stream) != FALLOW_OK;
        worker->failures +=
            fallow_alloc(pool, size_bytes, worker->stream, &worker->slots[at]) != FALLOW_OK;
        if (is_planted) {
            planted++;
        }
    }
}

static uint64_t hit_count(void)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    return fallow_pool_get_stats(pool, &stats) == FALLOW_OK ? stats.hit_count : 0;
}

static void *run_worker(void *argument)
{
    struct worker *worker = argument;
    work(worker); /* warm: the blocks are allocated for the first time */
    work(worker);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_barrier_wait(&turn);
        if (i == worker->index) {
            uint64_t before = hit_count();
            mark(worker->index, 1);
            work(worker);
            mark(worker->index, 2);
            worker->hits = hit_count() - before;
        }
        pthread_barrier_wait(&turn);
    }
    for (size_t i = 0; i < LIVE; i++) {
        worker->failures += fallow_free(pool, worker->slots[i], worker->stream) != FALLOW_OK;
    }
    return NULL;
}

static int run_workers(const struct flw_driver *driver)
{
    static struct worker workers[THREADS];
    int failed = 0;
    if (pthread_barrier_init(&turn, NULL, THREADS) != 0) {
        return 1;
    }
    for (size_t i = 0; i < THREADS; i++) {
        CUstream stream = NULL;
        workers[i].index = i;
        if (driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
            return 1;
        }
        workers[i].stream = stream;
        if (pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]) != 0) {
            return 1; /* the process ends: no thread is left waiting */
        }
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].failures != 0 || workers[i].hits != OPERATIONS) {
            fprintf(stderr, "shared_lines: thread %zu: %llu failures, %llu hits of %d\n", i,
                    (unsigned long long)workers[i].failures, (unsigned long long)workers[i].hits,
                    OPERATIONS);
            failed = 1;
        }
        driver->cuStreamDestroy_v2(workers[i].stream);
    }
    return failed;
}

static int be_child(bool plant)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    struct flw_driver driver;
    CUcontext context = NULL;
    fallow_pool_config config;
    is_planted = plant;
    void *marks = mmap((void *)(uintptr_t)MARKS, 4096, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (marks != (void *)(uintptr_t)MARKS) {
        fprintf(stderr, "shared_lines: the page of the marks is taken\n");
        return 1;
    }
    if (flw_driver_open(&driver, "sim", message) != FALLOW_OK) {
        fprintf(stderr, "shared_lines: %s\n", message);
        return 1;
    }
    fallow_pool_config_init(&config);
    config.driver = "sim";
    if (driver.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        driver.cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        fallow_pool_create(&config, &pool) != FALLOW_OK) {
        fprintf(stderr, "shared_lines: no pool on the simulated device\n");
        return 1;
    }
    int failed = run_workers(&driver);
    fallow_pool_destroy(pool);
    flw_driver_close(&driver);
    return failed;
}

/* ---- parent ---- */

enum {
    WRITTEN = 1,
    READ = 2
};

/* Open addressing by line number; the low bits of `touched` are two per thread. */
struct line {
    uint64_t number; /* 0: empty */
    unsigned touched;
};

struct lines {
    struct line table[1u << TABLE_LOG2];
    size_t count;
    bool is_full;
};

static void touch(struct lines *lines, uint64_t number, size_t thread, unsigned how)
{
    uint32_t mask = (1u << TABLE_LOG2) - 1;
    uint32_t at = (uint32_t)((number * 0x9e3779b97f4a7c15ull) >> (64 - TABLE_LOG2));
    while (lines->table[at].number != 0 && lines->table[at].number != number) {
        at = (at + 1) & mask;
    }
    if (lines->table[at].number == 0) {
        if (lines->count >= mask / 2) {
            lines->is_full = true;
            return;
        }
        lines->count++;
        lines->table[at].number = number;
    }
    lines->table[at].touched |= how << (2 * thread);
}

/* One line of the trace: " S 04222c3c,8", " L ...", " M ...", "I  ...". */
static void take_access(struct lines *lines, const char *text, size_t *thread)
{
    char kind = text[0] == ' ' ? text[1] : 'I';
    char *comma = NULL;
    if (kind != 'S' && kind != 'L' && kind != 'M') {
        return;
    }
    uint64_t address = strtoull(text + 2, &comma, 16);
    uint64_t bytes = *comma == ',' ? strtoull(comma + 1, NULL, 10) : 0;
    if (bytes == 0) {
        return;
    }
    if (address >= MARKS && address < MARKS + 4096) {
        size_t at = (size_t)(address - MARKS) / 64;
        *thread = at % 2 == 0 ? at / 2 : THREADS; /* THREADS: nobody's turn */
        return;
    }
    if (*thread >= THREADS) {
        return;
    }
    unsigned how = kind == 'S' ? WRITTEN : kind == 'L' ? READ : WRITTEN | READ;
    for (uint64_t n = address >> LINE_LOG2; n <= (address + bytes - 1) >> LINE_LOG2; n++) {
        touch(lines, n, *thread, how);
    }
}

struct verdict {
    size_t written[THREADS];
    size_t written_by_both;
    size_t written_and_read; /* by one and the other */
    uint64_t example;
};

static struct verdict judge(const struct lines *lines)
{
    struct verdict verdict = {0};
    for (size_t i = 0; i < 1u << TABLE_LOG2; i++) {
        unsigned first = lines->table[i].touched & 3, second = lines->table[i].touched >> 2;
        verdict.written[0] += (first & WRITTEN) != 0;
        verdict.written[1] += (second & WRITTEN) != 0;
        if ((first & WRITTEN) != 0 && (second & WRITTEN) != 0) {
            verdict.written_by_both++;
            verdict.example = lines->table[i].number << LINE_LOG2;
        } else if (((first & WRITTEN) != 0 && second != 0) ||
                   ((second & WRITTEN) != 0 && first != 0)) {
            verdict.written_and_read++;
            verdict.example = lines->table[i].number << LINE_LOG2;
        }
    }
    return verdict;
}

/* The child's exit status, or -1. */
static int trace_child(const char *self, const char *mode, struct lines *lines)
{
    int ends[2], status = 0;
    char text[LINE_CHARS], log[32];
    size_t thread = THREADS;
    if (pipe(ends) != 0) {
        return -1;
    }
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        snprintf(log, sizeof log, "--log-fd=%d", ends[1]);
        execlp("valgrind", "valgrind", "--tool=lackey", "--trace-mem=yes", "--basic-counts=no", log,
               self, mode, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *trace = fdopen(ends[0], "r");
    while (trace != NULL && child > 0 && fgets(text, sizeof text, trace) != NULL) {
        take_access(lines, text, &thread);
    }
    if (trace != NULL) {
        fclose(trace);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : -1;
}

static int check(const char *self, bool plant)
{
    struct lines *lines = calloc(1, sizeof *lines);
    if (lines == NULL) {
        return 1;
    }
    int status = trace_child(self, plant ? "--planted" : "--child", lines);
    struct verdict verdict = judge(lines);
    bool is_full = lines->is_full;
    free(lines);
    if (status != 0 || is_full) {
        fprintf(stderr, "shared_lines: the traced run ended with %d%s\n", status,
                is_full ? ", and its table is too small" : "");
        return status == 127 ? SKIPPED : 1;
    }
    printf(
        "%s: lines written by the threads %zu and %zu, by both %zu, by one and read by the other "
        "%zu\n",
        plant ? "planted counter" : "hit path", verdict.written[0], verdict.written[1],
        verdict.written_by_both, verdict.written_and_read);
    if (verdict.written[0] == 0 || verdict.written[1] == 0) {
        fprintf(stderr, "shared_lines: nothing was traced in a thread's turn\n");
        return 1;
    }
    bool is_shared = verdict.written_by_both + verdict.written_and_read != 0;
    if (is_shared != plant) {
        fprintf(stderr, "shared_lines: %s, around %#llx\n",
                plant ? "the planted counter was not found"
                      : "a hit shares a line with the other's",
                (unsigned long long)verdict.example);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    char self[4096];
    if (argc > 1) {
        return be_child(strcmp(argv[1], "--planted") == 0);
    }
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) {
        return 1;
    }
    self[length] = '\0';
    if (system("valgrind --tool=lackey --help >/dev/null 2>&1") != 0) {
        printf(
            "skipped: valgrind's lackey is missing (Debian, Ubuntu: apt-get install valgrind)\n");
        return SKIPPED;
    }
    int status = check(self, true);
    return status != 0 ? status : check(self, false);
}
