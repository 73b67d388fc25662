"""What pods use: CPU, memory, disk and network from `/proc`, GPUs through NVML, every few seconds, on a thread of their own.

May import `pod`, `shim`, `node`. Begin with `usage_sampler.py`.
"""
