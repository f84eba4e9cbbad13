"""Hostile model and run directories are refused with one line of the right kind; nothing is executed, nothing hangs."""

import json
import os
import pickle
import shutil
import subprocess
import sys

import pytest
from forge import crc32c, forged, in_json, newest, seal, tensors, write_manifest, write_tensors
from support import SMALL

import bqrl


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model"
    bqrl.DeepBQRL("CartPole-v1", horizon=10, **SMALL).learn(30).save(path)
    return path


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    path = tmp_path_factory.mktemp("logged") / "run"
    bqrl.DeepBQRL("CartPole-v1", **SMALL).learn(30, log_dir=path, evaluation_episodes=2)
    return path


def refused(path, *kinds, said=""):
    with pytest.raises(kinds or ValueError, match=said or None) as error:
        bqrl.load(path)
    message = str(error.value)
    assert message.isprintable() and len(message) < 2000, message
    return message


def test_the_checksum_of_these_tests():
    assert crc32c(b"123456789") == 0xE3069283


def test_a_forged_model_with_valid_checksums_is_loaded(saved, tmp_path):
    # So that the refusals below are not about checksums.
    path = forged(saved, tmp_path / "model", in_json("progress", "clock", "steps", to=31))
    assert bqrl.load(path).num_timesteps == 31


@pytest.mark.parametrize("name", ["critics.safetensors", "replay.safetensors", "agent.json", "model.json", "manifest.json"])
def test_missing_and_damaged_files(name, saved, tmp_path):
    for step, damage in enumerate(
        [
            lambda file: file.unlink(),
            lambda file: file.write_bytes(b""),
            lambda file: file.write_bytes(file.read_bytes()[:-1]),
            lambda file: file.write_bytes(file.read_bytes() + b"\0"),
            lambda file: file.write_bytes(bytes(reversed(file.read_bytes()))),
        ]
    ):
        path = tmp_path / str(step)
        shutil.copytree(saved, path)
        damage(newest(path) / name)
        if name == "manifest.json" and step == 3:
            continue  # JSON may be followed by nothing but white space; a null is refused below all the same.
        assert name in refused(path, OSError)
        if name != "manifest.json":
            # Now with checksums that fit.
            seal(newest(path))
            refused(path, ValueError, OSError)


HUGE = 2**63 - 1
VALUES = [
    (("format",), 1, "format"),
    (("format",), 10**30, ""),
    (("format",), "2", "format|integer"),
    (("config",), "x = [", ""),
    (("config",), "\x1b[31m", ""),
    (("config",), 3, "string"),
    (("seed",), -1, ""),
    (("seed",), 1.5, ""),
    (("environment", "n_actions"), 0, "at least 1"),
    (("environment", "n_actions"), HUGE, ""),
    (("environment", "n_actions"), 3, ""),
    (("environment", "horizon"), 0, "at least 1"),
    (("environment", "gamma"), 0, "gamma"),
    (("environment", "gamma"), 1e400, "expected value"),
    (("environment", "gamma"), "NaN", ""),
    (("environment", "reward_bounds"), [1.0, -1.0], "reward_bounds"),
    (("environment", "observations", "shape"), [5], ""),
    (("environment", "observations", "shape"), [2**40, 2**40], "at most"),
    (("environment", "observations", "shape"), [2**29], ""),
    (("environment", "observations", "shape"), [-4], ""),
    (("environment", "observations", "n"), HUGE, ""),
    (("environment", "observations", "n"), 0, "whole numbers"),
    (("environment", "observations", "stack"), 0, "stacked"),
    (("environment", "observations", "stack"), 3, "stacked"),
    (("progress", "clock", "steps"), 2**64 - 1, "cannot have been trained"),
    (("progress", "clock", "episodes"), 1000, "cannot have been trained"),
    (("progress", "recent"), [1.0] * 99, "recent"),
    (("progress", "recent_lengths"), [], "recent"),
    (("progress", "recent_lengths"), [2**60] * 3, "recent"),
    (("play",), [1], ""),
    (("play", "lanes", "rngs"), [[1]], ""),
    (("extra",), "", "cannot be restored"),
    (("extra",), "null", "cannot be restored"),
    (("extra",), "[" * 100_000, "nested too deeply|cannot be restored"),
    (("extra", "action_start"), 2**70, "first action"),
    (("extra", "action_start"), "0", "first action"),
    (("extra", "observation_space"), None, "cannot be restored"),
    (("extra", "observation_space", "kind"), "\x1b[31m", "cannot be restored"),
    (("extra", "observation_space", "dtype"), "O", ""),
    (("extra", "observation_space", "dtype"), "os.system", "cannot be restored"),
    (("extra", "observation_space", "shape"), [2, 2], "not the one"),
    (("extra", "observation_space", "shape"), [10**12], "cannot be restored"),
    (("extra", "observation_space", "low"), ["nan"] * 4, ""),
    (("extra", "observation_space"), {"kind": "Discrete", "n": -1, "start": 0}, "cannot be restored"),
    (("extra", "observation_space"), {"kind": "Discrete", "n": 10**30, "start": 0}, "cannot be restored"),
    (("extra", "observation_space"), {"kind": "MultiBinary", "n": 10**12}, "not the one"),
    (("extra", "observation_space"), {"kind": "MultiDiscrete", "nvec": [10**15], "start": [0]}, "not the one"),
]


