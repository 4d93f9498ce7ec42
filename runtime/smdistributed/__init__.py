"""Import names of SageMaker's distributed libraries; thin over `trainshed_runtime`."""
