#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs programs that are not rebuilt for Fallow, each once plain and once with it (the preload library, or a
# plug-in), and compares their output and files; checks by the counters that Fallow was used; checks on a first real
# driver the behaviour that Fallow relies on; times PyTorch training without its cache. Writes one JSON file.
#
#   tests/gpu/clients.sh [--device N|sim] [--bundle DIR] [--out FILE|-] [--work DIR] [--limit SECONDS] [--only PATTERN]
#
# --device sim    the part that needs no GPU: the plain C clients and first_run, on the simulated driver
#                 under the name libcuda.so.1. It shows that this script works, nothing else.
# --bundle DIR    (build/bundle) a folder made by bundle.sh, or a build folder
# --out FILE      (build/clients.json) the results; -: to stdout, and messages to stderr
# --work DIR      (a folder for this run) a plain run that DIR has already is not run again
# --limit SECONDS (900) of each of the runs
# --only PATTERN  only the steps with a matching name (a shell pattern)
#
# A client whose framework is not installed, or that needs a GPU where there is none, is "absent": never
# passed. Optional: nvcc for the runtime clients; python3 with torch, cupy, jax, numba, triton, cuda-bindings;
# FALLOW_LLAMA=DIR, a build of llama.cpp, for its test-backend-ops.
#
# first.sh runs each client as a step of its own. STATE: has only ever run with --device sim.
#
# Exit: 0 all that ran passed; 1 something failed; 2 usage; 77 no GPU here, or all requested clients are absent.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd) || exit 2
here=$root/tests/gpu/clients
device=0 out=$root/build/clients.json bundle=$root/build/bundle only='*' work='' limit=900
while [ $# -gt 0 ]; do
    case $1 in
    --device | --out | --bundle | --work | --limit | --only)
        [ $# -ge 2 ] || { echo "clients.sh: $1 lacks its value" >&2; exit 2; }
        declare "${1#--}=$2"
        shift 2 ;;
    --help | -h) sed -e '1,2d' -e '/^set -u/,$d' -e 's/^# \{0,1\}//' "$0"; exit 0 ;;
    *) echo "clients.sh: cannot use '$1'; see tests/gpu/clients.sh --help" >&2; exit 2 ;;
    esac
done
case $device in
sim | [0-9] | [0-9][0-9]) ;;
*) echo "clients.sh: --device '$device': a number or sim" >&2; exit 2 ;;
esac
case $limit in '' | *[!0-9]*) echo "clients.sh: --limit '$limit': a number of seconds" >&2; exit 2 ;; esac
exec 3>&1 # the results
if [ -e "$out" ] && [ ! -f "$out" ]; then echo "clients.sh: --out '$out' is no file; - is stdout" >&2; exit 2; fi
if [ "$out" = - ]; then exec 1>&2; else mkdir -p "$(dirname "$out")" || exit 2; fi
if [ -z "$work" ]; then
    work=$(mktemp -d) || exit 2
    trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work" || exit 2
bin=$bundle/bin
preload=$bundle/lib/libfallow-preload.so
for needed in "$preload" "$bin/first_run" "$bin/device_probe" "$bin/client_plain" "$bin/client_plain_linked"; do
    [ -e "$needed" ] || { echo "clients.sh: $needed is not there: tests/gpu/bundle.sh makes it" >&2; exit 2; }
done
if [ "$device" = sim ]; then
    driver=$bundle/lib/driver/libcuda.so.1
    [ -e "$driver" ] || { echo "clients.sh: $driver is not there" >&2; exit 2; }
    LD_LIBRARY_PATH=$(dirname "$driver")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
else
    export CUDA_VISIBLE_DEVICES=$device # every program sees it as its device 0
    driver=libcuda.so.1
