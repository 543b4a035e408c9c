#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""example.text.*: the examples of README.md and of the documents beside the code are true.

Owns: the rules of a text that is run. A document is run in one fresh shell, block after block:

  ```sh        run; every command ends with status 0 or the status of `exit:`. A block whose first line begins
               with "$ " is a session: its other lines are the output of the commands, both streams, line by line.
  ...          in a session, alone on a line: lines that are left out. At the end of a line: its rest is.
  ```c, ```cpp below <!-- program: PATH -->: the file below its opening comment, word for word.

A comment right before a block declares exceptions:

  <!-- not run: WHY -->             counted and printed with its reason; the commands are not run
  <!-- varies: TOKEN KIND; ... -->  TOKEN differs from run to run, by KIND. number: another number of
                                    the same form (a whole one, or one with a point). hex: other hexadecimal
                                    digits. within N: a number at most N away. In later commands, a TOKEN that varied
                                    is replaced by the printed text.
  <!-- exit: N COMMAND -->          commands that begin with COMMAND end with status N in this block

A figure in a table is bold, with its name in a comment behind it: **84**<!-- measure: pair of 4096 B -->.
  measure: NAME    the row of that name in the table of tests/README.md that tools/measure writes
  demo: POLICY     held over requested, `fallow replay` of the demo trace
  peers: WHO, NAME the cell of that column and row in the table of tests/README.md that tests/peers/measure writes

Links lead to existing files and headings, named tests exist, and README.md is not too long.

The shell runs in a folder that has everything of the source tree and, as build/release and
build/quickstart, the build tree that is tested: nothing is built, nothing is written into the sources.

  documents.py SOURCE BUILD DOCUMENT [--readme README]   one document; after README's line that sets PATH

Exit: 0; 1 the text is wrong, line by line; 77 something that the blocks need is not on this machine.
"""
import argparse
import difflib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import termios

BUILD_NAMES = ("release", "quickstart")
COMMAND_SECONDS = 60
END = "end-of-command-93c1"


class Wrong(Exception):
    """The text and the result differ."""


class Block:
    """A fenced block: its language, its lines, the line of its fence, the comments right before it."""

    def __init__(self, language, line, marks):
        self.language, self.line, self.marks, self.lines = language, line, marks, []

    def mark(self, name):
        found = [mark[len(name) + 1 :].strip() for mark in self.marks if mark.startswith(name + ":")]
        return found[0] if found else None


MARKS = ("not run", "varies", "exit", "program")


def read_blocks(text):
    """The blocks of a document, in order. A comment that no block follows is not a mark."""
    blocks, marks, block, fence = [], [], None, ""
    for number, line in enumerate(text.split("\n"), 1):
        opening = re.match(r"^\s*(```+)\s*(\w*)\s*$", line)
        if block is not None:
            if line.strip() == fence:
                block = None
            else:
                block.lines.append(line)
        elif opening:
            fence = opening.group(1)
            block = Block(opening.group(2), number, marks)
            blocks.append(block)
            marks = []
        elif re.match(r"^<!--.*-->$", line):
            mark = line[4:-3].strip()
            if mark.partition(":")[0] in MARKS:
                marks.append(mark)
        elif line.strip():
            if marks:
                raise Wrong("line %d: no block follows the mark '%s'" % (number, marks[0]))
    if block is not None:
        raise Wrong("line %d: the block is never closed" % block.line)
    return blocks


# ------------------------------------------------------------------------------------ what may vary ---

FORMS = {
    "number": lambda token: r"-?[0-9][0-9,]*\.[0-9]+" if "." in token else r"-?[0-9][0-9,]*",
    "hex": lambda token: r"0x[0-9a-f]+" if token.startswith("0x") else r"[0-9a-f]+",
    "within": lambda token: r"-?[0-9][0-9,]*(?:\.[0-9]+)?",
}


