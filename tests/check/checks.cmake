# SPDX-License-Identifier: Apache-2.0
# Checks of the source itself: scripts that need no build, and the model of the asymmetric lock.
set(source ${PROJECT_SOURCE_DIR})
set(work ${CMAKE_CURRENT_BINARY_DIR})
set(cuda ${FALLOW_CUDA_INCLUDE})
if(NOT cuda)
  set(cuda NOTFOUND)
endif()
set(fallow)
if(TARGET fallow)
  set(fallow $<TARGET_FILE:fallow>)
endif()
flw_add_script(NAME check.cuda_abi SCRIPT cuda_abi.sh ARGUMENTS ${source} ${CMAKE_C_COMPILER} ${cuda} ${work}/cuda_abi)
flw_add_script(NAME check.answers SCRIPT answers.sh ARGUMENTS ${source} ${cuda})
if(TARGET simcuda-libcuda)
  flw_add_script(NAME check.driver_names SCRIPT driver_names.py ARGUMENTS ${source} ${cuda}
    $<TARGET_FILE:simcuda-libcuda>)
endif()
flw_add_script(NAME check.layers SCRIPT layers.py ARGUMENTS ${source})
flw_add_script(NAME check.project SCRIPT project.sh ARGUMENTS ${source} ${PROJECT_VERSION})
flw_add_script(NAME check.subjects SCRIPT subjects.py ARGUMENTS ${source})
flw_add_script(NAME check.settings SCRIPT settings.py ARGUMENTS ${source})
flw_add_script(NAME check.prose SCRIPT prose.py ARGUMENTS ${source})
flw_add_script(NAME check.format SCRIPT format.sh ARGUMENTS ${source})
foreach(layer heap pool trace)
  flw_add_script(NAME check.circles_${layer} SCRIPT circles.py ARGUMENTS ${layer} ${CMAKE_NM}
    $<TARGET_OBJECTS:flw_${layer}>)
endforeach()
if(TARGET fallow) # all folders of the command together
  flw_add_script(NAME check.circles_fallow SCRIPT circles.py ARGUMENTS fallow ${CMAKE_NM} $<TARGET_OBJECTS:fallow>
    $<TARGET_OBJECTS:flw_tool> $<TARGET_OBJECTS:flw_report> $<TARGET_OBJECTS:flw_page> $<TARGET_OBJECTS:flw_findings>
    $<TARGET_OBJECTS:flw_top> $<TARGET_OBJECTS:flw_doctor>)
  flw_add_script(NAME check.convert SCRIPT convert.py ARGUMENTS ${source} ${fallow} ${FALLOW_TRACE_DIR})
  flw_add_script(NAME check.help SCRIPT help.sh ARGUMENTS ${fallow})
  flw_add_script(NAME check.command SCRIPT command.sh ARGUMENTS ${fallow} ${source})
  flw_add_script(NAME check.man SCRIPT man.sh ARGUMENTS ${fallow} ${work}/man)
  flw_add_script(NAME check.completion SCRIPT completion.sh ARGUMENTS ${fallow}
    ${source}/tools/fallow/completion/fallow.bash)
endif()
if(NOT FALLOW_SANITIZE)
  set(objects)
  foreach(layer base driver section memory heap record pool)
    list(APPEND objects $<TARGET_OBJECTS:flw_${layer}>)
  endforeach()
  flw_add_script(NAME check.features SCRIPT features.sh ARGUMENTS ${source} ${work}/features_tree ${CMAKE_C_COMPILER}
    ${objects})
endif()
set(libraries)
foreach(target fallow_shared fallow-host fallow-kernels fallow-simcuda fallow-preload)
  if(TARGET ${target} AND NOT FALLOW_SANITIZE) # a sanitizer's runtime reads the environment
    list(APPEND libraries $<TARGET_FILE:${target}>)
  endif()
endforeach()
if(libraries)
  flw_add_script(NAME check.environment SCRIPT environment.sh ARGUMENTS ${CMAKE_C_COMPILER} ${work}/environment
    ${libraries})
endif()
# Another build of everything, with all that is optional hidden.
flw_add_script(NAME check.bare_build SCRIPT bare_build.sh LABELS slow TIMEOUT 900 ARGUMENTS ${source}
  ${CMAKE_C_COMPILER} ${work}/bare_build)
set_tests_properties(check.bare_build PROPERTIES ENVIRONMENT "CMAKE_GENERATOR=${CMAKE_GENERATOR}") # make may be missing
# Compiled kernels against their limits; skipped where they are not compiled (FALLOW_KERNEL_IMAGES, nvcc). Slow, as
# the quick stage compiles none.
flw_add_script(NAME check.kernel_resources SCRIPT ../gpu/kernel_resources.sh LABELS slow TIMEOUT 600
  ARGUMENTS --check ${source}/tests/gpu/kernel_limits.txt ${PROJECT_BINARY_DIR}/kernels/image)
