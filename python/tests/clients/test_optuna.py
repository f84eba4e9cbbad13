"""Optuna tunes a study of ours, with pruning after every twenty episodes."""

import optuna

import bqrl


def test_a_study_is_tuned():
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial):
        rate = trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True)
        model = bqrl.DeepBQRL("bqrl/AssetSelling-v0", risk_level=0.5, seed=1000, learning_rate=rate, hidden=[16])

        def report(model, episode):
            if episode.episode % 20 == 0:
                trial.report(model.evaluate().quantile, episode.episode)
                if trial.should_prune():
                    raise optuna.TrialPruned

        model.learn(total_episodes=60, callback=report)
        return model.evaluate().quantile

    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.RandomSampler(seed=1),
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=20, reduction_factor=2),
    )
    study.optimize(objective, n_trials=6)
    states = [trial.state.name for trial in study.trials]
    assert states.count("COMPLETE") >= 1 and set(states) <= {"COMPLETE", "PRUNED"}
    # Q*_.5 = 23/24, and doing nothing at all earns 0.
    assert 0 < study.best_value <= 23 / 24 + 1e-12
