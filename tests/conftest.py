"""Fixtures that several test files use."""
import pytest

from launching import Workspace


@pytest.fixture
def workspace(tmp_path):
    """A private workspace for running `fulldeck`; its runs must leave no process and no file when the test ends."""
    here = Workspace(tmp_path)
    try:
        yield here
        here.assert_nothing_left()
    finally:
        here.clean_up()
