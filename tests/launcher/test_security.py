"""What one user can do to another through fulldeck's files, folders, sockets, names and ports, and what an archive
reveals. Attackers run under uids of their own (without accounts), which needs root."""
import glob
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile

import pytest

from launching import FULLDECK, free_port, read, remove, wait_until

ATTACKER = 61001
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as two users")

# Modules that the scripts of doctor, patch and bundle import, directly or indirectly.
PLANTED = ("json", "csv", "contextlib", "base64", "hashlib", "linecache", "importlib", "resource", "email", "zipfile", "sitecustomize")


def run_as(uid, work):
    """Runs `work` in a child with only that user's rights; returns its text result."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.write(theirs, str(work()).encode())
            code = 0
        except BaseException as error:  # the child must never return into pytest
            os.write(theirs, repr(error).encode())
        finally:
            os._exit(code)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        text = answer.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, text
    return text


@pytest.fixture
def open_folder():
    """Permissions like /tmp: every user can create files there, none can remove others' files."""
    folder = tempfile.mkdtemp(prefix="fulldeck-test-", dir="/tmp")
    os.chmod(folder, 0o1777)
    yield folder
    remove(folder)


def plant_modules(folder, marker):
    for name in PLANTED:
        with open(os.path.join(folder, name + ".py"), "w") as file:
            file.write("import os\nos.close(os.open(%r + %r, os.O_CREAT | os.O_WRONLY))\n" % (marker + "-", name))
    with open(os.path.join(folder, "python3"), "w") as file:
        file.write("#!/bin/sh\ntouch %s-python3\n" % marker)
    os.chmod(os.path.join(folder, "python3"), 0o755)


@pytest.mark.parametrize("command", [["doctor", "--only", "stack"], ["patch", "mmengine", "--status"],
                                     ["patch", "mmengine", "--status", "--python", sys.executable]])
def test_no_module_of_the_working_directory_is_imported(workspace, command):
    marker = os.path.join(workspace.folder, "notes", "ran")
    plant_modules(workspace.folder, marker)
    # With an empty entry, which PYTHONPATH=$PYTHONPATH:/x produces if the variable was not set.
    done = workspace.fulldeck(*command, extra={"PYTHONPATH": ":/nowhere:.", "PATH": ":.:" + workspace.variables["PATH"]})
    assert not glob.glob(marker + "*"), done
    assert done.code in (0, 1, 91), done


@as_root
def test_logs_in_torchruns_place_are_private_and_not_in_a_folder_that_another_user_made(workspace, open_folder):
    usual = os.path.join(open_folder, "fulldeck_runs-0")

    def squat():
        os.mkdir(usual)
        os.chmod(usual, 0o777)
    run_as(ATTACKER, squat)
    torchrun = os.path.join(workspace.folder, "torchrun")
    os.symlink(FULLDECK, torchrun)
    script = workspace.write("words.py", "print('private words')\n")
    done = workspace.start_program([torchrun, "--nproc-per-node", "1", script], extra={"FULLDECK_SIMULATE": "gcu:1", "TMPDIR": open_folder}).wait()
    assert done.code == 0, done
    logs = glob.glob(os.path.join(open_folder, "fulldeck_runs-0*", "*", "logs", "train.log"))
    assert len(logs) == 1 and not logs[0].startswith(usual + "/"), logs
    run = os.path.dirname(os.path.dirname(logs[0]))
    for folder in (run, os.path.dirname(run)):
        facts = os.stat(folder)
        assert facts.st_uid == 0 and stat.S_IMODE(facts.st_mode) == 0o700, folder

    def look():
        try:
            with open(logs[0]) as file:
                return file.read()
        except PermissionError:
            return "refused"
    assert run_as(ATTACKER, look) == "refused"


@as_root
def test_a_run_keeps_no_logs_in_a_folder_that_another_user_made_in_a_shared_one(workspace, open_folder):
    """Its owner could replace error.json, which the rank itself writes, with links."""
    def squat():
        os.mkdir(os.path.join(open_folder, "fulldeck_runs"))
        os.chmod(os.path.join(open_folder, "fulldeck_runs"), 0o777)
    run_as(ATTACKER, squat)
    own = os.path.join(open_folder, "own")
    for arguments, code in (([], 88), (["--log-dir", "fulldeck_runs/mine"], 88), (["--log-dir", own], 0)):
        done = workspace.start_program(["/bin/sh", "-c", 'cd "$0" && exec "$@"', open_folder, FULLDECK, "run"] + workspace.devices + arguments +
                                   ["--nproc-per-node", "1", "--no-python", "/bin/true"]).wait()
        assert done.code == code and ("--log-dir" in done.err) == (code == 88), done
    assert os.listdir(os.path.join(open_folder, "fulldeck_runs")) in ([], ["mine"]) and os.listdir(own)