fi
export FALLOW_LIBRARY=$bundle/lib/libfallow.so
export PYTHONPATH=$root/tools/python${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
export CUBLAS_WORKSPACE_CONFIG=:4096:8 # reproducible sums
unset LD_PRELOAD FALLOW FALLOW_PLUGIN PYTORCH_NO_CUDA_MEMORY_CACHING

# ---- results

failed=0 passed=0 absent=0 sections=
# Text as the inside of a JSON string.
escape() {
    tr -d '\000-\010\013-\037' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/	/ /g' |
        awk '{printf "%s%s", sep, $0; sep = "\\n"}'
}
# result NAME pass|fail|absent TEXT [JSON members with a leading comma]
result() {
    case $2 in
    pass) passed=$((passed + 1)) ;;
    fail) failed=$((failed + 1)) ;;
    absent) absent=$((absent + 1)) ;;
    esac
    echo "$1: $2${3:+: $3}"
    sections="$sections${sections:+,}\"$1\":{\"result\":\"$2\",\"text\":\"$(printf '%s' "$3" | escape)\"${4-}}"
}
wanted() { # shellcheck disable=SC2254 # the pattern is one
    case $1 in $only) return 0 ;; *) return 1 ;; esac
}
# run FILE [NAME=VALUE ...] -- COMMAND ...   into FILE.out, FILE.err; the exit status
run() {
    local file=$1 settings=()
    shift
    while [ "$1" != -- ]; do settings+=("$1"); shift; done
    shift
    timeout "$limit" env "${settings[@]}" "$@" >"$file.out" 2>"$file.err"
}
# Print the allocations that Fallow served, by the file of the preload library or of fallow.stats(); 0 if there is none.
served() {
    [ -s "$1" ] || { echo 0; return; }
    sed -n 's/.*"all": {"allocs": *\([0-9]*\).*/\1/p' "$1" | awk '{ sum += $1 } END { print sum + 0 }'
}
seconds_of() { # as a client writes it: "seconds: 1.234"
    sed -n 's/^seconds: //p' "$1" | tail -n 1
}
speed() { # of two runs that report them
    awk -v plain="$(seconds_of "$1")" -v with="$(seconds_of "$2")" \
        'BEGIN { if (plain != "" && with > 0) printf ", %s s plain, %s s with Fallow (%.2f times)", plain, with, plain / with }'
}
# compare NAME PLAIN OTHER STATUS COUNTERS: the second run's output against the first's, and its counters
compare() {
    local name=$1 plain=$2 other=$3 status=$4 count
    count=$(served "$5")
    if [ "$status" = 77 ]; then
        result "$name" absent "$(tail -n 1 "$other.err")"
    elif [ "$status" != 0 ]; then
        result "$name" fail "exit $status: $(tail -n 1 "$other.out") $(tail -n 1 "$other.err")"
    elif ! cmp -s "$plain.out" "$other.out"; then
        result "$name" fail "another result than plain: $(diff "$plain.out" "$other.out" | sed -n 2p)"
    elif [ "$count" -le 0 ]; then
        result "$name" fail "the result is right, but Fallow served nothing: $(tail -n 1 "$other.err")"
    else
        result "$name" pass "$count allocations served$(speed "$plain.err" "$other.err")" ",\"served\":$count,\"seconds_plain\":\"$(seconds_of "$plain.err")\",\
\"seconds\":\"$(seconds_of "$other.err")\""
    fi
}
# run_plain NAME FILE [NAME=VALUE ...] -- COMMAND ...   once without Fallow, unless that is done; false: the reason is
# printed
run_plain() {
    local name=$1 file=$2 status
    shift 2
    [ ! -e "$file.done" ] || return 0
    run "$file" "$@"
    status=$?
    case $status in
    0) : >"$file.done"; return 0 ;;
    77) result "$name" absent "$(tail -n 1 "$file.err")" ;;
    *) result "$name" fail "without Fallow already: exit $status: $(tail -n 1 "$file.err")" ;;
    esac
    return 1
}
# client NAME [NAME=VALUE ...] -- COMMAND ...   plain, then with the preload library in mode $mode (cache)
client() {
    local name=$1 settings=() plain=$work/$1.plain other=$work/$1.preload
    shift
    wanted "$name" || return 0
    while [ "$1" != -- ]; do settings+=("$1"); shift; done
    shift
    run_plain "$name" "$plain" "${settings[@]}" -- "$@" || return 0
    run "$other" "${settings[@]}" FALLOW="mode:${mode:-cache},stats:$other.json" LD_PRELOAD="$preload" -- "$@"
    compare "$name" "$plain" "$other" $? "$other.json"
}
# plugged NAME PLAIN [NAME=VALUE ...] -- COMMAND ...   with a plug-in, against the plain run of client PLAIN
plugged() {
    local name=$1 plain=$work/$2.plain settings=() other=$work/$1.plugin
    shift 2
    wanted "$name" || return 0
    while [ "$1" != -- ]; do settings+=("$1"); shift; done
    shift
    run_plain "$name" "$plain" "${settings[@]}" -- "$@" || return 0
    run "$other" "${settings[@]}" FALLOW_CLIENT_STATS="$other.json" -- "$@" --fallow
    compare "$name" "$plain" "$other" $? "$other.json"
}
no_gpu() { # NAME: on the simulated device
    ! wanted "$1" || result "$1" absent "needs a GPU"
}

# ---- queries of the driver (the numbers are first_run's)

