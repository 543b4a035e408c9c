#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""example.text_rules: documents.py accepts correct texts and refuses each planted fault."""
import io
import os
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import documents

README = "# R\n\n```sh\nexport PATH=\"$PWD/build/quickstart/bin:$PATH\"\n```\n"
PROGRAM = "/* Owns:\n * nothing.\n */\n#include <a.h>\n\nint main(void)\n{\n    return 0;\n}\n"
TABLE = "<!-- figures: begin -->\n| figure | unit | goal | measured | kept |\n|---|---|---:|---:|---|\n" \
        "| pair of 4096 B | instructions | 90 | 84.0 | yes |\n<!-- figures: end -->\n" \
        "<!-- peers: begin -->\n| figure | A | B |\n|---|---:|---:|\n| pair | 1.0 | 4188.2 |\n<!-- peers: end -->\n"


def session(text, varies=""):
    return (f"<!-- varies: {varies} -->\n" if varies else "") + f"```sh\n{text}\n```\n"


def program(body):
    return f"<!-- program: tests/example/a.c -->\n```c\n{body}```\n"


BODY = PROGRAM.split("*/\n")[1]
# Sessions with outputs, numbers that vary, commands; programs, links, figures, names of tests.
ACCEPTED = (
    session("$ seq 9\n1\n...\n5\n...\n9"), session("$ seq 3\n1\n..."), session("$ echo one two\none ..."),
    session("$ echo took $$ steps\ntook 5668 steps", "5668 number"), session("$ echo 86\n84", "84 within 2"),
    session("$ echo 'a    12345 b'\na        5 b", "5 number"),
    session("$ echo site 0123456789ab\nsite aded496642be\n$ echo again aded496642be | tr -d '\\n' | wc -c\n18\n"
            "$ echo aded496642be\naded496642be", "aded496642be hex"),
    session("$ cat\n$ echo after\nafter"), session("$ printf half\nhalf"),
    session("$ printf 'at  5 %%\\rat 89 %%\\r\\033[K\\033[1mdone\\033[0m\\n'\ndone"),
    session("$ greet\ngreetings from 1234\n$ ls -1 build/release/bin\ngreet\n$ ls tests/example\na.c", "1234 number"),
    "<!-- exit: 3 (exit 3 -->\n" + session("$ (exit 3)\n$ true"),
    session("kept=yes") + "\n" + session("$ echo $kept $FLW_TEXT_TEST\nyes"),
    program(BODY),
    "# A `b` head: line\n[a](first.md), [b](../tests/example/a.c), [c](#a-b-head-line), [d](https://x.y/z)\n",
    "| it takes **84**<!-- measure: pair of 4096 B --> |\n", "| they take **4,188**<!-- peers: B, pair --> |\n",
    "`unit.page_map`, `ctest -R check.lay`\n")
REFUSED = (
    ("words\n\n" + session("$ echo 84 instructions\n85 instructions"),
     "line 5 shows\n    85 instructions\nbut the command said\n    84 instructions"),
    (session("$ printf 'a\\nb\\n'\na"), "went on with\n    b"),
    (session("$ echo a\na\nb"), "line 4 shows\n    b\nbut the command said\n    nothing more"),
    (session("$ seq 9\n1\n...\n15\n..."), "line 5 shows\n    15"),
    (session("$ echo one two\ntwo ..."), "shows\n    two ..."),
    (session("$ echo took many steps\ntook 5668 steps", "5668 number"), "took many"),
    (session("$ echo took 1.5 steps\ntook 5668 steps", "5668 number"), "took 1.5"),
    (session("$ echo 87\n84", "84 within 2"), "said\n    87"),
    (session("$ echo 13 of 41\n12 of 42", "12 number"), "13 of 41"),
    (session("$ echo site ab\nsite aded496642be\n$ echo site ac\nsite aded496642be", "aded496642be hex"), "site ac"),
    (session("$ echo 5\n5", "77 number"), "is nowhere in the block: 77"),
    (session("$ echo 77\n77", "77 anything"), "is not TOKEN number|hex"),
    (session("true\nfalse"), "line 3: 'false' ended with status 1"),
    ("<!-- exit: 3 (exit 3 -->\n" + session("$ (exit 4)"), "ended with status 4"),
    (session("exit 0"), "the shell ended in 'exit 0'"),
    ("<!-- not run: needs a GPU -->\nwords\n" + session("true"), "no block follows the mark"),
    ("```\n$ echo a\nb\n```\n", "a session needs the language sh"), ("```sh\ntrue\n", "never closed"),
    (program(BODY.replace("0", "1")), "return 1"), (program("#include <a.h>\n"), "has\n    int main(void)"),
    (program(BODY + "/* */\n"), "ends before the block"), ("```c\nint x;\n```\n", "needs <!-- program"),
    ("[a](second.md)\n", "points at 'second.md'"),
    ("[a](first.md#nothing)\n", "points at 'first.md#nothing', and there is no such heading"),
    ("| it takes **85**<!-- measure: pair of 4096 B --> |\n", "is shown as 85, and it is 84"),
    ("| it takes **84**<!-- measure: pair of 5 B --> |\n", "'measure: pair of 5 B' does not exist"),
    ("| they take **4,187**<!-- peers: B, pair --> |\n", "is shown as 4,187, and it is 4188"),
    ("`ctest -R unit.page_maps -V`\n", "names the test 'unit.page_maps'"))


