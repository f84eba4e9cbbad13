"""What the tests of engines share."""

import subprocess

import pytest
from sweeps import BQRL, FILE


@pytest.fixture(scope="session")
def local(tmp_path_factory):
    """The directory of the sweep as the command line makes it, undisturbed."""
    if not BQRL:
        pytest.skip("BQRL_BIN does not say where the command line is")
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "s.toml").write_text(FILE)
    command = [BQRL, "sweep", "s.toml", "--out", "local", "--quiet"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "local"
