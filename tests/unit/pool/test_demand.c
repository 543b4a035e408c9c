/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: "the need of the last two seconds, a quarter of a second more at most" (fallow_pool_config.decay_ms), in
 * simulated time.
 */
#include "base/bits.h"
#include "base/random.h"
#include "pool/state/account.h"

#include "support/test.h"

#define MS         1000000ull
#define NOTE_COUNT 20000

static struct flw_pool pool;
static uint64_t at_ns[NOTE_COUNT], needed[NOTE_COUNT];

/* Return the maximum of those of the first `count` notes that are younger than `age_ns`. */
static uint64_t most_since(size_t count, uint64_t age_ns)
{
    uint64_t most = 0;
    for (size_t i = count; i-- > 0 && at_ns[count - 1] - at_ns[i] < age_ns;) {
        most = flw_max(most, needed[i]);
    }
    return most;
}

TEST(decay_keeps_the_need_of_two_seconds)
{
    static const uint64_t most_steps_ms[] = {3, 30, 300, 900};
    uint64_t random = 5, now = 77 * MS;
    for (size_t i = 0; i < NOTE_COUNT; i++) {
        uint64_t most_step = most_steps_ms[i / 500 % 4];
        now += flw_random_next(&random) % most_step * MS;
        at_ns[i] = now;
        needed[i] = flw_random_next(&random) % (i % 100 == 0 ? 1000000 : 1000);
        flw_pool_note_demand(&pool, (int64_t)needed[i], now);
        uint64_t kept = flw_pool_demand(&pool);
        assert_true(kept >= most_since(i + 1, 2000 * MS));
        assert_true(kept <= most_since(i + 1, 2250 * MS));
    }
}

FLW_TEST_MAIN(NULL, NULL)
