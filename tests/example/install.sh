#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# example.install: installs the build, moves the installed tree, then builds quickstart.c and a user of
# the kernels against it through CMake and through pkg-config and runs them on the simulated device.
#
#   install.sh <source root> <build tree> <scratch folder> <c compiler>
#
# The scratch folder is made anew and removed when all went well.
set -eu
source=$1 build=$2 work=$3 cc=$4
tree=$work/moved/fallow
program=$source/tests/example/quickstart.c
command -v pkg-config >/dev/null || { echo "no pkg-config: nothing checked"; exit 77; }
unset LD_LIBRARY_PATH
rm -rf "$work"
mkdir -p "$work/moved" "$work/client"

# The other library: found, linked, opened.
kernels=$work/client/kernels.c
cat >"$kernels" <<'C'
#include <fallow/arena.h>
#include <fallow/kernels.h>

int main(void)
{
    fallow_pool_config config = {.struct_size = sizeof config, .driver = "sim"};
    fallow_pool *pool = NULL;
    fallow_kernels *kernels = NULL;
    fallow_arena *arena = NULL;
    int failed = fallow_pool_create(&config, &pool) || fallow_kernels_create(pool, &kernels) ||
                 fallow_arena_create(pool, NULL, &arena);
    fallow_arena_destroy(arena);
    fallow_kernels_destroy(kernels);
    fallow_pool_destroy(pool);
    return failed;
}
C

# The third one, where it was built.
host=$work/client/host.c
cat >"$host" <<'C'
#include <fallow/host.h>

int main(void)
{
    fallow_pool_config config = {.struct_size = sizeof config, .driver = "sim"};
    fallow_pool *pool = NULL;
    fallow_host *host = NULL;
    void *block = NULL;
    int failed = fallow_pool_create(&config, &pool) || fallow_host_create(pool, NULL, &host) ||
                 fallow_host_alloc(host, 1 << 20, &block) || fallow_host_free(host, block, NULL);
    fallow_host_destroy(host);
    fallow_pool_destroy(pool);
    return failed;
}
C

expect_output() {
    local said
    said=$("$1") || { echo "$1 failed" >&2; exit 1; }
    [[ $said == "lent 64 MiB at 0x"* ]] || { echo "$1 printed '$said'" >&2; exit 1; }
}

cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$tree"
libdir=$(sed -n 's/^CMAKE_INSTALL_LIBDIR:[A-Z]*=//p' "$build/CMakeCache.txt")

# Through CMake: the moved package, and no other.
cp "$program" "$work/client/"
cat >"$work/client/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(client LANGUAGES C)
find_package(fallow 0.1 REQUIRED)
add_executable(quickstart quickstart.c)
target_link_libraries(quickstart PRIVATE fallow::fallow)
add_executable(kernels kernels.c)
target_link_libraries(kernels PRIVATE fallow::kernels)
if(TARGET fallow::host)
  add_executable(host host.c)
  target_link_libraries(host PRIVATE fallow::host)
endif()
CMAKE
cmake -S "$work/client" -B "$work/client/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$tree" \
    >"$work/configure.log"
grep -q "^fallow_DIR:PATH=$tree/" "$work/client/build/CMakeCache.txt" ||
    { echo "find_package found another fallow than the moved one" >&2; exit 1; }
cmake --build "$work/client/build" >"$work/build.log"
expect_output "$work/client/build/quickstart"
"$work/client/build/kernels" || { echo "the user of fallow::kernels failed" >&2; exit 1; }

has_host=$(find "$tree/$libdir" -name 'libfallow-host.so')
[ -z "$has_host" ] || "$work/client/build/host" || { echo "the user of fallow::host failed" >&2; exit 1; }

# Through pkg-config.
export PKG_CONFIG_PATH=$tree/$libdir/pkgconfig
# shellcheck disable=SC2046 # flags are words
"$cc" -std=c11 "$program" -o "$work/by_pkg_config" $(pkg-config --cflags --libs fallow) \
    -Wl,-rpath,"$(pkg-config --variable=libdir fallow)"
expect_output "$work/by_pkg_config"
# shellcheck disable=SC2046
"$cc" -std=c11 "$kernels" -o "$work/kernels_by_pkg_config" $(pkg-config --cflags --libs fallow-kernels) \
    -Wl,-rpath,"$(pkg-config --variable=libdir fallow-kernels)"
[ -z "$has_host" ] || "$cc" -std=c11 "$host" -o "$work/host_by_pkg_config" \
    $(pkg-config --cflags --libs fallow-host) -Wl,-rpath,"$(pkg-config --variable=libdir fallow-host)"
[ -z "$has_host" ] || "$work/host_by_pkg_config" ||
    { echo "the user of pkg-config fallow-host failed" >&2; exit 1; }
"$work/kernels_by_pkg_config" || { echo "the user of pkg-config fallow-kernels failed" >&2; exit 1; }

# The Python module finds the library, and that the simulated driver.
if command -v python3 >/dev/null; then
    said=$(env -u FALLOW_LIBRARY PYTHONPATH="$tree/share/fallow/python" python3 -c \
        "import fallow; fallow.configure(driver='sim'); print(fallow.Layout([{'name': 'x', 'bytes': 512}]).bytes, fallow.library_path())")
    [ "$said" = "512 $tree/$libdir/libfallow.so.0" ] || { echo "fallow.py printed '$said'" >&2; exit 1; }
fi

# The command finds its libraries and the simulated driver where they lie now.
if [ -x "$build/bin/fallow" ]; then
    "$tree/bin/fallow" bench pair --count 1000 >"$work/bench.log"
fi

# And the library that it preloads, where it was built.
if [ -x "$build/bin/fallow" ] && [ -e "$tree/$libdir/libfallow-preload.so" ]; then
    said=$("$tree/bin/fallow" run --set say:1 -- true 2>&1)
    [[ $said == *"not reached: the program never loaded libcuda.so.1"* ]] ||
        { echo "the installed fallow run printed '$said'" >&2; exit 1; }
fi

# A deeper library folder, as Debian's: the prefix is as many steps further up.
cmake -S "$source" -B "$work/deep" -DCMAKE_C_COMPILER="$cc" -DFALLOW_TESTS=OFF -DFALLOW_TOOLS=OFF \
    -DCMAKE_INSTALL_LIBDIR=lib/some-machine/deep >"$work/deep.log"
mkdir -p "$work/tree/lib/some-machine/deep/pkgconfig" "$work/tree/include"
cp "$work/deep/src/package/fallow.pc" "$work/tree/lib/some-machine/deep/pkgconfig/"
include=$(PKG_CONFIG_PATH=$work/tree/lib/some-machine/deep/pkgconfig pkg-config --variable=includedir fallow)
[ "$(cd "$include" && pwd -P)" = "$(cd "$work/tree/include" && pwd -P)" ] ||
    { echo "fallow.pc in a deeper folder gives '$include'" >&2; exit 1; }

rm -rf "$work"
echo "built through CMake and pkg-config from a moved tree, libraries in $libdir"
