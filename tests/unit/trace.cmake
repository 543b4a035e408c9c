# SPDX-License-Identifier: Apache-2.0
# The trace model and its readers.
if(FLW_DEMO) # both read .xz
  flw_add_test(unit trace_manifest PLAIN SOURCES test_trace_manifest.c LIBRARIES flw_trace
    ARGUMENTS ${FALLOW_TRACE_DIR})
  flw_add_test(unit trace_demo PLAIN SOURCES test_trace_demo.c LIBRARIES flw_trace ARGUMENTS ${FLW_DEMO})
endif()
flw_add_test(unit trace_kineto_shared PLAIN SOURCES test_trace_kineto_shared.c LIBRARIES flw_trace
  ARGUMENTS ${FALLOW_TRACE_DIR})
flw_add_test(unit trace_minimalloc_shared PLAIN SOURCES test_trace_minimalloc_shared.c LIBRARIES flw_trace
  ARGUMENTS ${FALLOW_TRACE_DIR})
set(exported)
foreach(name attention_naive_bench cs336_attention_train cs336_large_train cs336_medium_infer_ctx1024
    cs336_medium_train_ctx1024 decomfl_opt_zo_finetune snap_diffusion_attention_a)
  list(APPEND exported ${FALLOW_TRACE_DIR}/${name}.pickle.xz)
endforeach()
foreach(name annotated_2 annotated_4 cold_2 cold_4 gaps_4 multi_4 old_list_4 state_4 torch20_4 two_streams.xz warm_4 warm_5)
  list(APPEND exported ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/pickle/${name})
endforeach()
list(APPEND exported ${FALLOW_TRACE_DIR}/hta_df_index_resolver.json.gz
  ${FALLOW_TRACE_DIR}/minimalloc/A.1048576.csv ${FLW_DEMO}
  ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/text/rare.ftext)
add_executable(trace_exporter test_trace_export.c) # writes what Python reads below
flw_target(trace_exporter)
target_include_directories(trace_exporter PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(trace_exporter PRIVATE flw_trace)
add_test(NAME unit.trace_export COMMAND trace_exporter ${exported})
set_tests_properties(unit.trace_export PROPERTIES LABELS unit TIMEOUT 240 SKIP_RETURN_CODE 77)
flw_add_test(unit trace_roundtrip PLAIN SOURCES test_trace_roundtrip.c LIBRARIES flw_trace
  ARGUMENTS ${exported})
find_program(FALLOW_PYTHON python3)
if(FALLOW_PYTHON)
  foreach(sample demo.ftext.xz:15000 warm_4:3 two_streams.xz:3 attention_naive_bench.pickle.xz:60
      decomfl_opt_zo_finetune.pickle.xz:15000)
    string(REGEX MATCH "^[^:]+" name ${sample})
    string(REGEX MATCH "[0-9]+$" events ${sample})
    set(file ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/pickle/${name})
    if(name MATCHES "^demo")
      set(file ${PROJECT_SOURCE_DIR}/tools/fallow/${name})
    elseif(name MATCHES "pickle")
      set(file ${FALLOW_TRACE_DIR}/${name})
    endif()
    add_test(NAME unit.trace_snapshot_${name} COMMAND sh -c
      "\"$1\" --write snapshot_${name}.pickle \"$2\" && \"$3\" \"$4\" snapshot_${name}.pickle ${events}" -
      $<TARGET_FILE:trace_exporter> ${file} ${FALLOW_PYTHON}
      ${CMAKE_CURRENT_SOURCE_DIR}/snapshot_shape.py)
    set_tests_properties(unit.trace_snapshot_${name} PROPERTIES LABELS unit TIMEOUT 240
      SKIP_RETURN_CODE 77)
  endforeach()
  if(TARGET fallow AND NOT FALLOW_SANITIZE) # a sanitizer's memory says nothing
    add_test(NAME unit.trace_snapshot_memory COMMAND ${FALLOW_PYTHON}
      ${CMAKE_CURRENT_SOURCE_DIR}/snapshot_memory.py $<TARGET_FILE:fallow>
      ${CMAKE_CURRENT_SOURCE_DIR}/big_snapshot.py 0.6)
    set_tests_properties(unit.trace_snapshot_memory PROPERTIES LABELS unit TIMEOUT 240)
  endif()
endif()
set(modules pickle record trace_addressmap trace_annotations trace_codec trace_foreign trace_ftrace trace_kineto trace_largearray trace_pytorch trace_text trace_packer)
if(FLW_DEMO)
  list(APPEND modules trace_input) # it packs archives of its own
endif()
foreach(module ${modules})
  flw_add_test(unit ${module} SOURCES test_${module}.c LIBRARIES flw_trace)
endforeach()