def test_logs_in_torchruns_place_are_private_where_log_dir_names_their_folder_too(workspace):
    torchrun = os.path.join(workspace.folder, "torchrun")
    os.symlink(FULLDECK, torchrun)
    script = workspace.write("nothing.py", "")
    logs = os.path.join(workspace.folder, "named")
    done = workspace.start_program([torchrun, "--log-dir", logs, "--nproc-per-node", "1", script], extra={"FULLDECK_SIMULATE": "gcu:1"}).wait()
    assert done.code == 0, done
    run, = os.listdir(logs)
    assert stat.S_IMODE(os.stat(os.path.join(logs, run)).st_mode) == 0o700


def test_a_crash_report_is_not_written_through_a_link(workspace):
    precious = workspace.write("precious", "as it was\n")
    # The rank itself creates the link in place of its crash report.
    program = workspace.write("crash.py", "\n".join((
        "import ctypes, os", "path = os.environ['FULLDECK_CRASH_FILE']", "if os.path.exists(path):", "    os.remove(path)",
        "os.symlink(%r, path)" % precious, "ctypes.string_at(0)")))
    done = workspace.run("--nproc-per-node", 1, program)
    assert done.code == 139, done
    assert read(precious) == "as it was\n"
    assert os.path.islink(os.path.join(workspace.run_folder(), "attempt_0", "0", "crash.txt"))


# ---- contents of an archive

SHAPES = [
    "accessKeySecret: %s", "secretKey: %s", "dbPassword=%s", 'password="two %s words"', "password=a,b;c&%s", "machine h login u password %s",
    "DB_PASS=%s", "MYSQL_PWD=%s", "jdbc:sqlserver://h;user=a;pwd=%s", "proxy u:%s@proxy:3128", "Authorization: Token %s",
    "Cookie: a=1; id=%s", "https://x/c?sv=1&sig=%s%%2Bmore12345", '{"tokens": ["%s"]}', "密码：%s", "口令=%s", "令牌: %s", "sshpass -p %s ssh h",
    "mysql -u root -p%s", "curl -u me:%s https://h", "MY_AUTH=%s", "SENTRY_DSN=%s", "AZURE_SAS=%s", "run --pass %s", "run --hf_token %s",
    "run -token %s", 'token => "%s"', "{'api_key': b'%s'}", "spring.datasource.password=%s", "https://me:%s@h/x"]
FLAGS = ["--api-key", "--hf_token", "-token", "--pass", "--auth", "--db-password"]
HARMLESS = ["passed 10 tests", "author: Li", "bypass: on", "token_count: 512", "tokenizer: bert", "pad_token: '[PAD]'", "missing key: head"]


def archive_text(path):
    with tarfile.open(path) as archive:
        return {name.partition("/")[2]: archive.extractfile(name).read().decode() for name in archive.getnames()}


def test_no_secret_of_any_shape_is_in_an_archive_of_a_running_run(workspace):
    secrets = ["Planted%02dq" % number for number in range(len(SHAPES) + len(FLAGS))]
    lines = [shape % secret for shape, secret in zip(SHAPES, secrets)] + HARMLESS
    text = workspace.write("lines.txt", "\n".join(lines) + "\nready\n")
    arguments = [word for pair in zip(FLAGS, secrets[len(SHAPES):]) for word in pair]
    os.mkdir(os.path.join(workspace.folder, "program"))
    program = workspace.write("program/print.py", "import time\nprint(open(%r, encoding='utf-8').read(), flush=True)\ntime.sleep(300)\n" % text)
    running = workspace.start("--nproc-per-node", 1, "--shutdown-timeout", 1, program, *arguments, extra={"PYTHONIOENCODING": "utf-8"})
    wait_until(lambda: [log for log in glob.glob(os.path.join(workspace.runs, "*", "logs", "train.log")) if "ready" in read(log)], "ranks")
    path = os.path.join(workspace.folder, "case.tar")
    # In a folder in which a user left modules: neither its own Python nor the doctor's imports them.
    marker = os.path.join(workspace.folder, "notes", "ran")
    plant_modules(workspace.folder, marker)
    done = workspace.fulldeck("bundle", "--yes", "--output", path)
    assert not glob.glob(marker + "*")
    running.signal(signal.SIGTERM)
    running.wait()
    assert done.code == 0, done
    files = archive_text(path)
    found = {(secret, name) for name, content in files.items() for secret in secrets if secret in content + name}
    assert not found
    status = json.loads(files["status.json"])["runs"][0]
    assert status["command"][-2 * len(FLAGS)::2] == FLAGS and set(status["command"][1 - 2 * len(FLAGS)::2]) == {"(removed)"}
    assert "python.txt" in files and "doctor.json" in files
    for line in HARMLESS:
        assert line in files["logs/train.log"], line


