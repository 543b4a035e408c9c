/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tests of the settings in FALLOW_PLUGIN. */
#include "support/test.h"

#include <unistd.h>

#include "plugin/default_pools.h"

static char driver[16];

static bool read_text(const char *text, fallow_pool_config *config)
{
    fallow_pool_config_init(config);
    return flw_plugin_read_settings(text, config, driver, sizeof driver);
}

TEST(every_key_is_a_field)
{
    fallow_pool_config config;
    assert_true(read_text("limit:20G,economy:memory_first,reuse:completed,decay_ms:500,"
                          "page_source:segments,one_handle:64M,checks:poison+quarantine,driver:sim",
                          &config));
    assert_true(config.limit_bytes == (size_t)20 << 30);
    assert_int_equal(config.economy, FALLOW_MEMORY_FIRST);
    assert_int_equal(config.reuse_policy, FALLOW_REUSE_COMPLETED);
    assert_int_equal(config.decay_ms, 500);
    assert_int_equal(config.page_source, FALLOW_PAGES_SEGMENTS);
    assert_int_equal(config.checks, FALLOW_CHECK_POISON | FALLOW_CHECK_QUARANTINE);
    assert_string_equal(config.driver, "sim");
    assert_true(config.one_handle_bytes == (size_t)64 << 20);
    assert_true(read_text("one_handle:none", &config));
    assert_true(config.one_handle_bytes == FALLOW_ONE_HANDLE_NONE);
    /* As in fallow.h, 0 means the default and has no other meaning. */
    assert_true(read_text("decay_ms:0,limit:7", &config));
    assert_int_equal(config.decay_ms, 0);
    assert_true(read_text("decay:30", &config)); /* the old name */
    assert_int_equal(config.decay_ms, 30);
    assert_true(read_text("decay_ms:never,limit:7", &config));
    assert_int_equal(config.decay_ms, UINT32_MAX);
    assert_int_equal(config.limit_bytes, 7);
    assert_true(read_text("economy:balanced", &config));
    assert_int_equal(config.economy, FALLOW_BALANCED);
    assert_true(read_text("economy:speed_first", &config));
    assert_int_equal(config.economy, FALLOW_SPEED_FIRST);
    assert_true(read_text("", &config));
    assert_int_equal(config.limit_bytes, 0);
}

TEST(what_it_cannot_read_leaves_defaults)
{
    const char *const wrong[] = {"limit:20G,colour:red",
                                 "limit",
                                 "limit:",
                                 "limit:0",
                                 "limit:-1",
                                 "limit:1P",
                                 "limit:1GG",
                                 "limit:18446744073709551615G",
                                 "limit:99999999999999999999",
                                 "economy:frugal",
                                 "reuse:never",
                                 "page_source:slabs",
                                 "one_handle:some",
                                 "decay_ms:x",
                                 "decay_ms:4294967295",
                                 "decay_ms:5K",
                                 "checks:",
                                 "checks:poison+luck",
                                 "driver:",
                                 "driver:/a/path/longer/than/there/is/room/for"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fallow_pool_config config;
        if (read_text(wrong[i], &config) || config.limit_bytes != 0 || config.checks != 0) {
            fail_msg("'%s' was used", wrong[i]);
        }
    }
}

FLW_TEST_MAIN(NULL, NULL)
