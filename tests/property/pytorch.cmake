# SPDX-License-Identifier: Apache-2.0
# The model of PyTorch's policy against recordings of the real thing.
if(COMMAND flw_add_test)
  set(tool ${PROJECT_SOURCE_DIR}/tools/fallow)
  flw_add_test(property pytorch_policy
    SOURCES test_pytorch_policy.c ${tool}/deferrals.c ${tool}/policy_pytorch.c
      ${tool}/lanes.c ${tool}/program.c
      ${tool}/pytorch_expand.c ${tool}/pytorch_model.c ${tool}/pytorch_ranges.c ${tool}/pytorch_record.c ${tool}/segheap.c
      ${tool}/tool_host.c
    LIBRARIES flw_trace)
  if(TARGET test_property_pytorch_policy)
    target_include_directories(test_property_pytorch_policy PRIVATE ${tool})
    if(FLW_DEMO) # the recordings are packed in the same way
      set_property(TEST property.pytorch_policy APPEND PROPERTY
        ENVIRONMENT "FALLOW_TRACE_DIR=${FALLOW_TRACE_DIR}")
    endif()
  endif()
endif()
