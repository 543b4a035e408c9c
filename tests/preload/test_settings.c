/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of how FALLOW is read.
 */
#include "support/test.h"

#include <string.h>

#include "preload/settings.h"

static struct flw_settings settings;
static char message[FLW_SETTINGS_MESSAGE_BYTES];

static bool parse(const char *text)
{
    memset(&settings, 0xee, sizeof settings);
    return flw_settings_parse(&settings, text, "train.py", message);
}

TEST(nothing_means_the_cache)
{
    static const char *const nothing[] = {NULL, "", ",", ",,"};
    for (unsigned i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        assert_true(parse(nothing[i]));
        assert_int_equal(settings.mode, FLW_MODE_CACHE);
        assert_int_equal(settings.poison, -1);
        assert_int_equal(settings.limit_bytes, 0);
        assert_int_equal(settings.reserve_bytes, 512u << 20);
        assert_int_equal(settings.one_handle_bytes, 1u << 20);
        assert_false(settings.is_ipc || settings.is_top);
        assert_string_equal(settings.trace_file, "");
        assert_string_equal(message, "");
    }
}

TEST(every_key_is_read)
{
    assert_true(parse("mode:strict,trace:/tmp/a b.ftrace,stats:-,poison:0xa5,limit:8G,reserve:0,"
                      "one_handle:65536,ipc:1,top:1,trial:053ace00d030,only:train.py"));
    assert_int_equal(settings.mode, FLW_MODE_STRICT);
    assert_string_equal(settings.trace_file, "/tmp/a b.ftrace");
    assert_string_equal(settings.stats_file, "-");
    assert_int_equal(settings.trial_id, 0x053ace00d030);
    assert_int_equal(settings.trial_byte, 0xff);
    assert_int_equal(settings.poison, 0xa5);
    assert_int_equal(settings.limit_bytes, 8ull << 30);
    assert_int_equal(settings.reserve_bytes, 0);
    assert_int_equal(settings.one_handle_bytes, 65536);
    assert_true(settings.is_ipc && settings.is_top);
    assert_true(parse("large:4096")); /* the old name */
    assert_int_equal(settings.one_handle_bytes, 4096);
}

TEST(a_trial_may_name_its_byte)
{
    assert_true(parse("trial:053ace00d030=0x5a"));
    assert_int_equal(settings.trial_id, 0x053ace00d030);
    assert_int_equal(settings.trial_byte, 0x5a);
    assert_int_equal(settings.poison, -1);
    assert_true(parse(""));
    assert_int_equal(settings.trial_id, 0);
}

TEST(a_trace_alone_means_the_trace_mode)
{
    assert_true(parse("trace:x"));
    assert_int_equal(settings.mode, FLW_MODE_TRACE);
    assert_true(parse("trace:x,mode:cache"));
    assert_int_equal(settings.mode, FLW_MODE_CACHE);
    assert_true(parse("mode:cache,trace:x"));
    assert_int_equal(settings.mode, FLW_MODE_CACHE);
}

TEST(a_backslash_takes_the_next_character)
{
    assert_true(parse("stats:/a\\,b\\\\c:d,top:1"));
    assert_string_equal(settings.stats_file, "/a,b\\c:d");
    assert_true(settings.is_top);
}

TEST(programs_are_chosen_by_name)
{
    assert_true(parse("only:serve.py,only:train.py"));
    assert_int_equal(settings.mode, FLW_MODE_CACHE);
    assert_true(parse("only:serve.py"));
    assert_int_equal(settings.mode, FLW_MODE_OFF);
    assert_true(parse("skip:train.py,mode:trace"));
    assert_int_equal(settings.mode, FLW_MODE_OFF);
    assert_true(parse("skip:train"));
    assert_int_equal(settings.mode, FLW_MODE_CACHE);
}

TEST(wrong_text_switches_off_and_says_why)
{
    static const struct {
        const char *text, *expected;
    } wrong[] = {
        {"colour:blue", "no key 'colour'"},
        {"mode", "'mode:'"},
        {"mode:", "give off, trace"},
        {"MODE:off", "no key 'MODE'"},
        {"poison:256", "give a byte"},
        {"poison:-1", "give a byte"},
        {"page_source:segments", "no key 'page_source'"},
        {"poison:", "give a byte"},
        {"limit:", "give bytes"},
        {"limit:8X", "give bytes"},
        {"limit:8GB", "give bytes"},
        {"limit:-8", "give bytes"},
        {"limit:99999999999999999999", "give bytes"},
        {"limit:99999999T", "give bytes"},
        {"top:yes", "give 0 or 1"},
        {"trace:", "give a name"},
        {"trial:", "give a site"},
        {"trial:000000000000", "give a site"},
        {"trial:53ace00d030", "give a site"},
        {"trial:libx.so+0x12", "give a site"},
        {"trial:053ace00d030=", "give a site"},
        {"trial:053ace00d030=256", "perhaps =BYTE"},
        {"trialbyte:0x5a", "no key 'trialbyte'"},
        {"top:1,bad:1,mode:cache", "no key 'bad'"},
        {"say:1", "no key 'say'"},
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (parse(wrong[i].text) || strstr(message, wrong[i].expected) == NULL ||
            strchr(message, '\n') != NULL) {
            fail_msg("'%s' gave '%s'", wrong[i].text, message);
        }
        assert_int_equal(settings.mode, FLW_MODE_OFF);
        assert_false(settings.is_top);
    }
}

TEST(text_without_end_is_refused)
{
    static char text[100000];
    memset(text, 'x', sizeof text - 1);
    assert_false(parse(text));
    memcpy(text, "trace:", 6);
    assert_false(parse(text));
    assert_int_equal(settings.mode, FLW_MODE_OFF);
    assert_true(strlen(message) < sizeof message);
}

FLW_TEST_MAIN(NULL, NULL)
