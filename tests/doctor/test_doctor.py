"""`fulldeck doctor` as users and scripts call it. The tables of the C++ tests (src/control/doctor/*_cases_test.cc) have
the results of each check on each machine."""
import json
import os
import re
import resource
import socket
import subprocess

import pytest

from cluster import hosts, launch
from launching import TOP

DOCS = os.path.join(TOP, "docs")
FULLDECK = launch.FULLDECK
CHECK_FAILED = 91
GROUPS = ["machine", "cards", "stack", "container", "network", "storage"]
OWN = ["machine", "container", "network", "storage"]
VERDICTS = {"ok", "warn", "fail", "cannot tell"}


@pytest.fixture
def doctor(tmp_path):
    """doctor(ARGUMENTS, VARIABLE=VALUE…) runs it on a simulated server with eight cards, in a private folder."""
    work = tmp_path / "work"
    work.mkdir()

    def run(*arguments, **variables):
        kept = {k: v for k, v in os.environ.items() if not re.match("LC_|LANG|FULLDECK_|MASTER_|.*_IFNAME$|NCCL_|NO_COLOR", k)}
        kept.update(FULLDECK_SIMULATE="gcu:8", FULLDECK_SIMULATE_DIR=str(tmp_path / "cards"),
                    FULLDECK_RUNTIME_DIR=str(tmp_path / "runtime"))
        kept.update(variables)
        return subprocess.run([FULLDECK, "doctor"] + [str(word) for word in arguments], cwd=str(work), env=kept, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)

    yield run
    assert os.listdir(str(work)) == [], "the doctor left something behind"


def by_id(done):
    return {check["id"]: check for check in json.loads(done.stdout)["checks"]}


def test_json_tells_every_check_with_evidence_and_cure(doctor):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = doctor("--json", "--only", *OWN, "--workers", "0")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    report = json.loads(done.stdout)
    assert report["version"] == 1 and report["ranks"] == 8 and report["deep"] is False
    assert sum(report["counts"].values()) == len(report["checks"]) and set(report["counts"]) == VERDICTS
    for check in report["checks"]:
        assert set(check) == {"id", "group", "verdict", "seconds", "findings"} and check["group"] in GROUPS
        assert check["verdict"] in {finding["verdict"] for finding in check["findings"]} <= VERDICTS
        for finding in check["findings"]:
            assert set(finding) == {"verdict", "row", "evidence", "cure", "figures"} and finding["evidence"]
            assert (finding["cure"] is None) == (finding["verdict"] == "ok"), finding
    groups = [check["group"] for check in report["checks"]]
    assert list(dict.fromkeys(groups)) == OWN, "in the order of the groups"
    # These hold on every machine that runs these tests.
    found = by_id(done)
    for name in ("loopback", "work-dir", "shm", "left-runs", "card-holders", "interface-variables"):
        assert found[name]["verdict"] == "ok", found[name]
    assert found["cores"]["findings"][0]["figures"]["ranks"] == "8"
    assert done.returncode == (CHECK_FAILED if report["counts"]["fail"] else 0), done.stderr
    assert used < 5, "it takes seconds, whatever else the machine does"


def test_people_get_lines_by_group_and_the_cure_below(doctor):
    done = doctor("--only", "machine", "loopback", "interface-variables", GLOO_SOCKET_IFNAME="ens99")
    assert done.returncode == CHECK_FAILED
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0] == "machine" and "network" in lines and "storage" not in lines
    assert re.search(r"^  ok +loopback +bound, connected", done.stdout, re.M)
    at = next(i for i, line in enumerate(lines) if "interface-variables" in line)
    assert re.match(r"  fail +interface-variables +GLOO_SOCKET_IFNAME=ens99: there is no interface ens99 \[A5\]$", lines[at])
    assert lines[at + 1].strip().startswith("→ unset GLOO_SOCKET_IFNAME")
    assert re.match(r"\d+ checks in \d+\.\d s: .*1 fail", lines[-1])


def test_a_taken_master_port_is_named_with_its_owner(doctor):
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen(1)
        done = doctor("--only", "master-port", "--json", MASTER_PORT=str(taken.getsockname()[1]))
    finding = by_id(done)["master-port"]["findings"][0]
    assert done.returncode == CHECK_FAILED and finding["row"] == "C5"
    assert "by pid {} ".format(os.getpid()) in finding["evidence"]


def test_a_folder_that_cannot_be_written_fails(doctor):
    done = doctor("--only", "work-dir", "--work-dir", "/proc/nowhere")
    assert done.returncode == CHECK_FAILED and "/proc/nowhere cannot be written" in done.stdout


