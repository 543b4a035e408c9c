#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds Fallow and runs what needs a GPU: the conformance suite on the real driver, stress, capture, the
# doctor, the benches, a replay, every test of a kernel module (under compute-sanitizer too, where it is
# found), the modules' times beside those of the PyTorch sequences they replace, and the clients of
# clients.sh. Writes one JSON file. Needs gcc or clang, CMake 3.25, make or ninja, and nvcc for the kernels;
# uses the CUDA toolkit's cuda.h where there is one. No cmocka, jemalloc, liblzma or jq; python only to record
# traces and to run frameworks.
#
#   tests/gpu/run.sh [--device N|sim] [--out FILE] [--build DIR] [--jobs N]
#
# --device sim runs the same commands on the simulated device; the JSON then says "simulated": true and
# none of its figures is a GPU's.
#
# STATE: this script has only ever run with --device sim. No GPU has seen it, nor any case of the
# conformance suite: each is known "from the header". Whoever runs it on a GPU first commits the JSON with
# its date and marks in the tables which cases were seen.
#
# Exit: 0 all that ran passed; 1 something failed; 2 it could not build; 77 no GPU here.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd) || exit 2
device=0
out=
build=
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
while [ $# -gt 0 ]; do
    case $1 in
    --device) device=${2-}; shift ;;
    --out) out=${2-}; shift ;;
    --build) build=${2-}; shift ;;
    --jobs) jobs=${2-}; shift ;;
    --help | -h) sed -e '1,2d' -e '/^set -u/,$d' -e 's/^# \{0,1\}//' "$0"; exit 0 ;;
    *) echo "tests/gpu/run.sh: cannot use '$1'; see tests/gpu/run.sh --help" >&2; exit 2 ;;
    esac
    shift || { echo "tests/gpu/run.sh: the last option lacks its value" >&2; exit 2; }
done
case $device in
sim | [0-9] | [0-9][0-9]) ;;
*) echo "tests/gpu/run.sh: --device '$device': a number or sim" >&2; exit 2 ;;
esac
simulated=false
chosen=$device
if [ "$device" = sim ]; then simulated=true; fi
build=${build:-$root/build/gpu}
out=${out:-$build/gpu-results.json}
bin=$build/bin
work=$build/gpu-run
mkdir -p "$work" "$(dirname "$out")" || exit 2
if [ "$simulated" = false ]; then
    # Every program sees the chosen device as its device 0.
    CUDA_VISIBLE_DEVICES=$device
    export CUDA_VISIBLE_DEVICES
    device=0
fi

log=$work/build.log
if ! { cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE="-O2 -DNDEBUG" \
    -DFALLOW_TESTS=ON -DFALLOW_TOOLS=ON -DFALLOW_KERNEL_IMAGES=ON ${FALLOW_CMAKE_OPTIONS-} &&
    cmake --build "$build" -j "$jobs"; } >"$log" 2>&1; then
    echo "tests/gpu/run.sh: the build failed; the end of $log:" >&2
    tail -n 20 "$log" >&2
    exit 2
fi

# Text as the inside of a JSON string.
escape() {
    tr -d '\000-\010\013-\037' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/	/ /g' | awk '{printf "%s%s", sep, $0; sep = "\\n"}'
}

failed=0
status=0
sections=
limit=600 # seconds of one step; exit 124 beyond
# step NAME JSON_FILE|- PROGRAM ARGUMENT...   runs it where it was built; keeps command, exit, output, JSON
step() {
    name=$1
    json=$2
    program=$3
    shift 3
    text=$work/$name.txt
    if [ ! -x "$bin/$program" ]; then
        echo "$name: bin/$program is not built: left out"
        sections="$sections,\"$name\":{\"result\":\"missing\",\"program\":\"$program\"}"
        return
    fi
    rm -f "$work/$name.json"
    begun=$(date +%s)
    timeout "$limit" "$bin/$program" "$@" >"$text" 2>"$text.err"
    status=$?
    ended=$(date +%s)
    case $status in
    0) result=pass ;;
    77) result=skip ;;
    *) result=fail; failed=1 ;;
    esac
    echo "$name: $result (exit $status, $((ended - begun)) s)"
    if [ "$result" != pass ]; then tail -n 5 "$text" "$text.err"; fi
    if [ "$json" = - ]; then json=$text; fi
    data=null
    if [ -s "$json" ] && [ "$(head -c 1 "$json")" = "{" ]; then data=$(cat "$json"); fi
    command=$(printf '%s ' "$program" "$@" | sed "s|$work/||g" | escape)
    lines=null
    if [ "$data" = null ]; then lines=\"$(tail -n 40 "$text" | escape)\"; fi
    errors=$(tail -n 20 "$text.err" | escape)
    sections="$sections,\"$name\":{\"result\":\"$result\",\"exit\":$status,\"seconds\":$((ended - begun)),\
\"command\":\"${command% }\",\"output\":$lines,\"errors\":\"$errors\",\"data\":$data}"
}

