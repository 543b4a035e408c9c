# SPDX-License-Identifier: Apache-2.0
# Checks of the source itself: scripts that need no build, and the model of the asymmetric lock.
add_test(NAME check.cuda_abi COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda_abi.sh
  ${PROJECT_SOURCE_DIR} ${CMAKE_C_COMPILER} "${FALLOW_CUDA_INCLUDE}" ${CMAKE_CURRENT_BINARY_DIR}/cuda_abi)
set_tests_properties(check.cuda_abi PROPERTIES LABELS check TIMEOUT 240 SKIP_RETURN_CODE 77)
add_test(NAME check.answers COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/answers.sh ${PROJECT_SOURCE_DIR}
  "${FALLOW_CUDA_INCLUDE}")
set_tests_properties(check.answers PROPERTIES LABELS check SKIP_RETURN_CODE 77)
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND AND TARGET simcuda-libcuda)
  add_test(NAME check.driver_names COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/driver_names.py
    ${PROJECT_SOURCE_DIR} "${FALLOW_CUDA_INCLUDE}" $<TARGET_FILE:simcuda-libcuda>)
  set_tests_properties(check.driver_names PROPERTIES LABELS check SKIP_RETURN_CODE 77)
endif()
find_program(FALLOW_PYTHON python3)
if(FALLOW_PYTHON)
  add_test(NAME check.layers COMMAND ${FALLOW_PYTHON} -B ${CMAKE_CURRENT_SOURCE_DIR}/layers.py ${PROJECT_SOURCE_DIR})
  foreach(layer heap pool trace)
    add_test(NAME check.circles_${layer} COMMAND ${FALLOW_PYTHON} -B ${CMAKE_CURRENT_SOURCE_DIR}/circles.py ${layer}
      ${CMAKE_NM} $<TARGET_OBJECTS:flw_${layer}> COMMAND_EXPAND_LISTS)
    set_tests_properties(check.circles_${layer} PROPERTIES LABELS check TIMEOUT 240)
  endforeach()
  if(TARGET fallow) # all folders of the command together
    add_test(NAME check.circles_fallow COMMAND ${FALLOW_PYTHON} -B ${CMAKE_CURRENT_SOURCE_DIR}/circles.py fallow
      ${CMAKE_NM} $<TARGET_OBJECTS:fallow> $<TARGET_OBJECTS:flw_tool> $<TARGET_OBJECTS:flw_report>
      $<TARGET_OBJECTS:flw_page> $<TARGET_OBJECTS:flw_findings> $<TARGET_OBJECTS:flw_top> $<TARGET_OBJECTS:flw_doctor>
      COMMAND_EXPAND_LISTS)
    set_tests_properties(check.circles_fallow PROPERTIES LABELS check TIMEOUT 240)
  endif()
  set_tests_properties(check.layers PROPERTIES LABELS check TIMEOUT 240)
endif()
if(FALLOW_PYTHON AND TARGET fallow)
  add_test(NAME check.convert COMMAND ${FALLOW_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/convert.py ${PROJECT_SOURCE_DIR}
    $<TARGET_FILE:fallow> ${FALLOW_TRACE_DIR})
  set_tests_properties(check.convert PROPERTIES LABELS check TIMEOUT 240)
endif()
if(NOT FALLOW_SANITIZE)
  add_test(NAME check.features COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/features.sh ${PROJECT_SOURCE_DIR}
    ${CMAKE_CURRENT_BINARY_DIR}/features_tree ${CMAKE_C_COMPILER} $<TARGET_OBJECTS:flw_base> $<TARGET_OBJECTS:flw_driver>
    $<TARGET_OBJECTS:flw_section> $<TARGET_OBJECTS:flw_memory> $<TARGET_OBJECTS:flw_heap> $<TARGET_OBJECTS:flw_record>
    $<TARGET_OBJECTS:flw_pool> COMMAND_EXPAND_LISTS)
  set_tests_properties(check.features PROPERTIES LABELS check TIMEOUT 240)
endif()
add_test(NAME check.project COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/project.sh ${PROJECT_SOURCE_DIR} ${PROJECT_VERSION})
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND)
  add_test(NAME check.subjects COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/subjects.py ${PROJECT_SOURCE_DIR})
  add_test(NAME check.settings COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/settings.py ${PROJECT_SOURCE_DIR})
  add_test(NAME check.prose COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/prose.py ${PROJECT_SOURCE_DIR})
  set_tests_properties(check.subjects check.settings check.prose PROPERTIES LABELS check TIMEOUT 240)
