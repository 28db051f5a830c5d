"""Every command and flag of fulldeck that a message, the catalog, a help text, a config or a document mentions exists:
it is looked up in what the parser itself declares (`fulldeck CMD --help`)."""
import ast
import functools
import glob
import io
import os
import re
import subprocess
import sys
import tokenize

import pytest

from launching import FULLDECK, TOP

# What ends a command in running text.
END = re.compile(r"[|;&`()，。；：、？！（）「」“”<>\"\u4e00-\u9fff]|\.\s|\.$|,\s|:\s|'\s|\s#|\s[-–—]\s")
COMMAND = re.compile(r"(?<![\w./:-])(?<!from )(?<!import )(?:\.venv/bin/|build/bin/)?fulldeck +([a-z][a-z-]*)\b(?![\w/])([^\n]*)")
# First lines of fulldeck's files and keywords of its protocols, which occur in code but are not command lines.
NO_COMMANDS = ("fulldeck crash report 1", "fulldeck hosts 1 ")
FLAG = re.compile(r"^(-[a-zA-Z]|--[a-z][a-z0-9_-]*)(?:[=,:.\])…]|$)")


BARE_FLAG = re.compile(r"(?<![\w-])(--[a-z][a-z0-9_-]+)")

# Flags of other programs that texts mention without the program in front of them, and of fulldeck's own helpers and
# tests.
FOREIGN = {"--" + name for name in (
    # docker, Slurm, mpirun, ip, flock, efsmi, py-spy
    "cap-add cpus cpuset-cpus gpus group-add init ipc memory network pids-limit privileged runtime security-opt shm-size ulimit device "
    "cpus-per-task exclusive gpus-per-node gres job-name kill-on-bad-exit mem mpi nodes ntasks-per-node requeue signal time "
    "allow-run-as-root oversubscribe no-fork dmon pid "
    # pip, cmake, strip, curl, Accelerate, MMEngine, gtest, the C++ compiler
    "build config-settings force-reinstall index-url no-build-isolation no-cache-dir no-deps target install prefix strip-unneeded proxy-user user "
    "config_file main_process_port launcher gtest_brief gtest_filter wandb "
    # users' scripts, examples, benchmarks, helpers, and generic statements about flags
    "epochs fail local local-rank local_rank batch check-finite hash-every kinds loaded program ranks repeats size steps table checkpoints save-every "
    "without-torch token tokens flag version spoil recipe checkpoint nproc-per-mode").split()}


