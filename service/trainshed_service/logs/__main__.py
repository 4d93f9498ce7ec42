"""`python -m trainshed_service.logs`: the ingest process. Settings: TRAINSHED_* variables."""

import logging

import uvicorn

from trainshed_service.logs.ingest import create_app
from trainshed_service.settings import Settings


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    settings = Settings.model_validate({})
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.ingest_port,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=10,
    )


if __name__ == "__main__":
    main()
