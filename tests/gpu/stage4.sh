# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # first.sh sources this, and has the names
#
# Stage 4: a small transformer's serving and training steps, end to end, under PyTorch's allocators and Fallow's
# two ways in; then recordings of real programs.

export CUBLAS_WORKSPACE_CONFIG=:4096:8 # reproducible sums
export FALLOW_LIBRARY=$bundle/lib/libfallow.so PYTHONPATH=$root/tools/python${PYTHONPATH:+:$PYTHONPATH}
if [ "$simulated" = true ]; then
    missing transformer "needs a GPU"
    missing recording "needs a GPU"
    return
fi
if ! command -v python3 >/dev/null; then
    missing transformer "there is no python3 here"
    missing recording "there is no python3 here"
    return
fi
transformer() { # KIND ALLOCATOR ROUND
    local settings=() words=()
    case $2 in
    expandable) settings=(PYTORCH_ALLOC_CONF=expandable_segments:True PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True) ;;
    async) settings=(PYTORCH_ALLOC_CONF=backend:cudaMallocAsync PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync) ;;
    plugin) words=(--fallow) ;;
    preload) settings=(PYTORCH_NO_CUDA_MEMORY_CACHING=1 FALLOW=mode:cache LD_PRELOAD="$bundle/lib/libfallow-preload.so") ;;
    esac
    on_77=missing step "transformer.$1.$2.$3" 90 env "${settings[@]}" python3 "$tests/transformer.py" "$1" "${words[@]}"
}
for round in 1 2; do # in turn, twice: what else the machine does shows
    for kind in serve train; do
        for allocator in native expandable async plugin preload; do
            transformer $kind $allocator $round
        done
    done
done
for name in train generate moe graph two_streams; do
    on_77=missing step "recording.$name" 100 python3 "$tests/record_traces.py" --out "$work" --only "$name"
    keep "$name.pickle.xz"
done