@pytest.mark.parametrize(("keys", "value", "said"), VALUES, ids=[f"{'.'.join(k)}={str(v)[:20]!a}" for k, v, _ in VALUES])
def test_forged_values(keys, value, said, saved, tmp_path):
    path = forged(saved, tmp_path / "model", in_json(*keys, to=value))
    if keys[-1] in ("dtype", "low") and said == "":
        try:
            bqrl.load(path)
        except ValueError as error:
            assert str(error).isprintable()
    else:
        refused(path, ValueError, said=said)


def test_another_algorithm_and_another_space(saved, tmp_path):
    for other in (bqrl.QRDQN, bqrl.TargetTracking):
        with pytest.raises(ValueError, match="holds a deep-bqrl model, not a"):
            other.load(saved)
    text = json.loads((newest(saved) / "model.json").read_text())["config"]
    for kind in ("qr-dqn", "target-tracking", "ppo", "no-such"):
        path = forged(saved, tmp_path / kind, in_json("config", to=text.replace('"deep-bqrl"', f'"{kind}"')))
        refused(path)


@pytest.mark.parametrize("name", ["critics.safetensors", "replay.safetensors"])
def test_forged_tensors(name, saved, tmp_path):
    header, data = tensors(newest(saved) / name)
    first = next(key for key in header if key != "__metadata__")
    forgeries = {
        "huge header": lambda file: write_tensors(file, header, data, length=2**63),
        "long header": lambda file: write_tensors(file, header, data, length=2**40),
        "no header": lambda file: file.write_bytes(b"\0" * 8),
        "deep header": lambda file: write_tensors(file, b'{"a":' * 100_000, b""),
        "huge shape": lambda file: write_tensors(file, header | {first: header[first] | {"shape": [2**40, 2**40]}}, data),
        "other type": lambda file: write_tensors(file, header | {first: header[first] | {"dtype": "F64"}}, data),
        "beyond": lambda file: write_tensors(file, header | {first: header[first] | {"data_offsets": [0, 2**62]}}, data),
        "missing": lambda file: write_tensors(file, {key: value for key, value in header.items() if key != first}, data),
        "no data": lambda file: write_tensors(file, header, b""),
    }
    for number, change in enumerate(forgeries.values()):
        refused(forged(saved, tmp_path / str(number), lambda checkpoint, change=change: change(checkpoint / name)))


def test_forged_manifests(saved, tmp_path):
    parts = json.loads((newest(saved) / "manifest.json").read_text())["manifest"]["parts"]
    manifests = [
        {"number": 31, "parts": parts},
        {"number": 30, "parts": []},
        {"number": 30, "parts": [{"name": "../../x", "length": 0, "crc32c": 0}]},
        {"number": 30, "parts": [{"name": "/etc/hostname", "length": 0, "crc32c": 0}]},
        {"number": 30, "parts": [{"name": "\x1b[31m", "length": 0, "crc32c": 0}]},
        {"number": 30, "parts": [part | {"length": 2**63 - 1} for part in parts]},
        {"number": 30, "parts": [part | {"sealed": True} for part in parts]},
    ]
    for number, manifest in enumerate(manifests):
        path = tmp_path / str(number)
        shutil.copytree(saved, path)
        write_manifest(newest(path), manifest)
        refused(path, OSError, ValueError)
    for number, text in enumerate(["", "[]", "null", "{", '{"format": 1e99}', "[" * 100_000, "\ufeff{}"]):
        path = tmp_path / f"text-{number}"
        shutil.copytree(saved, path)
        (newest(path) / "manifest.json").write_text(text)
        refused(path, OSError)


