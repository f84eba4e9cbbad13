"""Images of bits and bytes reach the convolutions, with the channels first or last."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import bqrl

CORNERS = [(2, 2), (2, 7), (7, 2), (7, 7)]


class Eye(gymnasium.Env):
    """The corner in which an image is bright says which action pays."""

    def __init__(self, shape, dtype, channels_last):
        self.observation_space = spaces.Box(0, 1 if dtype is np.bool_ else 255, shape, dtype)
        self.action_space = spaces.Discrete(4)
        self.channels_last = channels_last

    def see(self):
        seen = np.zeros(self.observation_space.shape, self.observation_space.dtype)
        y, x = CORNERS[self.corner]
        seen[(y, x, 1) if self.channels_last else (1, y, x)] = self.observation_space.high.max()
        return seen

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.corner, self.stage = int(self.np_random.integers(4)), 0
        return self.see(), {}

    def step(self, action):
        reward = float(action == self.corner)
        self.corner, self.stage = int(self.np_random.integers(4)), self.stage + 1
        return self.see(), reward, self.stage == 10, False, {}


@pytest.mark.parametrize("kind", [bqrl.QRDQN, bqrl.TargetTracking])
@pytest.mark.parametrize(
    ("shape", "dtype", "channels_last"),
    [((10, 10, 3), np.bool_, True), ((3, 10, 10), np.uint8, False), ((36, 36, 2), np.uint8, True)],
)
def test_what_an_image_shows_is_learned(kind, shape, dtype, channels_last):
    # Without looking, a quarter of the ten rewards can be had.
    model = kind(Eye(shape, dtype, channels_last), horizon=10, seed=1, hidden=[32], n_quantiles=8).learn(4000)
    assert model.evaluate(episodes=20).mean > 8


def test_channels_first_and_last_are_the_same_image():
    first, last = Eye((2, 10, 10), np.uint8, False), Eye((10, 10, 2), np.uint8, True)
    models = [bqrl.QRDQN(env, horizon=10, seed=3, hidden=[8], n_quantiles=4).learn(200) for env in (first, last)]
    assert models[0].num_updates > 0 and models[0].weights() == models[1].weights()


def test_a_network_that_does_not_fit_names_the_layer_and_the_size():
    with pytest.raises(ValueError, match=r"convolution 2 looks at 9 × 9 cells, but there are only 8 × 8"):
        bqrl.QRDQN(Eye((10, 10, 3), np.bool_, True), horizon=10, convolutions=[[4, 3, 1], [4, 9, 1]])
    with pytest.raises(ValueError, match=r"convolutions must be empty where observations are not planes or images"):
        bqrl.QRDQN("CartPole-v1", convolutions=[[4, 3, 1]])


def test_an_image_of_the_wrong_shape_or_with_other_values_is_refused():
    model = bqrl.QRDQN(Eye((10, 10, 3), np.bool_, True), horizon=10)
    with pytest.raises(ValueError, match="shape"):
        model.predict(np.zeros((10, 10, 4), bool))
    with pytest.raises(ValueError, match="want zeros and ones, got 2"):
        model.predict(np.full((10, 10, 3), 2))
