"""The step of QR-DQN on a MinAtar game in PyTorch and JAX.

One critic with a convolution and a hidden layer, both normalised; the next action by the mean; the smoothed quantile loss. The
order of the quantiles does not matter, so the tuned sides do not sort.
"""

import numpy as np
from workload import (
    BETA_1,
    BETA_2,
    EPSILON,
    LEARNING_RATE,
    PLANES,
    SMOOTH_KAPPA,
    ZETA,
    read_batch,
    read_seeing,
)


class Torch:
    """QR-DQN on planes as one would write it: conv2d, layer_norm, autograd, fused Adam."""

    steps_per_call = 1

    def __init__(self, directory, n_actions):
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


class TunedTorch(Torch):
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


class Jax:
    """JAX: im2col (XLA's own convolution is slower), the loss's gradient by hand, ten steps in one `scan`."""

    steps_per_call = 10

    def __init__(self, directory, n_actions):
        import jax
        import jax.numpy as jnp

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