@as_root
def test_links_and_files_of_others_in_a_run_folder_are_not_read(workspace, open_folder):
    private = workspace.write("private", "only for root\n", 0o600)
    run = os.path.join(open_folder, "theirs")

    def plant():
        os.makedirs(os.path.join(run, "logs"))
        os.makedirs(os.path.join(run, "attempt_0", "0"))
        os.symlink(private, os.path.join(run, "logs", "train.log"))
        os.symlink(private, os.path.join(run, "attempt_0", "0", "stdout.log"))
        os.symlink(os.path.dirname(private), os.path.join(run, "attempt_0", "1"))
        with open(os.path.join(run, "attempt_0", "0", "stderr.log"), "w") as file:
            file.write("words of the rank\n")
    run_as(ATTACKER, plant)
    os.link(private, os.path.join(run, "stacks-1.txt"))
    done = workspace.fulldeck("bundle", run, "--yes")
    assert done.code == 0, done
    # A name that the user chose may be the token of a rendezvous.
    archives = glob.glob(os.path.join(workspace.folder, "fulldeck-bundle-*.tar"))
    assert len(archives) == 1 and "theirs" not in archives[0], archives
    files = archive_text(archives[0])
    assert not [name for name, text in files.items() if "only for root" in text]
    assert files["attempt_0/0/stderr.log"] == "words of the rank\n"
    assert "train.log" in files["about.txt"] and "stacks-1.txt" in files["about.txt"], "what was left out is named"
    for arguments in ([], ["--rank", "0"]):
        done = workspace.fulldeck("logs", run, *arguments)
        assert done.code == 1 and "only for root" not in done.out, done


# ---- names, ports, secrets of a run

@as_root
def test_a_stranger_who_has_all_names_of_ports_keeps_no_run_from_starting(workspace):
    port = free_port()
    ready, ready_writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setuid(ATTACKER)
        names = [socket.socket(socket.AF_UNIX) for _ in range(2)]
        names[0].bind("\0fulldeck-master-port-%d" % port)
        names[1].bind("\0fulldeck-master-port-0-%d" % port)
        names[1].listen(1)
        os.write(ready_writer, b"+")
        signal.pause()
        os._exit(0)
    try:
        assert os.read(ready, 1) == b"+"
        assert workspace.run_shell(1, "true", "--master-port", port).code == 0
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(ready_writer)


def test_the_ranks_of_a_run_share_a_secret_that_no_other_run_has(workspace):
    keys = []
    for _ in range(2):
        done = workspace.run_shell(2, 'echo "key $FULLDECK_COLLECTIVES_KEY"', extra={"FULLDECK_COLLECTIVES_KEY": "of an outer run"})
        assert done.code == 0, done
        found = {line.split("key ", 1)[1] for line in done.out.splitlines() if "key " in line}
        assert len(found) == 1, done
        keys += found
    assert keys[0] != keys[1] and all(len(key) == 32 and int(key, 16) for key in keys)
    assert not [path for path in glob.glob(os.path.join(workspace.runs, "*", "launch.json")) if any(key in read(path) for key in keys)]


# ---- small things

@pytest.mark.parametrize("command", [["--version"], ["--help"], ["help", "exit-codes"], ["help", "run"], ["explain", "log"], ["devices"],
                                     ["devices", "--json"], ["ps"], ["completion", "bash"], ["doctor", "--list"], ["run", "--help"],
                                     ["run", "--version"], ["bundle", "--help"]])
def test_output_that_cannot_be_written_is_an_error(workspace, command):
    workspace.write("log", "RuntimeError: CUDA out of memory\n")
    with open("/dev/full", "w") as full:
        done = subprocess.run([FULLDECK] + command, env=workspace.variables, cwd=workspace.folder, stdout=full, stderr=subprocess.PIPE,
                              universal_newlines=True, timeout=60)
    assert done.returncode == 1 and "standard output" in done.stderr, done


def test_a_config_that_is_nested_without_end_is_refused(workspace):
    path = workspace.write("deep.toml", "[" + ".".join(["a"] * 120000) + "]\n")
    done = workspace.fulldeck("train", path, "--dry-run")
    assert done.code == 2 and "nested" in done.err, done


def test_the_doctors_listener_takes_one_address_and_answers_only_who_has_the_token(workspace):
    listener = workspace.start_program([FULLDECK, "doctor", "--listen", "0", "--address", "127.0.0.1"], extra={"FULLDECK_TOKEN": "of ours"})
    listener.wait_for("answering")
    port = int(listener.err.split("on port ")[1].split()[0])
    addresses = [line.split()[1] for name in ("tcp", "tcp6") for line in read("/proc/net/" + name).splitlines()[1:]
                 if line.split()[1].endswith(":%04X" % port) and line.split()[3] == "0A"]
    assert addresses == ["0100007F:%04X" % port]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking, socket.create_connection(("127.0.0.1", port)) as unauthenticated:
        asking.settimeout(0.3)
        asking.sendto(b"FDDOCTOR" + b"x" * 600, ("127.0.0.1", port))
        with pytest.raises(socket.timeout):
            asking.recv(100)
        unauthenticated.settimeout(30)
        unauthenticated.sendall(b"FDDOCTOR" + b"\0\0\0\1" + bytes(52))
        assert unauthenticated.recv(100) == b""
    for token, verdict in (("of ours", "ok"), ("of others", "cannot tell")):
        done = workspace.fulldeck("doctor", "--json", "--only", "peer-reach", "--hosts", "127.0.0.1:%d" % port, extra={"FULLDECK_TOKEN": token})
        assert json.loads(done.out)["checks"][0]["verdict"] == verdict, done
    listener.signal(signal.SIGTERM)
    listener.wait()
