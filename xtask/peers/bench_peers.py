"""Our training step beside the same mathematics in PyTorch and JAX: `cargo xtask bench-peers`.

    bench_peers.py BIN_DIR [--shapes s,m,l] [--rounds 5] [--only-steps]

BIN_DIR holds `bqrl` and the examples `workload` and `forward`, built in release mode. Everything runs on one and the same
core, one side at a time and in turns, about a second each; a figure is the median over the rounds of the fastest short
stretch in each. Before anything is timed, every side starts from the same critics and takes the same fifty steps; a side
that arrives elsewhere is not timed. Whole runs are compared with QR-DQN of SB3-contrib.

One step, for all five critics: target forward at x', sort, buffered score, argmax, targets, K×K quantile Huber loss
divided by κ, mean over batch and both axes, backward, Adam, soft update.

Shapes g and h are QR-DQN on a MinAtar game (batch 32 and 128): one critic with a convolution and a hidden layer, both normalised; the
next action by the mean; the smoothed quantile loss. There the order of the quantiles does not matter, so the tuned sides do not sort.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHECK_STEPS = 50
TOLERANCE = 1e-3  # of the distance moved; rounding gives up to 2e-4 (JAX, shape l)
TAU, BETA, KAPPA, ZETA, LEARNING_RATE = 0.1, 0.05, 1.0, 0.005, 1e-4  # as crates/nn/src/workload.rs
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
N_ACTIONS = {"s": 2, "m": 2, "l": 2, "x": 4, "g": 6, "h": 6}
SEEING, PLANES, SMOOTH_KAPPA = ("g", "h"), (4, 10, 10), 0.02

# How many times faster than a peer, and which fraction of the core's peak, we want to be (s, m, l).
BARS = {
    "idiomatic torch": {"s": 40, "m": 25, "l": 10, "g": 9},
    "best tuned": {"s": 5.5, "m": 4, "l": 1.6, "g": 1.9},
    "fraction of peak": {"s": 0.40, "m": 0.52, "l": 0.62, "h": 0.70},
}


def read(directory, name):
    """Weights [M][in][out] and biases [M][1][out] of every layer, in turn, from one of our files."""
    import numpy as np
    from safetensors.numpy import load_file

    tensors, layers = load_file(Path(directory) / name), []
    n_critics = len(tensors["adam.step"])
    while f"critic.0.layer.{len(layers) // 2}.weight" in tensors:
        stack = lambda part: np.stack([tensors[f"critic.{m}.layer.{len(layers) // 2}.{part}"] for m in range(n_critics)])
        weight, bias = stack("weight"), stack("bias")
        layers += [np.ascontiguousarray(weight.transpose(0, 2, 1)), bias[:, None, :]]
    return layers


def read_batch(directory):
    from safetensors.numpy import load_file

    batch = load_file(Path(directory) / "batch.safetensors")
    return [batch[name] for name in ("inputs", "actions", "rewards", "next_inputs", "done")]


def constants(k):
    """The score's coefficients w_j/β, Eq. (1), and the levels η_j."""
    import numpy as np

    j = np.arange(1, k + 1)
    weights = np.maximum(np.minimum(TAU, j / k) - np.maximum(TAU - BETA, (j - 1) / k), 0)
    return (weights / BETA).astype(np.float32), ((j - 0.5) / k).astype(np.float32)


