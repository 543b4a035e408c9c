/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the process's stats file: the users, the thread that posts stats pages, fork and exit.
 *
 * Lock: a system mutex, held over start and stop, including the wait for the thread. The thread
 * never takes it. No ranked lock is held when it is taken. */
#include "fallow/publish.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/sized.h"
#include "base/thread.h"
#include "publish/collect.h"
#include "publish/stats_file_lock.h"

#define PAUSE_NS     20000000 /* after an answer: an upper bound for the rate of answers */
#define STACK_BYTES  (128 * 1024)
#define LEAVE_WAIT_S 2

/* Memory of the thread. Mapped, since the program's host memory is not ours to use. */
struct scratch {
    struct flw_collector collector;
    struct flw_stats_page_pool pool;
    struct flw_stats_page_writer writer;
    uint64_t pool_total;
    unsigned char body[FLW_STATS_FILE_BODY_BYTES];
};

static struct {
    pthread_mutex_t mutex;
    unsigned user_count;
    struct flw_stats_file stats_file;
    struct scratch *scratch;
    pthread_t thread;
    _Atomic uint32_t stops; /* 1: the thread must end */
    bool watches_forks;
} publisher = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- the thread */

static void visit(struct flw_pool *pool, void *context)
{
    struct scratch *scratch = context;
    scratch->pool_total++;
    flw_collect_pool(&scratch->collector, pool, &scratch->pool);
    flw_stats_page_add(&scratch->writer, &scratch->pool);
}

static size_t compose(struct scratch *scratch)
{
    struct flw_stats_page stats_page = {.process = (uint64_t)getpid()};
    snprintf(stats_page.name, sizeof stats_page.name, "%s", program_invocation_short_name);
    scratch->pool_total = 0;
    flw_stats_page_begin(&scratch->writer, scratch->body, sizeof scratch->body);
    flw_pool_table_each(visit, scratch);
    stats_page.pool_total = scratch->pool_total;
    stats_page.clock_ns = flw_clock_fine_ns();
    return flw_stats_page_end(&scratch->writer, &stats_page);
}

static void *publish(void *argument)
{
    struct scratch *scratch = argument;
    (void)pthread_setname_np(pthread_self(), "fallow-publish");
    for (;;) {
        flw_stats_file_await(&publisher.stats_file);
        if (atomic_load(&publisher.stops) != 0) {
            return NULL;
        }
        if (flw_stats_file_is_asked(&publisher.stats_file)) {
            uint32_t question = flw_stats_file_question(&publisher.stats_file);
            flw_stats_file_answer(&publisher.stats_file, question, scratch->body, compose(scratch));
            flw_stats_file_sleep(&publisher.stops, 0, PAUSE_NS);
        }
    }
}

static void drop_scratch(void)
{
    if (publisher.scratch != NULL) {
        (void)munmap(publisher.scratch, sizeof *publisher.scratch);
        publisher.scratch = NULL;
    }
}

/* ---- fork */

/* No fork during start and stop: a child would keep the file's lock, which is in the mapping and,
 * for a moment, in a descriptor. */
static void hold(void)
{
    pthread_mutex_lock(&publisher.mutex);
}

static void release(void)
{
    pthread_mutex_unlock(&publisher.mutex);
}

static void forget(void)
{
    pthread_mutex_init(&publisher.mutex, NULL);
    flw_stats_file_forget(&publisher.stats_file);
    drop_scratch();
    atomic_store(&publisher.stops, 0);
    publisher.user_count = 0;
}

/* A thread that is started under the mutex needs memory. An allocator with fork handlers registers
 * them with the first block, and handlers registered first run last in prepare: so the mutex is
 * waited for while memory is still available. */
static bool watch_forks(void)
{
    void *volatile block = malloc(1);
    free(block);
    return pthread_atfork(hold, release, forget) == 0;
}

/* ---- start, stop */

FLW_DEFINE_INIT_SIZED(fallow_publish_config)

/* `mutex` held. */
static fallow_status begin(const char *directory, char message[FLW_STATS_FILE_MESSAGE_BYTES])
{
    if (!publisher.watches_forks) {
        publisher.watches_forks = watch_forks();
    }
    void *scratch = mmap(NULL, sizeof *publisher.scratch, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (scratch == MAP_FAILED || !publisher.watches_forks) {
        snprintf(message, FLW_STATS_FILE_MESSAGE_BYTES,
                 "nothing is published for fallow top: out of host memory");
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    publisher.scratch = scratch;
    if (!flw_stats_file_post(&publisher.stats_file, directory, message)) {
        drop_scratch();
        return FALLOW_IO;
    }
    atomic_store(&publisher.stops, 0);
    int error = flw_thread_start(&publisher.thread, STACK_BYTES, publish, publisher.scratch);
    if (error != 0) {
        snprintf(message, FLW_STATS_FILE_MESSAGE_BYTES,
                 "nothing is published for fallow top: no thread: %s", strerror(error));
        flw_stats_file_remove(&publisher.stats_file);
        drop_scratch();
        return FALLOW_IO;
    }
    return FALLOW_OK;
}

fallow_status fallow_publish_start(const fallow_publish_config *given)
{
    fallow_publish_config config = {0};
    char message[FLW_STATS_FILE_MESSAGE_BYTES] = "";
    fallow_status status = FALLOW_OK;
    int saved = errno;
    if (given != NULL) {
        status = flw_struct_accept(&config, sizeof config, given);
        if (status != FALLOW_OK) {
            return status;
        }
    }
    pthread_mutex_lock(&publisher.mutex);
    if (publisher.user_count == 0) {
        status =
            begin(config.directory != NULL ? config.directory : FLW_STATS_FILE_DIRECTORY, message);
    }
    publisher.user_count += status == FALLOW_OK;
    pthread_mutex_unlock(&publisher.mutex);
    if (status != FALLOW_OK && config.log != NULL) {
        config.log(config.log_context, FALLOW_LOG_WARNING, message);
    }
    errno = saved;
    return status;
}

/* False: the thread does not end in time; the memory stays. `mutex` held. */
static bool end(const struct timespec *until)
{
    atomic_store(&publisher.stops, 1);
    flw_stats_file_wake(&publisher.stops);
    flw_stats_file_interrupt(&publisher.stats_file);
    int error = until == NULL ? pthread_join(publisher.thread, NULL)
                              : pthread_timedjoin_np(publisher.thread, NULL, until);
    if (error != 0) {
        (void)unlink(publisher.stats_file.path);
        return false;
    }
    flw_stats_file_remove(&publisher.stats_file);
    drop_scratch();
    return true;
}

void fallow_publish_stop(void)
{
    int saved = errno;
    pthread_mutex_lock(&publisher.mutex);
    if (publisher.user_count > 0 && --publisher.user_count == 0) {
        (void)end(NULL);
    }
    pthread_mutex_unlock(&publisher.mutex);
    errno = saved;
}

/* Remove the stats file at the end of the process. A caller of exit() in a signal handler may hold
 * something that the thread waits for, so the wait has a limit. */
__attribute__((destructor)) static void leave(void)
{
    struct timespec until;
    if (pthread_mutex_trylock(&publisher.mutex) != 0) {
        return;
    }
    if (publisher.user_count > 0) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += LEAVE_WAIT_S;
        publisher.user_count = 0;
        (void)end(&until);
    }
    pthread_mutex_unlock(&publisher.mutex);
}
