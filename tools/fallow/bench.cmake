# SPDX-License-Identifier: Apache-2.0
# `fallow bench`, and beside it an empty library that is called the same way.
add_library(fallow_null SHARED bench_null.c)
flw_target(fallow_null)
set_target_properties(fallow_null PROPERTIES OUTPUT_NAME fallow-null)
add_library(flw_bench STATIC
  bench.c bench_bed.c bench_deferred.c bench_handoff.c bench_lease.c bench_loops.c bench_pinned.c
  bench_policy.c bench_report.c bench_shapes.c bench_steps.c bench_threads.c)
flw_target(flw_bench)
target_include_directories(flw_bench PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(flw_bench PUBLIC
  flw_doctor flw_naive flw_driver flw_base fallow_null Threads::Threads ${CMAKE_DL_LIBS} m)
if(TARGET fallow_shared)
  target_compile_definitions(flw_bench PRIVATE FLW_HAS_LIBRARY)
  target_link_libraries(flw_bench PUBLIC fallow_shared)
endif()
if(TARGET fallow-host)
  target_compile_definitions(flw_bench PRIVATE FLW_HAS_PINNED)
  target_link_libraries(flw_bench PUBLIC fallow-host)
endif()
if(TARGET fallow-kernels)
  target_sources(flw_bench PRIVATE bench_kernels.c bench_kernels_attention.c bench_kernels_bed.c
    bench_kernels_debug.c bench_kernels_mla.c bench_kernels_moe.c bench_kernels_pages.c bench_kernels_time.c)
  target_compile_definitions(flw_bench PRIVATE FLW_HAS_KERNELS)
  target_compile_definitions(fallow PRIVATE FLW_HAS_KERNELS)
  target_link_libraries(flw_bench PUBLIC fallow-kernels)
endif()
target_compile_definitions(fallow PRIVATE FLW_HAS_BENCH)
target_link_libraries(fallow PRIVATE flw_bench)
