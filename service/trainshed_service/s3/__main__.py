"""`python -m trainshed_service.s3`: the S3 gateway process."""

import sys

from trainshed_service.s3.server import main

if __name__ == "__main__":
    sys.exit(main())
