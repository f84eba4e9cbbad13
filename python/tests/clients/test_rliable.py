"""rliable aggregates our results, (runs × tasks) arrays, and agrees with our own interquartile mean."""

import numpy as np
from rliable import library, metrics

import bqrl


def test_scores_are_aggregated():
    tasks = ["bqrl/AssetSelling-v0", "bqrl/GambleChain-v0"]
    scores = {}
    for kind in (bqrl.DeepBQRL, bqrl.QRDQN):
        runs = [[kind(task, seed=seed, hidden=[16]).learn(total_episodes=30).evaluate().mean for task in tasks] for seed in range(4)]
        scores[kind.__name__] = np.array(runs)
        assert scores[kind.__name__].shape == (4, 2)
    aggregate = lambda x: np.array([metrics.aggregate_iqm(x), metrics.aggregate_mean(x)])  # noqa: E731
    points, intervals = library.get_interval_estimates(scores, aggregate, reps=200)
    for name, array in scores.items():
        # Eight scores: the interquartile mean leaves out two at either end.
        assert np.isclose(points[name][0], np.sort(array.ravel())[2:6].mean())
        assert (intervals[name][0] <= points[name] + 1e-9).all() and (points[name] <= intervals[name][1] + 1e-9).all()
