"""Parameter servers and workers, as the TFJob of the notebook has them: 2 PS, 4 workers, no chief.

    dist_mnist.py                    between-graph replication, asynchronous: each worker is a client of its own
    dist_mnist.py --sync             between-graph replication, synchronous: gradients are gathered, then applied once
    dist_mnist.py --in-graph         one client (worker 0) builds one graph with a copy of the model on every worker

Parameters live on the servers. TF_CONFIG says who we are. The data are small pictures that this program draws.
"""

import argparse
import json
import os
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()
SIDE, CLASSES, BATCH = 8, 10, 64


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--in-graph", action="store_true")
    parser.add_argument("--steps", type=int, default=320, help="of all workers together")
    return parser.parse_args()


def pictures(seed, count=2048):
    """Blurred digits: each class is a fixed pattern, each picture that pattern with noise."""
    dice, patterns = np.random.default_rng(seed), np.random.default_rng(0).normal(size=(CLASSES, SIDE * SIDE))
    labels = dice.integers(0, CLASSES, count)
    return (patterns[labels] + dice.normal(scale=1.5, size=(count, SIDE * SIDE))).astype("float32"), labels.astype(
        "int64"
    )


def batches(seed):
    images, labels = pictures(seed)
    dice = np.random.default_rng(seed + 1)
    while True:
        chosen = dice.integers(0, len(labels), BATCH)
        yield images[chosen], labels[chosen]


def variables():
    with v1.variable_scope("model"):
        return (
            v1.get_variable("w1", [SIDE * SIDE, 32], initializer=v1.random_normal_initializer(stddev=0.05, seed=1)),
            v1.get_variable("w2", [32, CLASSES], initializer=v1.random_normal_initializer(stddev=0.05, seed=2)),
        )


def loss_of(parameters, images, labels):
    logits = tf.nn.relu(images @ parameters[0]) @ parameters[1]
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def inputs():
    return v1.placeholder(tf.float32, [None, SIDE * SIDE]), v1.placeholder(tf.int64, [None])


def between_graph(cluster, server, index, options):
    """Every worker builds the same graph, variables on the servers, and trains until the steps are used up."""
    chief, workers = index == 0, cluster.num_tasks("worker")
    with v1.device(v1.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{index}")):
        step = v1.train.get_or_create_global_step()
        images, labels = inputs()
        loss = loss_of(variables(), images, labels)
        optimizer, hooks = v1.train.GradientDescentOptimizer(0.1), []
        if options.sync:
            optimizer = v1.train.SyncReplicasOptimizer(optimizer, workers, workers)
            hooks.append(optimizer.make_session_run_hook(chief, num_tokens=0))
        train = optimizer.minimize(loss, global_step=step)
        with v1.device("/job:ps/task:0"):
            here = v1.get_variable("here", [], tf.int32, initializer=v1.zeros_initializer(), use_resource=True)
            join = here.assign_add(1)
        missing = v1.report_uninitialized_variables(v1.global_variables())
    losses, data = [], batches(10 + index)
    if not chief:  # who finds no variables yet would look again only after 30 seconds
        with v1.Session(server.target) as session:
            while len(session.run(missing)):
                time.sleep(0.1)
    # Together, everybody takes part in every step, so each counts its own; alone, they share the steps. Together also
    # means that nobody begins a step before all have ended the one before: who is quick would take the token of who is
    # slow, whose next gradient is then too old and dropped, and the step it was for waits for ever.
    own = options.steps // workers if options.sync else options.steps
    if not options.sync:
        hooks.append(v1.train.StopAtStepHook(last_step=options.steps))
    with v1.train.MonitoredTrainingSession(
        server.target, is_chief=chief, hooks=hooks, stop_grace_period_secs=1
    ) as session:
        while len(losses) < own and not session.should_stop():
            if options.sync or not losses:  # who comes first would have trained alone
                session.run(join)
                while session.run(here) < workers * (len(losses) + 1):
                    time.sleep(0.005)
            one_images, one_labels = next(data)
            _, value, at = session.run([train, loss, step], {images: one_images, labels: one_labels})
            losses.append(float(value))
            if len(losses) % 10 == 1:
                print(f"[worker {index}] global step {at} loss {value:.4f}", flush=True)
    return losses


def in_graph(cluster, server, options):
    """One graph: the model once on the servers, its computation once per worker, the gradients averaged."""
    workers = cluster.num_tasks("worker")
    with v1.device(v1.train.replica_device_setter(cluster=cluster)):
        parameters, step = variables(), v1.train.get_or_create_global_step()
    fed, losses, gradients = [], [], []
    for index in range(workers):
        with v1.device(f"/job:worker/task:{index}"):
            fed.append(inputs())
            losses.append(loss_of(parameters, *fed[-1]))
            gradients.append(tf.gradients(losses[-1], parameters))
    mean = [tf.add_n(list(column)) / workers for column in zip(*gradients)]
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    train, loss = optimizer.apply_gradients(zip(mean, parameters), global_step=step), tf.add_n(losses) / workers
    data, seen = [batches(10 + index) for index in range(workers)], []
    with v1.train.MonitoredTrainingSession(server.target) as session:
        for number in range(options.steps // workers):
            feed = {place: value for places, source in zip(fed, data) for place, value in zip(places, next(source))}
            seen.append(float(session.run([train, loss], feed)[1]))
            if number % 10 == 0:
                print(f"[client] step {number} on {workers} workers loss {seen[-1]:.4f}", flush=True)
    return seen


def main():
    threading.excepthook = lambda _: None  # the thread that gathers gradients is cut off at the end
    options, told = arguments(), json.loads(os.environ["TF_CONFIG"])
    role, index = told["task"]["type"], told["task"]["index"]
    cluster = tf.train.ClusterSpec({k: v for k, v in told["cluster"].items() if k in ("ps", "worker")})
    server = tf.distribute.Server(cluster, job_name=role, task_index=index, protocol="grpc")
    if role == "ps" or (options.in_graph and index):
        print(f"[{role} {index}] serves", flush=True)
        server.join()  # for ever: whoever trains decides when the job is over
    losses = in_graph(cluster, server, options) if options.in_graph else between_graph(cluster, server, index, options)
    first, last = float(np.mean(losses[:5])), float(np.mean(losses[-5:]))
    print(f"[{role} {index}] trained {len(losses)} steps: loss {first:.4f} to {last:.4f}", flush=True)
    if index == 0 and not last < 0.8 * first:
        raise SystemExit("the loss did not fall")


if __name__ == "__main__":
    main()
