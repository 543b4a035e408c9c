#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.prose: comments, documents, messages and scripts are plain English in the glossary's words.

    prose.py SOURCE_ROOT [--worst N]

Per 1,000 words of C comment, of Markdown outside of code, of messages (string literals of C with at least four words,
which includes every --help), and of comments and docstrings in Python, shell, CMake and JavaScript, counts the words
that mark most sentences which need a second reading: "what" as a noun, "who", verbs of motion and of speech for things,
and pronouns. Literals of tests are inputs and expected outputs, so they do not count. A folder with fewer than SMALL
words counts as part of its parent. Each limit is three times the rate of the allocators mimalloc, jemalloc
and VMA or less. Comments may not be deleted to pass: each of FOLDERS needs COMMENT_LINES for each line of code.

No name, comment or document may use a word that the glossary in src/README.md replaced. --worst prints the passages
with the most counted words.
"""
import contextlib
import io
import os
import re
import sys
import tempfile
import tokenize

SMALL = 5000
COMMENT_LINES = {'tests': 0.04}
COMMENT_LINES_ELSEWHERE = 0.08
FOLDERS = ('include', 'src', 'kernels', 'tools', 'tests')
SCRIPT_FOLDERS = FOLDERS + ('.ci', '.github')
MESSAGE_WORDS = 4
EXCEPTIONS = ('src/pool/ladder',)
FROZEN = re.compile(r'tests/abi/fallow_v\d')  # headers of released versions
C_SOURCES = ('.c', '.h', '.hpp', '.cpp', '.cu')
PATTERNS = {
    'what': re.compile(r'(?<![A-Za-z])[Ww]hat (?!if\b|about\b|to\b)'),
    'who': re.compile(r'\b[Ww]ho(?:ever|se)?\b'),
    'motion': re.compile(r'\b(?:goes|go|comes|come|came|lies|lie|stands|stand|stood)\b'),
    'speech': re.compile(r'\b(?:says?|said|tells?|told|asks?|asked|knows?|known|believe[sd]?)\b'),
    'pronoun': re.compile(r'\b(?:it|its|them|they)\b'),
}
LIMITS = {
    'comment': {'what': 1.0, 'who': 0.3, 'motion': 1.5, 'speech': 1.5, 'pronoun': 14},
    'document': {'what': 1.0, 'who': 0.6, 'motion': 1.5, 'speech': 1.5, 'pronoun': 20},
    'message': {'what': 1.0, 'who': 0.3, 'motion': 1.5, 'speech': 1.5, 'pronoun': 20},
    'script': {'what': 1.0, 'who': 0.3, 'motion': 1.5, 'speech': 1.5, 'pronoun': 22},
}
REPLACED = {
    'lend|lends|lent|lending|lender|lenders': 'allocate',
    'loan|loans': 'allocation',
    'ticket|tickets': 'sequence number',
    'stamp|stamps|stamped': 'point, mark',
    'limbo': 'open frees',
    'nobody|nobodys': 'unowned, or the person or thing',
    'rung|rungs': 'stage',
    'pendings': 'deferred frees',
}
REPLACED_WORD = re.compile('(?<![A-Za-z])(?:' + '|'.join(REPLACED) + ')(?![A-Za-z])', re.I)
TIME_STAMP = re.compile('time[ -]stamp', re.I)  # the processor's clock
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*(.*?)\*/|//([^\n]*)', re.S)


def messages(text):
    """Yield (line, text) of each literal of C, adjacent ones joined, if it has enough words."""
    line, joined, end = 0, '', 0
    for match in list(TOKEN.finditer(text)) + [None]:
        if match is not None and match.group(0)[0] != '"':
            continue
        if match is None or not re.fullmatch(r'(?:\s|\\\n|PRI\w+|"|/\*.*?\*/|//[^\n]*)*', text[end:match.start()], re.S):
            plain = re.sub(r'%[-+ #0-9.*]*(?:hh|h|ll|l|z|j|t)?[a-zA-Z%]|\\.', ' ', joined)
            if word_count(plain) >= MESSAGE_WORDS:
                yield line, plain
            joined = ''
        if match is not None:
            line = line if joined else text.count('\n', 0, match.start()) + 1
            joined, end = joined + match.group(0)[1:-1], match.end()


def is_python(path, text):
    return path.endswith('.py') or text.startswith('#!/usr/bin/env python')


def is_script(path, text):
    return (path.endswith(('.py', '.sh', '.cmake', '.js', 'CMakeLists.txt')) or
            '.' not in os.path.basename(path) and text.startswith('#!'))


def script_passages(path, text):
    """Yield (line, text) of each comment of a script, adjacent ones joined, and of each docstring."""
    if path.endswith('.js'):
        yield from passages(path, text)
        return
    if is_python(path, text):
        found, before = [], tokenize.NEWLINE
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                found.append((token.start[0], token.string.lstrip('#! ')))
            elif token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
                yield token.start[0], ' '.join(token.string.split())
            before = before if token.type in (tokenize.COMMENT, tokenize.NL) else token.type
    else:
        matches = ((number, re.search(r'(?:^|\s)#(?!!)\s?(.*)', line)) for number, line in enumerate(text.split('\n'), 1))
        found = [(number, match.group(1)) for number, match in matches if match]
    while found:
        line, passage = found.pop(0)
        last = line
        while found and found[0][0] == last + 1:
            last, more = found.pop(0)
            passage += ' ' + more
        yield line, passage.replace('SPDX-License-Identifier: Apache-2.0', '')


def passages(path, text):
    """Yield (line, text) of each comment or paragraph."""
    if path.endswith('.md'):
        for match in re.finditer(r'(?:[^\n]+\n)+', re.sub(r'```.*?```|<!--.*?-->', blank, text, flags=re.S)):
            yield text.count('\n', 0, match.start()) + 1, match.group(0)
        return
    for match in TOKEN.finditer(text):
        body = match.group(1) or match.group(2)
        if body:
            body = re.sub(r'\s*\n\s*\*?\s*', ' ', body).strip(' *<')
            yield text.count('\n', 0, match.start()) + 1, body.replace('SPDX-License-Identifier: Apache-2.0', '')


def blank(match):
    return re.sub(r'[^\n]', ' ', match.group(0))


def word_count(text):
    return len(re.findall(r"[A-Za-z']+", text))


def lines_of(text):
    """Return the number of lines with code, and of lines with nothing but comment."""
    code = TOKEN.sub(lambda match: match.group(0) if match.group(0)[0] in '"\'' else blank(match), text)
    total = sum(1 for line in text.splitlines() if line.strip())
    coded = sum(1 for line in code.splitlines() if line.strip())
    return coded, total - coded


class Folder:
    def __init__(self):
        self.words, self.hits = 0, dict.fromkeys(PATTERNS, 0)
        self.code, self.comment = 0, 0
        self.worst = []

    def add(self, other):
        self.words += other.words
        self.code += other.code
        self.comment += other.comment
        self.worst += other.worst
        for name in PATTERNS:
            self.hits[name] += other.hits[name]


def read(root, kind):
    """Return {folder: Folder} of the files' own folders."""
    folders = {}
    tops = {'message': FOLDERS[:-1], 'script': SCRIPT_FOLDERS}
    readers = {'message': lambda path, text: messages(text), 'script': script_passages}
    for top in tops.get(kind, FOLDERS):
        for place, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                path = os.path.relpath(os.path.join(place, name), root)
                if kind != 'script' and not path.endswith('.md' if kind == 'document' else C_SOURCES):
                    continue
                if path.startswith(EXCEPTIONS) or FROZEN.match(path) or '__pycache__' in path:
                    continue
                text = open(os.path.join(root, path), encoding='utf-8', errors='replace').read()
                if kind == 'script' and not is_script(path, text):
                    continue
                folder = folders.setdefault(os.path.dirname(path), Folder())
                if kind == 'comment':
                    code, comment = lines_of(text)
                    folder.code += code
                    folder.comment += comment
                for line, passage in readers.get(kind, passages)(path, text):
                    found = {word: len(pattern.findall(passage)) for word, pattern in PATTERNS.items()}
                    folder.words += word_count(passage)
                    for word, count in found.items():
                        folder.hits[word] += count
                    if any(found.values()):
                        folder.worst.append((sum(found.values()), f'{path}:{line}: {passage[:160]}'))
    merges_tops = kind in ('message', 'script')  # else each folder of FOLDERS is judged
    for depth in range(max(path.count('/') for path in folders), -1, -1):
        for path in [path for path in folders if path and path.count('/') == depth]:
            if (depth > 0 or merges_tops) and folders[path].words < SMALL:
                folders.setdefault(os.path.dirname(path), Folder()).add(folders.pop(path))
    return folders


