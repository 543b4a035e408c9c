/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the published statistics of a process: equal to its own queries while no call is running,
 * and harmless at any time. Does not: show them (test_top.py). */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fallow/arena.h"
#include "fallow/publish.h"
#include "fallow/sleep.h"
#include "publish/stats_file.h"
#include "publish/stats_page.h"
#include "support/trim.h"
#include "unit/pool/test_api.h"

#define ANSWER_NS UINT64_C(30000000000) /* a busy machine takes the time */

static char folder[64];

static int make_folder(void **state)
{
    strcpy(folder, "/tmp/fallow-publish-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    return rmdir(folder); /* and the folder was empty */
}

static char last_line[FLW_STATS_FILE_MESSAGE_BYTES];
static unsigned line_count;

static void keep_line(void *context, fallow_log_level level, const char *line)
{
    (void)context;
    assert_int_equal(level, FALLOW_LOG_WARNING);
    snprintf(last_line, sizeof last_line, "%s", line);
    line_count++;
}

static fallow_publish_config config_of(const char *directory)
{
    fallow_publish_config config;
    fallow_publish_config_init(&config);
    config.directory = directory;
    config.log = keep_line;
    return config;
}

static void publish(void)
{
    fallow_publish_config config = config_of(folder);
    assert_ok(fallow_publish_start(&config));
}

static enum flw_stats_file_state state_of(pid_t process)
{
    struct flw_stats_file_reader reader;
    struct flw_stats_file_name name = {.user = geteuid(), .process = process};
    enum flw_stats_file_state state = flw_stats_file_open(&reader, folder, &name);
    if (state == FLW_STATS_FILE_OK) {
        flw_stats_file_close(&reader);
    }
    return state;
}

/* The statistics that the last look() read. */
static struct flw_stats_page stats_page;

static void look(void)
{
    static unsigned char bytes[FLW_STATS_FILE_BODY_BYTES];
    struct flw_stats_file_reader reader;
    struct flw_stats_file_name name = {.user = geteuid(), .process = getpid()};
    size_t count = 0;
    flw_stats_page_drop(&stats_page);
    assert_int_equal(flw_stats_file_open(&reader, folder, &name), FLW_STATS_FILE_OK);
    assert_int_equal(flw_stats_file_ask(&reader, ANSWER_NS), FLW_STATS_FILE_OK);
    assert_int_equal(flw_stats_file_read(&reader, bytes, &count), FLW_STATS_FILE_OK);
    flw_stats_file_close(&reader);
    assert_true(flw_stats_page_read(&stats_page, bytes, count));
    assert_int_equal(stats_page.process, getpid());
}

static void api_free(struct api *bed, void *block, CUstream stream)
{
    assert_ok(fallow_free(bed->pool, block, stream));
}

/* ---- contents */

static void expect_stats(const struct flw_stats_page_pool *pool, fallow_pool *handle)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    assert_ok(fallow_pool_get_stats(handle, &stats));
#define EQUAL_STATS(name) assert_int_equal(pool->value[FLW_VALUE_##name], stats.name);
#define EQUAL_POOL(name)
#define X(name, source, kind, help) EQUAL_##source(name)
    FLW_STATS_PAGE_VALUES(X)
#undef X
}

/* Check that the tables add up to the pool's totals. */
static void expect_sums(const struct flw_stats_page_pool *pool)
{
    const uint64_t *value = pool->value;
    struct flw_stats_page_class classes = {0};
    struct flw_stats_page_stream streams = {0};
    for (uint32_t i = 0; i < pool->class_count; i++) {
        const struct flw_stats_page_class *row = &pool->classes[i];
        assert_true(row->live_bytes + row->cached_bytes + row->deferred_bytes <=
                    row->reserved_bytes);
        assert_true(row->requested_bytes <= row->live_bytes);
        assert_true(row->size_bytes == 0 || row->live_bytes == row->live_count * row->size_bytes);
        classes.live_count += row->live_count;
        classes.live_bytes += row->live_bytes;
        classes.requested_bytes += row->requested_bytes;
        classes.cached_bytes += row->cached_bytes;
        classes.deferred_bytes += row->deferred_bytes;
    }
    for (uint32_t i = 0; i < pool->stream_count; i++) {
        const struct flw_stats_page_stream *row = &pool->streams[i];
        streams.live_count += row->live_count;
        streams.live_bytes += row->live_bytes;
        streams.requested_bytes += row->requested_bytes;
        streams.cached_bytes += row->cached_bytes;
    }
    assert_int_equal(classes.live_count, value[FLW_VALUE_live_count]);
    assert_int_equal(classes.live_bytes, value[FLW_VALUE_live_bytes]);
    assert_int_equal(classes.requested_bytes, value[FLW_VALUE_requested_bytes]);
    assert_int_equal(classes.cached_bytes, value[FLW_VALUE_cached_bytes]);
    assert_int_equal(streams.live_count, value[FLW_VALUE_live_count]);
    assert_int_equal(streams.live_bytes, value[FLW_VALUE_live_bytes]);
    assert_int_equal(streams.requested_bytes, value[FLW_VALUE_requested_bytes]);
    assert_int_equal(streams.cached_bytes, value[FLW_VALUE_cached_bytes]);
    assert_int_equal(value[FLW_VALUE_live_bytes] + value[FLW_VALUE_cached_bytes] +
                         value[FLW_VALUE_free_bytes] + value[FLW_VALUE_unmapped_bytes] +
                         classes.deferred_bytes,
                     value[FLW_VALUE_reserved_bytes]);
}

