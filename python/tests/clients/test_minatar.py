"""Our games beside the MinAtar package: the same actions and the same random draws give the same planes, rewards and ends.

The package draws from a stub that hands out numbers in [0, 1) and keeps them; our games are then played with these numbers. Half of
the steps are random, in runs of one to twenty equal actions. The other half follow simple rules (catch the ball, flee, rescue
divers, …), so that games last long and become hard. MINATAR_STEPS sets the number of steps of a game.
"""

import logging
import os
import warnings

import numpy as np
import pytest

from bqrl import _bqrl

with warnings.catch_warnings():  # Those of its own imports.
    warnings.simplefilter("ignore")
    import minatar
logging.getLogger().setLevel(logging.ERROR)  # It warns that it cannot draw.

STEPS = int(os.environ.get("MINATAR_STEPS", "1000000"))
GAMES = ["breakout", "asterix", "freeway", "seaquest", "space_invaders"]
STAY, LEFT, UP, RIGHT, DOWN, FIRE = range(6)


class Stub:
    """Stands in for NumPy's generator: u is uniform, and floor(u n) is uniform on 0..n."""

    def __init__(self, seed):
        self.generator = np.random.default_rng(seed)
        self.draws = []

    def rand(self, *shape):
        drawn = self.generator.random(shape)
        self.draws.extend(np.ravel(drawn))
        return drawn if shape else float(drawn)

    def randint(self, low, high=None, size=None):
        low, high = (0, low) if high is None else (low, high)
        drawn = low + np.floor(np.asarray(self.rand(*(() if size is None else (size,)))) * (high - low)).astype(int)
        return int(drawn) if size is None else drawn


def breakout(s, rng):
    (y, x), (old_y, old_x), paddle = np.argwhere(s[:, :, 1])[0], np.argwhere(s[:, :, 2])[0], np.argmax(s[9, :, 0])
    if y > old_y:  # Where it will come down.
        d = 1 if x >= old_x else -1
        for _ in range(8 - y):
            d = d if 0 <= x + d <= 9 else -d
            x = x + d if 0 <= x + d <= 9 else x
    return LEFT if x < paddle else RIGHT if x > paddle else STAY


def asterix(s, rng):
    y, x = np.argwhere(s[:, :, 0])[0]
    danger = s[:, max(0, x - 2) : x + 3, 1].any(1)
    if danger[y]:
        for action, row in ((UP, y - 1), (DOWN, y + 1)):
            if 1 <= row <= 8 and not danger[row]:
                return action
    gold = np.argwhere(s[:, :, 3])
    if len(gold):
        to_y, to_x = gold[np.abs(gold - [y, x]).sum(1).argmin()]
        if to_x != x:
            return LEFT if to_x < x else RIGHT
        if not danger[y + np.sign(to_y - y)]:
            return UP if to_y < y else DOWN
    return STAY


def freeway(s, rng):
    return UP if rng.random() < 0.93 else DOWN


def seaquest(s, rng):
    y, x = np.argwhere(s[:, :, 0])[0]
    enemies = s[:, :, 4] | s[:, :, 5] | s[:, :, 6]
    air, on_board = s[9, :, 7].sum(), s[9, :, 8].sum()
    near = enemies[:, max(0, x - 2) : x + 3].any(1)
    to_the_right = x > 0 and s[y, x - 1, 1]
    if near[y]:
        ahead = enemies[y, x + 1 : x + 4] if to_the_right else enemies[y, max(0, x - 3) : x]
        if ahead.any() and rng.random() < 0.6:
            return FIRE
        for action, row in ((UP, y - 1), (DOWN, y + 1)):
            if 1 <= row <= 8 and not near[row]:
                return action
    if on_board > 0 and (air <= 3 or on_board == 6):
        return UP if y <= 1 or not near[y - 1] else STAY
    divers = np.argwhere(s[:, :, 9])
    if len(divers):
        to_y, to_x = divers[np.abs(divers - [y, x]).sum(1).argmin()]
        if to_y == y and to_x != x:
            return LEFT if to_x < x else RIGHT
        row = y + np.sign(to_y - y)
        if row not in (0, y) and not near[row]:
            return UP if to_y < y else DOWN
    return DOWN if y == 0 else FIRE if enemies[y].any() else STAY


def space_invaders(s, rng):
    x, bullets = np.argmax(s[9, :, 0]), s[:, :, 5]
    if bullets[6:9, x].any():
        free = [a for a, c in ((LEFT, x - 1), (RIGHT, x + 1)) if 0 <= c <= 9 and not bullets[6:, c].any()]
        if free:
            return free[rng.integers(len(free))]
    columns = np.flatnonzero(s[:, :, 1].any(0))
    to = columns[np.abs(columns - x).argmin()]
    return FIRE if to == x or rng.random() < 0.3 else LEFT if to < x else RIGHT


RULES = {rule.__name__: rule for rule in (breakout, asterix, freeway, seaquest, space_invaders)}


def random_actions(rng):
    """Runs of one to twenty equal actions, forever."""
    while True:
        longest = rng.choice([1, 5, 20])
        for _ in range(50):
            yield from [int(rng.integers(6))] * int(rng.integers(1, longest + 1))


def played(game, steps, seed, by_rule, sticky, ramping):
    """The package's side: actions, draws, observations, rewards and ends."""
    rng, stub = np.random.default_rng(seed), Stub(seed + 1)
    env = minatar.Environment(game, sticky_action_prob=sticky, difficulty_ramping=ramping)
    env.random = env.env.random = stub
    chance = random_actions(rng)
    actions, rewards, ends, seen = np.zeros(steps, np.uint8), np.zeros(steps, int), np.zeros(steps, bool), []
    over = True
    for t in range(steps):
        if over:
            env.reset()
            env.last_action = STAY  # The package keeps the last action of the game before; an episode of ours does not know it.
            seen.append(env.state())
        follows = by_rule and rng.random() < 0.97
        actions[t] = RULES[game](seen[-1], rng) if follows else next(chance)
        rewards[t], ends[t] = env.act(int(actions[t]))
        over = ends[t]
        seen.append(env.state())
    planes = np.array(seen).transpose(0, 3, 1, 2).reshape(len(seen), -1)
    return actions, np.array(stub.draws), planes, rewards, ends


@pytest.mark.parametrize("game", GAMES)
def test_every_step_is_that_of_the_package(game):
    chunk = min(STEPS, 20_000)
    compared = 0
    for seed, start in enumerate(range(0, STEPS, chunk)):
        steps = min(chunk, STEPS - start)
        sticky, ramping = (0.1, 0.1, 0.0, 0.25)[seed // 2 % 4], seed // 2 % 5 != 4
        actions, draws, planes, rewards, ends = played(game, steps, seed, seed % 2 == 0, sticky, ramping)
        parameters = {"sticky": str(sticky), "ramping": str(ramping)}
        words, *ours, used = _bqrl.replay_game(f"minatar/{game.replace('_', '-')}", parameters, actions, draws)
        bits = np.unpackbits(words.view(np.uint8).reshape(len(planes), -1), axis=1, bitorder="little")
        same = (bits[:, : planes.shape[1]] == planes).all(1)
        assert same.all(), f"{game}, seed {seed}: observation {np.argmin(same)} of {len(same)}"
        assert not bits[:, planes.shape[1] :].any()
        assert np.array_equal(ours[0], rewards) and np.array_equal(ours[1], ends) and used == len(draws)
        compared += steps
    assert compared == STEPS
