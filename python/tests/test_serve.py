"""The live page from Python."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import bqrl


def test_a_run_of_python_is_on_the_page(tmp_path: Path) -> None:
    model = bqrl.TargetTracking("bqrl/AssetSelling-v0", seed=0)
    model.learn(total_episodes=20, log_dir=tmp_path / "runs" / "a")
    with bqrl.serve(tmp_path) as server:
        with urllib.request.urlopen(f"{server.url}/api/runs") as answer:
            runs = json.load(answer)["runs"]
        assert [run["id"] for run in runs] == ["runs/a"]
        assert runs[0]["algo"] == "target-tracking"
        assert server.url in repr(server) and server.url in server._repr_html_()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(server.url, timeout=2)
    server.close()


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        bqrl.serve(tmp_path / "nowhere")
    with pytest.raises(ValueError, match='host must be an IP address, got "example.org"'):
        bqrl.serve(tmp_path, host="example.org")
    with pytest.raises(OverflowError):
        bqrl.serve(tmp_path, port=70000)
