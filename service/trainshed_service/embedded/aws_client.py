"""boto3 clients of this installation that do not depend on the AWS settings of whoever runs the command."""

from __future__ import annotations

import os
from typing import Any

from trainshed_service.embedded.home import HomeConfig


def aws_client(config: HomeConfig, service: str, *, retries: int = 3, timeout: float = 60.0) -> Any:
    """A client with the home's admin key, never through a proxy. `timeout`: seconds for each answer.

    A profile that does not exist would already stop boto3, so this process forgets the AWS_* variables and files.
    """
    import boto3  # here: it takes long, and most commands need none
    from botocore.config import Config

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ |= {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    session: Any = boto3.Session(
        aws_access_key_id=config.access_key_id,
        aws_secret_access_key=config.secret_access_key,
        region_name=config.region,
    )
    endpoint = config.gateway_url if service == "s3" else config.main_url
    settings = Config(
        proxies={},
        connect_timeout=min(timeout, 10.0),
        read_timeout=timeout,
        retries={"mode": "standard", "total_max_attempts": retries + 1},
    )
    return session.client(service, endpoint_url=endpoint, config=settings)