def bitonic_sort(z, minimum, maximum, stack, flip, pad):
    """Sorts the last axis with minima and maxima of halves: far faster than a library's sort of many short rows."""
    k = z.shape[-1]
    n = 1 << (k - 1).bit_length()
    z = pad(z, n - k)
    shape, block = z.shape, 2
    while block <= n:
        # The second half of a block runs backwards, so that one comparison makes both halves bitonic.
        z = z.reshape(*shape[:-1], n // block, 2, block // 2)
        a, b = z[..., 0, :], flip(z[..., 1, :])
        z = stack(minimum(a, b), flip(maximum(a, b)))
        stride = block // 4
        while stride >= 1:
            z = z.reshape(*shape[:-1], n // (2 * stride), 2, stride)
            a, b = z[..., 0, :], z[..., 1, :]
            z = stack(minimum(a, b), maximum(a, b))
            stride //= 2
        block *= 2
    return z.reshape(shape)[..., :k]


class Torch:
    """PyTorch as one would write it: batched products, autograd, fused Adam."""

    def __init__(self, directory, n_actions):
        import torch

        torch.set_num_threads(1)
        self.torch, self.n_actions = torch, n_actions
        self.online = [torch.tensor(p, requires_grad=True) for p in read(directory, "before.safetensors")]
        self.target = [p.detach().clone() for p in self.online]
        self.x, actions, self.r, self.next_x, self.done = map(torch.tensor, read_batch(directory))
        self.k = self.online[-1].shape[-1] // n_actions
        self.score, self.eta = map(torch.tensor, constants(self.k))
        self.batch, self.n_critics = len(actions), len(self.online[0])
        self.taken = actions.view(1, -1, 1, 1).expand(self.n_critics, -1, 1, self.k)
        self.prepare()

    def prepare(self):
        self.adam = self.torch.optim.Adam(self.online, lr=LEARNING_RATE, fused=True)

    def forward(self, parameters, x):
        h = x.expand(self.n_critics, *x.shape)
        for l in range(0, len(parameters), 2):
            h = self.torch.baddbmm(parameters[l + 1], h, parameters[l])
            if l + 2 < len(parameters):
                h = h.relu()
        return h.view(self.n_critics, self.batch, self.n_actions, self.k)

    def step(self):
        torch = self.torch
        with torch.no_grad():
            ordered = self.forward(self.target, self.next_x).sort(dim=-1).values
            best = (ordered @ self.score).argmax(dim=-1)
            chosen = ordered.gather(2, best[..., None, None].expand(-1, -1, 1, self.k)).squeeze(2)
            y = self.r[:, None] + (1 - self.done)[:, None] * chosen
        z = self.forward(self.online, self.x).gather(2, self.taken).squeeze(2)
        delta = y[..., :, None] - z[..., None, :]
        huber = torch.nn.functional.huber_loss(delta, torch.zeros_like(delta), reduction="none", delta=KAPPA)
        loss = ((self.eta - (delta.detach() < 0).float()).abs() * huber / KAPPA).mean(dim=(1, 2, 3)).sum()
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.target, self.online, ZETA)

    def act(self):
        with self.torch.no_grad():
            h = self.x[None, :1].expand(self.n_critics, 1, -1)
            for l in range(0, len(self.online), 2):
                h = self.torch.baddbmm(self.online[l + 1], h, self.online[l])
                h = h.relu() if l + 2 < len(self.online) else h
        return h

    def wait(self):
        pass

    def parameters(self):
        return [p.detach().numpy() for p in self.online]


class TunedTorch(Torch):
    """The gradient by hand, no autograd, the whole step in one torch.compile."""

    def prepare(self):
        torch = self.torch
        self.online = [p.detach() for p in self.online]
        self.first = [torch.zeros_like(p) for p in self.online]
        self.second = [torch.zeros_like(p) for p in self.online]
        self.mask = torch.nn.functional.one_hot(self.taken[0, :, 0, 0], self.n_actions).float()[None, :, :, None]
        self.t = 0
        self.compiled = torch.compile(self.whole, dynamic=False)

    def whole(self, online, target, first, second, rates):
        torch = self.torch
        sort = lambda z: bitonic_sort(
            z,
            torch.minimum,
            torch.maximum,
            lambda a, b: torch.stack([a, b], dim=-2),
            lambda v: v.flip(-1),
            lambda v, n: torch.nn.functional.pad(v, (0, n), value=float("inf")),
        )
        ordered = sort(self.forward(target, self.next_x))
        best = (ordered * self.score).sum(-1).argmax(dim=-1)
        chosen = ordered.gather(2, best[..., None, None].expand(-1, -1, 1, self.k)).squeeze(2)
        y = self.r[:, None] + (1 - self.done)[:, None] * chosen

        hidden, h = [], self.x.expand(self.n_critics, *self.x.shape)
        for l in range(0, len(online), 2):
            hidden.append(h)
            h = torch.baddbmm(online[l + 1], h, online[l])
            h = h.relu() if l + 2 < len(online) else h
        z = h.view(self.n_critics, self.batch, self.n_actions, self.k).gather(2, self.taken).squeeze(2)
        c = ((y[..., :, None] - z[..., None, :]) / KAPPA).clamp(-1, 1)
        d_z = -((1 - self.eta) * c + (2 * self.eta - 1) * c.clamp(min=0)).sum(2) / (self.batch * self.k**2)
        d = (d_z[:, :, None, :] * self.mask).reshape(self.n_critics, self.batch, -1)
        gradients = []
        for l in reversed(range(0, len(online), 2)):
            h = hidden[l // 2]
            gradients = [torch.bmm(h.transpose(1, 2), d), d.sum(1, keepdim=True)] + gradients
            if l > 0:
                d = torch.bmm(d, online[l].transpose(1, 2)) * (h > 0)
        for p, q, m, v, g in zip(online, target, first, second, gradients):
            m.mul_(BETA_1).add_(g, alpha=1 - BETA_1)
            v.mul_(BETA_2).add_(g * g, alpha=1 - BETA_2)
            p.sub_(rates[0] * m / (v.sqrt() * rates[1] + EPSILON))
            q.lerp_(p, ZETA)

    def step(self):
        self.t += 1
        rates = self.torch.tensor([LEARNING_RATE / (1 - BETA_1**self.t), (1 - BETA_2**self.t) ** -0.5])
        with self.torch.no_grad():
            self.compiled(self.online, self.target, self.first, self.second, rates)


class Jax:
    """JAX, the whole step in one jit, with the gradient of the loss by hand and a vectorised sort."""

    def __init__(self, directory, n_actions):
        import jax
        import jax.numpy as jnp

        self.jax = jax
        online = [jnp.array(p) for p in read(directory, "before.safetensors")]
        zeros = [jnp.zeros_like(p) for p in online]
        copy = lambda parameters: [p.copy() for p in parameters]
        self.state = online, copy(online), zeros, copy(zeros), jnp.zeros((), jnp.int32)
        self.batch = [jnp.array(part) for part in read_batch(directory)]
        k = online[-1].shape[-1] // n_actions
        score, eta = map(jnp.array, constants(k))
        sort = lambda z: bitonic_sort(
            z,
            jnp.minimum,
            jnp.maximum,
            lambda a, b: jnp.stack([a, b], axis=-2),
            lambda v: jnp.flip(v, -1),
            lambda v, n: jnp.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, n)], constant_values=jnp.inf),
        )

        def forward(parameters, x):
            h = jnp.broadcast_to(x, (len(parameters[0]), *x.shape))
            for l in range(0, len(parameters), 2):
                h = jnp.einsum("mbi,mio->mbo", h, parameters[l]) + parameters[l + 1]
                h = jax.nn.relu(h) if l + 2 < len(parameters) else h
            return h.reshape(*h.shape[:2], n_actions, k)

        def step(state, batch):
            online, target, first, second, t = state
            x, actions, r, next_x, done = batch
            ordered = sort(forward(target, next_x))
            best = (ordered @ score).argmax(-1)
            chosen = jnp.take_along_axis(ordered, best[..., None, None], 2).squeeze(2)
            y = r[:, None] + (1 - done)[:, None] * chosen
            z, backward = jax.vjp(lambda p: forward(p, x), online)
            mask = jax.nn.one_hot(actions, n_actions)[:, :, None]
            z = (z * mask).sum(2)
            c = jnp.clip((y[..., :, None] - z[..., None, :]) / KAPPA, -1, 1)
            d_z = -((1 - eta) * c + (2 * eta - 1) * jnp.maximum(c, 0)).sum(2) / (len(x) * k**2)
            (gradient,) = backward(d_z[:, :, None, :] * mask)
            t = t + 1
            each = lambda f, *lists: [f(*parts) for parts in zip(*lists)]
            first = each(lambda m, g: BETA_1 * m + (1 - BETA_1) * g, first, gradient)
            second = each(lambda v, g: BETA_2 * v + (1 - BETA_2) * g * g, second, gradient)
            rate, root = LEARNING_RATE / (1 - BETA_1**t), (1 - BETA_2**t) ** -0.5
            online = each(lambda p, m, v: p - rate * m / (jnp.sqrt(v) * root + EPSILON), online, first, second)
            target = each(lambda q, p: (1 - ZETA) * q + ZETA * p, target, online)
            return online, target, first, second, t

        self.jit_step = jax.jit(step, donate_argnums=0)
        self.jit_act = jax.jit(forward)

    def step(self):
        self.state = self.jit_step(self.state, self.batch)

    def act(self):
        return self.jit_act(self.state[0], self.batch[0][:1]).block_until_ready()

    def wait(self):
        self.jax.block_until_ready(self.state)

    def parameters(self):
        return list(self.state[0])


