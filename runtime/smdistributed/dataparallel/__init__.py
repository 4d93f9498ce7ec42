"""smdistributed.dataparallel is not part of this version: importing it fails with a sentence that says what works."""

raise ImportError(
    "smdistributed.dataparallel is not part of this version of Trainshed. Jobs with that distribution run plain "
    "torch DistributedDataParallel: drop this import and call torch.distributed.init_process_group('gloo') (or 'nccl', "
    "which stand-in instances map to gloo); RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are set."
)
