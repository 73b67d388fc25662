"""TensorFlow 2's ParameterServerStrategy: the chief coordinates, workers compute, parameters live on the servers."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    print(f"[{resolver.task_type} {resolver.task_id}] serves", flush=True)
    server.join()  # for ever: the job's cleanPodPolicy ends us when the chief is done

partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(num_shards=2)
strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():  # the matrix is split over the servers
    weights = tf.Variable(tf.zeros([8, 4]))

RULE = tf.random.stateless_normal([8, 4], seed=[7, 7])


@tf.function
def step(iterator):
    def on_replica(points):
        with tf.GradientTape() as tape:
            matrix = tf.convert_to_tensor(weights)
            loss = tf.reduce_mean(tf.square(points @ matrix - points @ RULE))
        gradient = tape.gradient(loss, matrix)
        for part, share in zip(weights.variables, tf.split(gradient, len(weights.variables))):
            part.assign_sub(0.2 * share)
        return loss

    return strategy.run(on_replica, args=(next(iterator),))


def dataset():
    return tf.data.Dataset.from_tensor_slices(tf.random.normal([256, 8])).repeat().batch(32)


data = iter(coordinator.create_per_worker_dataset(strategy.distribute_datasets_from_function(lambda _: dataset())))
losses = []
for number in range(8):
    results = [coordinator.schedule(step, args=(data,)) for _ in range(10)]
    coordinator.join()
    losses.append(sum(float(result.fetch()) for result in results) / len(results))
    print(f"[chief] after {10 * (number + 1)} steps loss {losses[-1]:.4f}", flush=True)
print(f"trained on 2 workers: loss {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
if not losses[-1] < 0.5 * losses[0]:
    raise SystemExit("the loss did not fall")