def parse_varies(mark):
    """{token: (kind, room)} of a `varies:` mark."""
    rules = {}
    for part in mark.split(";") if mark else []:
        words = part.split()
        if len(words) not in (2, 3) or words[1] not in FORMS or (words[1] == "within") != (len(words) == 3):
            raise Wrong("'varies: %s' is not TOKEN number|hex, or TOKEN within N" % part.strip())
        rules[words[0]] = (words[1], float(words[2]) if len(words) == 3 else None)
    return rules


def as_number(text):
    return float(text.replace(",", ""))


def match_line(shown, said, rules, known):
    """True if `said` agrees with the text. Adds the text in place of a varying token to `known`."""
    open_end = shown.endswith("...") and shown.strip() != "..."
    body = shown[:-3].rstrip() if open_end else shown.rstrip()
    tokens = sorted(rules, key=len, reverse=True)
    alternatives = "|".join(r"(?<![0-9a-zA-Z.])%s(?![0-9a-zA-Z])" % re.escape(t) for t in tokens)
    pattern, order, at = "", [], 0
    for found in re.finditer(alternatives, body) if tokens else []:
        # Columns: a shorter or longer number takes or leaves blanks in front.
        before = body[at : found.start()]
        kept = before.rstrip(" ")
        pattern += re.escape(kept) + (" +" if len(kept) < len(before) else "")
        pattern += "(" + FORMS[rules[found.group()][0]](found.group()) + ")"
        order.append(found.group())
        at = found.end()
    pattern += re.escape(body[at:]) + (".*" if open_end else r"\s*")
    matched = re.fullmatch(pattern, said)
    if not matched:
        return False
    for token, value in zip(order, matched.groups()):
        kind, room = rules[token]
        if kind == "within" and abs(as_number(value) - as_number(token)) > room:
            return False
        if known.setdefault(token, value) != value and kind == "hex":
            return False
    return True


def compare(shown, said, rules, known, first_line):
    """Raise Wrong at the first line that was not printed; "..." alone matches omitted lines."""
    at, skipping = 0, False
    for offset, line in enumerate(shown):
        if line.strip() == "...":
            skipping = True
            continue
        while skipping and at < len(said) and not match_line(line, said[at], rules, known):
            at += 1
        if at == len(said) or not match_line(line, said[at], rules, known):
            heard = said[at] if at < len(said) else "nothing more"
            if skipping:
                heard = "".join(difflib.get_close_matches(line, said, 1, 0)) or "nothing like it"
            raise Wrong("line %d shows\n    %s\nbut the command said\n    %s" % (first_line + offset, line, heard))
        at, skipping = at + 1, False
    if not skipping and at < len(said):
        raise Wrong("line %d: the command went on with\n    %s" % (first_line + len(shown), said[at]))


# ---------------------------------------------------------------------------------------- the shell ---


def is_complete(command):
    """True if bash would run the command as it is: no open quote, no here-document, no trailing &&."""
    if command.rstrip().endswith(("\\", "&&", "||", "|")):
        return False
    return subprocess.run(["bash", "-n"], input=command + "\n", capture_output=True, text=True).stderr == ""


def commands_of(block):
    """[(command, line, shown lines)] of a block. A block that is no session shows nothing: None."""
    commands = []
    is_session = bool(block.lines) and block.lines[0].startswith("$ ")
    for number, line in enumerate(block.lines, block.line + 1):
        is_open = bool(commands) and not is_complete(commands[-1][0])
        if is_open:
            commands[-1] = (commands[-1][0] + "\n" + line, commands[-1][1], commands[-1][2])
        elif is_session and not line.startswith("$ "):
            commands[-1][2].append((number, line))
        elif line.strip() and not line.lstrip().startswith("#"):
            commands.append((line[2:] if is_session else line, number, []))
    return commands, is_session


def as_seen(line):
    """Return a line as a reader sees it: without colours, and only the last of texts written over each other."""
    line = re.sub(r"\x1b\[[0-9;]*m", "", line)
    return re.sub(r".*(\r|\x1b\[K)", "", line)


