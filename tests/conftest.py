"""Fixtures that several test files use."""
import pytest

from launching import Workspace


@pytest.fixture
def workspace(tmp_path):
    """A workspace of its own to run `fulldeck` in, whose runs must have left nothing behind when the test is over."""
    here = Workspace(tmp_path)
    try:
        yield here
        here.assert_nothing_left()
    finally:
        here.clean_up()
