"""REST and server-sent events over the same services as the AWS wire: `create_rest_app(services)`."""

from trainshed_service.rest.app import create_rest_app
from trainshed_service.rest.resources import read_nodes

__all__ = ["create_rest_app", "read_nodes"]
