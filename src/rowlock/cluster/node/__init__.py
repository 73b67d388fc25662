"""Pods as processes: kubelet, shims, pod network, images as programs. The embedded cluster's machines."""
