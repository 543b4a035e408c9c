#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check.wheel: builds the wheel from the sources, installs it into a fresh environment, and uses the module and the
# command there with no other variable set, on the simulated device.
#
#   wheel.sh <source root> <C compiler> <python3> <scratch folder> [wheel [root]]
#
# A given wheel is used instead of building one. A wheel for aarch64 is unpacked and run under qemu, with the libraries
# and the Python of a root of arm64, except fallow run, which starts a program. Building needs scikit-build-core,
# installed or from PyPI; skipped without. Kernels are built without device code.
set -eu
source=$1 cc=$2 python=$3 work=$4 root=${6-}

die() {
    echo "check.wheel: $1" >&2
    exit 1
}

# Skip the test because something is missing here.
cannot() {
    echo "check.wheel: $1"
    exit 77
}

rm -rf "$work"
mkdir -p "$work/elsewhere/driver"

# ---- build

[[ $("$source/tools/wheel" "$work" mips 2>&1) == "wheel: no machine 'mips'"* ]] || die "tools/wheel takes any machine"

build_wheel() {
    "$python" -m venv --system-site-packages "$work/builder" >"$work/builder.log" 2>&1 ||
        cannot "$python makes no environments with pip (python3-venv has them): $(tail -1 "$work/builder.log")"
    timeout 90 "$work/builder/bin/python3" -m pip install --timeout 10 --retries 1 'scikit-build-core>=0.11' \
        >"$work/builder.log" 2>&1 ||
        cannot "no scikit-build-core, neither installed nor from PyPI: $(tail -1 "$work/builder.log")"
    CC=$cc CMAKE_BUILD_PARALLEL_LEVEL=2 "$work/builder/bin/python3" -m pip wheel -v --no-build-isolation --no-deps \
        --config-settings cmake.define.FALLOW_KERNEL_IMAGES=OFF -w "$work" "$source" >"$work/build.log" 2>&1 ||
        { tail -30 "$work/build.log" >&2; die "pip wheel failed"; }
    wheel=$(echo "$work"/fallow-*-py3-none-*.whl)
}
wheel=${5-}
[ -n "$wheel" ] || build_wheel
[ -f "$wheel" ] || die "the wheel is for one Python: $(ls "$work")"

# ---- install

"$python" - "$wheel" <<'END' || die "the contents of $wheel"
import re, stat, sys, zipfile

wheel = zipfile.ZipFile(sys.argv[1])
infos = wheel.infolist()
names = [info.filename for info in infos if not info.is_dir()]
size = sum(info.compress_size for info in infos)
modes = {info.filename: info.external_attr >> 16 for info in infos}
libraries = sorted(re.sub(r"^fallow/lib/lib|\.so.*", "", name) for name in names if ".so" in name)
print("wheel: %d files, %d KiB; libraries %s" % (len(names), size >> 10, " ".join(libraries)))
assert not any(stat.S_ISLNK(mode) for mode in modes.values()), "links"
info, man = r"fallow-[0-9.]+\.dist-info/", r"fallow-[0-9.]+\.data/data/share/man/man1/"
others = [name for name in names if not re.fullmatch(
    r"fallow/[\w/]+\.py|fallow/py\.typed|fallow/include/fallow/\w+\.h|\w+\.pth|fallow/lib/[a-z-]+\.so(\.\d+\.\d+)?|fallow/bin/fallow|%sfallow[a-z-]*\.1|%s.*" % (man, info), name)]
assert not others, others
assert len(libraries) == len(set(libraries)), "a library twice"
assert {"fallow", "fallow-kernels", "fallow-preload", "fallow-simcuda"} <= set(libraries), libraries
assert modes["fallow/bin/fallow"] & 0o111 == 0o111, "the command cannot be run"
pages = {re.sub(man, "", name) for name in names if re.match(man, name)}
assert {"fallow.1", "fallow-report.1", "fallow-run.1"} <= pages, pages
assert size < 15 << 20, size

# tools/wheel links libraries statically; the wheel has their licences. auditwheel has checked the glibc version they
# need.
metadata = next(name for name in names if re.fullmatch(info + "METADATA", name))
licences = set(re.findall("^License-File: (?:bundled/)?(.*)", wheel.read(metadata).decode(), re.M))
bundled = "jemalloc.txt liblzma.txt libunwind.txt libzstd.txt zig.txt zlib.txt".split()
machine = re.search(r"-manylinux_2_28_(\w+)\.whl", sys.argv[1])
assert licences == {"LICENSE", *(bundled if machine else ())}, licences
assert licences == {name.rpartition("/")[2] for name in names if re.match(info + "licenses/", name)}, names
for name in names if machine else ():
    if re.match("fallow/(lib|bin)/", name):
        assert wheel.read(name)[18] == {"x86_64": 62, "aarch64": 183}[machine.group(1)], name + " is of another machine"
END

