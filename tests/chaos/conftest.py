from tests.support.fixtures import job_name

__all__ = ["job_name"]
