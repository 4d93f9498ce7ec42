"""SageMaker's distributed data parallel library, as scripts import it; the work is in `trainshed_runtime.smddp`."""

__version__ = "2.0.0"
