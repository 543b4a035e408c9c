# SPDX-License-Identifier: Apache-2.0
"""check.layers: files include only their own layer and lower ones, entry points are called by their exported names,
and files are short or give a reason.

  layers.py SOURCE_ROOT

The planted faults below show first that each rule can fail. Exit 1: an offence, printed with its line, or a planted
fault that was not found.
"""
import os
import re
import sys

# The folders that a folder of src may include.
CORE = ["base", "driver", "memory", "heap", "record", "pool", "fallow"]
LAYERS = {
    "base": ["base", "fallow"], "driver": ["base", "driver", "fallow"], "memory": ["base", "driver", "memory", "fallow"],
    "heap": ["base", "driver", "memory", "heap", "fallow"], "record": ["base", "record", "fallow"], "pool": CORE,
    "arena": [*CORE, "arena"], "plugin": [*CORE, "plugin"], "publish": [*CORE, "publish"], "preload": [*CORE, "preload"],
    "host": ["base", "driver", "host", "fallow"], "trace": ["base", "record", "trace", "fallow/model.h"], "package": [],
    "simcuda": ["base", "simcuda", "fallow", "driver/driver_types.h", "driver/entry_points.h"],
}
KERNELS = ["fallow", "common", "debug", "attention", "mla", "moe", "driver/answer.h", "driver/section.h"]
# The folders of a layer from the lowest; a folder includes itself and lower ones. Files in no folder are above all.
FLOORS = {"heap": "state space order physical caches".split(), "pool": "state streams ladder calls extensions".split(),
          "trace": "io trace formats gen".split()}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.M)
LICENCE = "SPDX-License-Identifier: Apache-2.0"
LONG = 800  # lines


def is_allowed(path, allowed):
    return any(path == entry or path.startswith(entry + "/") for entry in allowed)


def command_offence(path, included, paths):
    """tools/fallow: common < policies < a folder for each subcommand, which includes no other subcommand."""
    folder = path.split("/")[2]
    if "/" not in included or f"tools/fallow/{included}" not in paths:
        return None
    target = included.split("/")[0]
    if (folder, target) == ("trace", "trace"):
        return "looks like src/trace; name the header alone"
    is_good = target in ("common", folder) or (target == "policies" and folder != "common")
    return None if is_good else "may be included by its own folder alone; shared code is in common or policies"


def include_offence(path, bracket, included, paths):
    parts = path.split("/")
    if bracket == "<":
        if included == "cmocka.h" and path != "tests/support/test.h":
            return 'include "support/test.h" instead'
        is_ours = "/" in included and included.split("/")[0] in {*LAYERS, "support"}
        return "include our own headers in quotes" if is_ours else None
    if parts[0] == "src":
        layer, floors = parts[1], FLOORS.get(parts[1], [])
        if not is_allowed(included, LAYERS[layer]):
            return f"src/{layer} must not include it"
        if parts[2] in floors and included.startswith(layer + "/"):
            below = [f"{layer}/{floor}" for floor in floors[:floors.index(parts[2]) + 1]]
            return None if is_allowed(included, below) else f"is above the floor {parts[2]}"
    elif parts[0] == "kernels" and not is_allowed(included, KERNELS):
        return "kernels must not include it"
    elif parts[0] == "include" and not included.startswith("fallow/"):
        return "a public header must not include it"
    elif parts[:2] == ["tools", "fallow"] and len(parts) > 3:
        return command_offence(path, included, paths)
    return None


def offences(path, text, paths, renamed):
    """Yield the offences of one file. `renamed` matches plain names of entry points that cuda.h renames."""
    parts = path.split("/")
    if parts[0] == "src" and (parts[1] not in LAYERS or
                              len(parts) > 3 and parts[1] in FLOORS and parts[2] not in FLOORS[parts[1]]):
        yield f"{path}: no rule names the folder; add it to tests/check/layers.py"
        return
    if LICENCE not in text.split("\n")[0]:
        yield f"{path}:1: begin with the SPDX line"
    for match in INCLUDE.finditer(text):
        offence = include_offence(path, match[1], match[2], paths)
        if offence:
            yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match[2]}: {offence}"
    if text.count("\n") > LONG and "Long because" not in text.split("*/")[0]:
        yield f'{path}: more than {LONG} lines; split it, or begin with a comment "Long because ..."'
    if parts[:2] == ["tools", "fallow"]:
        if len(parts) == 3 and parts[2] != "main.c":
            yield f"{path}: the folder is for main.c; give the file a folder"
        for other in "src", "kernels":
            if path.endswith(".h") and f"{other}/{'/'.join(parts[2:])}" in paths:
                yield f"{path}: {other} has the same path; an include could mean either"
    # simcuda exports the old forms too, and the preload library hooks them.
    if renamed and parts[0] in ("src", "tools", "tests") and parts[1] not in ("simcuda", "preload"):
        for match in renamed.finditer(text):
            yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: call {match[1]} by its exported name"