class Texts(unittest.TestCase):
    """Each text is a document of a small tree that has a README, a program and a table of figures."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = os.path.join(self.folder.name, "source")
        self.build = os.path.join(self.folder.name, "tested")
        os.makedirs(os.path.join(self.build, "bin"))
        self.write("notes/first.md", README)
        self.write("tests/example/a.c", PROGRAM)
        self.write("tests/README.md", TABLE)
        self.write("tests/unit/a.cmake", "flw_add_test(unit page_map SOURCES a.c)\nadd_test(NAME check.layers COMMAND x)\n")
        with open(os.path.join(self.build, "bin", "greet"), "w") as file:
            file.write("#!/bin/sh\necho greetings from $$\n")
        os.chmod(os.path.join(self.build, "bin", "greet"), 0o755)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def run_text(self, text, document="notes/text.md"):
        """(counts, what was printed)"""
        self.write(document, text)
        out = io.StringIO()
        return documents.run_document(self.root, self.build, document, "notes/first.md", out), out.getvalue()

    def refuse(self, text, why, document="notes/text.md"):
        with self.assertRaises(documents.Wrong) as caught:
            self.run_text(text, document)
        self.assertIn(why, str(caught.exception))

    def test_correct_texts_are_accepted(self):
        os.environ["FLW_TEXT_TEST"] = "leaks"
        for text in ACCEPTED:
            with self.subTest(text):
                self.run_text(text)

    def test_each_planted_fault_is_refused(self):
        for text, why in REFUSED:
            with self.subTest(text):
                self.refuse(text, why)

    def test_blocks_commands_and_outputs_are_counted(self):
        counts, _ = self.run_text(session("$ echo one; echo two >&2\none\ntwo\n$ true"))
        self.assertEqual((counts["run"], counts["commands"]), (1, 2))
        counts, _ = self.run_text(session("# a comment\necho a &&\n    echo b\nfor i in 1 2; do\n    echo $i\ndone\n"
                                          "cat <<E\nx\nE"))
        self.assertEqual(counts["commands"], 3)
        counts, out = self.run_text("<!-- not run: needs a GPU -->\n" + session("false") + "\n" + session("true"))
        self.assertEqual((counts["left"], counts["run"]), (1, 1))
        self.assertIn("notes/text.md:2 not run: needs a GPU", out)
        self.assertIn("1 blocks run (1 commands), 1 not run", out)

    def test_a_command_may_not_hang(self):
        kept, documents.COMMAND_SECONDS = documents.COMMAND_SECONDS, 1
        signal.signal(signal.SIGALRM, documents.too_long)
        try:
            self.refuse("```sh\nsleep 30\n```\n", "took longer than 1 s")
        finally:
            documents.COMMAND_SECONDS = kept

    def test_nothing_is_written_into_the_sources(self):
        self.run_text("```sh\n$ touch mine build/mine && ls -1 build\nmine\nquickstart\nrelease\n```\n")
        self.assertEqual(sorted(os.listdir(self.root)), ["notes", "tests"])

    def test_the_readme_has_its_size(self):
        uses = "## See a\n## Run b\n## Build c\n"
        documents.check_readme_size(uses + "x\n" * 197)
        for text, why in ((uses + "x\n" * 198, "201 lines"), (uses + "x" * 201 + "\n", "line 4 has 201 characters"),
                          (uses + ("x" * 199 + "\n") * 85, "200 and 16,384 are allowed"),
                          ("x\n" * 90 + uses, "'See' does not begin")):
            with self.assertRaises(documents.Wrong) as caught:
                documents.check_readme_size(text)
            self.assertIn(why, str(caught.exception))
        documents.check_readme_size(uses + "|" + "x" * 300 + "|\n")


if __name__ == "__main__":
    unittest.main()