class Planted:
    """Leaves a trace where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_pickle_is_never_loaded(saved, tmp_path):
    planted = pickle.dumps(Planted(tmp_path / "executed"))
    for name in ("critics.safetensors", "replay.safetensors", "agent.json", "model.json"):
        path = forged(saved, tmp_path / name, lambda checkpoint, name=name: (checkpoint / name).write_bytes(planted) and None)
        refused(path)
    path = tmp_path / "manifest"
    shutil.copytree(saved, path)
    (newest(path) / "manifest.json").write_bytes(planted)
    refused(path, OSError)
    assert not (tmp_path / "executed").exists()


@pytest.mark.skipif(os.name == "nt", reason="pipes and devices of Unix")
@pytest.mark.parametrize("name", ["critics.safetensors", "agent.json", "model.json", "manifest.json"])
def test_pipes_devices_and_folders_are_refused_and_do_not_hang(name, saved, tmp_path):
    for kind, make in {
        "pipe": os.mkfifo,
        "device": lambda at: at.symlink_to("/dev/zero"),
        "folder": os.mkdir,
        "loop": lambda at: at.symlink_to(at.name),
    }.items():
        path = tmp_path / kind
        shutil.copytree(saved, path)
        (newest(path) / name).unlink()
        make(newest(path) / name)
        refused(path, OSError)


@pytest.mark.skipif(os.name == "nt", reason="links of Unix")
def test_links_to_files_are_followed_and_checked(saved, tmp_path):
    # As the caches of model hubs have them.
    path = tmp_path / "model"
    shutil.copytree(saved, path)
    critics = newest(path) / "critics.safetensors"
    critics.rename(tmp_path / "blob")
    critics.symlink_to(tmp_path / "blob")
    assert bqrl.load(path).num_timesteps == 30
    critics.unlink()
    critics.symlink_to(sys.executable)
    refused(path, OSError)


def in_a_small_process(path):
    """Loads in a process that may have four gigabytes of addresses; its exit code and its last line."""
    script = """
import resource, sys, bqrl
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    bqrl.load(sys.argv[1])
except (ValueError, OSError) as error:
    assert str(error).isprintable()
    print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(os.name == "nt", reason="limits of Unix")
def test_a_sparse_file_of_five_gigabytes_is_not_read(saved, tmp_path):
    for name in ("critics.safetensors", "model.json", "manifest.json"):
        path = tmp_path / name
        shutil.copytree(saved, path)
        os.truncate(newest(path) / name, 5 << 30)
        assert in_a_small_process(path) == "OSError"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".bqrl-run", "bqrl run, format \x1b[31m\n"),
        (".bqrl-run", ""),
        ("config.toml", ""),
        ("config.toml", "\x1b[31m = 1"),
        ("config.toml", "a = " + "[" * 10_000),
        ("config.toml", None),
        ("seed-0/model.json", ""),
        ("seed-0/model.json", "[" * 100_000),
        ("seed-0/checkpoints", None),
    ],
)
def test_hostile_run_directories(name, text, logged, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(logged, path)
    file = path / name
    if text is None:
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    else:
        file.write_text(text)
    refused(path, ValueError, OSError)


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
@pytest.mark.parametrize("name", ["config.toml", "seed-0/model.json"])
def test_a_pipe_in_a_run_directory_does_not_hang(name, logged, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(logged, path)
    (path / name).unlink()
    os.mkfifo(path / name)
    refused(path, ValueError, OSError)


def test_a_forged_run(logged, tmp_path):
    for number, (keys, value) in enumerate(
        [
            (("progress", "clock", "steps"), 2**64 - 1),
            (("progress", "recent"), [1.0] * 999),
            (("progress",), None),
            (("play", "lanes"), {}),
        ]
    ):
        path = tmp_path / str(number)
        shutil.copytree(logged, path)
        checkpoint = newest(path / "seed-0/checkpoints")
        in_json(*keys, to=value, file="state.json")(checkpoint)
        manifest = json.loads((checkpoint / "manifest.json").read_text())["manifest"]
        state = (checkpoint / "state.json").read_bytes()
        for part in manifest["parts"]:
            if part["name"] == "state.json":
                part |= {"length": len(state), "crc32c": crc32c(state)}
        write_manifest(checkpoint, manifest)
        for other in (path / "seed-0/checkpoints").iterdir():
            if other.is_dir() and other != checkpoint and other.name.isdigit():
                shutil.rmtree(other)
        refused(path, ValueError, OSError)


def test_what_is_no_directory(tmp_path):
    (tmp_path / "file").write_text("mine")
    refused(tmp_path / "file", OSError)
    refused(tmp_path / "none", ValueError)
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", ValueError)
    refused(tmp_path / "file/inside", OSError)
    with pytest.raises(ValueError, match="has no seeds"):
        bqrl.load(tmp_path / "empty", seed=1)
