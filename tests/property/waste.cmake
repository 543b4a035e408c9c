# SPDX-License-Identifier: Apache-2.0
add_executable(test_waste_bound test_waste_bound.c)
flw_target(test_waste_bound)
target_link_libraries(test_waste_bound PRIVATE flw_memory flw_base)
add_test(NAME property.waste_bound COMMAND test_waste_bound)
set_tests_properties(property.waste_bound PROPERTIES LABELS property TIMEOUT 120 SKIP_RETURN_CODE 77)
