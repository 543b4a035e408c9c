/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings behind a policy's name: the end of a policy in a list, the values of each kind, and
 * the message for a wrong one. */
#include "support/test.h"

#include <string.h>

#include "policies/policy.h"

enum {
    WIDTH,
    DIVISIONS,
    KEEP,
    THRESHOLD
};

static const struct flw_policy_setting settings[] = {
    {.name = "width", .kind = FLW_SETTING_COUNT, .least = 2, .most = 9, .standard = 5},
    {.name = "divisions", .kind = FLW_SETTING_POWER, .least = 1, .most = 64, .standard = 1},
    {.name = "keep", .kind = FLW_SETTING_BYTES, .standard = 77},
    {.name = "threshold", .kind = FLW_SETTING_SHARE, .standard = FLW_SETTING_ONE},
};

static const struct flw_policy base = {
    .name = "base", .sim_label = "base (model)", .settings = settings, .setting_count = 4};

static struct flw_policy_choice choice;
static char message[FLW_POLICY_MESSAGE_BYTES];

static bool set(const char *text)
{
    return flw_policy_set(&base, text, strlen(text), &choice, message);
}

static void expect_refused(const char *text, const char *expected)
{
    assert_false(set(text));
    assert_string_equal(message, expected);
}

TEST(a_policy_without_settings_has_the_standard_values)
{
    assert_true(set(""));
    assert_string_equal(choice.policy.name, "base");
    assert_string_equal(choice.policy.sim_label, "base (model)");
    assert_int_equal(flw_policy_value(&choice.policy, WIDTH), 5);
    assert_int_equal(flw_policy_value(&choice.policy, KEEP), 77);
    assert_int_equal(flw_policy_value(&choice.policy, THRESHOLD), FLW_SETTING_ONE);
}

TEST(settings_are_read_by_kind_and_kept_in_the_name)
{
    assert_true(set("keep=3M,width=2,threshold=0.8"));
    assert_string_equal(choice.policy.name, "base:keep=3M,width=2,threshold=0.8");
    assert_string_equal(choice.policy.sim_label, "base:keep=3M,width=2,threshold=0.8 (model)");
    assert_int_equal(flw_policy_value(&choice.policy, WIDTH), 2);
    assert_int_equal(flw_policy_value(&choice.policy, DIVISIONS), 1);
    assert_int_equal(flw_policy_value(&choice.policy, KEEP), 3 << 20);
    assert_int_equal(flw_policy_value(&choice.policy, THRESHOLD), 800000);
    assert_true(set("keep=max,divisions=64,threshold=.000001"));
    assert_true(flw_policy_value(&choice.policy, KEEP) == UINT64_MAX);
    assert_int_equal(flw_policy_value(&choice.policy, DIVISIONS), 64);
    assert_int_equal(flw_policy_value(&choice.policy, THRESHOLD), 1);
    assert_true(set("keep=0"));
    assert_int_equal(flw_policy_value(&choice.policy, KEEP), 0);
}

TEST(a_wrong_setting_is_named_with_what_is_allowed)
{
    static const char *const shares[] = {"0", "1", "0.", "0.0", "1.5", "-0.5", "0.1234567", "0.8x"};
    char text[64];
    expect_refused("weight=3",
                   "policy base has no setting 'weight'; it has width, divisions, keep, threshold");
    expect_refused("width", "policy base: width= is not a whole number from 2 to 9");
    expect_refused("width=10", "policy base: width=10 is not a whole number from 2 to 9");
    expect_refused("width=1", "policy base: width=1 is not a whole number from 2 to 9");
    expect_refused("divisions=3", "policy base: divisions=3 is not a power of two from 1 to 64");
    expect_refused("keep=3x",
                   "policy base: keep=3x is not a number of bytes, such as 0 or 512M, or max");
    expect_refused("keep=1,keep=1", "policy base: keep is given twice");
    expect_refused("keep=1,", "policy base has no setting ''; it has width, divisions, keep, "
                              "threshold");
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        snprintf(text, sizeof text, "threshold=%s", shares[i]);
        assert_false(set(text));
        assert_non_null(strstr(message, "is not a share above 0 and below 1, such as 0.8"));
    }
}

TEST(a_value_of_any_length_leaves_one_line)
{
    char text[512] = "keep=";
    memset(text + 5, '9', sizeof text - 6);
    assert_false(set(text));
    assert_true(strlen(message) < sizeof message);
    memset(text, 'x', sizeof text - 1);
    assert_false(set(text));
    assert_true(strlen(message) < sizeof message);
}

TEST(a_list_is_cut_between_policies_and_not_between_settings)
{
    assert_int_equal(flw_policy_length("a"), 1);
    assert_int_equal(flw_policy_length("a,b"), 1);
    assert_int_equal(flw_policy_length("a:x=1,y=2,b"), strlen("a:x=1,y=2"));
    assert_int_equal(flw_policy_length("a:x=1,b:y=2"), strlen("a:x=1"));
    assert_int_equal(flw_policy_length("a,y=2"), 1);
    assert_int_equal(flw_policy_length("a:x=1,y=2"), strlen("a:x=1,y=2"));
    assert_int_equal(flw_policy_length(""), 0);
}

FLW_TEST_MAIN(NULL, NULL)
