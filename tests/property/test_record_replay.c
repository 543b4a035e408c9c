/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: generated runs through a recorded pool: each recording equals the run, with the same calls
 * in the same order, the same blocks, the same peak, in few bytes; and `fallow replay` computes
 * the same for both. */
#include "unit/pool/test_api.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fallow/trace.h"
#include "support/recording.h"
#include "trace/io/codec.h"
#include "trace/trace/trace.h"

#define STREAMS_MOST 64
#define COMMAND_MOST 1024
#define BYTES_MOST   6.0 /* an event, before anything packs the file */

struct player {
    struct api api;
    CUstream streams[STREAMS_MOST];
    void **blocks; /* by number in the played trace */
};

static void make_file(char *path)
{
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

static void allocate(struct player *player, const struct flw_trace_block *block, uint32_t number,
                     uint32_t tag)
{
    fallow_request request;
    CUstream stream = player->streams[block->stream];
    if (tag == 0) {
        player->blocks[number] = api_alloc(&player->api, block->size_bytes, stream);
        return;
    }
    fallow_request_init(&request);
    request.size_bytes = block->size_bytes;
    request.tag = tag;
    assert_int_equal(
        fallow_alloc_request(player->api.pool, &request, stream, &player->blocks[number]),
        FALLOW_OK);
}

static void play(struct player *player, const struct flw_trace *trace)
{
    struct flw_trace_walk walk = {0};
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        uint32_t tag = flw_trace_walk_context(trace, &walk, trace->initial_count + i)->tag;
        CUstream stream = player->streams[event->stream];
        if (event->op == FLW_TRACE_ALLOC) {
            allocate(player, &trace->blocks[event->block], event->block, tag);
        } else if (event->op == FLW_TRACE_FREE) {
            assert_int_equal(fallow_free(player->api.pool, player->blocks[event->block], stream),
                             FALLOW_OK);
        } else if (event->op == FLW_TRACE_USE) {
            assert_int_equal(
                fallow_record_use(player->api.pool, player->blocks[event->block], stream),
                FALLOW_OK);
        }
    }
}

/* The next event of a kind that a recording has. */
static const struct flw_trace_event *next_call(const struct flw_trace *trace, size_t *at)
{
    for (; *at < trace->event_count; ++*at) {
        const struct flw_trace_event *event = &trace->events[*at];
        if ((event->op == FLW_TRACE_ALLOC || event->op == FLW_TRACE_FREE ||
             event->op == FLW_TRACE_USE) &&
            event->size_bytes != 0) {
            ++*at;
            return event;
        }
    }
    return NULL;
}

/* Streams are numbered by first use, initial blocks by address. */
static void expect_same_calls(const struct flw_trace *played, const struct flw_trace *recorded)
{
    size_t at = 0, recorded_at = 0, count = 0;
    uint32_t streams[STREAMS_MOST];
    memset(streams, 0xFF, sizeof streams);
    for (const struct flw_trace_event *event; (event = next_call(played, &at)) != NULL; count++) {
        const struct flw_trace_event *other = next_call(recorded, &recorded_at);
        assert_non_null(other);
        assert_int_equal(other->op, event->op);
        assert_int_equal(other->size_bytes, event->size_bytes);
        if (streams[event->stream] == UINT32_MAX) {
            streams[event->stream] = other->stream;
        }
        assert_int_equal(other->stream, streams[event->stream]);
        if (event->block >= played->initial_count) {
            assert_int_equal(other->block, event->block);
        }
    }
    assert_null(next_call(recorded, &recorded_at));
    assert_true(count > 1000);
}

/* Return "peak_requested_bytes" of a policy from the command's output. */
static uint64_t replayed_peak(const char *path)
{
    static const char key[] = "\"name\": \"fallow\", \"peak_requested_bytes\": ";
    char command[COMMAND_MOST], *line = NULL;
    size_t room = 0;
    uint64_t peak = 0;
    const char *program = getenv("FALLOW_COMMAND");
    assert_non_null(program);
    snprintf(command, sizeof command, "%s replay %s --policy fallow --json -", program, path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    while (getline(&line, &room, pipe) > 0) {
        const char *found = strstr(line, key);
        if (found != NULL) {
            peak = strtoull(found + sizeof key - 1, NULL, 10);
        }
    }
    free(line);
    assert_int_equal(pclose(pipe), 0);
    assert_true(peak > 0);
    return peak;
}

/* ---- sizes */

static void *read_bytes(const char *path, size_t *out_count)
{
    struct stat info;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &info), 0);
    *out_count = (size_t)info.st_size;
    void *bytes = malloc(*out_count);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *out_count, file), *out_count);
    assert_int_equal(fclose(file), 0);
    return bytes;
}

