"""The evidence for `diagnosis` on this machine: failures of ranks, their processes, stack dumps, hang detection.

May import: `diagnosis`, `kubelet`, the words. Begin with `diagnostics.py`, then `hang_detector.py`.
"""
