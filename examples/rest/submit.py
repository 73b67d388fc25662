"""Submit a distributed training with Run:ai's Python client (`pip install runapy==1.224.0`); see docs/rest.md."""

import json
import os

from runai import api, models
from runai.api_client import ApiClient
from runai.configuration import Configuration

with open("application.json") as file:
    application = json.load(file)
client = ApiClient(
    Configuration(
        client_id=application["clientId"],
        client_secret=application["clientSecret"],
        runai_base_url=os.environ["URL"],
        ssl_ca_cert=os.environ["D"] + "/ca.crt",
    )
)
project = api.ProjectsApi(client).get_projects().data["projects"][0]
spec = models.DistributedSpecSpec(
    image="pytorch-dist-mnist",
    command="sh -c 'echo rank $RANK'",
    num_workers=2,
    distributed_framework="PyTorch",
    compute=models.SupersetSpecAllOfCompute(gpu_devices_request=1, gpu_request_type="portion", gpu_portion_request=0.1),
)
request = models.DistributedCreationRequest(
    name="dist-train1", project_id=project["id"], cluster_id=project["clusterId"], spec=spec
)
made = api.DistributedApi(client).create_distributed(request)
print(made.status_code, made.data["actualPhase"])
