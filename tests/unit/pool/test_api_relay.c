/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the number of events for memory that passes from one stream to the next, once the pool is
 * warm. The streams take turns: each allocates block by block, uses all of them and frees them;
 * together they need more memory than they share, so most of it changes streams.
 *
 * This test itself counts the memory that changes streams, by the last owner of each 64 KiB. The
 * goal is a record and a query for each 16 MiB; a turn's number is rounded up, because no event
 * covers frees of two streams. Announced uses have fences of their own, for 16 MiB or 256 blocks,
 * and for the rest on a search. */
#include "unit/pool/test_api.h"

#include "base/bits.h"

#define GIB          ((size_t)1 << 30)
#define KIB          ((size_t)1 << 10)
#define GRAIN        (64 * KIB) /* every size is a multiple */
#define PLACES       (1u << 16)
#define STREAMS_MOST 64
#define BLOCKS_MOST  8192
#define EVENT_BYTES  (16 * MIB)
#define USES_MOST    256
#define WARM_LAPS    2
#define LAPS         4 /* that are counted, each for itself */
#define LONG_NS      1000000000ull

static struct api api;

/* The last owner of a grain: open addressing by the grain's number, which is never 0. */
static struct {
    uint64_t grain;
    unsigned stream;
} places[PLACES];

struct relay {
    size_t block_bytes, turn_bytes;
    unsigned stream_count;
    bool is_unfinished; /* a turn's work, when the next one begins */
    bool is_announced;  /* the next stream announces uses of a turn's blocks */
    /* the current value if it misses the goal, in hundredths; 0: the goal */
    unsigned records, queries;
    bool asks_for_each; /* ... or a query for each block */
};

struct cost {
    uint64_t records, queries, stops;
};

static CUstream streams[STREAMS_MOST];
static void *blocks[BLOCKS_MOST];

/* Return the bytes of a block last owned by another stream. */
static uint64_t take_over(const void *ptr, size_t size_bytes, unsigned stream)
{
    uint64_t changed_bytes = 0, first = (uint64_t)(uintptr_t)ptr / GRAIN;
    for (uint64_t grain = first; grain < first + size_bytes / GRAIN; grain++) {
        size_t place = grain * 0x9e3779b97f4a7c15u >> 48, looks = 0;
        while (places[place].grain != grain && places[place].grain != 0) {
            place = (place + 1) % PLACES;
            assert_true(++looks < PLACES);
        }
        if (places[place].grain == grain && places[place].stream != stream) {
            changed_bytes += GRAIN;
        }
        places[place].grain = grain;
        places[place].stream = stream;
    }
    return changed_bytes;
}

static struct cost count_so_far(void)
{
    return (struct cost){.records = api.sim.call_count("cuEventRecord"),
                         .queries = api.sim.call_count("cuEventQuery"),
                         .stops = flw_sim_read_ledger(&api.sim).host_wait_count};
}

static void free_all(const struct relay *relay, unsigned stream, size_t count)
{
    CUstream next = streams[(stream + 1) % relay->stream_count];
    for (size_t i = 0; i < count; i++) {
        if (relay->is_announced) {
            assert_int_equal(fallow_record_use(api.pool, blocks[i], next), FALLOW_OK);
        }
        assert_int_equal(fallow_free(api.pool, blocks[i], streams[stream]), FALLOW_OK);
    }
}

/* The events that the goal allows. */
static uint64_t take_turn(const struct relay *relay, unsigned stream)
{
    size_t count = relay->turn_bytes / relay->block_bytes;
    uint64_t changed_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        blocks[i] = api_alloc(&api, relay->block_bytes, streams[stream]);
        api_use(&api, blocks[i], relay->block_bytes, streams[stream]);
        changed_bytes += take_over(blocks[i], relay->block_bytes, stream);
    }
    free_all(relay, stream, count);
    if (!relay->is_unfinished) {
        api.sim.advance(2 * LONG_NS);
    }
    uint64_t use_events =
        flw_max(flw_div_up(relay->turn_bytes, EVENT_BYTES), flw_div_up(count, USES_MOST)) + 1;
    return flw_div_up(changed_bytes, EVENT_BYTES) + (relay->is_announced ? use_events : 0);
}

/* A turn of each stream. */
static uint64_t run_lap(const struct relay *relay)
{
    uint64_t event_count = 0;
    for (unsigned i = 0; i < relay->stream_count; i++) {
        event_count += take_turn(relay, i);
    }
    return event_count;
}

static void begin(const struct relay *relay)
{
    flw_sim_config world = flw_sim_config_default(11);
    world.schedule = FLW_SIM_CLOCK;
    world.device_bytes = 64 * GIB;
    world.lag_ns = LONG_NS;
    world.queue_depth = 1000000;
    api_begin(&api, &world);
    memset(places, 0, sizeof places);
    for (unsigned i = 0; i < relay->stream_count; i++) {
        assert_int_equal(api.sim.cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), 0);
    }
    api.pool = api_create(&api);
}

static void expect_at_most(const struct relay *relay, const char *what, uint64_t count,
                           uint64_t most)
{
    if (count > most) {
        fail_msg("%zu KiB, %zu MiB a turn of %u streams%s%s: %llu %s in a lap, at most %llu",
                 relay->block_bytes / KIB, relay->turn_bytes / MIB, relay->stream_count,
                 relay->is_unfinished ? ", unfinished" : "",
                 relay->is_announced ? ", announced" : "", (unsigned long long)count, what,
                 (unsigned long long)most);
    }
}

