"""REST and server-sent events over the same services as the AWS wire: `create_rest_app(services)`."""

from trainshed_service.rest.app import create_rest_app

__all__ = ["create_rest_app"]
