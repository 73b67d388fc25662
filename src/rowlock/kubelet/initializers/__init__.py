"""What stands for Kubeflow Trainer's initializers, which fetch data and models before a TrainJob trains (`initializer.py`).

It runs inside pods and imports the standard library only, and `huggingface_hub` where that is asked for.
"""