class Shell:
    """One bash for a whole document. Its commands read nothing; both their streams go to one terminal, so that their
    lines have the order that a reader sees."""

    def __init__(self, folder, home):
        environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": home, "LANG": "C.UTF-8", "TERM": "dumb",
                       "PYTHONDONTWRITEBYTECODE": "1"}  # the sources stay as they are
        ours, theirs = os.openpty()
        settings = termios.tcgetattr(theirs)
        settings[1] &= ~termios.OPOST
        termios.tcsetattr(theirs, termios.TCSANOW, settings)
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=folder, env=environment, stdin=subprocess.PIPE,
            stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        self.output = os.fdopen(ours, "rb")

    def read_line(self):
        """The next line, b"" at the end: a terminal that nobody holds open any more answers EIO."""
        try:
            return self.output.readline()
        except OSError:
            return b""

    def run(self, command):
        """(status, lines). The mark is on a line of its own, also behind an output without an end."""
        text = "{ %s\n} </dev/null\nprintf '\\n%s %%d\\n' $?\n" % (command, END)
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()
        signal.alarm(COMMAND_SECONDS)
        lines = []
        for line in iter(self.read_line, b""):
            line = as_seen(line.decode(errors="replace").rstrip("\r\n"))
            if line.startswith(END):
                signal.alarm(0)
                if lines and lines[-1] == "":
                    lines.pop()
                return int(line.split()[1]), lines
            lines.append(line)
        raise Wrong("the shell ended in '%s' after\n    %s" % (command, "\n    ".join(lines[-5:])))

    def close(self):
        """End the shell and the processes that it started."""
        self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.output.close()


def allowed_status(block, command):
    mark = block.mark("exit")
    if mark:
        status, _, start = mark.partition(" ")
        if command.startswith(start.strip()):
            return int(status)
    return 0


def run_block(shell, block, known):
    """Run every command of a block and compare it with the text. Returns the number of commands."""
    rules = parse_varies(block.mark("varies"))
    for token in rules:
        known.pop(token, None)
    commands, is_session = commands_of(block)
    unused = set(rules)
    for command, number, shown in commands:
        for token, value in known.items():
            command = re.sub(r"(?<![0-9a-zA-Z])%s(?![0-9a-zA-Z])" % re.escape(token), value, command)
        status, said = shell.run(command)
        if status != allowed_status(block, command):
            raise Wrong("line %d: '%s' ended with status %d and said\n    %s" %
                        (number, command, status, "\n    ".join(said[-8:]) or "nothing"))
        if is_session:
            compare([line for _, line in shown], said, rules, known, shown[0][0] if shown else number + 1)
        unused -= {token for token in rules if any(token in line for _, line in shown)}
    if unused:
        raise Wrong("line %d: what varies is nowhere in the block: %s" % (block.line, ", ".join(sorted(unused))))
    return len(commands)


# --------------------------------------------------------------------------------- words and figures ---


def anchors_of(path):
    """The anchors of a document's headings, as the usual forges make them."""
    with open(path, encoding="utf-8") as file:
        headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", file.read(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-") for heading in headings}