static void begin(struct api *bed)
{
    api_begin_with_pool(bed);
    publish();
}

static void end(struct api *bed)
{
    flw_stats_page_drop(&stats_page);
    fallow_publish_stop();
    api_end(bed);
}

/* Look, and compare the statistics with the pool's own. */
static void look_at(struct api *bed)
{
    look();
    expect_stats(stats_page.pools, bed->pool);
}

static void look_at_sums(struct api *bed)
{
    look_at(bed);
    expect_sums(stats_page.pools);
}

static const struct flw_stats_page_stream *find_stream(const struct flw_stats_page_pool *pool,
                                                       CUstream stream)
{
    for (uint32_t i = 0; i < pool->stream_count; i++) {
        if (pool->streams[i].kind == FLW_STATS_PAGE_STREAM &&
            pool->streams[i].handle == (uint64_t)(uintptr_t)stream) {
            return &pool->streams[i];
        }
    }
    fail_msg("the stream is not told of");
    return NULL;
}

static const struct flw_stats_page_class *find_class(const struct flw_stats_page_pool *pool,
                                                     uint64_t size_bytes)
{
    for (uint32_t i = 0; i < pool->class_count; i++) {
        if (pool->classes[i].size_bytes == size_bytes) {
            return &pool->classes[i];
        }
    }
    fail_msg("the class is not told of");
    return NULL;
}

TEST(a_pool_in_context_order_has_the_stages_of_its_own_ladder)
{
    struct api bed;
    api_begin(&bed, NULL);
    fallow_pool_config config = api_config(&bed);
    config.order = FALLOW_ORDER_CONTEXT;
    assert_ok(fallow_pool_create(&config, &bed.pool));
    publish();
    void *block = api_alloc(&bed, (size_t)3 << 20, NULL);
    look();
    const struct flw_stats_page_pool *pool = stats_page.pools;
    uint64_t last = pool->value[FLW_VALUE_last_climb_stage];
    assert_string_equal(flw_stats_page_stage(pool, last - 1), "grow");
    assert_string_equal(flw_stats_page_stage(pool, 2), "close");
    assert_int_equal(pool->stage_count[last - 1], 1);
    assert_null(flw_stats_page_stage(pool, FLW_STATS_PAGE_STAGES - 1));
    assert_null(flw_stats_page_stage(pool, UINT64_MAX));
    api_free(&bed, block, NULL);
    end(&bed);
}

TEST(a_quiet_pool_is_told_of_exactly)
{
    struct api bed;
    void *blocks[40];
    begin(&bed);
    look();
    assert_int_equal(stats_page.pool_total, 1);
    assert_int_equal(stats_page.pool_count, 1);
    expect_stats(stats_page.pools, bed.pool);
    assert_int_equal(stats_page.pools->class_count, 0);
    assert_int_equal(stats_page.pools->value[FLW_VALUE_last_climb_stage], 0);
    assert_string_equal(stats_page.pools->driver, "sim");
    for (unsigned i = 0; i < 40; i++) {
        CUstream stream = i % 2 == 0 ? bed.stream : bed.other;
        blocks[i] = api_alloc(&bed, i % 5 == 0 ? (size_t)3 << 20 : 5000, stream);
    }
    for (unsigned i = 0; i < 40; i += 4) {
        api_free(&bed, blocks[i], bed.stream);
    }
    look_at_sums(&bed);
    assert_true(stats_page.pools->value[FLW_VALUE_last_climb_stage] > 1);
    const struct flw_stats_page_stream *stream = find_stream(stats_page.pools, bed.other);
    assert_int_equal(stream->live_count, 20);
    assert_int_equal(stream->alloc_count, 20);
    assert_int_equal(stream->cache_count, 1);
    assert_int_equal(stream->requested_bytes, 16 * 5000 + 4 * (UINT64_C(3) << 20));
    const struct flw_stats_page_class *class = find_class(stats_page.pools, 5120);
    assert_int_equal(class->live_count, 24);
    assert_int_equal(class->requested_bytes, 24 * 5000);
    assert_true(find_class(stats_page.pools, 0)->live_bytes == 6 * (UINT64_C(3) << 20));
    for (unsigned i = 0; i < 40; i++) {
        if (i % 4 != 0) {
            api_free(&bed, blocks[i], i % 2 == 0 ? bed.stream : bed.other);
        }
    }
    look_at_sums(&bed);
    assert_ok(flw_test_trim(bed.pool, 0));
    look_at_sums(&bed);
    assert_int_equal(stats_page.pools->class_count, 0);
    end(&bed);
}

