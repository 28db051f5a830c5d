"""Where the ranks' output goes: their own files, the merged log, the console."""
import collections
import os
import pty
import re
import select
import subprocess
import time

import pytest

from launching import FULLDECK, PATIENCE, read, remove, wait_until

TALK = 'echo "out of $RANK"; echo "err of $RANK" >&2'


def test_each_rank_has_files_of_its_own_and_the_merged_log_has_everything(workspace):
    done = workspace.run_shell(3, TALK)
    assert done.code == 0, done
    merged = workspace.merged_log().splitlines()
    for rank in range(3):
        assert workspace.log(rank, "stdout") == "out of %d\n" % rank
        first, second = workspace.log(rank, "stderr").splitlines()
        assert re.match(r"fulldeck: rank %d of 3, local rank %d on host \S+: the host's processors" % (rank, rank), first)
        assert second == "err of %d" % rank
        assert "[%d] out of %d" % (rank, rank) in merged and "[%d] err of %d" % (rank, rank) in merged
    assert any(line.startswith("fulldeck: run ") for line in merged)


def test_streams_stay_apart_on_the_console_and_carry_the_rank(workspace):
    done = workspace.run_shell(2, TALK)
    assert sorted(done.out.splitlines()) == ["[0] out of 0", "[1] out of 1"]
    said = [line for line in done.err.splitlines() if not line.startswith("fulldeck: ")]
    assert sorted(line for line in said if "fulldeck: rank" not in line) == ["[0] err of 0", "[1] err of 1"]
    assert "\x1b" not in done.out + done.err


def test_a_single_rank_has_no_prefix(workspace):
    done = workspace.run_shell(1, TALK)
    assert done.out == "out of 0\n" and "\nerr of 0\n" in done.err


def test_every_line_of_ours_begins_with_our_name(workspace):
    done = workspace.run_shell(2, "exit 3")
    assert done.code == 3
    assert all(re.match(r"(\[\d\] )?fulldeck: ", line) for line in done.err.splitlines()), done


def test_redirected_streams_stay_off_the_console(workspace):
    done = workspace.run_shell(2, TALK, "-r", "3")
    assert done.out == "" and "err of" not in done.err
    assert workspace.log(1, "stdout") == "out of 1\n"


def test_redirects_and_tee_take_maps_with_any_number_of_ranks(workspace):
    done = workspace.run_shell(12, TALK, "--redirects", "0:1,11:3", "--tee", "11:2")
    out, err = done.out, done.err
    assert "out of 0\n" not in out and "err of 0\n" in err
    assert "out of 11\n" not in out and "err of 11\n" in err
    assert "out of 5\n" in out and "err of 5\n" in err


def test_only_the_filtered_ranks_are_shown(workspace):
    done = workspace.run_shell(4, TALK, "--local-ranks-filter", "0,2")
    assert sorted(done.out.splitlines()) == ["[0] out of 0", "[2] out of 2"]
    assert workspace.log(3, "stdout") == "out of 3\n"


def test_lines_with_a_text_are_copied_to_a_file_of_their_own(workspace):
    workspace.run_shell(2, 'echo "loss 1"; echo other; echo "loss 2" >&2', "--duplicate-stdout-filters", "loss,nan")
    copied = read(os.path.join(workspace.run_folder(), "attempt_0", "filtered_stdout.log"))
    assert sorted(copied.splitlines()) == ["[0] loss 1", "[1] loss 1"]


def test_a_flood_loses_and_tears_no_line_in_the_files(workspace):
    lines = 5000
    script = 'i=0; while [ $i -lt %d ]; do echo "line $i of rank $RANK."; i=$((i+1)); done' % lines
    done = workspace.run_shell(4, script)
    assert done.code == 0
    seen = collections.Counter()
    for line in workspace.merged_log().splitlines():
        whole = re.match(r"\[(\d)\] line (\d+) of rank (\d)\.$", line)
        assert whole or "fulldeck: " in line, line
        if whole:
            assert whole.group(1) == whole.group(3)
            seen[whole.group(1)] += 1
    assert seen == {str(rank): lines for rank in range(4)}


def test_a_last_line_without_newline_is_shown(workspace):
    done = workspace.run_shell(2, "printf 'rank %s ends here' $RANK")
    assert sorted(done.out.splitlines()) == ["[0] rank 0 ends here", "[1] rank 1 ends here"]


def test_a_line_of_any_length_arrives_whole(workspace):
    done = workspace.run_shell(2, "head -c 3000000 /dev/zero | tr '\\0' %s; echo" % "$RANK")
    assert done.code == 0
    merged = workspace.merged_log()
    for rank in "01":
        pieces = re.findall(r"^\[%s\] (%s+)( \[line goes on\])?$" % (rank, rank), merged, re.MULTILINE)
        assert sum(len(piece) for piece, _ in pieces) == 3000000
        assert [bool(mark) for _, mark in pieces] == [True] * (len(pieces) - 1) + [False]