def check_links(source, document, text):
    """Every file that is pointed at is there, every heading too."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", plain):
        if re.match(r"^[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        full = os.path.normpath(os.path.join(source, os.path.dirname(document), path)) if path \
            else os.path.join(source, document)
        if not os.path.exists(full):
            raise Wrong("it points at '%s', which does not exist" % target)
        if anchor and full.endswith(".md") and anchor not in anchors_of(full):
            raise Wrong("it points at '%s', and there is no such heading" % target)


KINDS = "unit|kernel|property|stress|fault|fuzz|abi|example|preload|check|python|gpu"


def known_tests(source, build):
    """Names of tests: those of the build, and those that the sources name for builds with more on the machine."""
    listed = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True).stdout
    names = set(re.findall(r"^ *Test +#\d+: (\S+)", listed, re.M))
    for folder, _, files in os.walk(os.path.join(source, "tests")):
        for name in files:
            if name.endswith((".cmake", "CMakeLists.txt")):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    text = file.read()
                names.update(".".join(found) for found in re.findall(r"flw_add_test\((\w+) (\w+)", text))
                names.update(re.findall(r"\bNAME ((?:%s)\.\w+)" % KINDS, text))
    return names


def check_tests(source, build, text):
    """Every test that is named, alone in code or behind -R, is there, or is the beginning of some that are."""
    named = set(re.findall(r"(?:`|-R )((?:%s)\.[a-z_0-9]+)(?=[`* ])" % KINDS, text))
    known = known_tests(source, build) if named else set()
    for name in sorted(named):
        if not any(test.startswith(name) for test in known):
            raise Wrong("it names the test '%s', and there is none" % name)
    return len(named)


def check_program(source, block):
    """A C or C++ block is the file that its mark names, below the opening comment."""
    path = block.mark("program")
    if path is None:
        raise Wrong("line %d: a C block needs <!-- program: PATH --> before it" % block.line)
    with open(os.path.join(source, path), encoding="utf-8") as file:
        body = file.read().split("*/\n", 1)[1].strip("\n").split("\n")
    for number, (shown, real) in enumerate(zip(block.lines + [""] * len(body), body), block.line + 1):
        if shown != real:
            raise Wrong("line %d shows\n    %s\nbut %s has\n    %s" % (number, shown, path, real))
    if len(block.lines) > len(body):
        raise Wrong("line %d: %s ends before the block" % (block.line, path))


def table_rows(source, mark):
    """The rows of the table between two marks in tests/README.md."""
    with open(os.path.join(source, "tests/README.md"), encoding="utf-8") as file:
        table = file.read().partition("<!-- %s: begin -->" % mark)[2].partition("<!-- %s: end -->" % mark)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n") if line.startswith("|")]


def measured_figures(source):
    """{name: measured} of the table that tools/measure writes: the repeatable figures, instructions and their
    ratios."""
    rows = table_rows(source, "figures")
    return {row[0]: float(row[3]) for row in rows if len(row) > 3 and row[1] in ("instructions", "ratio of Ir")}


def peer_figures(source):
    """{"column, row": figure} of the table that tests/peers/measure writes."""
    rows = table_rows(source, "peers")
    return {"%s, %s" % (column, row[0]): float(cell)
            for row in rows[2:] for column, cell in zip(rows[0][1:], row[1:]) if cell}


def demo_figures(shell):
    """{policy: held over requested} of the demo trace."""
    status, said = shell.run("fallow replay tools/fallow/demo.ftrace --no-times --json -")
    if status != 0:
        raise Wrong("the replay of the demo ended with status %d: %s" % (status, said[-1:]))
    policies = json.loads("\n".join(line for line in said if line))["policies"]
    return {row["name"]: row["peak_reserved_bytes"] / row["peak_requested_bytes"]
            for row in policies if row["peak_reserved_bytes"]}


FIGURE = re.compile(r"\*\*([0-9.,]+)\*\*<!-- (measure|demo|peers): ([^>]*?) -->")


def check_figures(source, shell, text):
    """Every figure that has a name is the one of that name, as far as it is shown. Returns how many."""
    found = FIGURE.findall(text)
    known = {}
    if any(kind == "measure" for _, kind, _ in found):
        known["measure"] = measured_figures(source)
    if any(kind == "peers" for _, kind, _ in found):
        known["peers"] = peer_figures(source)
    if any(kind == "demo" for _, kind, _ in found):
        known["demo"] = demo_figures(shell)
    for shown, kind, name in found:
        if name not in known[kind]:
            raise Wrong("the figure '%s: %s' does not exist; there are %s" %
                        (kind, name, ", ".join(sorted(known[kind]))))
        digits = len(shown.partition(".")[2])
        real = "%.*f" % (digits, known[kind][name])
        if real != shown.replace(",", ""):
            raise Wrong("'%s: %s' is shown as %s, and it is %s" % (kind, name, shown, real))
    return len(found)


def check_readme_size(text):
    """The bounds of README.md: 200 lines, 16 KB, the three uses within the first 90."""
    lines = text.rstrip("\n").split("\n")
    if len(lines) > 200 or len(text.encode()) > 16384:
        raise Wrong("it has %d lines and %d bytes; 200 and 16,384 are allowed" % (len(lines), len(text.encode())))
    for number, line in enumerate(lines, 1):
        if len(line) > 200 and not line.startswith("|"):
            raise Wrong("line %d has %d characters; 200 are allowed outside of tables" % (number, len(line)))
    for use in ("See", "Run", "Build"):
        at = [number for number, line in enumerate(lines, 1) if re.match(r"^##+ %s\b" % use, line)]
        if not at or at[0] > 90:
            raise Wrong("the use '%s' does not begin within the first 90 lines" % use)


# ------------------------------------------------------------------------------------------ a document ---


def lay_out(source, build, folder):
    """A tree like the source's, with the tested build under the names that the texts use."""
    for name in os.listdir(source):
        if name not in ("build", ".git"):
            os.symlink(os.path.join(source, name), os.path.join(folder, name))
    os.mkdir(os.path.join(folder, "build"))
    for name in BUILD_NAMES:
        os.symlink(build, os.path.join(folder, "build", name))


