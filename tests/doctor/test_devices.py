"""`fulldeck devices` and other commands from the command line."""
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest

from launching import HERE, TOP, BUILD

FULLDECK = os.path.join(BUILD, "bin", "fulldeck")
USE_CARD = os.path.join(BUILD, "tests", "use_simulated_card")
MACHINES = os.path.join(HERE, "fixtures", "machines")


@pytest.fixture
def environment(tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    variables = {k: v for k, v in os.environ.items() if "VISIBLE_DEVICES" not in k and not k.startswith("FULLDECK_")}
    variables["FULLDECK_SIMULATE_DIR"] = str(state)
    return variables


def run(arguments, variables, timeout=60):
    return subprocess.run([FULLDECK] + arguments, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=timeout)


def devices_json(variables, *arguments):
    done = run(["devices", "--json"] + list(arguments), variables)
    return done, json.loads(done.stdout)


def test_eight_simulated_cards_have_distinct_serials(environment):
    environment["FULLDECK_SIMULATE"] = "gcu:8"
    done, inventory = devices_json(environment)
    assert done.returncode == 0 and done.stderr == ""
    assert inventory["version"] == 1 and inventory["simulated"]
    assert len({card["serial"] for card in inventory["cards"]}) == 8
    assert all(card["simulated"] and card["kind"] == "gcu" for card in inventory["cards"])
    assert [card["torch_device"] for card in inventory["cards"]] == ["gcu:%d" % i for i in range(8)]


@pytest.mark.parametrize("kind,torch_type", [("npu:4", "npu"), ("xla:8", "xla"), ("cuda:4", "cuda"), ("mlu:2", "mlu")])
def test_other_kinds_can_be_simulated(environment, kind, torch_type):
    environment["FULLDECK_SIMULATE"] = kind
    _, inventory = devices_json(environment)
    assert len(inventory["cards"]) == int(kind.split(":")[1])
    assert inventory["cards"][0]["torch_device"] == torch_type + ":0"


def test_the_table_labels_simulated_cards_in_every_row(environment):
    environment["FULLDECK_SIMULATE"] = "gcu:8"
    done = run(["devices"], environment)
    rows = [line for line in done.stdout.splitlines() if line.startswith("gcu ")]
    assert len(rows) == 8 and all("(simulated)" in row for row in rows)
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("machine,count,name", [("8xT20", 8, "xla:7"), ("8xS60", 8, "gcu:7"), ("1xH200", 1, "cuda:0"),
                                                ("8xAscend910B", 8, "npu:7"), ("laptop", 0, None)])
def test_recorded_machines_give_the_right_cards(environment, machine, count, name):
    done, inventory = devices_json(environment, "--root", os.path.join(MACHINES, machine))
    assert done.returncode == 0, done.stderr
    assert len(inventory["cards"]) == count
    if name:
        assert inventory["cards"][-1]["torch_device"] == name


def test_a_program_in_c_makes_a_card_busy_and_is_named_with_its_owner(environment):
    environment["FULLDECK_SIMULATE"] = "gcu:8,idle=5"
    users = [subprocess.Popen([USE_CARD, card, "67108864"], env=environment, stdout=subprocess.PIPE) for card in "35"]
    try:
        for user in users:
            assert user.stdout.readline() == b"busy\n"
        deadline = time.monotonic() + 90
        while True:
            _, inventory = devices_json(environment)
            busy = inventory["cards"][3]
            if busy["utilisation_percent"] > 50 or time.monotonic() > deadline:
                break
        assert busy["utilisation_percent"] > 50
        assert busy["memory_used_bytes"] == 67108864
        assert busy["state"] == "Active"
        assert busy["processes"][0]["pid"] == users[0].pid
        assert "use_simulated_card" in busy["processes"][0]["command"]
        assert busy["processes"][0]["user"]
        idle = inventory["cards"][5]
        assert idle["utilisation_percent"] == 0 and idle["processes"][0]["pid"] == users[1].pid
        assert inventory["cards"][0]["processes"] == []
    finally:
        for user in users:
            user.kill()
            user.wait()
    _, inventory = devices_json(environment)
    assert inventory["cards"][3]["processes"] == [] and inventory["cards"][3]["memory_used_bytes"] == 0


def test_a_program_in_python_can_use_a_card_through_the_library(environment):
    environment["FULLDECK_SIMULATE"] = "gcu:8,memory=1KiB,dropped=7"
    script = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.fulldeck_simulated_card_error.restype = ctypes.c_char_p
card = ctypes.c_void_p()
assert library.fulldeck_simulated_card_open(2, ctypes.byref(card)) == 0
assert library.fulldeck_simulated_card_hold(card, ctypes.c_uint64(1024)) == 0
assert library.fulldeck_simulated_card_hold(card, ctypes.c_uint64(1)) == -12
other = ctypes.c_void_p()
assert library.fulldeck_simulated_card_open(7, ctypes.byref(other)) == -19
assert b"dropped off the bus" in library.fulldeck_simulated_card_error()
print("held", flush=True)
sys.stdin.read()
"""
    library = os.path.join(BUILD, "lib", "libfulldeck_simulated_card.so")
    user = subprocess.Popen([sys.executable, "-c", script, library], env=environment, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE)
    assert user.stdout.readline() == b"held\n"
    _, inventory = devices_json(environment)
    assert inventory["cards"][2]["memory_used_bytes"] == 1024
    assert inventory["cards"][2]["processes"][0]["pid"] == user.pid
    user.communicate()
    assert user.returncode == 0


def machine_with_library(tmp_path, variant, library):
    root = tmp_path / "machine"
    shutil.copytree(os.path.join(MACHINES, "8xT20"), str(root), symlinks=True)
    shutil.copytree(os.path.join(MACHINES, "1xH200", "proc", "driver"), str(root / "proc" / "driver"))
    (root / "usr" / "lib").mkdir(exist_ok=True)
    shutil.copy(os.path.join(BUILD, "tests", "fake_libraries", variant, library), str(root / "usr" / "lib" / library))
    return str(root)


@pytest.mark.parametrize("library", ["libnvidia-ml.so.1", "libefml.so"])
@pytest.mark.parametrize("variant,says", [("segfault", "killed by signal 11|ended with code"), ("hang", "did not answer within 1.5 s"),
                                          ("no_symbol", "symbol|function"), ("exit", "ended with code 0"),
                                          ("not_elf", "cannot be loaded")])
def test_a_library_that_misbehaves_is_reported_in_time_and_the_others_answer(environment, tmp_path, variant, says, library):
    root = machine_with_library(tmp_path, variant, library)
    done, inventory = devices_json(environment, "--root", root)
    assert done.returncode == 81
    assert re.search(says, done.stderr), done.stderr
    vendors = [card["vendor"] for card in inventory["cards"]]
    assert vendors.count("enflame") == 8 and vendors.count("nvidia") == 1


def test_a_library_that_prints_does_not_spoil_the_output(environment, tmp_path):
    root = machine_with_library(tmp_path, "chatty", "libefml.so")
    done, inventory = devices_json(environment, "--root", root)
    assert done.returncode == 0 and done.stderr == ""
    assert any("EFML" in source for source in inventory["cards"][-1]["sources"])


@pytest.mark.parametrize("value,part", [("gcu:9x", "'gcu:9x' needs a number of cards"), ("gpu:8", "did you mean gcu?"),
                                        ("gcu:8,idel=1", "did you mean idle?"), ("gcu:4,slow=9:2", "'slow=9:2'")])
def test_a_malformed_simulation_names_the_wrong_part(environment, value, part):
    environment["FULLDECK_SIMULATE"] = value
    done = run(["devices"], environment)
    assert done.returncode == 80 and done.stdout == ""
    assert done.stderr.startswith("fulldeck: error: FULLDECK_SIMULATE=") and part in done.stderr
    assert "Right forms:" in done.stderr


def test_a_visibility_list_is_honoured_shown_and_checked(environment):
    environment["FULLDECK_SIMULATE"] = "gcu:8"
    environment["TOPS_VISIBLE_DEVICES"] = "5,1"
    done = run(["devices"], environment)
    assert done.returncode == 0
    assert "2 of 8 visible (TOPS_VISIBLE_DEVICES=5,1)" in done.stdout
    _, inventory = devices_json(environment)
    assert [card["torch_device"] for card in inventory["cards"]][5] == "gcu:0"
    assert sum(card["visible"] for card in inventory["cards"]) == 2

    environment["TOPS_VISIBLE_DEVICES"] = "0,1,oops"
    done = run(["devices"], environment)
    assert done.returncode == 80
    assert "'oops' names no card" in done.stderr and "Right forms" in done.stderr
    assert "gcu 7" in done.stdout, "the cards are still shown"


@pytest.mark.parametrize("arguments,message", [
    (["devcies"], "did you mean 'fulldeck devices'?"),
    (["frobnicate"], "there is no command 'frobnicate'"),
    (["devices", "--jsno"], "did you mean --json?"),
    (["devices", "extra"], "unexpected argument 'extra'"),
    (["devices", "--root", "/no/such/folder"], "/no/such/folder"),
    (["devices", "--timeout", "soon"], "--timeout"),
    (["devices", "--watch=0"], "--watch"),
    (["help", "exit-code"], "did you mean 'exit-codes'?"),
    (["completion", "tcsh"], "tcsh"),
])
def test_mistakes_on_the_command_line_are_explained(environment, arguments, message):
    done = run(arguments, environment)
    assert done.returncode == 2
    assert done.stderr.startswith("fulldeck: error: ") and message in done.stderr


def test_version_and_help(environment):
    done = run(["--version"], environment)
    assert done.returncode == 0 and re.match(r"^fulldeck \d+\.\d+\.\d+$", done.stdout.strip())
    help_text = run(["--help"], environment).stdout
    commands = re.findall(r"^  ([a-z]+) +\S", help_text.split("Subcommands:")[1].split("Examples:")[0], re.M)
    assert "devices" in commands and "vendor-helper" not in commands
    for command in commands:
        assert "Example" in run([command, "--help"], environment).stdout, command
    assert run([], environment).returncode == 2


def test_documents_hold_the_tables_that_the_program_prints(environment):
    for topic, document in (("exit-codes", "exit-codes.md"), ("environment", "environment.md")):
        with open(os.path.join(TOP, "docs", document), encoding="utf-8") as text:
            assert run(["help", topic], environment).stdout in text.read(), document


def complete_in_bash(variables, typed):
    script = ('eval "$(%s completion bash)"; COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _fulldeck; '
              'printf "%%s\\n" "${COMPREPLY[@]}"' % (FULLDECK, " ".join('"%s"' % word for word in typed)))
    done = subprocess.run(["bash", "-c", script], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_and_options(environment):
    assert complete_in_bash(environment, ["fulldeck", "dev"]) == ["devices"]
    assert complete_in_bash(environment, ["fulldeck", "devices", "--w"]) == ["--watch"]
    assert "exit-codes" in complete_in_bash(environment, ["fulldeck", "help", ""])


def test_zsh_completion_names_every_command(environment):
    done = run(["completion", "zsh"], environment)
    assert done.stdout.startswith("#compdef fulldeck")
    assert "devices) compadd -- " in done.stdout
    if shutil.which("zsh"):
        subprocess.run(["zsh", "-n"], input=done.stdout, universal_newlines=True, check=True, timeout=60)


def run_on_terminal(arguments, variables, until, timeout=120):
    """Output of the program on a pseudo-terminal up to the text `until`; then Ctrl-C, and its exit code."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(FULLDECK, [FULLDECK] + arguments, variables)
    output = ""
    deadline = time.monotonic() + timeout
    while until(output) is False and time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            output += os.read(terminal, 65536).decode("utf-8", "replace")
        except OSError:
            break
    if "--watch" in arguments:
        os.write(terminal, b"\x03")
    while True:
        try:
            if not os.read(terminal, 65536):
                break
        except OSError:
            break
    status = os.waitpid(child, 0)[1]
    os.close(terminal)
    return output, status


def test_colour_only_on_a_terminal_that_wants_it(environment):
    environment["FULLDECK_SIMULATE"] = "gcu:2"
    environment["TERM"] = "xterm"
    environment.pop("NO_COLOR", None)
    output, status = run_on_terminal(["devices"], environment, lambda text: "Host:" in text)
    assert status == 0 and "\x1b[1m" in output
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        output, status = run_on_terminal(["devices"], dict(environment, **{name: value}), lambda text: "Host:" in text)
        assert status == 0 and "\x1b" not in output, name


def test_watch_draws_in_place_on_a_terminal_until_ctrl_c(environment):
    environment["FULLDECK_SIMULATE"] = "gcu:2"
    output, status = run_on_terminal(["devices", "--watch", "0.1"], environment, lambda text: text.count("Host:") >= 3)
    assert output.count("\x1b[H\x1b[2J") >= 3
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0


def test_watch_into_a_pipe_ends_on_sigterm_with_whole_objects(environment):
    environment["FULLDECK_SIMULATE"] = "gcu:2"
    process = subprocess.Popen([FULLDECK, "devices", "--json", "--watch=0.1"], env=environment, stdout=subprocess.PIPE,
                               universal_newlines=True)
    lines = []
    while sum(line == "}\n" for line in lines) < 3:
        lines.append(process.stdout.readline())
        assert lines[-1], "it ended by itself"
    process.send_signal(signal.SIGTERM)
    rest = process.stdout.read()
    assert process.wait(timeout=120) == 0
    decoder = json.JSONDecoder()
    text = "".join(lines) + rest
    objects = 0
    while text.strip():
        _, end = decoder.raw_decode(text.lstrip())
        text = text.lstrip()[end:]
        objects += 1
    assert objects >= 3


def test_watch_sees_a_card_become_busy(environment):
    environment["FULLDECK_SIMULATE"] = "gcu:2"
    user = subprocess.Popen([USE_CARD, "1", "1048576"], env=environment, stdout=subprocess.PIPE)
    assert user.stdout.readline() == b"busy\n"
    try:
        output, _ = run_on_terminal(["devices", "--watch", "0.1"], environment, lambda text: "Active" in text)
        assert "Active" in output
    finally:
        user.kill()
        user.wait()


def test_a_reader_that_goes_away_ends_the_watch(environment):
    environment["FULLDECK_SIMULATE"] = "gcu:2"
    process = subprocess.Popen([FULLDECK, "devices", "--watch=0.1"], env=environment, stdout=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=120) != 0


def test_no_helper_is_left_behind(environment, tmp_path):
    root = machine_with_library(tmp_path, "hang", "libefml.so")
    run(["devices", "--root", root], environment)
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        listing = subprocess.run(["ps", "-eo", "args"], stdout=subprocess.PIPE, universal_newlines=True).stdout
        if root not in listing:
            return
        time.sleep(0.1)
    pytest.fail("a helper process lives on")
