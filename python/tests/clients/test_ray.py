"""Sweeps on a real local Ray: workers killed, interrupted, refused."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sweeps import BQRL, FILE, RUNS, await_, began, contents, under_way

pytest.importorskip("ray")
PAGE = Path(__file__).parents[3] / "docs/python/sweeps.md"
ENVIRONMENT = {**os.environ, "RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0"}


def start(folder, *more):
    command = [sys.executable, "-m", "bqrl.ray", "s.toml", "--address", "local", "--num-cpus", "2", "--out", "ray", *more]
    with (folder / "ray.log").open("w") as log:
        return subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=log, text=True)


def test_a_killed_worker_goes_on_and_all_is_as_if_nothing_had_happened(local, tmp_path):
    (tmp_path / "s.toml").write_text(FILE)
    driver = start(tmp_path)
    log = lambda: (tmp_path / "ray.log").read_text()
    root = tmp_path / "ray"
    try:
        await_(lambda: under_way(root) is not None or driver.poll() is not None, 300, log)
        run = under_way(root)
        assert run is not None and driver.poll() is None, f"over before it could be disturbed: {log()}"
        worker = int((run / ".bqrl-lock").read_text())
        assert worker != driver.pid
        os.kill(worker, signal.SIGKILL)
        first = began(run)
        assert not (run / "summary.json").exists(), "it was killed too late"
        out, _ = driver.communicate(timeout=300)
    finally:
        driver.kill()
        driver.communicate()
    assert driver.returncode == 0, log()
    assert out.strip() == str(root / "sweep.csv")
    # The second attempt went on from the checkpoint: one that had begun again would have a new start.
    assert began(run) == first
    assert contents(root) == contents(local)
    assert log().count(" finished") == len(RUNS)


def test_an_interrupt_stops_after_checkpoints_and_any_engine_goes_on(local, tmp_path):
    (tmp_path / "s.toml").write_text(FILE)
    driver = start(tmp_path)
    log = lambda: (tmp_path / "ray.log").read_text()
    root = tmp_path / "ray"
    try:
        await_(lambda: under_way(root) is not None or driver.poll() is not None, 300, log)
        driver.send_signal(signal.SIGINT)
        driver.communicate(timeout=300)
    finally:
        driver.kill()
        driver.communicate()
    assert driver.returncode == 130, log()
    assert log().endswith("error: interrupted\nhint: the same command resumes it\n")
    unfinished = [run for run in RUNS if not (root / run / "summary.json").exists()]
    assert unfinished
    subprocess.run([BQRL, "sweep", "s.toml", "--out", "ray", "--quiet"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert contents(root) == contents(local)


def test_one_run_that_diverges_does_not_stop_the_others_nor_is_it_tried_again(tmp_path):
    # An Adam step is about the learning rate: one of 1e38 overflows what single precision holds at once.
    short = "[run]\nseeds = [1000]\nepisodes = 60\n[grid]\nagent.learning_rate = [1e38, 1e-3]\n"
    (tmp_path / "s.toml").write_text(short)
    driver = start(tmp_path)
    out, _ = driver.communicate(timeout=300)
    log = (tmp_path / "ray.log").read_text()
    assert (driver.returncode, out) == (1, ""), log
    last = log.splitlines()[-1]
    assert last.startswith("error: 1 of 2 runs are not finished; learning_rate=1e38,seed=1000: "), log
    assert "no longer finite" in last and "Traceback" not in log
    rows = (tmp_path / "ray/sweep.csv").read_text().splitlines()
    assert len(rows) == 2 and rows[1].startswith('"learning_rate=0.001,seed=1000"')


def test_the_page_does_what_it_says(tmp_path):
    (block,) = re.finditer(r"^```python ray\n(.*?)^```\n```text\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    shutil.copytree(PAGE.parents[2] / "experiments", tmp_path / "experiments")
    command = [sys.executable, "-c", block[1]]
    run = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert (run.returncode, run.stdout) == (0, block[2]), run.stderr


def test_mistakes_are_refused_before_ray_starts(tmp_path):
    (tmp_path / "wrong.toml").write_text(FILE.replace("agent.kappa", "agent.kapa"))
    for arguments, code, said in [
        (["wrong.toml"], 2, "error: wrong.toml: kapa=0.1,seed=1000: settings: deep-bqrl has no setting \"kapa\""),
        (["nowhere.toml"], 2, "nowhere.toml"),
        (["wrong.toml", "--num-cpus", "2"], 2, "--num-cpus is for --address local"),
    ]:
        command = [sys.executable, "-m", "bqrl.ray", *arguments]
        run = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
        assert (run.returncode, run.stdout) == (code, ""), run.stderr
        assert said in run.stderr and "Traceback" not in run.stderr


SENT = """
import numpy as np, ray
import bqrl

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)
batch = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)

@ray.remote
def acts(model):
    return model.predict(batch)[0].tolist()

model = bqrl.QRDQN("CartPole-v1", hidden=[8]).learn(100)
assert ray.get(acts.remote(model)) == ray.get(acts.remote(ray.put(model))) == model.predict(batch)[0].tolist()
print("the same")
"""


def test_a_model_is_sent_to_a_worker():
    run = subprocess.run([sys.executable, "-c", SENT], env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert (run.returncode, run.stdout) == (0, "the same\n"), run.stderr
