"""What clients must know of an installation: shell lines, the SageMaker SDKs' config file, and the default bucket."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

import yaml

from trainshed_service.embedded.home import Home, HomeConfig, write_private
from trainshed_service.embedded.plan import local_hosts_without_proxy

# Each would win over what is exported, or send a client elsewhere. Endpoint variables of single services win over the
# general one; so do a profile, a session token, and a role to assume.
_UNSET = (
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_CREDENTIAL_EXPIRATION",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_USE_FIPS_ENDPOINT",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_STS_REGIONAL_ENDPOINTS",
    "AWS_ENDPOINT_URL_SAGEMAKER",
    "AWS_ENDPOINT_URL_CLOUDWATCH",
    "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS",
    "AWS_ENDPOINT_URL_STS",
    "AWS_ENDPOINT_URL_IAM",
    "SAGEMAKER_ADMIN_CONFIG_OVERRIDE",
)


def exported(home: Home, config: HomeConfig, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables by which every AWS client on this machine talks to the installation."""
    without_proxy = local_hosts_without_proxy(os.environ if environment is None else environment)
    return {
        "AWS_ENDPOINT_URL": config.main_url,
        "AWS_ENDPOINT_URL_S3": config.gateway_url,
        "AWS_ACCESS_KEY_ID": config.access_key_id,
        "AWS_SECRET_ACCESS_KEY": config.secret_access_key,
        "AWS_REGION": config.region,
        "AWS_DEFAULT_REGION": config.region,
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAGEMAKER_ROLE": config.role_arn,
        "SAGEMAKER_USER_CONFIG_OVERRIDE": str(home.sdk_config_path),
        "TRAINSHED_HOME": str(home.folder),
        "TRAINSHED_TOKEN": config.token,
        "NO_PROXY": without_proxy,
        "no_proxy": without_proxy,
    }


def shell_lines(home: Home, config: HomeConfig, environment: Mapping[str, str] | None = None) -> str:
    """Lines for `eval "$(trainshed env)"` in any POSIX shell."""
    lines = [f"unset {' '.join(_UNSET)}"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in exported(home, config, environment).items()]
    return "\n".join(lines) + "\n"


def write_sdk_config(home: Home, config: HomeConfig) -> None:
    """Defaults of the SageMaker SDKs (v2 and v3 read the same schema): the bucket, and no telemetry to AWS."""
    content = {
        "SchemaVersion": "1.0",
        "SageMaker": {
            "PythonSDK": {"Modules": {"Session": {"DefaultS3Bucket": config.default_bucket}, "TelemetryOptOut": True}}
        },
    }
    write_private(home.sdk_config_path, yaml.safe_dump(content, sort_keys=False))


def user_lines(config: HomeConfig, access_key_id: str, secret_access_key: str, role_arn: str) -> str:
    """Lines for the shell of another user: the same installation with that user's key, and nothing of the home, which
    is not theirs to read."""
    without_proxy = local_hosts_without_proxy(os.environ)
    variables = {
        "AWS_ENDPOINT_URL": config.main_url,
        "AWS_ENDPOINT_URL_S3": config.gateway_url,
        "AWS_ACCESS_KEY_ID": access_key_id,
        "AWS_SECRET_ACCESS_KEY": secret_access_key,
        "AWS_REGION": config.region,
        "AWS_DEFAULT_REGION": config.region,
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAGEMAKER_ROLE": role_arn,
        "NO_PROXY": without_proxy,
        "no_proxy": without_proxy,
    }
    lines = [f"unset {' '.join((*_UNSET, 'SAGEMAKER_USER_CONFIG_OVERRIDE', 'TRAINSHED_TOKEN'))}"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join(lines) + "\n"