def path_block(readme):
    """README's block that makes `fallow` callable: the other documents begin after it."""
    with open(readme, encoding="utf-8") as file:
        found = [block for block in read_blocks(file.read()) if any("export PATH" in line for line in block.lines)]
    if len(found) != 1:
        raise Wrong("README has %d blocks that set PATH; one is needed" % len(found))
    return found[0]


def run_document(source, build, document, readme, out=sys.stdout):
    """Run one document. Raises Wrong; prints the blocks that were not run, and the number that were."""
    with open(os.path.join(source, document), encoding="utf-8") as file:
        text = file.read()
    if os.path.basename(document) == "README.md" and os.path.dirname(document) == "":
        check_readme_size(text)
    check_links(source, document, text)
    tests = check_tests(source, build, text)
    blocks, known, counts = read_blocks(text), {}, {"run": 0, "left": 0, "commands": 0, "programs": 0}
    with tempfile.TemporaryDirectory(prefix="fallow-text-") as top:
        folder = os.path.join(top, "tree")
        os.mkdir(folder)
        lay_out(source, build, folder)
        shell = Shell(folder, top)
        try:
            if readme is not None:
                run_block(shell, path_block(os.path.join(source, readme)), known)
            for block in blocks:
                if block.language in ("c", "cpp"):
                    check_program(source, block)
                    counts["programs"] += 1
                elif block.language != "sh":
                    if any(line.startswith("$ ") for line in block.lines):
                        raise Wrong("line %d: a session needs the language sh" % block.line)
                elif block.mark("not run"):
                    counts["left"] += 1
                    print("%s:%d not run: %s" % (document, block.line, block.mark("not run")), file=out)
                else:
                    counts["run"] += 1
                    counts["commands"] += run_block(shell, block, known)
            figures = check_figures(source, shell, text)
        finally:
            shell.close()
    print("%s: %d blocks run (%d commands), %d not run, %d programs, %d figures and %d names of tests compared" %
          (document, counts["run"], counts["commands"], counts["left"], counts["programs"], figures, tests), file=out)
    return counts


def too_long(_signal, _frame):
    raise Wrong("a command took longer than %d s" % COMMAND_SECONDS)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("build")
    parser.add_argument("document")
    parser.add_argument("--readme", help="the document whose block sets PATH first")
    arguments = parser.parse_args()
    for tool in ("bash", "cc", "pkg-config", "cmake"):
        if shutil.which(tool) is None:
            print("%s is missing: the blocks cannot be run" % tool)
            return 77
    signal.signal(signal.SIGALRM, too_long)
    try:
        run_document(os.path.abspath(arguments.source), os.path.abspath(arguments.build), arguments.document,
                     arguments.readme)
    except Wrong as wrong:
        print("%s: %s" % (arguments.document, wrong), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
