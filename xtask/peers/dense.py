"""The step of Deep-BQRL's critics in PyTorch and JAX.

One step, for all five critics: target forward at x', sort, buffered score, argmax, targets, K×K quantile Huber loss
divided by κ, mean over batch and both axes, backward, Adam, soft update.
"""

from workload import BETA_1, BETA_2, EPSILON, KAPPA, LEARNING_RATE, ZETA, constants, read, read_batch


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


PEERS = {"idiomatic torch": Torch, "tuned torch": TunedTorch, "tuned JAX": Jax}
