#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# example.install: installs the build, moves the installed tree, then builds programs against it, through
# CMake and through pkg-config, shared and static, and runs them on the simulated device. Checks the other files of the
# tree.
#
#   install.sh <source root> <build tree> <scratch folder> <c compiler>
#
# The scratch folder is made anew and removed when all went well.
set -eu
source=$1 build=$2 work=$3 cc=$4
here=$source/tests/example/installed
tree=$work/moved/fallow
program=$source/tests/example/quickstart.c
command -v pkg-config >/dev/null || { echo "no pkg-config: nothing checked"; exit 77; }
cxx=$(command -v g++ || command -v clang++ || true)
unset LD_LIBRARY_PATH
rm -rf "$work"
mkdir -p "$work/moved"

die() {
    echo "$1" >&2
    exit 1
}

from_cache() { # NAME: a variable of the build
    sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}

expect_output() {
    local said
    said=$("$1") || die "$1 failed"
    [[ $said == "allocated 64 MiB at 0x"* ]] || die "$1 printed '$said'"
}

# needs FILE: the libraries that it names
needs() {
    readelf -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'
}

expect_static() {
    expect_output "$1"
    [[ $(needs "$1") != *libfallow* ]] || die "$1 was to be linked with libfallow.a, and needs $(needs "$1")"
}

# The caller chooses argv[0], so the program must not load a library from its folder.
expect_no_library_by_argument() {
    local planted=$work/planted
    mkdir -p "$planted"
    echo '__attribute__((constructor)) static void leave(void) { __builtin_trap(); }' >"$planted/trap.c"
    "$cc" -shared -fPIC -o "$planted/libfallow-simcuda.so" "$planted/trap.c"
    (exec -a "$planted/program" "$1") >/dev/null || die "$1 loaded a library from the folder of its argument 0"
}

install_and_move() {
    cmake --install "$build" --prefix "$work/first" >"$work/install.log"
    mv "$work/first" "$tree"
    libdir=$(from_cache CMAKE_INSTALL_LIBDIR)
    has_host=$(find "$tree/$libdir" -name 'libfallow-host.so')
    export PKG_CONFIG_PATH=$tree/$libdir/pkgconfig
}

# The moved package, and no other.
through_cmake() {
    local client=$work/client
    cp -r "$here" "$client"
    cp "$program" "$client/"
    cmake -S "$client" -B "$client/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$tree" >"$work/configure.log"
    grep -q "^fallow_DIR:PATH=$tree/" "$client/build/CMakeCache.txt" ||
        die "find_package found another fallow than the moved one"
    cmake --build "$client/build" >"$work/build.log"
    expect_output "$client/build/quickstart"
    expect_static "$client/build/quickstart_static"
    "$client/build/kernels" || die "the user of fallow::kernels failed"
    [ -z "$has_host" ] || "$client/build/host" || die "the user of fallow::host failed"
    # A shared object that contains the archive exports none of its names, and stays loaded when closed.
    "$client/build/opener" "$client/build/libplugin.so" || die "a thread that used a closed plug-in failed"
    ! nm -D --defined-only "$client/build/libplugin.so" | grep -E '(fallow|flw)_' | grep -v use_fallow ||
        die "the plug-in exports the names above"
}

# by_pkg_config NAME SOURCE FLAGS...: builds $work/NAME
by_pkg_config() {
    local name=$1 code=$2
    shift 2
    "$cc" -std=c11 "$code" -o "$work/$name" "$@" || die "$name: '$*' does not link"
}

# shellcheck disable=SC2046 # flags are words
through_pkg_config() {
    by_pkg_config shared "$program" $(pkg-config --cflags --libs fallow)
    expect_output "$work/shared"
    # "It brings a static library (`pkg-config fallow-static`)": with no word to the linker.
    by_pkg_config archive "$program" $(pkg-config --cflags --libs fallow-static)
    expect_static "$work/archive"
    expect_no_library_by_argument "$work/archive"
    by_pkg_config kernels "$here/kernels.c" $(pkg-config --cflags --libs fallow-kernels)
    "$work/kernels" || die "the user of pkg-config fallow-kernels failed"
    if [ -n "$cxx" ]; then
        "$cxx" -std=c++17 "$source/tests/example/steps.cpp" -o "$work/steps" $(pkg-config --cflags --libs fallow) ||
            die "the C++ program does not compile"
        [[ $("$work/steps") == *"step 2: 64 MiB of scratch"*"FALLOW_OUT_OF_MEMORY: "* ]] || die "the C++ program failed"
    fi
    [ -n "$has_host" ] || return 0
    by_pkg_config host "$here/host.c" $(pkg-config --cflags --libs fallow-host)
    "$work/host" || die "the user of pkg-config fallow-host failed"
}

