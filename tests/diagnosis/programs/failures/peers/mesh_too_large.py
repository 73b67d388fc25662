# /// verdict
# needs = ["torch"]
# who = ["rank 0", "rank 1"]
# says = ["RuntimeError", "Mesh should not be bigger than", "{here}"]
# ///
"""A mesh for four ranks in a job of two."""
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))  # here
