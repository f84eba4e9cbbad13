"""TensorBoard reads what we log."""

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import bqrl


def test_the_event_accumulator_reads_the_curves(tmp_path):
    model = bqrl.DeepBQRL("bqrl/AssetSelling-v0", hidden=[8])
    model.learn(total_episodes=50, log_dir=tmp_path)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert set(events.Tags()["scalars"]) == {
        "rollout/ep_rew_mean",
        "rollout/ep_len_mean",
        "time/episodes",
        "time/fps",
        "train/n_updates",
    }
    # A point every ten episodes, and one at the end.
    assert [point.value for point in events.Scalars("time/episodes")] == [10, 20, 30, 40, 50, 50]
    episodes = np.genfromtxt(tmp_path / "episodes.csv", delimiter=",", names=True)
    mean = events.Scalars("rollout/ep_rew_mean")[-1]
    assert mean.step == model.num_timesteps == episodes["length"].sum()
    assert abs(mean.value - episodes["episode_return"].mean()) < 1e-6
    assert events.Scalars("train/n_updates")[-1].value == model.num_updates