SEEING_LAYERS = [
    f"critic.0.layer.{l}.{part}"
    for l in range(3)
    for part in ("weight", "bias", "norm.weight", "norm.bias")
    if l < 2 or not part.startswith("norm")
]


def read_seeing(directory, name):
    """W, b, gain and shift of the convolution and of the hidden layer; W and b of the outputs."""
    from safetensors.numpy import load_file

    tensors = load_file(Path(directory) / name)
    return [tensors[layer] for layer in SEEING_LAYERS]


class SeeingTorch:
    """QR-DQN on planes as one would write it: conv2d, layer_norm, autograd, fused Adam."""

    steps_per_call = 1

    def __init__(self, directory, n_actions):
        import numpy as np
        import torch

        torch.set_num_threads(1)
        self.torch, self.n_actions = torch, n_actions
        self.online = [torch.tensor(p, requires_grad=True) for p in read_seeing(directory, "before.safetensors")]
        self.target = [p.detach().clone() for p in self.online]
        self.x, actions, self.r, self.next_x, self.done = map(torch.tensor, read_batch(directory))
        self.k = len(self.online[-1]) // n_actions
        self.eta = torch.tensor((np.arange(1, self.k + 1) - 0.5) / self.k, dtype=torch.float32)
        self.batch = len(actions)
        self.taken = actions.view(-1, 1, 1).expand(-1, 1, self.k)
        self.prepare()

    def prepare(self):
        self.adam = self.torch.optim.Adam(self.online, lr=LEARNING_RATE, fused=True)

    def forward(self, parameters, x):
        f, n = self.torch.nn.functional, PLANES[0] * PLANES[1] * PLANES[2]
        w1, b1, gain1, shift1, w2, b2, gain2, shift2, w3, b3 = parameters
        h = f.conv2d(x[:, :n].view(-1, *PLANES), w1, b1).flatten(1)
        h = f.layer_norm(h, h.shape[1:], gain1, shift1).relu()
        h = f.linear(self.torch.cat([h, x[:, n:]], 1), w2, b2)
        h = f.layer_norm(h, h.shape[1:], gain2, shift2).relu()
        return f.linear(h, w3, b3).view(-1, self.n_actions, self.k)

    def targets(self, ordered):
        best = ordered.mean(-1).argmax(dim=-1)
        chosen = ordered.gather(1, best[:, None, None].expand(-1, 1, self.k)).squeeze(1)
        return self.r[:, None] + (1 - self.done)[:, None] * chosen

    def step(self):
        torch = self.torch
        with torch.no_grad():
            y = self.targets(self.forward(self.target, self.next_x).sort(dim=-1).values)
        z = self.forward(self.online, self.x).gather(1, self.taken).squeeze(1)
        delta = y[:, :, None] - z[:, None, :]
        huber = torch.nn.functional.huber_loss(delta, torch.zeros_like(delta), reduction="none", delta=SMOOTH_KAPPA)
        loss = ((self.eta - 0.5) * delta + huber / (2 * SMOOTH_KAPPA)).mean()
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.target, self.online, ZETA)

    def act(self):
        with self.torch.no_grad():
            return self.forward(self.online, self.x[:1])

    def wait(self):
        pass

    def parameters(self):
        return [p.detach().numpy() for p in self.online]


