# SPDX-License-Identifier: Apache-2.0
# test_support: the way to the simulated driver and a capture beside the test, free of any test framework. A program
# that links it must be in bin/ beside lib/, where the simulated driver is searched.
find_package(Threads REQUIRED)
add_library(test_support STATIC beside.c sim.c)
flw_target(test_support)
target_include_directories(test_support PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(test_support PUBLIC flw_driver Threads::Threads ${CMAKE_DL_LIBS})
add_dependencies(test_support fallow-simcuda)
