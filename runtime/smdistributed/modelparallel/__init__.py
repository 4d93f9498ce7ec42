"""SageMaker's model parallel library as scripts know it: sharded data parallelism, by `trainshed_runtime.engine`.

What needs more than one tensor-parallel or pipeline-parallel rank is refused by `smp.init`.
"""

__version__ = "1.15.0"
"""The version of the API that this follows; scripts compare it."""