# A deeper library folder, as Debian's: the prefix is as many steps further up. In a folder that the loader searches by
# itself, no path is recorded.
other_folders() {
    local include
    cmake -S "$source" -B "$work/deep" -DCMAKE_C_COMPILER="$cc" -DFALLOW_TESTS=OFF -DFALLOW_TOOLS=OFF \
        -DCMAKE_INSTALL_LIBDIR=lib/some-machine/deep >"$work/deep.log"
    mkdir -p "$work/tree/lib/some-machine/deep/pkgconfig" "$work/tree/include"
    cp "$work/deep/src/package/fallow.pc" "$work/tree/lib/some-machine/deep/pkgconfig/"
    include=$(PKG_CONFIG_PATH=$work/tree/lib/some-machine/deep/pkgconfig pkg-config --variable=includedir fallow)
    [ "$(cd "$include" && pwd -P)" = "$(cd "$work/tree/include" && pwd -P)" ] ||
        die "fallow.pc in a deeper folder gives '$include'"
    cmake -S "$source" -B "$work/deep" -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR=lib >"$work/deep.log"
    ! grep rpath "$work/deep/src/package/fallow.pc" || die "fallow.pc of /usr has the rpath above"
}

# The Python module finds the library, and that the simulated driver.
through_python() {
    local said
    command -v python3 >/dev/null || return 0
    said=$(env -u FALLOW_LIBRARY PYTHONPATH="$tree/share/fallow/python" python3 -c \
        "import fallow; fallow.configure(driver='sim'); print(fallow.Layout([{'name': 'x', 'bytes': 512}]).bytes, fallow.library_path())")
    [ "$said" = "512 $tree/$libdir/libfallow.so.0.2" ] || die "the module fallow printed '$said'"
}

# The command finds its libraries and the simulated driver in their new place, and the library to preload, if it was
# built.
command_of_the_tree() {
    local said
    [ -x "$build/bin/fallow" ] || return 0
    "$tree/bin/fallow" bench pair --count 1000 >"$work/bench.log"
    [ -e "$tree/$libdir/libfallow-preload.so" ] || return 0
    said=$("$tree/bin/fallow" run -- true 2>&1)
    [[ $said == *"never reached: no CUDA was used, libcuda.so.1 was not loaded"* ]] ||
        die "the installed fallow run printed '$said'"
}

# A page for the command and for each subcommand, found where man looks.
man_pages() {
    local name folder
    folder=$tree/$(from_cache CMAKE_INSTALL_DATAROOTDIR)/man
    [ -x "$build/bin/fallow" ] || return 0
    for name in '' $("$tree/bin/fallow" --help | sed -n 's/^  \([a-z]*\)  *[^ ].*/-\1/p' | grep -vx -e -fallow); do
        [ -s "$folder/man1/fallow$name.1" ] || die "there is no man page fallow$name(1)"
    done
    command -v man >/dev/null || { echo "no man: the pages lie there, none was looked up"; return 0; }
    MANPAGER=cat MANWIDTH=120 man -M "$folder" fallow-replay | grep -q 'Replay an allocation trace' ||
        die "man -M $folder does not show fallow-replay(1)"
}

install_and_move
for text in LICENSE src/package/CHANGELOG.md; do
    cmp "$source/$text" "$tree/$(from_cache CMAKE_INSTALL_DATAROOTDIR)/doc/fallow/$(basename $text)"
done
through_cmake
through_pkg_config
through_python
command_of_the_tree
man_pages
other_folders
rm -rf "$work"
echo "built through CMake and pkg-config, shared and static, from a moved tree, libraries in $libdir"