def test_a_run_folder_that_is_removed_during_the_run_is_no_reason_to_end_it(workspace):
    running = workspace.start_shell(2, "touch ready-$RANK; while [ ! -e go ]; do sleep 0.01; done; echo still here; exit $((4 * RANK))")
    wait_until(lambda: {"ready-0", "ready-1"} <= set(os.listdir(workspace.folder)), "the ranks")
    remove(workspace.runs)
    workspace.write("go", "")
    done = running.wait(20)
    assert done.code == 4 and "root cause: rank 1 (" in done.root_cause and "still here" in done.out, done


def test_a_log_folder_may_have_any_name(workspace):
    folder = "my logs/für 训练"
    done = workspace.run_shell(1, "echo x", "--log-dir", folder)
    assert done.code == 0 and os.listdir(os.path.join(workspace.folder, folder)), done


def test_a_console_that_nobody_reads_does_not_end_the_run(workspace):
    command = [FULLDECK, "run", "--devices", "cpu", "--nproc-per-node", "2", "--no-python", "/bin/sh", "-c",
               "yes flood | head -n 20000; touch done-$RANK"]
    process = subprocess.Popen(command, env=workspace.variables, cwd=workspace.folder, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    process.stdout.close()
    process.stderr.close()
    assert process.wait(60 * PATIENCE) == 0
    assert {"done-0", "done-1"} <= set(os.listdir(workspace.folder))


def test_on_a_terminal_prefixes_are_coloured_and_no_color_turns_it_off(workspace):
    for variables, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        leader, follower = pty.openpty()
        process = subprocess.Popen([FULLDECK, "run", "--devices", "cpu", "--nproc-per-node", "2", "--no-python", "echo", "x"],
                                   env=dict(workspace.variables, TERM="xterm", **variables), cwd=workspace.folder,
                                   stdin=follower, stdout=follower, stderr=follower)
        os.close(follower)
        shown = b""
        deadline = time.monotonic() + 30 * PATIENCE
        while time.monotonic() < deadline and select.select([leader], [], [], 30 * PATIENCE)[0]:
            try:
                piece = os.read(leader, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        os.close(leader)
        assert process.wait(30 * PATIENCE) == 0
        assert (b"\x1b[3" in shown) == coloured, shown


@pytest.fixture
def small_disk(workspace):
    folder = os.path.join(workspace.folder, "small")
    os.mkdir(folder)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], stderr=subprocess.PIPE)
    if mounted.returncode != 0:
        pytest.skip("tmpfs cannot be mounted here: %s" % mounted.stderr.decode().strip())
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_said_once_and_the_run_goes_on(workspace, small_disk):
    workspace.write("talk.py", "import os\n"
                           "for number in range(40000):\n"
                           "    try:\n"
                           "        os.write(1, b'line %d of this rank\\n' % number)\n"
                           "    except OSError:\n"
                           "        pass\n"
                           "open('done-' + os.environ['RANK'], 'w')\n")
    done = workspace.run("--nproc-per-node", 2, "--log-dir", small_disk, "talk.py")
    assert done.code == 0, done
    assert {"done-0", "done-1"} <= set(os.listdir(workspace.folder))
    said = [line for line in done.err.splitlines() if line.startswith("fulldeck: cannot write ")]
    assert len(said) == 1 and "train.log: No space left on device" in said[0], done
    # The number of lost lines is reported at the end.
    assert re.search(r"fulldeck: \d+ lines are missing in .*train.log", done.err), done


def test_a_run_folder_is_never_used_twice(workspace):
    runs = [workspace.start_shell(1, TALK, "--rdzv-id", workspace.name) for _ in range(8)]
    assert [run.wait().code for run in runs] == [0] * 8
    assert sorted(os.listdir(workspace.runs)) == [workspace.name] + ["%s_%d" % (workspace.name, number) for number in range(2, 9)]


@pytest.mark.parametrize("name", ["../../elsewhere", "a/b", ".", "..", "x\x1b[31m", ""])
def test_a_run_id_that_is_no_plain_name_is_refused_or_made_one(workspace, name):
    done = workspace.run_shell(1, TALK, "--rdzv-id", name)
    assert done.code in (0, 2) and "\x1b" not in done.err, done
    assert "elsewhere" not in os.listdir(os.path.dirname(workspace.folder))
    for made in os.listdir(workspace.runs) if done.code == 0 else []:
        assert re.match(r"[\w-][\w.-]*$", made)


def test_a_run_id_may_have_spaces_and_letters_of_any_language(workspace):
    name = workspace.name + " Nr. 7 für 训练"
    done = workspace.run_shell(1, 'printf %s "$TORCHELASTIC_RUN_ID"', "--rdzv-id", name)
    assert done.code == 0 and done.out.strip() == name, done
