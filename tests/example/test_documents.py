#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""example.text_rules: documents.py finds what is wrong in a text, and accepts what is right."""
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

    # ---- sessions

    def test_what_is_shown_is_said(self):
        counts, _ = self.run_text("```sh\n$ echo one; echo two >&2\none\ntwo\n$ true\n```\n")
        self.assertEqual((counts["run"], counts["commands"]), (1, 2))

    def test_a_wrong_number_is_caught(self):
        self.refuse("words\n\n```sh\n$ echo 84 instructions\n85 instructions\n```\n",
                    "line 5 shows\n    85 instructions\nbut the command said\n    84 instructions")

    def test_a_missing_line_is_caught(self):
        self.refuse("```sh\n$ printf 'a\\nb\\n'\na\n```\n", "went on with\n    b")

    def test_a_line_too_many_is_caught(self):
        self.refuse("```sh\n$ echo a\na\nb\n```\n", "line 4 shows\n    b\nbut the command said\n    nothing more")

    def test_lines_may_be_left_out_but_not_changed(self):
        self.run_text("```sh\n$ seq 9\n1\n...\n5\n...\n9\n```\n")
        self.run_text("```sh\n$ seq 3\n1\n...\n```\n")
        self.refuse("```sh\n$ seq 9\n1\n...\n15\n...\n```\n", "line 5 shows\n    15")

    def test_the_rest_of_a_line_may_be_left_out(self):
        self.run_text("```sh\n$ echo one two\none ...\n```\n")
        self.refuse("```sh\n$ echo one two\ntwo ...\n```\n", "shows\n    two ...")

    # ---- what varies

    def test_a_number_that_varies_is_still_a_number(self):
        self.run_text("<!-- varies: 5668 number -->\n```sh\n$ echo took $$ steps\ntook 5668 steps\n```\n")
        self.refuse("<!-- varies: 5668 number -->\n```sh\n$ echo took many steps\ntook 5668 steps\n```\n", "took many")
        self.refuse("<!-- varies: 5668 number -->\n```sh\n$ echo took 1.5 steps\ntook 5668 steps\n```\n", "took 1.5")

    def test_a_number_has_room_and_no_more(self):
        text = "<!-- varies: 84 within 2 -->\n```sh\n$ echo %s\n84\n```\n"
        self.run_text(text % 86)
        self.refuse(text % 87, "said\n    87")

    def test_other_numbers_of_the_line_do_not_vary(self):
        self.refuse("<!-- varies: 12 number -->\n```sh\n$ echo 13 of 41\n12 of 42\n```\n", "13 of 41")

    def test_columns_move_with_what_varies(self):
        self.run_text("<!-- varies: 5 number -->\n```sh\n$ echo 'a    12345 b'\na        5 b\n```\n")

    def test_what_varied_is_put_into_later_commands(self):
        self.run_text("<!-- varies: aded496642be hex -->\n```sh\n$ echo site 0123456789ab\nsite aded496642be\n"
                      "$ echo again aded496642be | tr -d '\\n' | wc -c\n18\n$ echo aded496642be\naded496642be\n```\n")
        self.refuse("<!-- varies: aded496642be hex -->\n```sh\n$ echo site ab\nsite aded496642be\n$ echo site ac\n"
                    "site aded496642be\n```\n", "site ac")

    def test_a_rule_that_nothing_uses_is_refused(self):
        self.refuse("<!-- varies: 77 number -->\n```sh\n$ echo 5\n5\n```\n", "is nowhere in the block: 77")
        self.refuse("<!-- varies: 77 anything -->\n```sh\n$ echo 77\n77\n```\n", "is not TOKEN number|hex")

    # ---- commands

    def test_a_failing_command_is_caught(self):
        self.refuse("```sh\ntrue\nfalse\n```\n", "line 3: 'false' ended with status 1")

    def test_a_status_may_be_named(self):
        self.run_text("<!-- exit: 3 (exit 3 -->\n```sh\n$ (exit 3)\n$ true\n```\n")
        self.refuse("<!-- exit: 3 (exit 3 -->\n```sh\n$ (exit 4)\n```\n", "ended with status 4")

    def test_one_shell_for_a_document_and_a_fresh_one(self):
        os.environ["FLW_TEXT_TEST"] = "leaks"
        self.run_text("```sh\nkept=yes\n```\n\n```sh\n$ echo $kept $FLW_TEXT_TEST\nyes\n```\n")

    def test_commands_go_over_lines(self):
        counts, _ = self.run_text("```sh\n# a comment\necho a &&\n    echo b\nfor i in 1 2; do\n    echo $i\ndone\n"
                                  "cat <<E\nx\nE\n```\n")
        self.assertEqual(counts["commands"], 3)

    def test_commands_read_nothing(self):
        self.run_text("```sh\n$ cat\n$ echo after\nafter\n```\n")

    def test_an_output_without_an_end_is_compared(self):
        self.run_text("```sh\n$ printf half\nhalf\n```\n")

    def test_a_line_is_what_a_reader_sees(self):
        self.run_text("```sh\n$ printf 'at  5 %%\\rat 89 %%\\r\\033[K\\033[1mdone\\033[0m\\n'\ndone\n```\n")

    def test_the_shell_may_not_end(self):
        self.refuse("```sh\nexit 0\n```\n", "the shell ended in 'exit 0'")

    def test_a_command_may_not_hang(self):
        kept, documents.COMMAND_SECONDS = documents.COMMAND_SECONDS, 1
        signal.signal(signal.SIGALRM, documents.too_long)
        try:
            self.refuse("```sh\nsleep 30\n```\n", "took longer than 1 s")
        finally:
            documents.COMMAND_SECONDS = kept

    def test_the_tested_build_is_on_the_path(self):
        self.run_text("<!-- varies: 1234 number -->\n```sh\n$ greet\ngreetings from 1234\n"
                      "$ ls -1 build/release/bin\ngreet\n$ ls tests/example\na.c\n```\n")

    def test_nothing_is_written_into_the_sources(self):
        self.run_text("```sh\n$ touch mine build/mine && ls -1 build\nmine\nquickstart\nrelease\n```\n")
        self.assertEqual(sorted(os.listdir(self.root)), ["notes", "tests"])

    # ---- marks

    def test_what_is_not_run_is_counted_and_printed(self):
        counts, out = self.run_text("<!-- not run: needs a GPU -->\n```sh\nfalse\n```\n\n```sh\ntrue\n```\n")
        self.assertEqual((counts["left"], counts["run"]), (1, 1))
        self.assertIn("notes/text.md:2 not run: needs a GPU", out)
        self.assertIn("1 blocks run (1 commands), 1 not run", out)

    def test_a_mark_needs_its_block(self):
        self.refuse("<!-- not run: needs a GPU -->\nwords\n```sh\ntrue\n```\n", "no block follows the mark")

    def test_a_session_needs_its_language(self):
        self.refuse("```\n$ echo a\nb\n```\n", "a session needs the language sh")

    def test_a_block_is_closed(self):
        self.refuse("```sh\ntrue\n", "never closed")

    # ---- programs, links, figures, sizes

    def test_a_program_is_the_file(self):
        body = PROGRAM.split("*/\n")[1]
        counts, _ = self.run_text("<!-- program: tests/example/a.c -->\n```c\n%s```\n" % body)
        self.assertEqual(counts["programs"], 1)
        self.refuse("<!-- program: tests/example/a.c -->\n```c\n%s```\n" % body.replace("0", "1"), "return 1")
        self.refuse("<!-- program: tests/example/a.c -->\n```c\n#include <a.h>\n```\n", "has\n    int main(void)")
        self.refuse("<!-- program: tests/example/a.c -->\n```c\n%s/* */\n```\n" % body, "ends before the block")
        self.refuse("```c\nint x;\n```\n", "needs <!-- program")

    def test_links_lead_somewhere(self):
        self.run_text("# A `b` head: line\n[a](first.md), [b](../tests/example/a.c), [c](#a-b-head-line), "
                      "[d](https://x.y/z)\n")
        self.refuse("[a](second.md)\n", "points at 'second.md'")
        self.refuse("[a](first.md#nothing)\n", "points at 'first.md#nothing', and there is no such heading")

    def test_a_figure_is_the_measured_one(self):
        counts, out = self.run_text("| it takes **84**<!-- measure: pair of 4096 B --> |\n")
        self.assertIn("1 figures and 0 names", out)
        self.refuse("| it takes **85**<!-- measure: pair of 4096 B --> |\n", "is shown as 85, and it is 84")
        self.refuse("| it takes **84**<!-- measure: pair of 5 B --> |\n", "'measure: pair of 5 B' does not exist")
        self.run_text("| they take **4,188**<!-- peers: B, pair --> |\n")
        self.refuse("| they take **4,187**<!-- peers: B, pair --> |\n", "is shown as 4,187, and it is 4188")

    def test_a_named_test_exists(self):
        self.write("tests/unit/a.cmake", "flw_add_test(unit page_map SOURCES a.c)\nadd_test(NAME check.layers COMMAND x)\n")
        _, out = self.run_text("`unit.page_map`, `ctest -R check.lay`\n")
        self.assertIn("2 names of tests", out)
        self.refuse("`ctest -R unit.page_maps -V`\n", "names the test 'unit.page_maps'")

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