if [ "$simulated" = true ]; then
    step conformance "$work/conformance.results" driver_conformance sim --json "$work/conformance.results"
else
    step conformance "$work/conformance.results" driver_conformance --json "$work/conformance.results"
    if [ "$status" = 77 ]; then
        echo "tests/gpu/run.sh: no CUDA device can be used here; --device sim runs the rest" >&2
        exit 77
    fi
fi
step doctor - fallow doctor --device "$device" --json
step stress - gpu_stress --device "$device"
step capture - gpu_stress --device "$device" --capture
for shape in pair replace grow holes deferred streams threads handoff; do
    step "bench_$shape" - fallow bench "$shape" --device "$device" --json
done
# What the policies hold, and what their calls take, of a generated trace: here the driver's pool is itself.
"$bin/fallow" gen serve llama-3-8b --mode graph --steps 100 -o "$work/serve.ftext" 2>/dev/null &&
    step replay - fallow replay "$work/serve.ftext" --device "$device" --json -
# Kernel modules: each test program, then the same under each tool of compute-sanitizer; resources of what
# was compiled; bytes, launches and times, beside PyTorch's where python has torch.
for program in "$bin"/test_kernel_*; do
    module=${program##*/test_kernel_}
    step "kernel_$module" - "test_kernel_$module" --device "$device" --seed 1
done
sanitizer=$(command -v compute-sanitizer || command -v "${CUDA_HOME-/usr/local/cuda}/bin/compute-sanitizer")
if [ "$simulated" = false ] && [ -n "$sanitizer" ]; then
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$sanitizer" >"$bin/compute-sanitizer"
    chmod +x "$bin/compute-sanitizer"
    for tool in memcheck racecheck initcheck; do
        for program in "$bin"/test_kernel_*; do
            module=${program##*/test_kernel_}
            step "${tool}_$module" - compute-sanitizer --tool "$tool" --error-exitcode 9 "$program" --device "$device" --seed 1
        done
    done
elif [ "$simulated" = false ]; then
    echo "no compute-sanitizer: its runs are left out"
    sections="$sections,\"sanitizer\":{\"result\":\"missing\"}"
fi
cp "$root/tests/gpu/kernel_resources.sh" "$bin/kernel_resources"
step kernel_resources - kernel_resources --markdown --check "$root/tests/gpu/kernel_limits.txt" "$build/kernels/image"
step bench_kernels - fallow bench kernels --device "$device" --json
if [ "$simulated" = false ] && cp "$root/tests/gpu/kernels_torch.py" "$bin/kernels_torch"; then
    step kernels_torch "$work/kernels_torch.results" kernels_torch --cases "$work/bench_kernels.txt" \
        --out "$work/kernels_torch.results"
fi
# Memory snapshots of PyTorch, where python has torch (else skipped): $work/recordings, to be looked at and
# committed by hand.
if [ "$simulated" = false ] && cp "$root/tests/gpu/record_traces.py" "$bin/record_traces"; then
    step recordings - record_traces --out "$work/recordings"
fi

# Programs that are not rebuilt for Fallow, each with and without it: clients.sh has a results file of its own.
printf '#!/bin/sh\nexec "%s" "$@"\n' "$root/tests/gpu/clients.sh" >"$bin/clients" && chmod +x "$bin/clients"
limit=7200
step clients "$work/clients.results" clients --device "$chosen" --no-build --build "$build" \
    --out "$work/clients.results"
limit=600

gpu=$( (nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader -i "${CUDA_VISIBLE_DEVICES-0}") 2>/dev/null | head -n 1 | escape)
if [ "$simulated" = true ]; then gpu="simulated device"; fi
commit=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt" | head -n 1 | escape)
note="run on a GPU"
if [ "$simulated" = true ]; then
    note="SIMULATED: no GPU was used, and this script has not been run on one yet; no figure here is a GPU's"
fi
{
    printf '{"simulated":%s,"note":"%s","date":"%s","gpu":"%s","commit":"%s","host":"%s","compiler":"%s"' \
        "$simulated" "$note" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$gpu" "$commit" "$(uname -srm | escape)" "$compiler"
    printf '%s}\n' "$sections"
} >"$out.part" && mv "$out.part" "$out" || exit 1
echo "results: $out"
exit $failed