class SeeingTunedTorch(SeeingTorch):
    """Forward and backward in torch.compile, the loss's gradient by hand, Adam and the soft update in a second one."""

    def prepare(self):
        torch = self.torch
        self.first = [torch.zeros_like(p) for p in self.target]
        self.second = [torch.zeros_like(p) for p in self.target]
        self.t = 0
        self.compiled = torch.compile(self.surrogate, dynamic=False)
        self.compiled_adam = torch.compile(self.move, dynamic=False)

    def surrogate(self, online, target):
        """A number whose gradient is that of the loss."""
        torch = self.torch
        z = self.forward(online, self.x).gather(1, self.taken).squeeze(1)
        with torch.no_grad():
            y = self.targets(self.forward(target, self.next_x))
            c = ((y[:, :, None] - z.detach()[:, None, :]) / SMOOTH_KAPPA).clamp(-1, 1)
            d_z = -(self.k * (self.eta - 0.5) + c.sum(1) / 2) / (self.batch * self.k**2)
        return (z * d_z).sum()

    def move(self, online, target, first, second, gradients, rates):
        for p, q, m, v, g in zip(online, target, first, second, gradients):
            m.mul_(BETA_1).add_(g, alpha=1 - BETA_1)
            v.mul_(BETA_2).add_(g * g, alpha=1 - BETA_2)
            p.sub_(rates[0] * m / (v.sqrt() * rates[1] + EPSILON))
            q.lerp_(p, ZETA)

    def step(self):
        torch = self.torch
        self.t += 1
        rates = torch.tensor([LEARNING_RATE / (1 - BETA_1**self.t), (1 - BETA_2**self.t) ** -0.5])
        gradients = torch.autograd.grad(self.compiled(self.online, self.target), self.online)
        with torch.no_grad():
            online = [p.detach() for p in self.online]
            self.compiled_adam(online, self.target, self.first, self.second, list(gradients), rates)