flw_add_script(NAME check.kernel_resources_catches SCRIPT ../gpu/kernel_resources_test.sh
  ARGUMENTS ${source}/tests/gpu/kernel_resources.sh ${work}/kernel_resources)
if(TARGET docs)
  flw_add_script(NAME check.docs SCRIPT docs.sh ARGUMENTS ${source} ${PROJECT_BINARY_DIR}/src/package/Doxyfile
    ${work}/docs)
endif()
get_property(flags GLOBAL PROPERTY FLW_NVCC_FLAGS)
if(flags)
  list(FILTER flags EXCLUDE REGEX "^-gencode") # PTX is of one architecture
  flw_add_script(NAME check.kernel_rounding SCRIPT kernel_rounding.sh LABELS slow ARGUMENTS ${source}
    ${work}/kernel_rounding ${FALLOW_NVCC} ${flags})
endif()
# Rows of the table of figures are counted again, in the build that they are of.
if(TARGET fallow AND FALLOW_BENCH AND CMAKE_BUILD_TYPE STREQUAL "Release" AND FALLOW_CHECK_LEVEL EQUAL 0
   AND NOT FALLOW_SANITIZE AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  flw_add_script(NAME check.figures SCRIPT figures.sh ARGUMENTS ${source} ${PROJECT_BINARY_DIR} ${work}/figures.md)
  if(TARGET simcuda-libcuda)
    flw_add_script(NAME check.peers SCRIPT ../peers/measure LABELS slow TIMEOUT 600 ARGUMENTS ${PROJECT_BINARY_DIR}
      --against ${source}/tests/README.md)
    flw_add_script(NAME check.clients SCRIPT ../peers/clients LABELS slow TIMEOUT 1500 ARGUMENTS ${PROJECT_BINARY_DIR}
      --without-fetch)
  endif()
endif()
flw_add_test(check asym_model SOURCES asym_model.c weak_machine.c PLAIN)
# The same lock in the cross compiler's code.
flw_add_script(NAME check.asym_arm SCRIPT asym_arm.sh ARGUMENTS ${source})
# Slow, so on request only: cmake --build build/<preset> --target tidy
add_custom_target(tidy USES_TERMINAL
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tidy.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
if(TARGET flw_page)
  add_dependencies(tidy flw_page) # a header that the build makes
endif()
if(NOT TARGET fallow OR NOT TARGET fallow-simcuda OR NOT FLW_DEMO OR NOT FALLOW_PYTHON)
  return()
endif()
flw_add_script(NAME check.view SCRIPT view.py ARGUMENTS ${fallow} ${FLW_DEMO})
flw_add_script(NAME check.columns SCRIPT columns.py ARGUMENTS ${fallow} ${FLW_DEMO} ${work}/columns)
flw_add_script(NAME check.progress SCRIPT progress.py ARGUMENTS ${fallow} ${FLW_DEMO} ${work}/progress)
if(NOT FALLOW_SANITIZE) # sanitizers would find nothing here
  set(snapshots ${FALLOW_TRACE_DIR}/attention_naive_bench.pickle.xz)
  if(NOT EXISTS ${snapshots})
    set(snapshots)
  endif()
  flw_add_script(NAME check.page_browser SCRIPT page_browser.py LABELS slow TIMEOUT 600 ARGUMENTS ${fallow} ${FLW_DEMO}
    --shots ${work}/screenshots)
  flw_add_script(NAME check.perfetto SCRIPT perfetto.py LABELS slow TIMEOUT 600 ARGUMENTS ${fallow} ${snapshots}
    --shots ${work}/screenshots)
  # tools/quickstart installs packages of PyPI there.
  set_tests_properties(check.perfetto PROPERTIES
    ENVIRONMENT_MODIFICATION PYTHONPATH=path_list_append:${source}/build/pypi/perfetto)
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT CMAKE_CROSSCOMPILING) # a wheel is a native Release build
    flw_add_script(NAME check.wheel SCRIPT wheel.sh LABELS slow TIMEOUT 600 ARGUMENTS ${source} ${CMAKE_C_COMPILER}
      ${FALLOW_PYTHON} ${work}/wheel)
    set_tests_properties(check.wheel PROPERTIES PROCESSORS 2
      ENVIRONMENT "CMAKE_GENERATOR=${CMAKE_GENERATOR}") # make may be missing
  endif()
endif()
