"""TensorBoard reads what we log."""

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import bqrl


def test_the_event_accumulator_reads_the_curves(tmp_path):
    model = bqrl.DeepBQRL("bqrl/AssetSelling-v0", hidden=[8])
    model.learn(total_episodes=50, log_dir=tmp_path)
    events = EventAccumulator(str(tmp_path / "seed-0")).Reload()
    assert set(events.Tags()["scalars"]) == {
        "rollout/ep_len_mean",
        "rollout/ep_rew_mean",
        "time/episodes",
        "time/fps",
        "train/n_updates",
        "train/exploration",
        "train/loss",
        "eval/mean_reward",
        "eval/expected_return_regret",
        "eval/quantile_0.1",
        "eval/buffered_0.1",
        "eval/quantile_policy_gap_0.1",
        "eval/predicted_quantile_0.1",
        "calibration/predicted_0.1",
        "calibration/measured_0.1",
    }
    assert events.Tags()["histograms"] == ["eval/return_quantiles"]
    # A point before the first episode and with every evaluation.
    assert [point.value for point in events.Scalars("time/episodes")] == list(range(0, 51, 5))
    evaluations = np.genfromtxt(tmp_path / "seed-0/evaluations.csv", delimiter=",", names=True)
    assert np.allclose([point.value for point in events.Scalars("eval/quantile_0.1")], evaluations["quantile"])
    episodes = np.genfromtxt(tmp_path / "seed-0/episodes.csv", delimiter=",", names=True)
    mean = events.Scalars("rollout/ep_rew_mean")[-1]
    assert mean.step == model.num_timesteps == episodes["length"].sum()
    assert abs(mean.value - episodes["episode_return"].mean()) < 1e-6
    assert abs(events.Scalars("rollout/ep_len_mean")[-1].value - episodes["length"].mean()) < 1e-6
    assert events.Scalars("train/n_updates")[-1].value == model.num_updates
    # λ_t falls by the number of episodes: half is left after 500.
    exploration = events.Scalars("train/exploration")
    assert np.allclose([point.value for point in exploration], [5.0 / (1 + 5 * k / 500) for k in range(11)])


def test_targets_are_logged_beside_what_is_reached(tmp_path):
    model = bqrl.TargetTracking("bqrl/AssetSelling-v0", seed=1)
    model.learn(total_episodes=100, log_dir=tmp_path)
    events = EventAccumulator(str(tmp_path / "seed-1")).Reload()
    for level in (0.1, 0.5, 0.9):
        target = events.Scalars(f"eval/target_{level}")[-1].value
        assert np.isclose(target, model.predict(5, risk_level=level)[1][0, 3], rtol=1e-6)
        # What it says of its chances, and the exact chance of its policy.
        predicted, measured = (events.Scalars(f"calibration/{name}_{level}")[-1].value for name in ("predicted", "measured"))
        assert 0 < predicted <= 1 and abs(predicted - measured) < 0.25, level
        counts_from = model.predict(5, risk_level=level)[1][0, 2]
        law = model.evaluate(risk_level=level)
        assert np.isclose(measured, law.probabilities[law.values >= counts_from - 1e-9].sum(), rtol=1e-6)


def test_predictions_approach_what_is_attained_and_the_loss_falls(tmp_path):
    model = bqrl.DeepBQRL("bqrl/AssetSelling-v0", seed=1)
    model.learn(total_episodes=600, log_dir=tmp_path)
    events = EventAccumulator(str(tmp_path / "seed-1")).Reload()
    loss = [point.value for point in events.Scalars("train/loss")]
    # The first point is from the first update on: before it there is no loss.
    assert len(loss) == 10 and all(value > 0 for value in loss) and loss[-1] < loss[0]
    # Its first predictions are optimistic by design. They come down to what it attains, and what it promises is reached more often.
    predicted, attained = (np.array([point.value for point in events.Scalars(f"eval/{name}_0.1")]) for name in ("predicted_quantile", "quantile"))
    assert abs(predicted - attained)[0] > 1.0 and abs(predicted - attained)[-1] < 0.2
    measured = [point.value for point in events.Scalars("calibration/measured_0.1")]
    assert measured[0] == 0.0 and measured[-1] > 0.5
    # It says 15 of 16 quantiles, four critics with four each: the first level that is at least 0.9.
    assert {point.value for point in events.Scalars("calibration/predicted_0.1")} == {15 / 16}
