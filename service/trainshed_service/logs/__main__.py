"""`python -m trainshed_service.logs`: the ingest process. Settings: TRAINSHED_* variables.

Serves until SIGTERM or SIGINT. The databases must have been migrated by the launcher.
"""

import uvicorn

from trainshed_service.logging_setup import configure_logging
from trainshed_service.logs.ingest import create_app
from trainshed_service.settings import Settings


def main() -> None:
    settings = Settings.model_validate({})  # from TRAINSHED_* variables
    configure_logging("ingest")
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.ingest_port,
        loop="uvloop",
        http="httptools",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
    )


if __name__ == "__main__":
    main()
