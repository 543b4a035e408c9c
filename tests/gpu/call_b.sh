# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # first.sh sources this file and defines the names
#
# The second call: a small transformer end to end under each allocator, the kernels beside the PyTorch sequences
# that they replace, compute-sanitizer, other frameworks. For a budget of 235 s, if the device still works after call A.

export FALLOW_LIBRARY=$bundle/lib/libfallow.so CUBLAS_WORKSPACE_CONFIG=:4096:8 PYTHONUNBUFFERED=1
transformer() { # KIND ALLOCATOR
    local settings=() words=()
    case $2 in
    expandable) settings=(PYTORCH_ALLOC_CONF=expandable_segments:True) ;;
    async) settings=(PYTORCH_ALLOC_CONF=backend:cudaMallocAsync) ;;
    plugin) words=(--fallow) ;;
    preload) settings=(PYTORCH_NO_CUDA_MEMORY_CACHING=1 FALLOW=mode:cache LD_PRELOAD="$bundle/lib/libfallow-preload.so") ;;
    esac
    on_77=missing step "transformer.$1.$2" 30 env "${settings[@]}" python3 "$tests/transformer.py" "$1" "${words[@]}"
}
if [ "$simulated" = true ]; then
    missing transformer "needs a GPU"
    missing sanitizer "needs a GPU"
else
    for kind in train serve; do
        for allocator in native plugin expandable preload async; do transformer $kind $allocator; done
    done
fi
# shellcheck disable=SC2016 # sh -c expands the variables
on_77=missing step kernels.torch 90 sh -c '"$1" bench kernels --device "$2" --json >kernels.json || exit 1
    command -v python3 >/dev/null || { echo "there is no python3 here" >&2; exit 77; }
    python3 "$3" --cases kernels.json --out kernels_torch.json; code=$?
    cat kernels_torch.json 2>/dev/null; exit $code' - "$bin/fallow" "$device" "$tests/kernels_torch.py"

# Kernels with shared memory. A refused driver call is no error, since Fallow probes the driver. Without initcheck,
# which does not track mapped memory.
sanitized() { # TOOL OPTIONS MODULE...
    local tool=$1 options=$2 module
    shift 2
    for module in "$@"; do
        # shellcheck disable=SC2086 # words
        [ "$simulated" = true ] || step "$tool.$module" 25 "$sanitizer" --tool $tool $options --error-exitcode 9 \
            "$bin/test_kernel_$module" --device "$device" --seed 1
    done
}
sanitizer=$(command -v compute-sanitizer || command -v "${CUDA_HOME-/usr/local/cuda}/bin/compute-sanitizer" || echo compute-sanitizer)
sanitized racecheck '' route align_blocks merge_states gather_kv
sanitized memcheck '--report-api-errors no' combine permute

for client in cupy cupy_plugin triton numba jax torch_cached; do
    on_77=missing step "client.$client" 60 bash "$tests/clients.sh" --device "$asked" --bundle "$bundle" \
        --work "$work/clients" --out - --limit 28 --only "$client"
done