TEST(captures_uses_and_gone_streams_are_told_of)
{
    struct api bed;
    fallow_capture *capture = NULL;
    begin(&bed);
    void *kept = api_alloc(&bed, 70000, bed.other);
    void *used = api_alloc(&bed, 9000, bed.stream);
    assert_ok(fallow_record_use(bed.pool, used, bed.other));
    api_begin_capturing(&bed, bed.stream);
    assert_ok(fallow_capture_begin(bed.pool, bed.stream, &capture));
    void *captured = api_alloc(&bed, 30000, bed.stream);
    look_at(&bed);
    assert_int_equal(stats_page.pools->value[FLW_VALUE_capture_count], 1);
    assert_true(find_stream(stats_page.pools, bed.stream)->captured_bytes >= 30000);
    api_free(&bed, captured, bed.stream);
    api_drop_captured(&bed, bed.stream);
    assert_ok(fallow_capture_end(capture));
    assert_ok(fallow_capture_release(capture));
    api_free(&bed, used, bed.stream);
    assert_ok(fallow_stream_retire(bed.pool, bed.other));
    look_at(&bed);
    bool is_told = false;
    for (uint32_t i = 0; i < stats_page.pools->stream_count; i++) {
        const struct flw_stats_page_stream *row = &stats_page.pools->streams[i];
        is_told |= row->kind == FLW_STATS_PAGE_GONE && row->requested_bytes == 70000;
    }
    assert_true(is_told); /* the block is still allocated */
    const struct flw_stats_page_class *class = find_class(stats_page.pools, 9216);
    assert_int_equal(class->live_count, 0); /* freed, and waits for the announced use */
    assert_int_equal(class->deferred_bytes, 9216);
    api_free(&bed, kept, bed.stream);
    end(&bed);
}

TEST(a_pool_that_sleeps_is_told_of_as_that)
{
    struct api bed;
    fallow_sleep_request request;
    begin(&bed);
    void *block = api_alloc(&bed, 6 * MIB, bed.stream);
    fallow_sleep_request_init(&request);
    assert_ok(fallow_pool_sleep(bed.pool, &request));
    look_at(&bed);
    assert_int_equal(stats_page.pools->value[FLW_VALUE_is_asleep], 1);
    assert_true(stats_page.pools->value[FLW_VALUE_asleep_bytes] >= 6 * MIB);
    assert_ok(fallow_pool_wake(bed.pool));
    look_at_sums(&bed);
    api_free(&bed, block, bed.stream);
    end(&bed);
}

