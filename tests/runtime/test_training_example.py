"""examples/train.cc, the complete training program, as a user runs it: on the CPU and on simulated cards, with one rank
and with eight, killed and resumed. Needs a build with torch."""
import glob
import os
import re
import signal

import pytest

from launching import BUILD, wait_until

PROGRAM = os.path.join(BUILD, "bin", "example-train")
pytestmark = pytest.mark.skipif(not os.path.exists(PROGRAM), reason="this build has no torch")

SECONDS = 240


def train(workspace, ranks, *options, **settings):
    return workspace.run("--nproc-per-node", ranks, "--no-python", PROGRAM, *options, seconds=SECONDS, **settings)


def loss_of(done):
    found = re.findall(r"^(?:\[\d+\] )?final loss (\d+\.\d{9})$", done.out, re.M)
    assert done.code == 0 and len(found) == 1, done
    return float(found[0])


def weights_in(folder):
    return [read_bytes(path) for path in sorted(glob.glob(os.path.join(folder, "step-*", "model.safetensors")))]


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def test_eight_ranks_end_where_one_does_and_twice_with_the_same_bits(workspace):
    one = loss_of(train(workspace, 1, "--steps", 40))
    eight = train(workspace, 8, "--steps", 40)
    assert loss_of(eight) == pytest.approx(one, abs=1e-6)
    assert loss_of(train(workspace, 8, "--steps", 40)) == loss_of(eight)
    assert one < 1.2, "it learnt nothing"
    for rank in range(8):
        assert re.search(r"fulldeck: rank %d/8, backend fulldeck \(.+\), device cpu" % rank, eight.err), eight


def test_simulated_cards_give_the_same_losses_as_the_host(workspace):
    host = loss_of(train(workspace, 8, "--steps", 40))
    workspace.simulate("gcu:8")
    cards = train(workspace, 8, "--steps", 40)
    assert loss_of(cards) == pytest.approx(host, abs=1e-5)
    for rank in range(8):
        assert "device gcu:%d, card serial SIM-gcu-000%d" % (rank, rank) in cards.err, cards


def test_a_run_that_was_killed_resumes_to_the_same_bits(workspace):
    straight = os.path.join(workspace.folder, "straight")
    broken = os.path.join(workspace.folder, "broken")
    running = workspace.start("--nproc-per-node", 4, "--no-python", PROGRAM, "--checkpoints", broken, "--save-every", 20,
                          "--steps", 10000000)
    wait_until(lambda: glob.glob(os.path.join(broken, "step-*", "manifest.json")), "a checkpoint", SECONDS)
    running.signal(signal.SIGKILL)
    running.wait(SECONDS)
    reached = max(int(path.rsplit("-", 1)[1]) for path in glob.glob(os.path.join(broken, "step-*")))
    options = ("--steps", reached + 20, "--save-every", 20)
    resumed = train(workspace, 4, "--checkpoints", broken, *options)
    assert loss_of(resumed) == loss_of(train(workspace, 4, "--checkpoints", straight, *options))
    assert weights_in(broken)[-1] == weights_in(straight)[-1]


def test_a_checkpoint_of_eight_ranks_goes_on_with_two(workspace):
    folder = os.path.join(workspace.folder, "checkpoints")
    straight = loss_of(train(workspace, 8, "--steps", 40))
    train(workspace, 8, "--steps", 20, "--save-every", 20, "--checkpoints", folder)
    resumed = train(workspace, 2, "--steps", 40, "--save-every", 20, "--checkpoints", folder)
    assert loss_of(resumed) == pytest.approx(straight, abs=1e-6)
    assert "example-train: begins at step 20" in resumed.err, resumed


@pytest.mark.parametrize("options,words", [
    (("--batch", "3"), "what is --batch? Known: --global-batch N"),
    (("--global-batch", "3"), "global batch"),
])
def test_bad_input_is_an_error_that_says_what_to_do(workspace, options, words):
    done = train(workspace, 2, *options)
    assert done.code != 0 and words in done.err, done


def test_two_ranks_on_one_card_are_refused(workspace):
    workspace.simulate("gcu:1")
    done = train(workspace, 2, "--steps", 1)
    # The launcher rejects it before anything starts; src/rank/runtime/session/session_simulated_test.cc tests the
    # session's own rejection.
    assert done.code == 83 and "final loss" not in done.out and not os.path.exists(workspace.runs), done


def test_a_card_that_lies_is_found_before_training(workspace):
    workspace.simulate("gcu:2,lying=1")
    done = train(workspace, 2, "--steps", 1)
    assert done.code != 0 and "gcu:1" in done.err and "final loss" not in done.out, done