def judge(root, kind, worst):
    """Print a line for each folder; return the errors."""
    errors, lines = [], {top: [0, 0] for top in FOLDERS}
    for path, folder in sorted(read(root, kind).items()):
        if not folder.words:
            continue
        if kind == 'comment':
            lines[path.split('/')[0]][0] += folder.code
            lines[path.split('/')[0]][1] += folder.comment
        rates = {word: 1000 * count / folder.words for word, count in folder.hits.items()}
        print(f'{path or ".":20} {kind:9} {folder.words:6} words: ' +
              ', '.join(f'{word} {rate:.1f}' for word, rate in rates.items()))
        too_many = [f'{word} {rates[word]:.2f} > {limit}' for word, limit in LIMITS[kind].items() if rates[word] > limit]
        if too_many:
            errors.append(f'{path or "."}: {kind}s, per 1,000 words: ' + ', '.join(too_many))
        for _, passage in sorted(folder.worst, reverse=True)[:worst]:
            print('   ', passage)
    for top, (code, comment) in lines.items():
        if kind == 'comment' and comment < COMMENT_LINES.get(top, COMMENT_LINES_ELSEWHERE) * code:
            errors.append(f'{top}: only {comment} lines of comment for {code} of code')
    return errors


def replaced_words(text):
    return REPLACED_WORD.findall(TIME_STAMP.sub('', text))


