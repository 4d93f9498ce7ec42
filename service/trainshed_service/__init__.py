"""The control plane: AWS wire protocols, REST, job life-cycle, scheduling, nodes, logs, and the S3 gateway."""

__version__ = "0.1.0"
