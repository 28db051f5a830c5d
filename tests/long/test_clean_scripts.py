"""Every correct script of tests/grids/clean_suite.py under `fulldeck run --strict`, one test each: none may get a
warning."""

import pytest

from grids import clean_suite


@pytest.mark.parametrize("row", clean_suite.rows(), ids=lambda row: row.name)
def test_a_sound_script_gets_no_warning(row):
    result = clean_suite.run(row)
    assert not clean_suite.complaint(row, result), (clean_suite.complaint(row, result), result.output[-4000:])