if wanted asked; then
    run "$work/asked" -- "$bin/first_run" --device "$(if [ "$device" = sim ]; then echo sim; else echo 0; fi)"
    case $? in
    0) result asked pass "$(tail -n 1 "$work/asked.out")" ",\"answers\":\"$(escape <"$work/asked.out")\"" ;;
    77)
        echo "clients.sh: no CUDA device can be used here; --device sim runs the rest: $(tail -n 1 "$work/asked.err")" >&2
        exit 77 ;;
    *) result asked fail "$(grep 'NO, and' "$work/asked.out" | head -n 3) $(tail -n 1 "$work/asked.err")" \
        ",\"answers\":\"$(escape <"$work/asked.out")\"" ;;
    esac
fi
# Find the driver's file as the loader does, only if a step needs the path, since the probe starts the driver again.
if [ "$device" != sim ] && { wanted driver_symbolic || wanted c_path; }; then
    found=$("$bin/device_probe" --device 0 2>/dev/null | sed -n 's/.*"library":"\([^"]*\)".*/\1/p')
    driver=${found:-$driver}
fi
# 1. Does the driver call itself by exported names?
if wanted driver_symbolic; then
    if text=$(readelf -d "$driver" 2>&1); then
        result driver_symbolic pass "1: $driver has $(echo "$text" | grep -c SYMBOLIC) SYMBOLIC flags"
    else
        result driver_symbolic absent "readelf cannot read $driver"
    fi
fi
# 10. How the frameworks are linked.
if wanted linkage; then
    text=$(command -v python3 >/dev/null || { echo "no python3"; exit 77; }; python3 "$here/linkage.py" 2>&1)
    case $? in
    0) result linkage pass "10: $text" ;;
    77) result linkage absent "$text" ;;
    *) result linkage fail "$(echo "$text" | tail -n 1)" ;;
    esac
fi
# 12. The surroundings of the device.
if wanted surroundings; then
    if [ "$device" = sim ]; then
        no_gpu surroundings
    else
        text=$(nvidia-smi --query-gpu=name,driver_version,mig.mode.current,compute_mode --format=csv,noheader 2>&1 | head -n 1)
        result surroundings pass "12: $text; MPS pipe ${CUDA_MPS_PIPE_DIRECTORY-not set}, visible ${CUDA_VISIBLE_DEVICES-}"
    fi
fi

# ---- 9. plain C, by every way to the driver

client c_linked -- "$bin/client_plain_linked" linked verify
client c_dlopen -- "$bin/client_plain" dlopen verify
client c_path -- "$bin/client_plain" "path:$driver" verify
client c_default -- "$bin/client_plain" default verify
client c_lookup -- "$bin/client_plain" lookup verify
for what in fork-before fork-after destructor reset contexts; do
    client "c_$what" -- "$bin/client_plain" dlopen $what
done
mode=strict client c_strict -- "$bin/client_plain" dlopen verify
# The same through the runtime. On the simulated driver a real runtime stops with error 103.
nvcc=$(command -v nvcc || command -v "${CUDA_HOME-/usr/local/cuda}/bin/nvcc")
for form in static shared ptds; do
    case $form in
    static) flags=(-cudart static) ;;
    shared) flags=(-cudart shared) ;;
    ptds) flags=(-cudart static --default-stream per-thread) ;;
    esac
    for what in verify fork-before destructor reset; do
        name=runtime_${form}_$what
        wanted "$name" || continue
        if [ "$device" = sim ]; then
            no_gpu "$name"
        elif [ -z "$nvcc" ]; then
            result "$name" absent "no nvcc"
        elif [ ! -x "$work/$form" ] && ! "$nvcc" -arch=native "${flags[@]}" -o "$work/$form" "$here/plain.cu" 2>"$work/$form.log"; then
            result "$name" fail "$(tail -n 1 "$work/$form.log")"
        else
            client "$name" -- "$work/$form" $what
        fi
    done
done
# 3. Which driver calls the runtime's become.
if wanted runtime_calls; then
    if [ -x "$work/static" ] && [ -x "$bin/fallow" ]; then
        run "$work/calls" FALLOW="mode:trace,trace:$work/calls.ftrace" LD_PRELOAD="$preload" -- "$work/static" calls
        if text=$("$bin/fallow" trace dump "$work/calls.ftrace" 2>&1 | tail -n 40) && [ -n "$text" ]; then
            result runtime_calls pass "3: in the trace" ",\"trace\":\"$(printf '%s' "$text" | escape)\""
        else
            result runtime_calls fail "no trace: $(tail -n 1 "$work/calls.err")"
        fi
    else
        result runtime_calls absent "needs a GPU and nvcc"
    fi
fi

# ---- frameworks

python=$(command -v python3)
if [ -z "$python" ] || [ "$device" = sim ]; then
    why="needs a GPU"
    if [ -z "$python" ]; then why="no python3"; fi
    for name in torch_uncached torch_cached torch_streams torch_graph torch_plugin torch_plugin_graph \
        torch_mempool cupy cupy_plugin jax numba numba_plugin triton; do
        ! wanted $name || result $name absent "$why"
    done