endif()
set(libraries)
foreach(target fallow_shared fallow-host fallow-kernels fallow-simcuda fallow-preload)
  if(TARGET ${target} AND NOT FALLOW_SANITIZE) # a sanitizer's runtime reads the environment
    list(APPEND libraries $<TARGET_FILE:${target}>)
  endif()
endforeach()
if(libraries)
  add_test(NAME check.environment COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/environment.sh
    ${CMAKE_C_COMPILER} ${CMAKE_CURRENT_BINARY_DIR}/environment ${libraries})
  set_tests_properties(check.environment PROPERTIES LABELS check TIMEOUT 240)
endif()
add_test(NAME check.format COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/format.sh ${PROJECT_SOURCE_DIR})
set_tests_properties(check.project check.format PROPERTIES LABELS check TIMEOUT 240 SKIP_RETURN_CODE 77)
# Another build of everything, with all that is optional hidden.
add_test(NAME check.bare_build COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/bare_build.sh ${PROJECT_SOURCE_DIR}
  ${CMAKE_C_COMPILER} ${CMAKE_CURRENT_BINARY_DIR}/bare_build)
set_tests_properties(check.bare_build PROPERTIES LABELS "check;slow" TIMEOUT 900
  ENVIRONMENT "CMAKE_GENERATOR=${CMAKE_GENERATOR}") # make may be missing
# Compiled kernels against their limits; skipped where they are not compiled (FALLOW_KERNEL_IMAGES, nvcc). Slow, as
# the quick stage compiles none.
add_test(NAME check.kernel_resources COMMAND ${PROJECT_SOURCE_DIR}/tests/gpu/kernel_resources.sh
  --check ${PROJECT_SOURCE_DIR}/tests/gpu/kernel_limits.txt ${PROJECT_BINARY_DIR}/kernels/image)
set_tests_properties(check.kernel_resources PROPERTIES LABELS "check;slow" TIMEOUT 600 SKIP_RETURN_CODE 77)
add_test(NAME check.kernel_resources_catches COMMAND ${PROJECT_SOURCE_DIR}/tests/gpu/kernel_resources_test.sh
  ${PROJECT_SOURCE_DIR}/tests/gpu/kernel_resources.sh ${CMAKE_CURRENT_BINARY_DIR}/kernel_resources)
set_tests_properties(check.kernel_resources_catches PROPERTIES LABELS check TIMEOUT 240)
if(TARGET docs)
  add_test(NAME check.docs COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/docs.sh ${PROJECT_SOURCE_DIR}
    ${PROJECT_BINARY_DIR}/src/package/Doxyfile ${CMAKE_CURRENT_BINARY_DIR}/docs)
  set_tests_properties(check.docs PROPERTIES LABELS check TIMEOUT 240 SKIP_RETURN_CODE 77)
endif()
get_property(flags GLOBAL PROPERTY FLW_NVCC_FLAGS)
if(flags)
  list(FILTER flags EXCLUDE REGEX "^-gencode") # PTX is of one architecture
  add_test(NAME check.kernel_rounding COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/kernel_rounding.sh
    ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR}/kernel_rounding ${FALLOW_NVCC} ${flags})
  set_tests_properties(check.kernel_rounding PROPERTIES LABELS "check;slow" TIMEOUT 240)
endif()
if(TARGET fallow)
  add_test(NAME check.help COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/help.sh $<TARGET_FILE:fallow>)
  set_tests_properties(check.help PROPERTIES LABELS check TIMEOUT 240)
  add_test(NAME check.command COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/command.sh $<TARGET_FILE:fallow>
    ${PROJECT_SOURCE_DIR})
  set_tests_properties(check.command PROPERTIES LABELS check TIMEOUT 240)
  add_test(NAME check.man COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/man.sh $<TARGET_FILE:fallow>
    ${CMAKE_CURRENT_BINARY_DIR}/man)
  set_tests_properties(check.man PROPERTIES LABELS check TIMEOUT 240 SKIP_RETURN_CODE 77)
  add_test(NAME check.completion COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/completion.sh
    $<TARGET_FILE:fallow> ${PROJECT_SOURCE_DIR}/tools/fallow/completion/fallow.bash)
  set_tests_properties(check.completion PROPERTIES LABELS check TIMEOUT 240)
