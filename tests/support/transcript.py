#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run files of shell commands and compare their output: transcript.py FILE.cases...

    == NAME [VARIABLE...]  begin a test; skip the test if one of the variables is unset or empty
    file NAME              write the | lines that follow to a file
    each NAME VALUE...     repeat the next command for each value of a variable; | lines hold further values
    $ COMMAND              run by sh; NAME=VALUE before keeps the output in a variable: $NAME= COMMAND
    | TEXT                 the whole standard output, line by line
    + TEXT  - TEXT         standard output contains the text, or does not; a line ". TEXT" continues it
    ! TEXT  !CODE TEXT     standard error is one line with the text; standard output is empty unless expected
    e+ TEXT  e- TEXT       standard error contains the text, or does not
    o=  e=                 nothing is on standard output, or on standard error
    ? CODE                 the exit status, 0 if no line gives one
    % EXPRESSION           Python over the first JSON object of standard output, J, and its policies by name as P["a-b"] and a_b

All commands of a file run in one temporary folder. FALLOW_COMMAND names the program, found in PATH and as $F.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types


def blocks(path):
    """Yield (line number, lines) of each command or file, with the lines that belong to it."""
    block = []
    for number, line in enumerate(open(path, encoding="utf-8", errors="surrogateescape"), 1):
        line = line.rstrip("\n")
        if re.match(r"==|file |each |\$", line):
            if block:
                yield block
            block = [(number, line)]
        elif line.startswith(". ") or line == ".":
            block[-1] = (block[-1][0], block[-1][1] + "\n" + line[2:])
        elif line and not line.startswith("#"):
            block.append((number, line))
    if block:
        yield block


def check(expectation, code, out, error):
    """Return None if the run meets one expectation, else the reason."""
    kind, text = re.match(r"(\S+?)\d*(?: |(?=\n)|$)(.*)", expectation, re.S).groups()
    streams = {"+": out, "-": out, "e+": error, "e-": error, "!": error}
    if kind == "?":
        return None if code == int(text) else f"exit status {code}"
    if kind in ("o=", "e="):
        return None if (out if kind == "o=" else error) == "" else "not empty"
    if kind == "%":
        try:
            document, _ = json.JSONDecoder().raw_decode(out, re.search(r"(?m)^\{|\Z", out).start())
            policies = {policy["name"]: types.SimpleNamespace(**policy) for policy in document.get("policies", [])}
            names = {name.replace("-", "_"): policy for name, policy in policies.items()}
            return None if eval(text, {"J": document, "P": policies, **names}) else "false"
        except (AttributeError, LookupError, NameError, TypeError, ValueError) as problem:
            return repr(problem)
    if kind == "!" and error.count("\n") != 1:
        return "not one line of error"
    if kind not in streams:
        return "no such expectation"
    return None if (text in streams[kind]) == (not kind.endswith("-")) else "not so"


def run(block, folder, environment):
    """Run one command; return a list of failures."""
    number, line = block[0]
    command = line[line.index(" ") + 1:]
    result = subprocess.run(["sh", "-c", command], cwd=folder, env=environment, capture_output=True, stdin=subprocess.DEVNULL)
    out, error = (bytes.decode(s, "utf-8", "surrogateescape") for s in (result.stdout, result.stderr))
    fill = lambda text: re.sub(r"\{([A-Z]+)\}", lambda m: environment.get(m.group(1), m.group(0)), text)
    exact = [fill(text[2:]) for _, text in block[1:] if text.startswith("|")]
    rest = [(at, fill(text)) for at, text in block[1:] if not text.startswith("|")]
    codes = [m.group(1) for _, text in rest if (m := re.match(r"(?:!|\? )(\d+)", text))]
    rest.append((number, "? " + (codes or ["0"])[0]))
    failures = [(at, text, why) for at, text in rest if (why := check(text, result.returncode, out, error))]
    wants_none = any(text[0] == "!" for _, text in rest) and not any(text[0] in "+-%" for _, text in rest)
    if (exact or wants_none) and out != "".join(text + "\n" for text in exact):
        failures.append((number, "standard output", "not as written"))
    if failures:
        print(f"$ {command}\n{out[-20000:]}{error[-5000:]}", flush=True)
    if line.startswith("$ "):
        return failures
    environment[line[1:line.index("=")]] = out.strip()
    return failures


def play(path):
    """Run a file; return the number of failed expectations."""
    name, failed, skipped, each = "", 0, False, None
    folder = tempfile.mkdtemp(prefix="fallow_")
    program = os.environ["FALLOW_COMMAND"]
    for name in ("FALLOW", "LD_PRELOAD"):
        os.environ.pop(name, None)
    environment = dict(os.environ, F=program, PATH=os.path.dirname(program) + ":" + os.environ["PATH"])
    for block in blocks(path):
        number, line = block[0]
        if line.startswith("=="):
            name = line[3:]
            skipped = not all(environment.get(need) for need in re.findall(r"\b[A-Z]+_[A-Z_]+\b", name))
            print(("skip " if skipped else "run  ") + name, flush=True)
        elif skipped:
            continue
        elif line.startswith("file "):
            with open(os.path.join(folder, line[5:]), "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write("".join(text[2:] + "\n" for _, text in block[1:]))
        elif line.startswith("each "):
            each = line.split()[1:] + [text[2:] for _, text in block[1:]]
        else:
            for value in each[1:] if each else [None]:
                if each:
                    environment[each[0]] = value
                for at, text, why in run(block, folder, environment):
                    print(f"{path}:{at}: {name}: {text}: {why}", flush=True)
                    failed += 1
            each = None
    shutil.rmtree(folder)
    return failed


def main():
    if "FALLOW_COMMAND" not in os.environ:
        print("FALLOW_COMMAND does not name the program to test")
        return 77
    return 1 if sum(play(path) for path in sys.argv[1:]) else 0


if __name__ == "__main__":
    sys.exit(main())