def renamed_names(table):
    """Match calls of entry points by the plain names that are exported with a version only."""
    names = set(re.findall(r"^ *X\([A-Z]+, (cu\w+),", table, re.M))
    plain = {re.sub(r"_v\d+$", "", name) for name in names} - names
    return re.compile(rf"(?:\.|->|\(|, )({'|'.join(sorted(plain))})\([^)]") if plain else None


LICENSED = f"/* {LICENCE} */\n"
# Path, text, and whether it is an offence.
PLANTED = [
    ("src/base/x.c", '#include "heap/a.h"', 1), ("src/driver/x.c", '  #  include "heap/a.h"', 1),
    ("src/heap/x.h", '#include "pool/pool.h"', 1), ("src/heap/state/x.c", '#include "heap/order/a.h"', 1),
    ("src/heap/order/x.c", '#include "heap/life.h"', 1), ("src/trace/x.c", '#include "driver/driver.h"', 1),
    ("src/record/x.c", '#include "trace/trace/trace.h"', 1), ("src/simcuda/x.c", '#include "driver/driver.h"', 1),
    ("src/heap/x.c", '#include "../tools/t.h"', 1), ("src/heap/x.c", "#include <pool/pool.h>", 1),
    ("kernels/common/x.c", '#include "pool/pool.h"', 1), ("include/fallow/x.h", '#include "base/bits.h"', 1),
    ("tests/unit/x.c", "#include <cmocka.h>", 1), ("tests/unit/x.c", "    MUST(bed, cuMemFree(memory));", 1),
    ("tests/unit/x.c", "    cu->cuMemFree_v2(memory);\n    cu->cuInit(0);", 0), ("tools/fallow/bench.c", "int x;", 1),
    ("tools/fallow/common/x.c", '#include "policies/policies.h"', 1),
    ("tools/fallow/common/x.c", '#include "bench/bench.h"', 1), ("tools/fallow/policies/x.c", '#include "bench/bench.h"', 1),
    ("tools/fallow/bench/x.c", '#include "trace/verbs.h"', 1), ("tools/fallow/trace/x.c", '#include "trace/verbs.h"', 1),
    ("tools/fallow/trace/x.c", '#include "trace/trace/trace.h"\n#include "policies/policies.h"\n#include "verbs.h"', 0),
    ("tools/fallow/bench/a.h", "int x;", 1), ("src/novel/x.c", "int x;", 1), ("src/heap/novel/x.c", "int x;", 1),
    ("src/heap/x.c", "int x;\n" * 801, 1), ("src/heap/x.c", "/* Long because it is a table. */\n" + "int x;\n" * 801, 0),
    ("src/heap/order/x.c", '#include "heap/order/a.h"\n#include "heap/state/a.h"\n#include "base/b.h"', 0),
]


def missed_plants():
    renamed = renamed_names("    X(REQUIRED, cuMemFree_v2, (int))\n    X(REQUIRED, cuInit, (int))\n")
    paths = {"src/bench/a.h", *(f"tools/fallow/{name}.h" for name in ("policies/policies", "bench/bench", "trace/verbs"))}
    for path, text, is_offence in PLANTED:
        licensed = text.replace("/* ", f"/* {LICENCE}\n * ") if text.startswith("/* ") else LICENSED + text
        if bool(list(offences(path, licensed, paths, renamed))) != bool(is_offence):
            yield f"planted: {path}: {text[:60]!r} is {'not found' if is_offence else 'refused'}"
    if not list(offences("src/heap/x.c", "int x;\n", paths, renamed)):
        yield "planted: a file without a licence is not found"


def main(root):
    os.chdir(root)
    paths = [os.path.join(folder, name) for top in ("src", "include", "kernels", "tools", "tests")
             for folder, _, names in os.walk(top) for name in names if name.endswith((".c", ".h"))]
    with open("src/driver/entry_points.h") as table:
        renamed = renamed_names(table.read())
    found = list(missed_plants())
    for path in sorted(paths):
        with open(path, errors="replace") as file:
            found += offences(path, file.read(), set(paths), renamed)
    print("\n".join(found))
    print(f"{len(paths)} files, {len(found)} offences")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