static uint64_t scale(uint64_t goal, unsigned hundredths)
{
    return hundredths == 0 ? goal : goal * hundredths / 100;
}

static void expect_few_events(const struct relay *relay)
{
    begin(relay);
    for (unsigned i = 0; i < WARM_LAPS; i++) {
        (void)run_lap(relay);
    }
    for (unsigned i = 0; i < LAPS; i++) {
        struct cost before = count_so_far();
        uint64_t goal = run_lap(relay);
        struct cost after = count_so_far();
        uint64_t blocks_a_lap = relay->turn_bytes / relay->block_bytes * relay->stream_count;
        assert_true(goal > relay->stream_count); /* else nothing changed streams */
        expect_at_most(relay, "records", after.records - before.records,
                       scale(goal, relay->records));
        expect_at_most(relay, "queries", after.queries - before.queries,
                       relay->asks_for_each ? blocks_a_lap : scale(goal, relay->queries));
        expect_at_most(relay, "host waits", after.stops - before.stops, 0);
    }
    for (unsigned i = 0; i < relay->stream_count; i++) {
        assert_int_equal(fallow_stream_retire(api.pool, streams[i]), FALLOW_OK);
    }
    api_end(&api);
}

static void expect_few_events_each(const struct relay *relays, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        expect_few_events(&relays[i]);
    }
}

#define EXPECT_FEW_EVENTS_EACH(relays) \
    expect_few_events_each(relays, sizeof(relays) / sizeof *(relays))

static void finished_memory_takes_an_event_for_16_mib(void **state)
{
    static const struct relay relays[] = {
        {64 * KIB, 320 * MIB, 4, .is_announced = false},
        {64 * KIB, 32 * MIB, 32, .is_announced = false},
        {MIB, 320 * MIB, 4, .is_announced = false},
        {MIB, 32 * MIB, 32, .is_announced = false},
        {3 * MIB, 318 * MIB, 4, .is_announced = false},
        {3 * MIB, 30 * MIB, 32, .is_announced = false},
        {16 * MIB, 320 * MIB, 4, .is_announced = false},
        {16 * MIB, 32 * MIB, 32, .is_announced = false},
        {64 * MIB, 320 * MIB, 4, .is_announced = false},
        {64 * MIB, 64 * MIB, 32, .is_announced = false},
    };
    EXPECT_FEW_EVENTS_EACH(relays);
}

/* Up to 1 MiB an unsuccessful search queries once, and serves a few blocks; there are more
 * searches than events. If each stream holds little, those of 64 KiB get one more fence as the
 * caches are drained. */
static void unfinished_memory_takes_an_event_for_16_mib(void **state)
{
    static const struct relay relays[] = {
        {64 * KIB, 320 * MIB, 4, .is_unfinished = true, .queries = 480},
        {64 * KIB, 32 * MIB, 32, .is_unfinished = true, .records = 175, .queries = 340},
        {MIB, 320 * MIB, 4, .is_unfinished = true, .queries = 260},
        {MIB, 32 * MIB, 32, .is_unfinished = true, .queries = 490},
        {3 * MIB, 318 * MIB, 4, .is_unfinished = true},
        {3 * MIB, 30 * MIB, 32, .is_unfinished = true},
        {16 * MIB, 320 * MIB, 4, .is_unfinished = true},
        {16 * MIB, 32 * MIB, 32, .is_unfinished = true},
        {64 * MIB, 320 * MIB, 4, .is_unfinished = true},
        {64 * MIB, 64 * MIB, 32, .is_unfinished = true},
    };
    EXPECT_FEW_EVENTS_EACH(relays);
}

static void finished_uses_take_no_more_than_their_own(void **state)
{
    static const struct relay relays[] = {
        {64 * KIB, 320 * MIB, 4, .is_announced = true},
        {64 * KIB, 32 * MIB, 32, .is_announced = true},
        {MIB, 320 * MIB, 4, .is_announced = true},
        {MIB, 32 * MIB, 32, .is_announced = true},
        {3 * MIB, 318 * MIB, 4, .is_announced = true},
        {3 * MIB, 30 * MIB, 32, .is_announced = true},
        {16 * MIB, 320 * MIB, 4, .is_announced = true},
        {64 * MIB, 64 * MIB, 32, .is_announced = true},
    };
    EXPECT_FEW_EVENTS_EACH(relays);
}

/* A block in use is stolen behind waits, in a search of its own with one query before. */
static void unfinished_uses_take_no_more_than_a_query_for_each_block(void **state)
{
    static const struct relay relays[] = {
        {64 * KIB, 320 * MIB, 4, .is_unfinished = true, .is_announced = true,
         .asks_for_each = true},
        {64 * KIB, 32 * MIB, 32, .is_unfinished = true, .is_announced = true,
         .asks_for_each = true},
        {MIB, 320 * MIB, 4, .is_unfinished = true, .is_announced = true, .asks_for_each = true},
        {3 * MIB, 30 * MIB, 32, .is_unfinished = true, .is_announced = true, .asks_for_each = true},
        {16 * MIB, 320 * MIB, 4, .is_unfinished = true, .is_announced = true},
        {64 * MIB, 64 * MIB, 32, .is_unfinished = true, .is_announced = true},
    };
    EXPECT_FEW_EVENTS_EACH(relays);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finished_memory_takes_an_event_for_16_mib),
        cmocka_unit_test(unfinished_memory_takes_an_event_for_16_mib),
        cmocka_unit_test(finished_uses_take_no_more_than_their_own),
        cmocka_unit_test(unfinished_uses_take_no_more_than_a_query_for_each_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
