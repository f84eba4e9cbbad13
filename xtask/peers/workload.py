"""The examples' files, and the constants of a step: what all sides start from."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

# As crates/nn/src/workload.rs.
TAU, BETA, KAPPA, ZETA, LEARNING_RATE = 0.1, 0.05, 1.0, 0.005, 1e-4
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
PLANES, SMOOTH_KAPPA = (4, 10, 10), 0.02
SEEING_LAYERS = [
    f"critic.0.layer.{l}.{part}"
    for l in range(3)
    for part in ("weight", "bias", "norm.weight", "norm.bias")
    if l < 2 or not part.startswith("norm")
]


def read(directory, name):
    """Weights [M][in][out] and biases [M][1][out] of every layer, in turn, from one of our files."""
    tensors, layers = load_file(Path(directory) / name), []
    n_critics = len(tensors["adam.step"])
    while f"critic.0.layer.{len(layers) // 2}.weight" in tensors:
        stack = lambda part: np.stack([tensors[f"critic.{m}.layer.{len(layers) // 2}.{part}"] for m in range(n_critics)])
        weight, bias = stack("weight"), stack("bias")
        layers += [np.ascontiguousarray(weight.transpose(0, 2, 1)), bias[:, None, :]]
    return layers


def read_seeing(directory, name):
    """W, b, gain and shift of the convolution and of the hidden layer; W and b of the outputs."""
    tensors = load_file(Path(directory) / name)
    return [tensors[layer] for layer in SEEING_LAYERS]


def read_batch(directory):
    batch = load_file(Path(directory) / "batch.safetensors")
    return [batch[name] for name in ("inputs", "actions", "rewards", "next_inputs", "done")]


def constants(k):
    """The score's coefficients w_j/β, Eq. (1), and the levels η_j."""
    j = np.arange(1, k + 1)
    weights = np.maximum(np.minimum(TAU, j / k) - np.maximum(TAU - BETA, (j - 1) / k), 0)
    return (weights / BETA).astype(np.float32), ((j - 0.5) / k).astype(np.float32)