# emulated PROGRAM: writes env/bin/NAME, which runs PROGRAM under qemu
emulated() {
    printf '#!/bin/sh\nPYTHONPATH=%q PYTHONHOME=%q exec qemu-aarch64-static -L %q %q "$@"\n' \
        "$work/env" "$root/usr" "$root" "$1" >"$work/env/bin/$(basename "$1")"
    chmod +x "$1" "$work/env/bin/$(basename "$1")"
}

foreign=
[ -z "$root" ] || [ "$(uname -m)" = aarch64 ] || foreign=yes
if [ -n "$foreign" ]; then
    mkdir -p "$work/env/bin"
    "$python" -m zipfile -e "$wheel" "$work/env"
    emulated "$root/usr/bin/python3"
    emulated "$work/env/fallow/bin/fallow"
else
    "$python" -m venv "$work/env" >"$work/env.log" 2>&1 &&
        "$work/env/bin/python3" -m pip install --no-index --no-deps "$wheel" >>"$work/env.log" 2>&1 ||
        { tail -5 "$work/env.log" >&2; die "the wheel cannot be installed"; }
    [ -f "$work/env/share/man/man1/fallow-report.1" ] || die "no man pages in the environment"
fi

# ---- use

cd "$work/elsewhere"
# inside COMMAND...: runs COMMAND with the environment first in PATH and no other variable
inside() {
    env -i PATH="$work/env/bin:/usr/bin:/bin" "$@"
}

lib=$(inside python3 -c '
import os, sys
import fallow
assert fallow.__file__.startswith(sys.argv[1]), fallow.__file__
assert "libfallow" not in open("/proc/self/maps").read(), "the import loads the library"
fallow.configure(driver="sim")
address = fallow.allocate(1 << 20)
assert address and fallow.stats()["live_bytes"] == 1 << 20, fallow.stats()
fallow.free(address)
assert fallow.stats()["live_bytes"] == 0, fallow.stats()
folder = os.path.join(os.path.dirname(fallow.__file__), "lib")
assert os.path.dirname(fallow.library_path()) == folder, fallow.library_path()
assert all(name.startswith("sm_") for name in fallow.kernel_generations()), fallow.kernel_generations()
print(folder)
' "$work/env") || die "the module"

# A snapshot of one block with a stack.
snapshot=$source/tests/fuzz/corpus/pickle/state_4
# reports COMMAND...: COMMAND report prints the line of Python that holds the block
reports() {
    local said
    said=$(inside "$@" report "$snapshot") || die "$* report: $said"
    [[ $said == *'forward (model.py:17)'* ]] || die "$* report printed: $said"
}
reports fallow
[ -z "$foreign" ] || exit 0

if command -v man >/dev/null; then
    [ "$(inside man -w fallow-report)" = "$work/env/share/man/man1/fallow-report.1" ] || die "man finds no page"
fi
for library in "$lib"/*; do
    said=$(inside LD_PRELOAD="$library" true 2>&1)
    [ -z "$said" ] || die "$said"
done
ln -s "$lib/libfallow-simcuda.so" driver/libcuda.so.1

reports python3 -m fallow
for command in fallow 'python3 -m fallow'; do
    # shellcheck disable=SC2016,SC2086 # a list of words
    inside $command run -- sh -c 'kill -s PIPE $$' 2>/dev/null && code=0 || code=$?
    [ "$code" = 141 ] || die "$command run: a program under it ignores SIGPIPE (exit status $code)"
done
inside python3 -c 'import fallow, sys; assert "model.py:17" in fallow.report_html(sys.argv[1]).html' "$snapshot" ||
    die "report_html"

echo >torch.py
said=$(inside FALLOW_AUTO=torch python3 -c 'import torch' 2>&1) || die "FALLOW_AUTO ends Python: $said"
[[ $said == "fallow: FALLOW_AUTO=torch: torch allocates without Fallow: "*"needs PyTorch 2.3"* ]] ||
    die "FALLOW_AUTO printed: $said"
inside python3 -c 'from importlib.metadata import distribution
groups = {entry.group for entry in distribution("fallow").entry_points if callable(entry.load())}
assert groups == {"console_scripts", "vllm.general_plugins"}, groups' || die "the entry points"

cat >cuda.py <<'END'
import ctypes

cuda = ctypes.CDLL("libcuda.so.1")
context, block = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1 << 20)) == 0
assert cuda.cuMemFree_v2(block) == 0
END
said=$(inside LD_LIBRARY_PATH=driver fallow run --stats - -- python3 cuda.py 2>&1) || die "fallow run: $said"
[[ $said == *' mode cache: 1 allocation '* ]] || die "fallow run printed: $said"

inside python3 -m pip uninstall -q -y fallow >"$work/env.log" 2>&1
[ -z "$(find "$work/env" -iname '*fallow*')" ] || die "pip uninstall leaves files: $(find "$work/env" -iname '*fallow*')"
rm -rf "$work/builder" "$work/env"
