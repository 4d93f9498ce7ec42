"""Makes the bucket that the SageMaker SDKs take where nobody names one, through the gateway as any client would.

A process of its own (`plan.DEFAULT_BUCKET`), once the gateway answers. Running it again changes nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from trainshed_service.embedded.aws_client import aws_client
from trainshed_service.embedded.home import Home


def main() -> int:
    """The home is the only argument."""
    config = Home(Path(sys.argv[1])).read()
    client = aws_client(config, "s3")
    try:
        names = [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]
        if config.default_bucket not in names:
            client.create_bucket(Bucket=config.default_bucket)
    except (ClientError, BotoCoreError) as error:
        print(f"the default bucket {config.default_bucket} cannot be made: {error}", file=sys.stderr)
        return 1
    finally:
        client.close()
    return 0