/* Two pools have arenas, and one has more than a stats page holds. */
TEST(arenas_are_told_of_by_name)
{
    enum {
        ARENAS = FLW_STATS_PAGE_ARENAS + 3
    };
    struct api bed;
    fallow_pool_config pool_config;
    fallow_pool *other;
    fallow_arena *arenas[ARENAS];
    fallow_layout *layout;
    fallow_lease *lease;
    const fallow_region regions[] = {{.name = "out", .size_bytes = MIB},
                                     {.name = "counter",
                                      .size_bytes = 64,
                                      .init = FALLOW_INIT_COUNTER,
                                      .flags = FALLOW_REGION_PERSISTENT}};
    api_begin_with_pool(&bed);
    fallow_pool_config_init(&pool_config);
    pool_config.driver = "sim";
    assert_ok(fallow_pool_create(&pool_config, &other));
    assert_ok(fallow_layout_create(regions, 2, &layout));
    for (unsigned i = 0; i < ARENAS; i++) {
        char name[16];
        fallow_arena_config config;
        fallow_arena_config_init(&config);
        snprintf(name, sizeof name, "lane %u", i);
        config.name = name;
        assert_ok(fallow_arena_create(i == 1 ? other : bed.pool, &config, &arenas[i]));
    }
    assert_ok(fallow_lease_begin(arenas[1], layout, bed.stream, &lease));
    assert_ok(fallow_arena_lock(arenas[0]));
    publish();
    look();
    for (uint32_t i = 0; i < 2; i++) {
        const struct flw_stats_page_pool *pool = &stats_page.pools[i];
        bool is_other = pool->arena_count == 1;
        const struct flw_stats_page_arena *arena = pool->arenas;
        assert_int_equal(pool->value[FLW_VALUE_arena_count], is_other ? 1 : ARENAS - 1);
        assert_int_equal(pool->arena_count, is_other ? 1 : FLW_STATS_PAGE_ARENAS);
        assert_string_equal(arena->name, is_other ? "lane 1" : "lane 0");
        assert_int_equal(arena->is_leased, is_other);
        assert_int_equal(arena->lease_count, is_other);
        assert_int_equal(arena->is_locked, !is_other);
        assert_int_equal(arena->scratch_bytes, is_other ? MIB : 0);
        assert_int_equal(arena->persistent_bytes, is_other ? 64 : 0);
        assert_int_equal(pool->value[FLW_VALUE_arena_bytes], is_other ? MIB + 64 : 0);
    }
    fallow_publish_stop();
    assert_ok(fallow_lease_end(lease, bed.stream));
    for (unsigned i = 0; i < ARENAS; i++) {
        fallow_arena_destroy(arenas[i]);
    }
    fallow_layout_destroy(layout);
    fallow_pool_destroy(other);
    api_end(&bed);
}

/* ---- beginning and end */

TEST(starts_are_counted_and_the_last_stop_removes_the_file)
{
    fallow_publish_stop(); /* one too many */
    assert_int_equal(state_of(getpid()), FLW_STATS_FILE_ABSENT);
    publish();
    publish();
    look(); /* no pool at all */
    assert_int_equal(stats_page.pool_total, 0);
    fallow_publish_stop();
    assert_int_equal(state_of(getpid()), FLW_STATS_FILE_OK);
    fallow_publish_stop();
    assert_int_equal(state_of(getpid()), FLW_STATS_FILE_ABSENT);
    publish(); /* and again */
    assert_int_equal(state_of(getpid()), FLW_STATS_FILE_OK);
    fallow_publish_stop();
}

TEST(what_cannot_be_published_is_told_in_one_line)
{
    struct rlimit before, small;
    fallow_publish_config config = config_of("/nonexistent/folder");
    line_count = 0;
    assert_int_equal(fallow_publish_start(&config), FALLOW_IO);
    assert_int_equal(line_count, 1);
    assert_non_null(strstr(last_line, "/nonexistent/folder"));
    config.directory = folder;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 8192; /* like a full file system, the limit refuses the file the bytes */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    fallow_status status = fallow_publish_start(&config);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, FALLOW_IO);
    assert_int_equal(line_count, 2);
    config.struct_size = 1;
    assert_int_equal(fallow_publish_start(&config), FALLOW_VERSION);
    struct api bed; /* the program continues */
    api_begin_with_pool(&bed);
    api_free(&bed, api_alloc(&bed, 5000, bed.stream), bed.stream);
    api_end(&bed);
    publish();
    fallow_publish_stop();
}

