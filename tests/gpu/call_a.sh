# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # first.sh sources this file and defines the names
#
# The first of two calls that fit into fifteen minutes of device time: the questions that only hardware answers, the
# most important first, and steps that may break the device last. For a budget of 370 s.

# Simulated memory is host memory, so the simulated device runs fewer operations.
ops=20000 few=4000
if [ "$simulated" = true ]; then
    ops=3000 few=1200
else # PyTorch's libraries, some GB, into the page cache while other steps run
    (python3 -c 'import glob, importlib.util, os
torch = importlib.util.find_spec("torch").origin
for path in glob.glob(os.path.dirname(os.path.dirname(torch)) + "/[nt][vo]*/**/*.so*", recursive=True):
    with open(path, "rb") as file:
        while file.read(1 << 24):
            pass' >/dev/null 2>&1 </dev/null &)
fi

# 1. Attributes and the price of calls; a pool, judged by contents; the assumptions of the preload library; virtual
# memory management.
step attributes 30 device_probe --device "$device" --attributes
step doctor 60 fallow doctor --device "$device" --json
step stress.streams 40 gpu_stress --device "$device" --ops $ops --seed 1
step first_run 60 first_run --device "$device"
for question in reserve creates ipc life unmap access fill; do
    step "vmm.$question" 60 vmm_probe --device "$device" "$question"
done

# 2. The sentences of cuda.h, one a process, and the kernels against their definitions in C.
conformance() { # calm | alone | risky: lines for together. alone: calm cases about the device's free memory
    local kind name driver=''
    [ "$asked" != sim ] || driver=sim
    while read -r kind name; do
        case $name in memory.allocating_lowers_what_is_free | vmm.memory_lives_until_unmapped_and_released) kind=alone ;; esac
        [ "$kind" != "$1" ] || echo "conformance.$name driver_conformance $driver --case $name"
    done <"$work/cases"
}
"$bin/driver_conformance" --list >"$work/cases" 2>"$work/err" ||
    missing conformance "driver_conformance lists no case: $(tail -n 1 "$work/err")"
together 6 20 < <(conformance calm)
together 1 20 < <(conformance alone)
together 6 60 < <(for program in "$bin"/test_kernel_*; do
    echo "kernel.${program##*/test_kernel_} ${program##*/} --device $device --seed 1"
done)

# 3. PyTorch: plain, with the plug-in, and with the preload library, once with its own cache and once without.
export FALLOW_LIBRARY=$bundle/lib/libfallow.so CUBLAS_WORKSPACE_CONFIG=:4096:8 PYTHONUNBUFFERED=1
tour() { # MODE SECONDS [NAME=VALUE ...]
    local mode=$1 most=$2
    shift 2
    on_77=missing step "torch.$mode" "$most" env "$@" python3 "$tests/torch_tour.py" "$mode"
}
if [ "$simulated" = true ]; then
    missing torch "needs a GPU"
else
    preload=$bundle/lib/libfallow-preload.so
    tour plain 70
    tour plugin 60
    tour cached 40 FALLOW=mode:cache LD_PRELOAD="$preload"
    tour preload 60 PYTORCH_NO_CUDA_MEMORY_CACHING=1 FALLOW="mode:cache,stats:$work/reach.json" LD_PRELOAD="$preload"
    [ ! -s "$work/reach.json" ] || step torch.reach 5 cat "$work/reach.json"
fi

# 4. Random programs over a pool, judged by contents.
step stress.captures 40 gpu_stress --device "$device" --ops $ops --seed 2 --capture
step stress.threads 40 gpu_stress --device "$device" --ops $ops --seed 5 --threads 4 --capture
step stress.segments 40 gpu_stress --device "$device" --ops $ops --seed 7 --threads 4 --capture --segments
step stress.sleep 40 gpu_stress --device "$device" --ops $few --seed 3 --sleep
step stress.share 40 gpu_stress --device "$device" --ops $few --seed 4 --share
step stress.all 40 gpu_stress --device "$device" --ops $((few / 2)) --seed 6 --threads 4 --capture --sleep --share

# 5. Times.
step bench.kernels 60 fallow bench kernels --device "$device" --json
for shape in pair threads streams deferred; do
    step "bench.$shape" 20 fallow bench "$shape" --device "$device" --json
done
step gen 30 fallow gen serve llama-3-8b --mode graph --steps 100 -o "$work/serve.ftext"
step replay.serve 60 fallow replay "$work/serve.ftext" --device "$device" --json -

# 6. Plain C programs under the preload library, then steps that may break the device.
for client in c_dlopen c_linked c_lookup c_contexts c_reset c_strict; do
    on_77=missing step "client.$client" 30 bash "$tests/clients.sh" --device "$asked" --bundle "$bundle" \
        --work "$work/clients" --out - --limit 14 --only "$client"
done
together 1 20 < <(conformance risky)