else
    client torch_uncached PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "$python" "$here/torch_train.py"
    client torch_cached -- "$python" "$here/torch_train.py" --empty-cache
    client torch_streams PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "$python" "$here/torch_streams.py"
    client torch_graph -- "$python" "$here/torch_graph.py"
    plugged torch_plugin torch_uncached -- "$python" "$here/torch_train.py"
    plugged torch_plugin_graph torch_graph -- "$python" "$here/torch_graph.py"
    plugged torch_mempool torch_uncached FALLOW_CLIENT_FORM=mempool -- "$python" "$here/torch_train.py"
    client cupy -- "$python" "$here/cupy_work.py"
    plugged cupy_plugin cupy -- "$python" "$here/cupy_work.py"
    client jax XLA_PYTHON_CLIENT_ALLOCATOR=platform -- "$python" "$here/jax_grad.py"
    client numba -- "$python" "$here/numba_reduce.py"
    plugged numba_plugin numba -- "$python" "$here/numba_reduce.py"
    client triton PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "$python" "$here/triton_add.py"
fi
if [ -n "$python" ]; then # they need no kernel: the simulated driver does
    client bindings -- "$python" "$here/bindings_alloc.py"
fi
# 10. llama.cpp, by its own test of every operation.
ops=$(command -v "${FALLOW_LLAMA-}/bin/test-backend-ops" || true)
for name in llama llama_no_vmm; do
    wanted $name || continue
    if [ "$device" = sim ] || [ -z "$ops" ]; then
        result $name absent "needs a GPU and FALLOW_LLAMA=DIR with bin/test-backend-ops"
    else
        settings=(FALLOW_LLAMA="$FALLOW_LLAMA")
        if [ $name = llama_no_vmm ]; then settings+=(GGML_CUDA_NO_VMM=1); fi
        client $name "${settings[@]}" -- sh -c '"$FALLOW_LLAMA/bin/test-backend-ops" test -b CUDA0 | grep -E "tests passed|Backend CUDA0:"'
    fi
done

# ---- the audit

# audited NAME [NAME=VALUE ...] -- COMMAND ...   the command works as without Fallow, and its report exists
audited() {
    local name=$1 file=$work/$1 settings=()
    shift
    wanted "$name" || return 1
    while [ "$1" != -- ]; do settings+=("$1"); shift; done
    shift
    run "$file" "${settings[@]}" -- "$bin/fallow" audit --json -o "$file.json" -- "$@"
    case $? in
    0) [ -s "$file.json" ] && return 0 ;;
    77) result "$name" absent "$(tail -n 1 "$file.err")"; return 1 ;;
    esac
    result "$name" fail "$(tail -n 1 "$file.out") $(tail -n 1 "$file.err")"
    return 1
}
if [ ! -x "$bin/fallow" ]; then
    for name in audit_plain audit_torch audit_cupy; do
        ! wanted $name || result $name absent "the command fallow is not built"
    done
else
    if audited audit_plain -- "$bin/client_plain" dlopen verify; then
        result audit_plain pass "$(sed -n 's/.*"counts":{\("blocks":[0-9]*\).*\("fills":[0-9]*\).*/\1 \2/p' "$work/audit_plain.json")"
    fi
    for name in audit_torch audit_cupy; do
        if [ -z "$python" ] || [ "$device" = sim ]; then
            no_gpu $name
        elif audited $name PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- "$python" "$here/audit_fills.py" ${name#audit_}; then
            if text=$("$python" "$here/audit_fills.py" check "$work/$name.json" 2>&1); then
                result $name pass "$text"
            else
                result $name fail "$text" ",\"report\":\"$(escape <"$work/$name.json")\""
            fi
        fi
    done
fi

# ---- the file

if [ "$device" = sim ]; then
    gpu="simulated device" simulated=true
else
    gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader -i "$device" 2>/dev/null | head -n 1 | escape)
    simulated=false
fi
commit=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)
text=$(printf '{"simulated":%s,"date":"%s","gpu":"%s","commit":"%s","passed":%d,"failed":%d,"absent":%d,"clients":{%s}}' \
    $simulated "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$gpu" "$commit" $passed $failed $absent "$sections")
if [ "$out" = - ]; then
    printf '%s\n' "$text" >&3
else
    printf '%s\n' "$text" >"$out.part" && mv "$out.part" "$out" || exit 1
    echo "$passed passed, $failed failed, $absent absent (which is not passed); results: $out"
fi
[ $failed = 0 ] || exit 1
[ $passed != 0 ] || [ $absent = 0 ] || exit 77