class SeeingJax:
    """JAX: im2col (XLA's own convolution is slower), the loss's gradient by hand, ten steps in one `scan`."""

    steps_per_call = 10

    def __init__(self, directory, n_actions):
        import jax
        import jax.numpy as jnp
        import numpy as np

        self.jax = jax
        online = [jnp.array(p) for p in read_seeing(directory, "before.safetensors")]
        zeros = [jnp.zeros_like(p) for p in online]
        copy = lambda parameters: [p.copy() for p in parameters]
        self.state = online, copy(online), zeros, copy(zeros), jnp.zeros((), jnp.int32)
        # A batch for each step of the scan: otherwise XLA could take its columns out of the loop.
        self.batches = [jnp.stack([jnp.array(part)] * self.steps_per_call) for part in read_batch(directory)]
        k = len(online[-1]) // n_actions
        eta = jnp.array((np.arange(1, k + 1) - 0.5) / k, jnp.float32)
        channels, height, width = PLANES
        n, side = channels * height * width, online[0].shape[-1]
        cells = np.arange(n).reshape(PLANES)
        windows = np.lib.stride_tricks.sliding_window_view(cells, (side, side), axis=(1, 2))
        columns = jnp.array(windows.transpose(1, 2, 0, 3, 4).reshape(-1, channels * side * side))

        def norm(h, gain, shift):
            away = h - h.mean(-1, keepdims=True)
            return away * jax.lax.rsqrt((away**2).mean(-1, keepdims=True) + 1e-5) * gain + shift

        def forward(parameters, x):
            w1, b1, gain1, shift1, w2, b2, gain2, shift2, w3, b3 = parameters
            h = jnp.einsum("bpi,oi->bop", x[:, columns], w1.reshape(len(w1), -1)) + b1[:, None]
            h = jax.nn.relu(norm(h.reshape(len(x), -1), gain1, shift1))
            h = jnp.concatenate([h, x[:, n:]], 1) @ w2.T + b2
            h = jax.nn.relu(norm(h, gain2, shift2))
            return (h @ w3.T + b3).reshape(-1, n_actions, k)

        def step(state, batch):
            online, target, first, second, t = state
            x, actions, r, next_x, done = batch
            next_z = forward(target, next_x)
            best = next_z.mean(-1).argmax(-1)
            chosen = jnp.take_along_axis(next_z, best[:, None, None], 1).squeeze(1)
            y = r[:, None] + (1 - done)[:, None] * chosen
            z, backward = jax.vjp(lambda p: forward(p, x), online)
            mask = jax.nn.one_hot(actions, n_actions)[:, :, None]
            z = (z * mask).sum(1)
            c = jnp.clip((y[:, :, None] - z[:, None, :]) / SMOOTH_KAPPA, -1, 1)
            d_z = -(k * (eta - 0.5) + c.sum(1) / 2) / (len(x) * k**2)
            (gradient,) = backward(d_z[:, None, :] * mask)
            t = t + 1
            each = lambda f, *lists: [f(*parts) for parts in zip(*lists)]
            first = each(lambda m, g: BETA_1 * m + (1 - BETA_1) * g, first, gradient)
            second = each(lambda v, g: BETA_2 * v + (1 - BETA_2) * g * g, second, gradient)
            rate, root = LEARNING_RATE / (1 - BETA_1**t), (1 - BETA_2**t) ** -0.5
            online = each(lambda p, m, v: p - rate * m / (jnp.sqrt(v) * root + EPSILON), online, first, second)
            target = each(lambda q, p: (1 - ZETA) * q + ZETA * p, target, online)
            return (online, target, first, second, t), None

        self.jit_steps = jax.jit(lambda state, batches: jax.lax.scan(step, state, batches)[0], donate_argnums=0)
        self.jit_act = jax.jit(forward)

    def step(self):
        self.state = self.jit_steps(self.state, self.batches)

    def act(self):
        return self.jit_act(self.state[0], self.batches[0][0, :1]).block_until_ready()

    def wait(self):
        self.jax.block_until_ready(self.state)

    def parameters(self):
        return list(self.state[0])