@pytest.mark.parametrize("arguments,variables", [(["--lang", "zh"], {}), ([], {"LANG": "zh_CN.UTF-8"})])
def test_chinese_by_flag_or_locale(doctor, arguments, variables):
    done = doctor("--only", "loopback", "work-dir", *arguments, **variables)
    assert done.returncode == 0
    assert "正常" in done.stdout and "网络" in done.stdout and "已通过 127.0.0.1 绑定" in done.stdout and "2 项检查" in done.stdout


@pytest.mark.parametrize("arguments,says", [(["--only", "netwrk"], "did you mean 'network'?"), (["--nproc", "0"], "--nproc"),
                                            (["--lang", "fr"], "--lang"), (["--work-dir", ""], "--work-dir"),
                                            (["--listen", "99999"], "--listen"), (["--dep"], "did you mean --deep?")])
def test_a_wrong_command_line_is_refused(doctor, arguments, says):
    done = doctor(*arguments)
    assert done.returncode == 2 and says in done.stderr, done.stderr


def test_a_bad_simulation_is_a_bad_environment(doctor):
    done = doctor(FULLDECK_SIMULATE="gcu")
    assert done.returncode == 80 and "FULLDECK_SIMULATE" in done.stderr


def test_the_table_in_the_document_is_the_one_of_the_checks(doctor):
    table = doctor("--list").stdout
    with open(os.path.join(DOCS, "doctor.md"), encoding="utf-8") as document:
        assert table in document.read(), "docs/doctor.md: put the output of fulldeck doctor --list in place of its table"
    assert doctor("--list", "--lang", "zh").stdout.splitlines()[0].startswith("| 检查 |")


def test_a_recorded_machine_can_be_looked_at(doctor, tmp_path):
    (tmp_path / "machine" / "proc" / "self").mkdir(parents=True)
    (tmp_path / "machine" / "proc" / "self" / "status").write_text("Cpus_allowed_list:\t0-3\n")
    done = doctor("--root", tmp_path / "machine", "--only", "cores", "--json", "--nproc", "4")
    assert by_id(done)["cores"]["verdict"] == "ok" and done.returncode == 0


@pytest.fixture
def two_hosts():
    made = hosts.TwoHosts()
    yield made
    made.remove()


@pytest.mark.skipif(hosts.why_not() is not None, reason=str(hosts.why_not()))
def test_two_hosts_are_measured_and_a_path_that_swallows_large_packets_is_found(two_hosts, doctor, tmp_path):
    listener = subprocess.Popen(two_hosts.command(1, [FULLDECK, "doctor", "--listen", "29777", "--address", hosts.ADDRESSES[1]]),
                                stderr=subprocess.PIPE, universal_newlines=True)
    try:
        line = listener.stderr.readline()
        assert "on port 29777" in line
        token = re.search(r"FULLDECK_TOKEN=(\w{32}) ", line).group(1)
        peer = hosts.ADDRESSES[1] + ":29777"

        def look(*checks):
            command = two_hosts.command(0, [FULLDECK, "doctor", "--json", "--nnodes", "2", "--hosts", peer, "--only"] + list(checks))
            done = subprocess.run(command, env=dict(os.environ, FULLDECK_SIMULATE="gcu:8", FULLDECK_TOKEN=token), cwd=str(tmp_path), timeout=120,
                                  stdout=subprocess.PIPE, universal_newlines=True)
            return done.returncode, {name: check["findings"][0] for name, check in by_id(done).items()}

        code, found = look("interface", "peer-reach", "peer-mtu", "peer-bandwidth")
        assert code == 0, found
        assert [found[name]["verdict"] for name in ("peer-reach", "peer-mtu", "interface")] == ["ok", "ok", "ok"], found
        assert found["peer-mtu"]["figures"]["mtu"] == "1500"
        assert "cable (10.77.0.1, MTU 1500)" in found["interface"]["evidence"]
        assert float(found["peer-bandwidth"]["figures"]["bytes_per_second"]) > 0

        two_hosts._rule(1, "meta length > 1410")
        code, found = look("peer-mtu", "peer-reach")
        assert code == CHECK_FAILED and found["peer-reach"]["verdict"] == "ok", found
        assert "1400 bytes pass" in found["peer-mtu"]["evidence"] and found["peer-mtu"]["row"] == "I9"

        two_hosts.repair()
        two_hosts.pull_cable(0)
        code, found = look("peer-reach")
        assert code == CHECK_FAILED and "the firewall" in found["peer-reach"]["cure"], found
    finally:
        listener.kill()
        listener.wait()
        listener.stderr.close()
