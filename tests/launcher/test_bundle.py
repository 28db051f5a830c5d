"""`fulldeck bundle`: the contents of the archive of a running and of a finished run, and that it contains no secret."""
import glob
import json
import os
import pty
import signal
import tarfile

from launching import FULLDECK, read, wait_until

# If one of these is in an archive, a secret leaked.
SECRETS = ["planted-in-a-variable-1", "planted-in-a-flag-2", "planted-in-a-log-3", "planted-in-a-url-4", "planted-in-json-5",
           "hf_plantedInAWordSix66", "0a1b2c3d4e5f60718293a4b5c6d7e8f9", "MIIBplantedInAKey7"]
# The program prints secrets.
PROGRAM = """
echo "WANDB_API_KEY=planted-in-a-log-3" >&2
echo "variable: $VENDOR_TOKEN"
echo "fetching https://me:planted-in-a-url-4@example.org/x"
echo '{"password": "planted-in-json-5", "lr": 0.1}' >&2
echo "logged in with hf_plantedInAWordSix66 and 0a1b2c3d4e5f60718293a4b5c6d7e8f9"
printf -- '-----BEGIN RSA PRIVATE KEY-----\\nMIIBplantedInAKey7\\n-----END RSA PRIVATE KEY-----\\n'
echo "data in $HOME/data and /home/erika/data; step 7 loss 0.25"
echo ready
"""


def content(path):
    with tarfile.open(path) as archive:
        names = archive.getnames()
        prefix = names[0].partition("/")[0] + "/"
        assert all(name.startswith(prefix) for name in names)
        assert {member.mode for member in archive.getmembers()} == {0o600}
        return {name[len(prefix):]: archive.extractfile(name).read().decode() for name in names}


def assert_clean(files, workspace, home):
    everything = "\n".join(list(files) + list(files.values()))
    for secret in SECRETS + [home, "erika"]:
        assert secret not in everything, secret
    with open(os.path.join(workspace.folder, "case.tar"), "rb") as archive:
        raw = archive.read().decode(errors="replace")
    assert not [secret for secret in SECRETS if secret in raw]


def test_a_running_and_a_finished_run_are_put_into_an_archive_without_secrets(workspace):
    home = os.path.join(workspace.folder, "home", "of-mine")
    extra = {"VENDOR_TOKEN": "planted-in-a-variable-1", "HOME": home, "PROXY": "http://u:planted-in-a-url-4@proxy:3128"}
    running = workspace.start_shell(2, PROGRAM + "exec sleep 300", "--shutdown-timeout", "1", extra=extra)
    logs = os.path.join(workspace.runs, "*", "logs", "train.log")
    wait_until(lambda: [path for path in glob.glob(logs) if read(path).count("ready\n") == 2], "the ranks")
    name = os.path.basename(workspace.run_folder())
    path = os.path.join(workspace.folder, "case.tar")

    # The caller has none of the secrets in its environment: those of the ranks are found anyway.
    done = workspace.fulldeck("bundle", "--yes", "--output", path, extra={"HOME": home})
    assert done.code == 0, done
    assert os.stat(path).st_mode & 0o777 == 0o600
    files = content(path)
    for wanted in ("about.txt", "status.json", "board.txt", "stacks.txt", "launch.json", "logs/train.log", "attempt_0/0/stderr.log",
                   "attempt_0/1/stdout.log", "versions.txt", "devices.json"):
        assert wanted in files
        # Listed before it was written.
        assert "/" + wanted in done.out
    assert "Secrets, homes and the user's name are taken out" in done.out
    assert_clean(files, workspace, home)
    assert json.loads(files["status.json"])["runs"][0]["run_id"] == name
    assert "rank 1 (pid " in files["stacks.txt"] and "rank 1\n" in files["board.txt"]
    assert "step 7 loss 0.25" in files["attempt_0/1/stdout.log"] and "data in ~/data and /home/user/data" in files["logs/train.log"]
    launch = json.loads(files["launch.json"])
    assert launch["environment"]["VENDOR_TOKEN"] == "(removed)"
    assert launch["environment"]["PROXY"] == "http://(removed)@proxy:3128"
    assert launch["arguments"][1:3] == ["run", "--devices"] and launch["run"]["run_id"] == name

    # A second call with the same file does not change it.
    done = workspace.fulldeck("bundle", "--yes", "--output", path)
    assert done.code == 1 and "case.tar is there already. Name another file with --output" in done.err
    os.unlink(path)
    running.signal(signal.SIGTERM)
    running.wait()

    # No process has the variable any more.
    done = workspace.fulldeck("bundle", name, "--yes", "--output", path, extra={"HOME": home})
    assert done.code == 0, done
    files = content(path)
    assert "stacks.txt" not in files and "status.json" not in files
    assert "step 7 loss 0.25" in files["logs/train.log"] and "secrets" not in json.loads(files["launch.json"])
    assert_clean(files, workspace, home)


def test_what_the_launcher_leaves_on_disk_has_no_secret_either(workspace):
    workspace.run("--nproc-per-node", 1, "--no-python", "/bin/sh", "-c", "true", "--api-key", "planted-in-a-flag-2",
              extra={"VENDOR_TOKEN": "planted-in-a-variable-1"})
    path = os.path.join(workspace.run_folder(), "launch.json")
    with open(path) as file:
        text = file.read()
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert "planted" not in text
    assert json.loads(text)["arguments"][-2:] == ["--api-key", "(removed)"]


def test_nothing_is_written_without_a_yes_and_where_it_cannot_be(workspace):
    workspace.run_shell(1, "true")
    done = workspace.fulldeck("bundle")
    assert done.code == 2 and "there is no terminal to ask on. Give --yes" in done.err
    done = workspace.fulldeck("bundle", "--yes", "--output", "/nowhere/case.tar")
    assert done.code == 1 and "cannot write /nowhere/case.tar: No such file or directory. Name another" in done.err
    done = workspace.fulldeck("bundle", "nothing", "--yes")
    assert done.code == 1 and "there is no run 'nothing'" in done.err
    ours, theirs = pty.openpty()
    asking = workspace.start_program([FULLDECK, "bundle"], stdin=theirs)
    os.write(ours, b"n\n")
    done = asking.wait()
    os.close(ours)
    os.close(theirs)
    assert done.code == 1 and "write this to fulldeck-bundle-" in done.err and "nothing was written" in done.err
    assert "launch.json" in done.out
    assert not [name for name in os.listdir(workspace.folder) if name.endswith(".tar")]