PEERS = {"idiomatic torch": Torch, "tuned torch": TunedTorch, "tuned JAX": Jax}
SEEING_PEERS = {"idiomatic torch": SeeingTorch, "tuned torch": SeeingTunedTorch, "tuned JAX": SeeingJax}


def fastest(work, wait, seconds, stretch=0.01):
    """Calls per second in the fastest stretch, as `bqrl bench` counts."""
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        calls, start = 0, time.perf_counter()
        while time.perf_counter() < start + stretch:
            work()
            calls += 1
        wait()
        best = max(best, calls / (time.perf_counter() - start))
    return best


def worker(peer, directory, shape):
    """One peer in a process of its own: says how far from us it arrives, then measures a second at every line it gets."""
    import numpy as np

    sees = shape in SEEING
    side = (SEEING_PEERS if sees else PEERS)[peer](directory, N_ACTIONS[shape])
    per_call = getattr(side, "steps_per_call", 1)
    for _ in range(CHECK_STEPS // per_call):
        side.step()
    # Relative to how far we moved, over all parameters: single ones with tiny gradients wander in Adam by rounding alone.
    flat = lambda parameters: np.concatenate([np.asarray(p, np.float64).ravel() for p in parameters])
    files = "before.safetensors", "after.safetensors"
    before, ours = (flat((read_seeing if sees else read)(directory, name)) for name in files)
    print(np.linalg.norm(flat(side.parameters()) - ours) / np.linalg.norm(ours - before), flush=True)
    side.act()  # Compiles.
    for _ in sys.stdin:
        steps, acts = per_call * fastest(side.step, side.wait, 0.8), fastest(side.act, side.wait, 0.2)
        print(steps, 1e6 / acts, flush=True)


def documented_critic(path, m):
    """The snippet in the documentation of crates/nn, as it stands there."""
    documentation = (Path(__file__).parents[2] / "crates/nn/src/lib.rs").read_text()
    snippet = documentation.split("//! ```python\n")[1].split("//! ```")[0]
    scope = {}
    exec("\n".join(line.removeprefix("//!").removeprefix(" ") for line in snippet.splitlines()), scope)
    return scope["critic"](path, m)


def check_weights(binaries):
    """Trains a little, loads the weights as our documentation tells PyTorch users to, and compares outputs."""
    import torch
    from safetensors import safe_open

    with tempfile.TemporaryDirectory() as directory:
        train = [binaries / "bqrl", "train", "--episodes", "50", "--quiet", "--out", Path(directory) / "run"]
        subprocess.run(train, check=True, stdout=subprocess.DEVNULL)
        path = next(Path(directory).glob("run/**/weights.safetensors"))
        with safe_open(path, "pt") as file:
            sizes = dict(pair.split("=") for pair in file.metadata()["bqrl_nn"].split())
        x = torch.randn(20, int(sizes["n_inputs"]), generator=torch.Generator().manual_seed(1))
        lines = "\n".join(" ".join(map(str, row)) for row in x.tolist())
        ours = subprocess.run([binaries / "examples/forward", path], input=lines, text=True, capture_output=True, check=True)
        ours = torch.tensor([[float(z) for z in line.split()] for line in ours.stdout.splitlines()])
        with torch.no_grad():
            theirs = torch.cat([documented_critic(path, m)(x) for m in range(int(sizes["n_critics"]))], dim=1)
        away = (ours - theirs).abs().max().item()
        print(f"weights.safetensors in PyTorch: {theirs.numel()} outputs, largest difference {away:.1e}")
        assert away < 1e-4, "PyTorch computes something else from our weights"


def asset_selling():
    """The problem of §4.1 for Gymnasium: inputs are the offer one-hot and the stage, 26 numbers."""
    import gymnasium
    import numpy as np

    class AssetSelling(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 1, (26,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def observe(self):
            x = np.zeros(26, np.float32)
            x[self.offer], x[25] = 1, self.stage / 10
            return x

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.offer, self.stage = 5, 0
            return self.observe(), {}

        def step(self, action):
            self.stage += 1
            reward = self.offer / 24 if action == 0 else 0.0
            self.offer = int(self.np_random.integers(25))
            return self.observe(), reward, action == 0 or self.stage == 10, False, {}

    return AssetSelling()


def qr_dqn(steps=2000):
    """Environment steps per second of SB3-contrib's QR-DQN with our preset's network, quantiles and batch."""
    import torch
    from sb3_contrib import QRDQN

    torch.set_num_threads(1)
    agent = QRDQN(
        "MlpPolicy",
        asset_selling(),
        policy_kwargs={"net_arch": [64], "n_quantiles": 8},
        batch_size=24,
        learning_starts=24,
        train_freq=1,
        gradient_steps=1,
        tau=0.01,
        target_update_interval=1,
        gamma=1.0,
        device="cpu",
        seed=1,
    )
    agent.learn(200)
    start = time.perf_counter()
    agent.learn(steps, reset_num_timesteps=False)
    print(steps / (time.perf_counter() - start))


def compare_whole_runs(binaries, rounds, core):
    """`bqrl train asset-selling` (several critics, exact evaluations and records included) and QR-DQN (one network)."""
    ours, theirs = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as directory:
            train = [binaries / "bqrl", "train", "asset-selling", "--algo", "deep-bqrl", "--threads", "1", "--quiet", "--json"]
            train += ["--out", Path(directory) / "run"]
            output = subprocess.run(["taskset", "-c", str(core), *train], check=True, capture_output=True).stdout
        summary = json.loads(output)
        ours.append(summary["env_steps"] / summary["seconds"])
        peer = ["taskset", "-c", str(core), sys.executable, __file__, "--qr-dqn"]
        theirs.append(float(subprocess.run(peer, check=True, stdout=subprocess.PIPE).stdout))
    ours, theirs = statistics.median(ours), statistics.median(theirs)
    print("whole runs on asset selling, one update per environment step, environment steps/s")
    print(f"  bqrl deep-bqrl  {ours:>10.0f}\n  SB3 QR-DQN      {theirs:>10.0f}{ours / theirs:>19.1f}×\n", flush=True)


# One network of two layers of 64, 50 quantiles, batch 64, one update per step, from the hundredth step on at the latest.
CART_POLE = {"batch_size": 64, "seed": 1}
SB3_CART_POLE = {**CART_POLE, "learning_starts": 100, "gamma": 0.99}


def cart_pole_ours(steps=20_000):
    """Steps per second of `bqrl.QRDQN(…).learn` on CartPole-v1, the environment included."""
    import bqrl

    model = bqrl.QRDQN(
        "CartPole-v1", hidden=[64, 64], n_critics=1, n_quantiles=50, updates_per_step=1, **CART_POLE
    )
    model.learn(500)
    start = time.perf_counter()
    model.learn(steps)
    seconds = time.perf_counter() - start
    assert model.num_updates >= 500 + steps - 99, "one update per step"
    print(steps / seconds)


def cart_pole_theirs(steps=2000):
    """The same of SB3-contrib's QR-DQN."""
    import torch
    from sb3_contrib import QRDQN

    torch.set_num_threads(1)
    policy = {"net_arch": [64, 64], "n_quantiles": 50}
    how = {"train_freq": 1, "gradient_steps": 1, "tau": 0.01, "target_update_interval": 1, "device": "cpu"}
    model = QRDQN("MlpPolicy", "CartPole-v1", policy_kwargs=policy, **how, **SB3_CART_POLE)
    model.learn(500)
    start = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    print(steps / (time.perf_counter() - start))


def bridge(steps=200_000):
    """Microseconds a step that `learn` adds to an environment that does nothing and an agent that hardly does more.

    The agent's own share, one forward pass of a network with one hidden unit and the replay's memory, is in it.
    """
    import bqrl
    import gymnasium
    import numpy as np

    class Nothing(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)
        result = np.zeros(4, np.float32), 0.0, False, False, {}

        def reset(self, **_):
            return np.zeros(4, np.float32), {}

        def step(self, action):
            return self.result

    env = Nothing()
    model = bqrl.QRDQN(env, horizon=1000, hidden=[1], n_quantiles=1, updates_per_step=0.0, epsilon=0.0)
    model.learn(1000)
    start = time.perf_counter()
    for _ in range(steps):
        env.step(0)
    alone = time.perf_counter() - start
    start = time.perf_counter()
    model.learn(steps)
    print(1e6 * (time.perf_counter() - start - alone) / steps)


def compare_python(rounds, core):
    """The Python package beside SB3-contrib's QR-DQN on CartPole-v1, and what the bridge costs."""
    sides = {"--cart-pole-ours": [], "--cart-pole-theirs": [], "--bridge": []}
    for _ in range(rounds):
        for side, values in sides.items():
            command = ["taskset", "-c", str(core), sys.executable, __file__, side]
            values.append(float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    ours, theirs, cost = map(statistics.median, sides.values())
    print("CartPole-v1 through Python, equal network, batch and updates, environment steps/s")
    print(f"  bqrl.QRDQN      {ours:>10.0f}\n  SB3 QR-DQN      {theirs:>10.0f}{ours / theirs:>19.1f}×, bar 10")
    print(f"  bridge, a step  {cost:>10.2f} µs, bar 2\n", flush=True)


def compare(shape, binaries, rounds, core):
    """Checks the peers on one shape, then measures all sides in turns. Medians: {side: (steps/s, act µs)}, fraction."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        "JAX_PLATFORMS": "cpu",
    }
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([binaries / "examples/workload", shape, str(CHECK_STEPS), directory], check=True)
        workers, results = {}, {"bqrl": []}
        for peer in PEERS:
            process = subprocess.Popen(
                [sys.executable, __file__, "--worker", peer, directory, shape],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
                preexec_fn=lambda: os.sched_setaffinity(0, {core}),
            )
            answer = process.stdout.readline()
            if answer and float(answer) < TOLERANCE:
                print(f"{shape}: {peer}: {CHECK_STEPS} steps end within {float(answer):.1e} of our way", flush=True)
                workers[peer], results[peer] = process, []
            else:
                process.stdin.close()
                print(f"{shape}: {peer} is left out: {'it arrives elsewhere, ' + answer if answer else 'it failed'}")
        command = ["taskset", "-c", str(core), binaries / "bqrl", "bench", "--shape", shape, "--seconds", "1", "--json"]
        fractions = []
        for _ in range(rounds):
            speed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["shapes"][0]
            results["bqrl"].append((speed["steps_per_second"], speed["act_microseconds"]))
            fractions.append(speed["fraction_of_peak"])
            for peer, process in workers.items():
                process.stdin.write("go\n")
                process.stdin.flush()
                results[peer].append(tuple(map(float, process.stdout.readline().split())))
        for process in workers.values():
            process.stdin.close()
            process.wait()
    median = {side: tuple(map(statistics.median, zip(*values))) for side, values in results.items()}
    return median, statistics.median(fractions)


def verdict(bar, shape, value):
    wanted = BARS[bar].get(shape)
    if wanted is None:
        return f"{bar}: {value:.3g}"
    return f"{bar}: {value:.3g}, bar {wanted}, {'met' if value >= wanted else 'MISSED'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=Path)
    parser.add_argument("--shapes", default="s,m,l,x,g,h")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only-steps", action="store_true", help="no whole runs, and nothing through Python")
    args = parser.parse_args()
    core = max(os.sched_getaffinity(0))
    if not args.only_steps:
        check_weights(args.binaries)
        compare_python(args.rounds, core)
        compare_whole_runs(args.binaries, args.rounds, core)
    for shape in filter(None, args.shapes.split(",")):
        median, fraction = compare(shape, args.binaries, args.rounds, core)
        ours = median["bqrl"][0]
        print(f"\n{shape:<18}{'steps/s':>10}{'act µs':>10}{'bqrl is faster by':>20}")
        for side, (steps, act) in median.items():
            print(f"  {side:<16}{steps:>10.0f}{act:>10.1f}{ours / steps:>19.1f}×")
        if "idiomatic torch" in median:
            print("  " + verdict("idiomatic torch", shape, ours / median["idiomatic torch"][0]))
        tuned = [steps for side, (steps, _) in median.items() if side.startswith("tuned")]
        if tuned:
            print("  " + verdict("best tuned", shape, ours / max(tuned)))
        print("  " + verdict("fraction of peak", shape, fraction) + "\n", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--worker", *arguments]:
            worker(*arguments)
        case ["--qr-dqn"]:
            qr_dqn()
        case ["--cart-pole-ours"]:
            cart_pole_ours()
        case ["--cart-pole-theirs"]:
            cart_pole_theirs()
        case ["--bridge"]:
            bridge()
        case _:
            main()