@functools.lru_cache(None)
def commands():
    """{command: {flag: whether it takes a value, or the only values it takes ("warn|fail")}}, as the program declares
    them."""
    overview = subprocess.run([FULLDECK, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode()
    listed = overview[overview.index("Subcommands:"):overview.index("Examples:")]
    names = re.findall(r"^  ([a-z-]+) ", listed, re.M)
    assert "run" in names and "doctor" in names
    found = {}
    for name in names:
        text = subprocess.run([FULLDECK, name, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode()
        flags = {}
        for line in text.splitlines():
            match = re.match(r"^  (-[\w-]+(?:, ?-[\w-]+)*)(.*)$", line)
            if not match:
                continue
            takes_value = bool(re.match(r" [^ ]", match.group(2))) and not re.match(r" \[", match.group(2))
            for flag in re.split(r", ?", match.group(1)):
                choices = match.group(2).split()[0].split("=")[0] if takes_value else ""
                flags[flag] = choices if "|" in choices else takes_value
        found[name] = flags
    # Intentionally hidden from the help, and documented: the doctor's self-test, and helpers that fulldeck starts.
    found["doctor"]["--inject"] = True
    for name in ("vendor-helper", "probe-card", "bench-rank", "doctor-rank"):
        found[name] = {}
    return found


def known(command, flag):
    flags = commands()[command]
    if command in ("run", "launch"):  # both spellings are accepted
        flag = flag[:2] + flag[2:].replace("_", "-")
    return flags.get(flag)


def wrong_in(text, code):
    """What is wrong with each mention in one text. `code`: the text is a command line (or several), so a word after
    `fulldeck` is a command; elsewhere it may be prose."""
    wrong = []
    for match in COMMAND.finditer(text):
        command, rest = match.group(1), match.group(2)
        if command not in commands():
            if code and not text.startswith(NO_COMMANDS) and re.match(r"(\$ )?([A-Z_]+=\S+ )*\S*fulldeck ", text):
                wrong.append("fulldeck %s: no such command" % command)
            elif re.match(r" *--", rest):
                wrong.append("fulldeck %s%s: no such command" % (command, rest.rstrip()))
            continue
        end = END.search(rest)
        pieces = (rest[:end.start()] if end else rest).replace("[", " ").replace("]", " ").split()
        skip = False
        for word in pieces:
            if skip:
                if code and isinstance(skip, str) and re.match(r"^[a-z-]+$", word) and word not in skip.split("|"):
                    wrong.append("fulldeck %s: no such value: %s of %s" % (command, word, skip))
                skip = False
                continue
            flag = FLAG.match(word)
            if not flag:
                if command in ("run", "launch") and word not in ("…", "...", "\\", "{}"):
                    break  # the program: its arguments follow
                continue
            takes_value = known(command, flag.group(1))
            if takes_value is None:
                wrong.append("fulldeck %s %s: no such flag" % (command, flag.group(1)))
            skip = takes_value if "=" not in word else False
    return wrong


def unknown_flags(text):
    """Flags without a command in a text that neither a command of fulldeck nor a program of FOREIGN has."""
    every = {flag for flags in commands().values() for flag in flags}
    return [flag for flag in BARE_FLAG.findall(text) if flag.replace("_", "-") not in every and flag not in every | FOREIGN]


def cpp_texts(source):
    """The string literals of a C++ file (adjacent ones joined, as the compiler does) and its comments (adjacent ones
    joined)."""
    tokens = re.compile(r'R"(?P<mark>\w*)\((?P<raw>.*?)\)(?P=mark)"|"(?P<text>(?:\\.|[^"\\\n])*)"|'
                        r"//(?P<comment>[^\n]*)|/\*(?P<block>.*?)\*/|'(?:\\.|[^'\\\n])'", re.S)
    strings, comments, last_end, kind = [], [], 0, None
    for token in tokens.finditer(source):
        between = source[last_end:token.start()]
        last_end = token.end()
        if token.group("comment") is not None or token.group("block") is not None:
            body = token.group("comment") if token.group("comment") is not None else token.group("block")
            if kind == "comment" and not between.strip():
                comments[-1] += " " + body.strip()
            else:
                comments.append(body.strip())
            kind = "comment"
        elif token.group("raw") is not None or token.group("text") is not None:
            body = token.group("raw") if token.group("raw") is not None else token.group("text").replace("\\n", "\n").replace('\\"', '"')
            if kind == "string" and not between.strip():
                strings[-1] += body
            else:
                strings.append(body)
            kind = "string"
        else:
            kind = None
    return strings + comments


def python_texts(source):
    texts = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
        elif isinstance(node, ast.JoinedStr):
            texts.append("".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values))
    texts += [token.string for token in tokenize.generate_tokens(io.StringIO(source).readline)
              if token.type == tokenize.COMMENT]
    return texts


def document_texts(source):
    """(code, prose) of a Markdown file: lines of its code blocks and its code spans, and the rest."""
    code = []

    def block(match):
        code.extend(re.sub(r"\\\n\s*", " ", match.group(1)).splitlines())
        return " "

    rest = re.sub(r"^ *```[^\n]*\n(.*?)^ *```", block, source, flags=re.S | re.M)

    def span(match):
        code.append(match.group(1).replace("\\|", " ").replace("\n", " "))
        return " "

    return code, [re.sub(r"`([^`]+)`", span, rest)]


def mentions(pattern_groups):
    for pattern in pattern_groups:
        for path in sorted(glob.glob(os.path.join(TOP, pattern), recursive=True)):
            with open(path, encoding="utf-8") as file:
                yield os.path.relpath(path, TOP), file.read()


def problems(files, texts_of):
    found, seen = [], 0
    for path, source in files:
        for text, code in texts_of(source):
            seen += len(COMMAND.findall(text))
            found += ["%s: %s" % (path, one) for one in wrong_in(text, code)]
    assert seen >= 5, "the extraction finds nothing any more"
    return "\n".join(found)


def test_messages_catalog_and_help_texts_mention_only_commands_and_flags_that_exist():
    files = [pair for pair in mentions(["src/**/*.cc", "src/**/*.h", "src/**/*.in", "include/**/*.h", "examples/**/*.cc", "examples/**/*.cpp"])
             if not pair[0].endswith("_test.cc")]
    assert "" == problems(files, lambda source: [(text, False) for text in cpp_texts(source)])


def test_texts_of_the_program_mention_only_commands_and_flags_that_exist():
    assert "" == problems(mentions(["data/**/*.toml"]), lambda source: [(line, False) for line in source.splitlines()])


def test_python_mentions_only_commands_and_flags_that_exist():
    files = list(mentions(["python/**/*.py", "src/**/*.py", "examples/**/*.py", "scripts/*.py"]))
    assert "" == problems(files, lambda source: [(text, False) for text in python_texts(source)])


def test_documents_and_configs_mention_only_commands_and_flags_that_exist():
    def texts_of_document(source):
        code, prose = document_texts(source)
        return [(text, True) for text in code] + [(text, False) for text in prose]

    assert "" == problems(mentions(["README*.md", "CONTRIBUTING.md", "docs/**/*.md"]), texts_of_document)
    assert "" == problems(mentions(["configs/*", "Makefile", "examples/*/*.toml", "examples/**/*.sh", "scripts/*.sh"]),
                        lambda source: [(source.replace("\\\n", " "), False)])


def test_flags_that_stand_alone_exist_too():
    found = []
    for path, source in mentions(["src/**/*.cc", "src/**/*.in"]):
        if not path.endswith("_test.cc"):
            found += [(path, flag) for text in cpp_texts(source) for flag in unknown_flags(text)]
    for path, source in mentions(["data/**/*.toml"]):
        found += [(path, flag) for flag in unknown_flags(source)]
    for path, source in mentions(["python/**/*.py"]):
        found += [(path, flag) for text in python_texts(source) for flag in unknown_flags(text)]
    for path, source in mentions(["README*.md", "docs/*.md"]):
        code, prose = document_texts(source)
        found += [(path, flag) for text in code + prose for flag in unknown_flags(text)]
    assert found == []


@pytest.mark.parametrize("text, flags", [
    ("Take --backend fulldeck instead", []),  # of the bench
    ("or leave --no-such-flag away", ["--no-such-flag"]),
    ("docker run --shm-size=8g", []),
])
def test_a_flag_that_stands_alone_is_looked_for_in_all_commands(text, flags):
    assert unknown_flags(text) == flags


@pytest.mark.parametrize("text, verdict", [
    ("until then: fulldeck run --backend fulldeck.", ["fulldeck run --backend: no such flag"]),
    ("fulldeck run --devices cpu train.py --backend x", []),
    ("fulldeck run --nproc_per_node 2 --bogus x.py", ["fulldeck run --bogus: no such flag"]),
    ("在此之前用 fulldeck run --backend fulldeck。", ["fulldeck run --backend: no such flag"]),
    ("fulldeck stop ends it, --on-hang decides", []),
    ("fulldeck doctor --only network --hosts node2", []),
    ("fulldeck predict --checkpoint DIR", ["fulldeck predict --checkpoint: no such flag"]),
    ("fulldeck dokter --deep", ["fulldeck dokter --deep: no such command"]),
    ("fulldeck puts every card to work", []),
])
def test_a_mention_is_judged_by_the_parser(text, verdict):
    assert wrong_in(text, False) == verdict


@pytest.mark.parametrize("line, verdict", [
    ("fulldeck run --on-hang stop x.py", ["fulldeck run: no such value: stop of report|restart|fail"]),
    ("fulldeck run --idle-card fail --on-hang restart x.py", []),
    ("fulldeck run --on-hang MODE x.py", []),
])
def test_values_in_command_lines_are_among_the_ones_that_the_flag_takes(line, verdict):
    assert wrong_in(line, True) == verdict


def test_the_parser_refuses_what_this_test_refuses():
    for command, flag in (("run", "--backend"), ("doctor", "--bogus"), ("predict", "--checkpoint")):
        done = subprocess.run([FULLDECK, command, flag, "x"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert done.returncode == 2
        assert known(command, flag) is None


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
