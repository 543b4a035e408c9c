# SPDX-License-Identifier: Apache-2.0
# Shared by the property, stress and fault tests: the pools behind one face, the controls of the
# simulated device, a correct program in small.
find_package(Threads REQUIRED)
if(TARGET fallow_shared)
  add_library(flw_test_pool STATIC
    client.c client_capture.c oracle.c overlap.c pool_under_test.c)
  flw_target(flw_test_pool)
  target_include_directories(flw_test_pool PUBLIC ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(flw_test_pool PUBLIC fallow_shared test_support flw_base Threads::Threads ${CMAKE_DL_LIBS})
endif()
