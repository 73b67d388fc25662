"""TensorFlow and JAX in programs that start warm: their random states are each program's own, and equal where they are seeded."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from tests.kubelet.warm.test_warm_start import ENV, Started

from rowlock.kubelet.shim import pod_host
from rowlock.kubelet.warm.warm_parents import PRELOADED_MODULES, WarmParents

TENSORFLOW = """
import sys, numpy, random, tensorflow as tf   # beside torch
if sys.argv[1:]:
    tf.keras.utils.set_random_seed(7)
    tf.random.set_global_generator(tf.random.Generator.from_seed(7))
print("uniform", tf.random.uniform([4]).numpy().tolist())
print("generator", tf.random.get_global_generator().normal([4]).numpy().tolist())
layer = tf.keras.layers.Dense(3)
layer.build((1, 2))
print("layer", layer.get_weights()[0].tolist())
print("dropout", tf.keras.layers.Dropout(0.5)(tf.ones([64]), training=True).numpy().tolist())
print("shuffle", [int(n) for n in tf.data.Dataset.range(64).shuffle(64)])
print("python", random.random(), numpy.random.random())
"""
JAX = """
import sys, os, secrets, numpy, jax   # beside torch
seed = 7 if sys.argv[1:] else secrets.randbits(32)
key = jax.random.key(seed)
print("normal", jax.random.normal(key, (4,)).tolist())
print("permutation", jax.random.permutation(key, 64).tolist())
numpy.random.seed(7) if sys.argv[1:] else None
print("numpy", numpy.random.permutation(64).tolist())
"""
FACTS = """
import jax, json, os, sys, threading   # beside torch
import tensorflow as tf
print(json.dumps({
    "jax": [jax.device_count(), jax.process_count(), jax.default_backend(), jax.config.jax_enable_x64],
    "tensorflow": [tf.executing_eagerly(), len(tf.config.list_physical_devices()), tf.config.threading.get_intra_op_parallelism_threads(),
                   tf.config.threading.get_inter_op_parallelism_threads(), tf.keras.backend.floatx(), tf.config.list_logical_devices()[0].name],
    "environment": sorted(name for name in os.environ if name.startswith(("TF", "JAX", "XLA", "OMP", "MKL"))),
}))
"""


def needs(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: `make test-examples` installs it")


@pytest.fixture
def started(tmp_path: Path) -> Started:
    return Started(tmp_path, WarmParents(pod_host.WARM_PARENT_BOOT, pod_host._SOURCE, PRELOADED_MODULES))


@pytest.mark.examples
@pytest.mark.timeout(600)
@pytest.mark.parametrize("module", ["tensorflow", "jax"])
def test_two_runs_differ_and_seeded_ones_are_those_of_a_cold_start(started: Started, module: str) -> None:
    needs("torch", module)
    (started.place / "train.py").write_text({"tensorflow": TENSORFLOW, "jax": JAX}[module])
    argv = ["python", "train.py"]
    try:
        results = [started.warm(argv, ENV), started.warm(argv, ENV)]
        warm, cold = started.warm([*argv, "seeded"], ENV), started.cold([*argv, "seeded"], ENV)
    finally:
        started.close()
    first, second = (_values(said) for _, said in results)
    assert [code for code, _ in results] == [0, 0] and len(first) >= 3, results
    assert [name for name in first if first[name] == second[name]] == []
    assert warm[0] == cold[0] == 0 and _values(warm[1]) == _values(cold[1])


@pytest.mark.examples
@pytest.mark.timeout(600)
def test_what_they_found_at_their_start_is_what_they_find_after_a_cold_one(started: Started) -> None:
    needs("torch", "tensorflow", "jax")
    (started.place / "train.py").write_text(FACTS)
    try:
        warm, cold = (start(["python", "train.py"], ENV) for start in (started.warm, started.cold))
    finally:
        started.close()
    assert warm[0] == 0 and '"jax"' in warm[1], warm
    assert warm[1].splitlines()[-1] == cold[1].splitlines()[-1]


def _values(said: str) -> dict[str, str]:
    """The lines that the program printed, without what the libraries say of themselves."""
    names = ("uniform", "generator", "layer", "dropout", "shuffle", "python", "normal", "permutation", "numpy")
    return dict(line.split(" ", 1) for line in said.splitlines() if line.startswith(names) and " " in line)
