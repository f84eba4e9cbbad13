"""Our training step beside the same mathematics in PyTorch and JAX: `cargo xtask bench-peers`.

    bench_peers.py BIN_DIR [--shapes s,m,l] [--rounds 5] [--only-steps]

BIN_DIR holds `bqrl` and the examples `workload` and `forward`, built in release mode. Everything runs on one and the same
core, one side at a time and in turns, about a second each; a figure is the median over the rounds of the fastest short
stretch in each. Before anything is timed, every side starts from the same critics and takes the same fifty steps; a side
that arrives elsewhere is not timed. Whole runs are compared with QR-DQN of SB3-contrib.

The mathematics of a step, and the peers: `dense.py` (shapes s, m, l, x) and `seeing.py` (g, h: QR-DQN on a MinAtar game, batches of 32 and 128).
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

import whole_runs

CHECK_STEPS = 50
TOLERANCE = 1e-3  # of the distance moved; rounding gives up to 2e-4 (JAX, shape l)
N_ACTIONS = {"s": 2, "m": 2, "l": 2, "x": 4, "g": 6, "h": 6}
SEEING = ("g", "h")
PEERS = ("idiomatic torch", "tuned torch", "tuned JAX")

# How many times faster than a peer, and which fraction of the core's peak, we want to be (s, m, l).
BARS = {
    "idiomatic torch": {"s": 40, "m": 25, "l": 10, "g": 9},
    "best tuned": {"s": 5.5, "m": 4, "l": 1.6, "g": 1.9},
    "fraction of peak": {"s": 0.40, "m": 0.52, "l": 0.62, "h": 0.70},
}


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
    # Here only, because the process that measures us needs none of these libraries.
    import dense
    import numpy as np
    import seeing
    import workload

    sees = shape in SEEING
    side = (seeing if sees else dense).PEERS[peer](directory, N_ACTIONS[shape])
    per_call = getattr(side, "steps_per_call", 1)
    for _ in range(CHECK_STEPS // per_call):
        side.step()
    # Relative to how far we moved, over all parameters: single ones with tiny gradients wander in Adam by rounding alone.
    flat = lambda parameters: np.concatenate([np.asarray(p, np.float64).ravel() for p in parameters])
    files = "before.safetensors", "after.safetensors"
    before, ours = (flat((workload.read_seeing if sees else workload.read)(directory, name)) for name in files)
    print(np.linalg.norm(flat(side.parameters()) - ours) / np.linalg.norm(ours - before), flush=True)
    side.act()  # Compiles.
    for _ in sys.stdin:
        steps, acts = per_call * fastest(side.step, side.wait, 0.8), fastest(side.act, side.wait, 0.2)
        print(steps, 1e6 / acts, flush=True)


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
        whole_runs.check_weights(args.binaries)
        whole_runs.compare_python(args.rounds, core)
        whole_runs.compare_whole_runs(args.binaries, args.rounds, core)
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
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:])
    else:
        main()
