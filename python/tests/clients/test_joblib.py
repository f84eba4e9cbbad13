"""joblib and cloudpickle copy models."""

import cloudpickle
import joblib
import numpy as np

import bqrl

BATCH = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)


def test_joblib_and_cloudpickle_copy_models(tmp_path):
    model = bqrl.QRDQN("CartPole-v1", hidden=[8]).learn(100)
    acts = model.predict(BATCH)[0].tolist()
    joblib.dump(model, tmp_path / "model.joblib")
    assert joblib.load(tmp_path / "model.joblib").predict(BATCH)[0].tolist() == acts
    assert cloudpickle.loads(cloudpickle.dumps(lambda: model.predict(BATCH)[0].tolist()))() == acts
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(lambda one: one.predict(BATCH)[0].tolist())(model) for _ in range(2))
    assert found == [acts, acts]
