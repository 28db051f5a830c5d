"""The same silent errors in Accelerate, HF Trainer, Lightning and MMEngine, all unmodified."""
import os

import pytest

from grids import clean_suite

SCRIPT = os.path.join(clean_suite.HERE, "silent", "framework_errors.py")
EXPECTED = ["F6 (validation)", "F7 (gradients)", "F7 (labels)", "G2 (weights)", "J6 (finite)"]


@pytest.mark.parametrize("strict,code", [(True, 92), (False, 0)], ids=["strict", "default"])
@pytest.mark.parametrize("framework", ["accelerate", "huggingface", "lightning", "mmengine"])
def test_silent_errors_are_reported_in(framework, strict, code):
    result = clean_suite.run(clean_suite.Row(framework, 2, [SCRIPT, framework]), strict=strict)
    assert sorted(warning.partition(":")[0] for warning in result.warnings) == EXPECTED, (result.warnings, result.output[-4000:])
    assert result.code == code and result.disabled == [], (result.code, result.disabled, result.output[-4000:])
