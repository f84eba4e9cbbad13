"""The first cases of every campaign of attack_boundary.py; its own command runs many more."""

import os
import sys

import attack_boundary
import pytest


@pytest.mark.skipif(os.name == "nt", reason="pipes and signals of Unix")
@pytest.mark.parametrize(("name", "cases"), [("load", 150), ("env", 100), ("save", 40), ("interrupt", 20)])
def test_the_first_cases(name, cases, tmp_path):
    if name == "interrupt" and "pytest_timeout" in sys.modules:
        pytest.skip("the timer of pytest-timeout is the one that this test uses")
    found = attack_boundary.run(name, 1, 0, cases, tmp_path)
    assert sum(found.values()) == cases and len(found) > 1
