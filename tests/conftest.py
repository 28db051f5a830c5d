"""Fixtures that several test files use."""
import pytest

from launching import Place


@pytest.fixture
def place(tmp_path):
    """A place of its own to run `fulldeck` in, whose runs must have left nothing behind when the test is over."""
    here = Place(tmp_path)
    try:
        yield here
        here.assert_nothing_left()
    finally:
        here.clean_up()