def find_replaced(root):
    errors = []
    for top in FOLDERS[:-1]:
        for place, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                path = os.path.relpath(os.path.join(place, name), root)
                if not path.endswith(C_SOURCES + ('.md', '.py', '.txt', '.cmake', '.css', '.js')) or 'CHANGELOG' in path:
                    continue
                for number, line in enumerate(open(os.path.join(root, path), encoding='utf-8'), 1):
                    errors += [f'{path}:{number}: "{word}"; see the glossary in src/README.md'
                               for word in replaced_words(line)]
    return errors


def check_itself():
    """Fail if a planted word is not found, or an innocent one is."""
    for words in REPLACED:
        for word in words.split('|'):
            for text in (f'/* {word} */', f'int flw_{word}_of(void);', f'#define FLW_{word.upper()} 1'):
                assert replaced_words(text), text
    assert not replaced_words('blend, calendar, silent, wrung, timestamp, the time stamp counter')
    planted = [body for _, body in passages('a.c', '/* Owns: what it says. */ "/* no */" // who\n')]
    assert planted == ['Owns: what it says.', 'who'], planted
    planted = [body for _, body in messages('f("a b " /* no */ "c" PRIu64 "%d d\\n", "x"); g("too few words")')]
    assert [body.split() for body in planted] == [['a', 'b', 'c', 'd']], planted
    for name, text in (('a.py', 'x = """no"""  # who\n# says\n'), ('a.sh', 'x=1 # who\n# says\n'),
                       ('a.js', 'let x; /* who says */\n')):
        assert [body for _, body in script_passages(name, text)] == ['who says'], name
    assert [body for _, body in script_passages('a.py', '"""Who."""\nx = "says"\n')] == ['"""Who."""']
    with tempfile.TemporaryDirectory() as root:
        for kind, path, text in (('message', 'tools/a.c', 'puts("it is what the pool says");'),
                                 ('script', 'tests/a.sh', '# it is what the pool says\n'),
                                 ('comment', 'src/a.h', '/* it is what the pool says */\n'),
                                 ('document', 'src/a.md', 'it is what the pool says\n')):
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), 'w') as file:
                file.write(text)
            with contextlib.redirect_stdout(None):
                errors = judge(root, kind, 0)
            assert len(errors) == 1 and all(word in errors[0] for word in ('what', 'speech', 'pronoun')), (kind, errors)
    assert lines_of('int a; /* b\n c */\n// d\n\nchar *e = "/*";\n') == (2, 2)


if __name__ == '__main__':
    root = sys.argv[1]
    worst = int(sys.argv[3]) if sys.argv[2:3] == ['--worst'] else 0
    check_itself()
    errors = sum((judge(root, kind, worst) for kind in LIMITS), []) + find_replaced(root)
    if errors:
        sys.exit('\n'.join(errors))
