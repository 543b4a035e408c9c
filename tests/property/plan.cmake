# SPDX-License-Identifier: Apache-2.0
# test_plan_minimalloc FOLDER 10 prints also the result of ten seconds per problem.
add_executable(test_plan_minimalloc test_plan_minimalloc.c)
flw_target(test_plan_minimalloc)
target_link_libraries(test_plan_minimalloc PRIVATE flw_core)
add_test(NAME property.plan_minimalloc COMMAND test_plan_minimalloc ${FALLOW_TRACE_DIR})
set_tests_properties(property.plan_minimalloc PROPERTIES LABELS property TIMEOUT 240 SKIP_RETURN_CODE 77)
