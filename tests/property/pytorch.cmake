# SPDX-License-Identifier: Apache-2.0
# The model of PyTorch's policy against recordings of the real thing.
set(tool ${PROJECT_SOURCE_DIR}/tools/fallow)
set(recordings)
if(FLW_DEMO) # the recordings are packed in the same way
  set(recordings FALLOW_TRACE_DIR=${FALLOW_TRACE_DIR})
endif()
flw_add_test(property pytorch_policy INCLUDES ${tool} LIBRARIES flw_trace ENVIRONMENT ${recordings}
  SOURCES test_pytorch_policy.c ${tool}/deferrals.c ${tool}/policy_pytorch.c
    ${tool}/common/lanes.c ${tool}/common/program.c
    ${tool}/pytorch_expand.c ${tool}/pytorch_model.c ${tool}/pytorch_ranges.c ${tool}/pytorch_record.c
    ${tool}/segheap.c ${tool}/common/tool_host.c)
