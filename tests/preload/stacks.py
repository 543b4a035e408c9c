# SPDX-License-Identifier: Apache-2.0
"""stacks.py FALLOW DRIVER_FOLDER CLIENT: record call stacks of a C program and of this file as a client, and check
that the owners of memory are the functions that allocated it."""
import ctypes
import json
import os
import subprocess
import sys
import tempfile

MIB = 1 << 20


# ---- the client: KIND is PyDLL (keeps the interpreter lock in calls) or CDLL (releases it)


def client(kind):
    driver = getattr(ctypes, kind)("libcuda.so.1")
    context = ctypes.c_void_p()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    blocks = []

    def allocate(size):
        block = ctypes.c_uint64()
        assert driver.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size)) == 0  # LINE
        blocks.append(block)

    class Layer:
        def weights(self):
            allocate(64 * MIB)

        def forward(self, depth):
            if depth:
                self.forward(depth - 1)
            else:
                allocate(4 * MIB)

    layer = Layer()
    layer.weights()
    for step in range(3):
        layer.forward(step)
        driver.cuMemFree_v2(blocks.pop())


# ---- the test


def line_of(mark):
    with open(__file__, encoding="utf-8") as text:
        return next(number for number, line in enumerate(text, 1) if line.rstrip().endswith("# " + mark))


class Bed:
    def __init__(self, fallow, drivers, program, folder):
        self.fallow, self.program, self.folder = fallow, program, folder
        self.environment = dict(os.environ, LD_LIBRARY_PATH=drivers)

    def record(self, options, command, **how):
        path = os.path.join(self.folder, "x.ftrace")
        if os.path.exists(path):
            os.unlink(path)
        subprocess.run([self.fallow, "record", "-o", path, *options, "--", *command], env=self.environment,
                       check=True, stdout=subprocess.DEVNULL, timeout=120, **how)
        facts = json.loads(subprocess.check_output([self.fallow, "trace", "info", "--json", path], timeout=60))
        return path, facts

    def dump(self, path):
        return subprocess.check_output([self.fallow, "trace", "dump", path], timeout=60)

    def owners(self, path, *options):
        text = subprocess.check_output([self.fallow, "report", "--json", "-", *options, path], timeout=120)
        traces = json.loads(text)["traces"]
        return {owner["owner"]: owner["bytes"] for owner in traces[0]["at_peak_requested"]["by_code"]}


def expect(claim, holds, *seen):
    print("%-4s %s" % ("ok" if holds else "FAIL", claim), *([] if holds else seen))
    return holds


def of_c(bed):
    path, facts = bed.record(["--stacks"], [bed.program])
    owners = bed.owners(path)
    yield expect("C: each allocation has a stack", facts["records_with_stacks"] == facts["allocations"] == 4000,
                 facts)
    yield expect("C: main owns all", len(owners) == 1 and next(iter(owners)).startswith("main ("), owners)
    path, facts = bed.record(["--stacks"], ["./" + os.path.basename(bed.program)], cwd=os.path.dirname(bed.program))
    owners = bed.owners(path)
    yield expect("C: the same by a relative path",
                 len(owners) == 1 and next(iter(owners)).startswith("main ("), owners)
    path, facts = bed.record([], [bed.program])
    yield expect("C: no stacks without --stacks", facts["stacks"] == 0, facts)


# Files with the name of a recording that this run did not write: another form, and an earlier recording.
def of_others(bed):
    def at(name):
        return os.path.join(bed.folder, name)

    def content(name):
        with open(at(name), "rb") as file:
            return file.read()

    bed.record(["--stacks", "--exec"], [bed.program])
    os.rename(at("x.ftrace"), at("before"))
    with open(at("text"), "wb") as text:
        text.write(bed.dump(at("before")))
    command = "%s; cp text rec1.ftrace; cp before rec2.ftrace; cp text rec.ftrace; echo none >rec3.ftrace" % bed.program
    done = subprocess.run([bed.fallow, "record", "--stacks", "-o", at("rec%p.ftrace"), "--", "sh", "-c", command],
                          cwd=bed.folder, env=bed.environment, check=True, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=120)
    yield expect("others: another form keeps its content", content("rec1.ftrace") == content("text"))
    yield expect("others: an earlier recording keeps its content", content("rec2.ftrace") == content("before"))
    yield expect("others: so does a name without a number", content("rec.ftrace") == content("text"))
    ours = [name for name in os.listdir(bed.folder) if name.startswith("rec") and len(name) > len("rec1.ftrace")]
    yield expect("others: this run's recording has names", len(ours) == 1 and b' "main" ' in bed.dump(at(ours[0])), ours)
    yield expect("others: no message mentions names", "names" not in done.stderr, done.stderr)


def of_python(bed, kind, *options):
    how = " ".join((kind,) + options)
    path, facts = bed.record(["--stacks", *options], [sys.executable, __file__, "client", kind])
    line = line_of("LINE")
    name = [name for name in bed.owners(path)]
    yield expect("%s: each allocation has a stack" % how,
                 facts["records_with_stacks"] == facts["allocations"] == 4, facts)
    yield expect("%s: the line that allocates" % how,
                 len(name) == 1 and name[0] == ("allocate (%s:%d)" % (os.path.basename(__file__), line)), name)
    by_caller = bed.owners(path, "--skip", "allocate")
    sizes = {owner.split(" (")[0].rsplit(".", 1)[-1]: size for owner, size in by_caller.items()}
    yield expect("%s: its callers" % how, sizes == {"weights": 64 * MIB, "forward": 4 * MIB}, by_caller)


def main():
    fallow, drivers, program = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        bed = Bed(fallow, drivers, program, folder)
        seen = list(of_c(bed))
        seen += of_others(bed)
        seen += of_python(bed, "PyDLL")
        seen += of_python(bed, "CDLL", "--enter-python")
        seen += of_python(bed, "CDLL", "--enter-python", "--mode", "cache")
        path, facts = bed.record(["--stacks"], [sys.executable, __file__, "client", "CDLL"])
        owners = bed.owners(path)
        seen.append(expect("CDLL: code that released the interpreter lock has no frames of Python",
                           facts["records_with_stacks"] == 4 and not any(os.path.basename(__file__) in name for name in owners), owners))
        path, facts = bed.record(["--stacks=1"], [sys.executable, __file__, "client", "PyDLL"])
        seen.append(expect("--stacks=1: a frame of C and one of Python", facts["frames"] <= 2 * facts["stacks"], facts))
        odd = os.path.join(os.fsencode(folder), b"caf\xe9.py")  # not UTF-8
        with open(__file__, "rb") as given, open(odd, "wb") as copy:
            copy.write(given.read())
        path, facts = bed.record(["--stacks"], [sys.executable, odd, "client", "PyDLL"])
        seen.append(expect("a path that is not UTF-8: each allocation has a stack",
                           facts["records_with_stacks"] == facts["allocations"] == 4, facts))
        for wrong in ("0", "65", "deep"):
            code = subprocess.run([fallow, "record", "--stacks=" + wrong, "--", "true"], stderr=subprocess.PIPE,
                                  universal_newlines=True, timeout=60)
            seen.append(expect("--stacks=%s is refused" % wrong,
                               code.returncode == 2 and "a number of frames, 1 to 64" in code.stderr, code.stderr))
    print("%d of %d" % (sum(seen), len(seen)))
    return 0 if all(seen) else 1


if __name__ == "__main__":
    if sys.argv[1] == "client":
        client(sys.argv[2])
    else:
        sys.exit(main())