/* Bytes after zstd -3; 0: this build has none. */
static size_t packed_count(const void *bytes, size_t count)
{
    const char *problem;
    FILE *to = tmpfile();
    assert_non_null(to);
    FILE *packer = flw_packer_open(to, FLW_CODEC_ZSTD, &problem);
    size_t packed = 0;
    if (packer != NULL) {
        assert_int_equal(fwrite(bytes, 1, count, packer), count);
        assert_int_equal(fclose(packer), 0);
        packed = (size_t)ftell(to);
    }
    assert_int_equal(fclose(to), 0);
    return packed;
}

static void tell_sizes(const char *name, const char *path, const struct flw_trace *trace,
                       double bytes_most)
{
    size_t count;
    void *bytes = read_bytes(path, &count);
    double each = (double)count / (double)trace->event_count;
    double packed = (double)packed_count(bytes, count) / (double)trace->event_count;
    free(bytes);
    print_message("%s: %zu events, %.2f B an event, %.2f after zstd -3\n", name, trace->event_count,
                  each, packed);
    assert_true(each <= bytes_most);
}

/* ---- one run */

static void begin_player(struct player *player, const struct flw_trace *played)
{
    flw_sim_config world = flw_sim_config_default(5);
    api_begin(&player->api, &world);
    fallow_pool_config config = api_config(&player->api);
    assert_int_equal(fallow_pool_create(&config, &player->api.pool), FALLOW_OK);
    assert_true(played->stream_count <= STREAMS_MOST);
    for (size_t i = 0; i < played->stream_count; i++) {
        assert_int_equal(
            player->api.sim.cu.cuStreamCreate(&player->streams[i], CU_STREAM_NON_BLOCKING), 0);
    }
    player->blocks = calloc(played->block_count, sizeof *player->blocks);
    assert_non_null(player->blocks);
    for (uint32_t i = 0; i < played->initial_count; i++) {
        allocate(player, &played->blocks[i], i, 0);
    }
}

static void end_player(struct player *player, const struct flw_trace *played)
{
    for (size_t i = 0; i < played->block_count; i++) {
        if (!played->blocks[i].freed) {
            assert_int_equal(fallow_free(player->api.pool, player->blocks[i], player->api.stream),
                             0);
        }
    }
    free(player->blocks);
    api_end(&player->api);
}

static void play_and_compare(const char *name, const char *played_path, double bytes_most)
{
    struct player player = {.blocks = NULL};
    char path[] = "/tmp/fallow-record-replay-XXXXXX";
    make_file(path);
    struct flw_trace *played = flw_recording_read_file(played_path);
    begin_player(&player, played);
    fallow_recorder *recorder = NULL;
    fallow_record_config file;
    fallow_record_config_init(&file);
    file.path = path;
    file.flags = FALLOW_RECORD_BLOCK_WHEN_FULL;
    assert_int_equal(fallow_record_start(player.api.pool, &file, &recorder), FALLOW_OK);
    play(&player, played);
    assert_int_equal(fallow_record_stop(recorder), FALLOW_OK);

    struct flw_trace *recorded = flw_recording_read_file(path);
    assert_null(recorded->truncation);
    assert_int_equal(recorded->unknown_free_count + recorded->lost_free_count, 0);
    assert_int_equal(recorded->initial_count, played->initial_count);
    assert_int_equal(recorded->block_count, played->block_count);
    assert_true(recorded->peak_requested_bytes == played->peak_requested_bytes);
    assert_true(recorded->peak_requested_bytes == api_stats(&player.api).peak_requested_bytes);
    expect_same_calls(played, recorded);
    assert_true(replayed_peak(path) == replayed_peak(played_path));
    tell_sizes(name, path, recorded, bytes_most);
    end_player(&player, played);
    flw_trace_destroy(recorded);
    flw_trace_destroy(played);
    assert_int_equal(unlink(path), 0);
}

static void a_recorded_run_replays_to_the_same_peaks_and_blocks(void **state)
{
    const char *demo = getenv("FALLOW_DEMO");
    if (demo == NULL) {
        skip();
    }
    play_and_compare("demo", demo, BYTES_MOST);
}

/* Random sizes and lifetimes need more bytes: a size alone takes four. */
static void so_does_a_generated_run_of_each_kind(void **state)
{
    static const struct {
        const char *arguments;
        double bytes_most;
    } kinds[] = {{"serve --steps 40", BYTES_MOST},
                 {"train --layers 8 --steps 4", BYTES_MOST},
                 {"train --layers 8 --zero3 8 --vary conversation", BYTES_MOST},
                 {"random multi-stream --count 5000", 2 * BYTES_MOST}};
    char command[COMMAND_MOST];
    char path[] = "/tmp/fallow-record-gen-XXXXXX";
    const char *program = getenv("FALLOW_COMMAND");
    assert_non_null(program);
    make_file(path);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        snprintf(command, sizeof command, "%s gen %s >%s", program, kinds[i].arguments, path);
        assert_int_equal(system(command), 0);
        play_and_compare(kinds[i].arguments, path, kinds[i].bytes_most);
    }
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recorded_run_replays_to_the_same_peaks_and_blocks),
        cmocka_unit_test(so_does_a_generated_run_of_each_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