endif()
# The table of figures: its rows are counted again, in the build that it is of.
if(TARGET fallow AND FALLOW_BENCH AND CMAKE_BUILD_TYPE STREQUAL "Release" AND FALLOW_CHECK_LEVEL EQUAL 0
   AND NOT FALLOW_SANITIZE AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_test(NAME check.figures COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/figures.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}
    ${CMAKE_CURRENT_BINARY_DIR}/figures.md)
  set_tests_properties(check.figures PROPERTIES LABELS check TIMEOUT 240 SKIP_RETURN_CODE 77)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(Python3_FOUND AND TARGET simcuda-libcuda)
    add_test(NAME check.peers COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/peers/measure
      ${PROJECT_BINARY_DIR} --against ${PROJECT_SOURCE_DIR}/tests/README.md)
    set_tests_properties(check.peers PROPERTIES LABELS "check;slow" TIMEOUT 600 SKIP_RETURN_CODE 77)
  endif()
endif()
flw_add_test(check asym_model SOURCES asym_model.c weak_machine.c PLAIN)
# The same lock in the cross compiler's code.
add_test(NAME check.asym_arm COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/asym_arm.sh ${PROJECT_SOURCE_DIR})
set_tests_properties(check.asym_arm PROPERTIES LABELS check TIMEOUT 240 SKIP_RETURN_CODE 77)
# Slow, so on request only: cmake --build build/<preset> --target tidy
add_custom_target(tidy USES_TERMINAL
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tidy.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
if(TARGET flw_page)
  add_dependencies(tidy flw_page) # a header that the build makes
endif()
if(TARGET fallow AND TARGET fallow-simcuda AND FLW_DEMO)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(Python3_FOUND)
    add_test(NAME check.view COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/view.py $<TARGET_FILE:fallow>
      ${FLW_DEMO})
    set_tests_properties(check.view PROPERTIES LABELS check TIMEOUT 240)
    if(NOT FALLOW_SANITIZE) # sanitizers would find nothing here
      add_test(NAME check.page_browser COMMAND ${Python3_EXECUTABLE} -B
        ${CMAKE_CURRENT_SOURCE_DIR}/page_browser.py $<TARGET_FILE:fallow> ${FLW_DEMO}
        --shots ${CMAKE_CURRENT_BINARY_DIR}/screenshots)
      set(snapshots ${FALLOW_TRACE_DIR}/attention_naive_bench.pickle.xz)
      if(NOT EXISTS ${snapshots})
        set(snapshots)
      endif()
      add_test(NAME check.perfetto COMMAND ${Python3_EXECUTABLE} -B
        ${CMAKE_CURRENT_SOURCE_DIR}/perfetto.py $<TARGET_FILE:fallow> ${snapshots}
        --shots ${CMAKE_CURRENT_BINARY_DIR}/screenshots)
      # tools/quickstart installs packages of PyPI there.
      set_tests_properties(check.perfetto PROPERTIES
        ENVIRONMENT_MODIFICATION PYTHONPATH=path_list_append:${PROJECT_SOURCE_DIR}/build/pypi/perfetto)
      if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT CMAKE_CROSSCOMPILING) # a wheel is a native Release build
        add_test(NAME check.wheel COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/wheel.sh ${PROJECT_SOURCE_DIR}
          ${CMAKE_C_COMPILER} ${Python3_EXECUTABLE} ${CMAKE_CURRENT_BINARY_DIR}/wheel)
        set_tests_properties(check.wheel PROPERTIES LABELS "check;slow" TIMEOUT 600 PROCESSORS 2 SKIP_RETURN_CODE 77
          ENVIRONMENT "CMAKE_GENERATOR=${CMAKE_GENERATOR}") # make may be missing
      endif()
      set_tests_properties(check.page_browser check.perfetto PROPERTIES LABELS "check;slow" TIMEOUT 600 SKIP_RETURN_CODE 77)
    endif()
    add_test(NAME check.columns COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/columns.py
      $<TARGET_FILE:fallow> ${FLW_DEMO} ${CMAKE_CURRENT_BINARY_DIR}/columns)
    add_test(NAME check.progress COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/progress.py
      $<TARGET_FILE:fallow> ${FLW_DEMO} ${CMAKE_CURRENT_BINARY_DIR}/progress)
    set_tests_properties(check.columns check.progress PROPERTIES LABELS check TIMEOUT 240)
  endif()
endif()
