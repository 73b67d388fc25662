"""What runs containers: the pod host (processes: its client, their facts), the container engine, image pulls, registries.

May import `pod`, `images`, `network`, `shim`. Begin with `pod_host_client.py`, then `container_runtime.py`.
"""