static int exit_status_of(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

/* ThreadSanitizer lets no child of a process with threads start one. */
static void skip_forks(void)
{
#if defined(FLW_TSAN)
    skip();
#endif
}

TEST(the_child_of_a_fork_publishes_when_it_asks)
{
    skip_forks();
    struct api bed;
    begin(&bed);
    pid_t child = fork();
    if (child == 0) {
        fallow_publish_config config = config_of(folder);
        int code = 0;
        code |= state_of(getpid()) != FLW_STATS_FILE_ABSENT ? 1 : 0;
        code |= state_of(getppid()) != FLW_STATS_FILE_OK ? 2 : 0;
        fallow_publish_stop(); /* the parent's page is not its own */
        code |= state_of(getppid()) != FLW_STATS_FILE_OK ? 4 : 0;
        code |= fallow_publish_start(&config) != FALLOW_OK ? 8 : 0;
        code |= state_of(getpid()) != FLW_STATS_FILE_OK ? 16 : 0;
        fallow_publish_stop();
        code |= state_of(getpid()) != FLW_STATS_FILE_ABSENT ? 32 : 0;
        _exit(code);
    }
    assert_int_equal(exit_status_of(child), 0);
    look_at(&bed);
    end(&bed);
}

/* Publish in a child that then ends in the way `how`; return the state of the stats file
 * afterwards. */
static enum flw_stats_file_state state_after(int how)
{
    pid_t child = fork();
    if (child == 0) {
        fallow_publish_config config = config_of(folder);
        if (fallow_publish_start(&config) != FALLOW_OK) {
            _exit(1);
        }
        if (how == SIGKILL) {
            raise(SIGKILL);
        }
        exit(0);
    }
    assert_int_equal(exit_status_of(child), how == SIGKILL ? 100 + SIGKILL : 0);
    return state_of(child);
}

TEST(exit_removes_the_file_and_a_kill_leaves_a_stale_one)
{
    skip_forks();
    assert_int_equal(state_after(0), FLW_STATS_FILE_ABSENT);
    assert_int_equal(state_after(SIGKILL), FLW_STATS_FILE_STALE);
    publish(); /* the next to publish sweeps; remove_folder finds nothing left */
    fallow_publish_stop();
}

/* ---- with others about */

struct traffic {
    struct api *bed;
    atomic_bool stops;
    _Atomic uint64_t failures;
};

static void *allocate(void *argument)
{
    struct traffic *traffic = argument;
    void *kept[32] = {NULL};
    for (uint64_t i = 0; !atomic_load(&traffic->stops); i++) {
        size_t at = (size_t)(i * 7 % 32);
        traffic->failures +=
            fallow_free(traffic->bed->pool, kept[at], traffic->bed->stream) != FALLOW_OK;
        traffic->failures += fallow_alloc(traffic->bed->pool, 300 << at % 14, traffic->bed->stream,
                                          &kept[at]) != FALLOW_OK;
    }
    for (size_t i = 0; i < 32; i++) {
        traffic->failures +=
            fallow_free(traffic->bed->pool, kept[i], traffic->bed->stream) != FALLOW_OK;
    }
    return NULL;
}

static void lease_of_a_new_arena(struct traffic *traffic, const fallow_layout *layout)
{
    fallow_arena *arena = NULL;
    fallow_lease *lease = NULL;
    traffic->failures +=
        fallow_arena_create(traffic->bed->pool, NULL, &arena) != FALLOW_OK ||
        fallow_lease_begin(arena, layout, traffic->bed->stream, &lease) != FALLOW_OK ||
        fallow_lease_end(lease, traffic->bed->stream) != FALLOW_OK;
    fallow_arena_destroy(arena);
}

static void *come_and_go(void *argument)
{
    struct traffic *traffic = argument;
    fallow_layout *layout = NULL;
    const fallow_region region = {.name = "out", .size_bytes = MIB};
    traffic->failures += fallow_layout_create(&region, 1, &layout) != FALLOW_OK;
    while (!atomic_load(&traffic->stops)) {
        lease_of_a_new_arena(traffic, layout);
        fallow_pool_config config;
        fallow_pool *pool = NULL;
        void *block = NULL;
        fallow_pool_config_init(&config);
        config.driver = "sim";
        traffic->failures += fallow_pool_create(&config, &pool) != FALLOW_OK ||
                             fallow_alloc(pool, 5000, NULL, &block) != FALLOW_OK ||
                             fallow_free(pool, block, NULL) != FALLOW_OK;
        fallow_pool_destroy(pool);
    }
    fallow_layout_destroy(layout);
    return NULL;
}

TEST(it_can_be_watched_while_pools_and_arenas_come_and_go)
{
    struct api bed;
    pthread_t threads[3];
    api_begin_with_pool(&bed);
    struct traffic traffic = {.bed = &bed};
    publish();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < 2 ? allocate : come_and_go, &traffic), 0);
    }
    for (int i = 0; i < 12; i++) {
        look();
        assert_true(stats_page.pool_total >= 1); /* including pools created meanwhile */
        assert_int_equal(stats_page.pool_total, stats_page.pool_count);
        const uint64_t *value = stats_page.pools->value;
        assert_true(value[FLW_VALUE_reserved_bytes] <= value[FLW_VALUE_limit_bytes]);
        if (i % 4 == 3) { /* the watcher is not always there */
            fallow_publish_stop();
            publish();
        }
    }
    atomic_store(&traffic.stops, true);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(traffic.failures, 0);
    look_at(&bed);
    end(&bed);
}

FLW_TEST_MAIN(make_folder, remove_folder)
