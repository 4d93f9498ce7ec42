"""smdistributed.modelparallel is not part of this version: importing it fails with a sentence that says what works."""

raise ImportError(
    "smdistributed.modelparallel is not part of this version of Trainshed. Jobs with that distribution run plain torch "
    "scripts: use torch's DistributedDataParallel or FSDP over torch.distributed.init_process_group('gloo'); RANK, "
    "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are set."
)
