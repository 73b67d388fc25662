"""Documents that people send, read without trust: YAML, for the Kubernetes API and for manifests of workloads.

One of the words: it may import only these. Begin with `yaml_reader.py`.
"""
