"""All settings of the service, each with its meaning, unit and default. Environment variables: TRAINSHED_<NAME>.

What is secret may be in a file `trainshed_<name>` of the folder $TRAINSHED_SECRETS_DIR instead; a variable wins.
"""

import os
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SecretsSettingsSource, SettingsConfigDict


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="TRAINSHED_", extra="ignore")

    home: Path = Field(description="folder that holds all state of this installation")
    host: str = Field(default="127.0.0.1", description="address that the public ports listen on")
    port: int = Field(default=0, description="main port (AWS APIs, REST, agent protocol); 0: the launcher picks one")
    gateway_port: int = Field(default=0, description="port of the S3 gateway")
    ingest_port: int = Field(default=0, description="port of the log and metric ingest")
    public_url: str | None = Field(
        default=None, description="how clients reach the main port; default http://host:port"
    )
    gateway_url: str | None = Field(default=None, description="how clients and jobs reach the gateway")
    ingest_url: str | None = Field(default=None, description="how agents reach the ingest")
    database_url: str | None = Field(default=None, description="SQLAlchemy URL; default: SQLite in the home")
    logs_database_url: str | None = Field(
        default=None, description="where log lines and metrics are; default: a SQLite file of their own in the home"
    )
    store_endpoint: str = Field(default="", description="the S3 that the gateway stands before")
    store_access_key: str = ""
    store_secret_key: str = ""
    enrollment_token: str = Field(
        default="", repr=False, description="what an agent shows to join; default: made up at the first start"
    )
    sse_mode: str = Field(default="aes", description="aes: stored encrypted (AES256); strip: SSE headers are dropped")
    account_id: str = Field(default="000000000000", pattern=r"^\d{12}$")
    region: str = "us-east-1"
    lease_seconds: float = Field(default=120.0, description="a node that was silent for so long is lost")
    roles: Literal["open", "known"] = Field(
        default="known",
        description="known: a job may name only roles that exist; open: a role exists once a request names it, "
        "so that specs with the role of a SageMaker account run as they are",
    )
    job_visibility: Literal["own", "all"] = Field(
        default="own",
        description="own: a user sees and changes its own jobs; all: every user sees all jobs (and changes its own)",
    )
    strict_members: bool = Field(default=False, description="refuse unknown request members over the AWS wire too")
    stand_in_accelerators: int = Field(default=2, description="SM_NUM_GPUS of a type whose accelerators are absent")
    dispatch_deadline_seconds: float = Field(default=600.0, description="an attempt not running by then has failed")
    max_dispatch_attempts: int = Field(default=3, description="starts of one attempt that nodes may reject")
    max_keep_alive_seconds: int = Field(default=3600, description="the longest keep-alive period of warm pools")
    pool_coming_seconds: float = Field(
        default=5.0,
        ge=0,
        description="a job waits for a matching warm pool that is still being emptied, rather than start elsewhere",
    )
    max_cluster_life_seconds: float = Field(
        default=28 * 86400.0, description="instances are given back when jobs have held them for so long in a row"
    )
    pool_warning_seconds: float = Field(
        default=300.0,
        ge=0,
        description="the end of a warm pool is told so long before, at half of a shorter period; 0: not at all",
    )
    notify_private_addresses: bool = Field(
        default=False,
        description="notification targets of ordinary users may be at loopback, link-local and private addresses",
    )
    notify_lease_seconds: float = Field(
        default=15.0, gt=0, description="another API process delivers notifications when one was silent for so long"
    )
    stop_grace_seconds: float = Field(default=120.0, description="between SIGTERM and SIGKILL")
    upload_deadline_seconds: float = Field(default=3600.0, description="for the artifacts after the processes ended")
    usage_half_life_seconds: float = Field(
        default=7 * 86400.0, gt=0, description="fair shares: what a user has used counts half as much after so long"
    )
    reclaim_warm_after_seconds: float = Field(
        default=60.0,
        description="a job waited so long: warm pools that none matches are ended for it; below 0: never",
    )
    scheduler_inputs_megabytes: int = Field(
        default=32, ge=0, description="the planner's inputs are recorded in the home up to this size; 0: not at all"
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        folder = os.environ.get("TRAINSHED_SECRETS_DIR")
        files = (SecretsSettingsSource(settings_cls, secrets_dir=folder),) if folder else ()
        return (init_settings, env_settings, *files)

    @property
    def resolved_database_url(self) -> str:
        return self.database_url or f"sqlite:///{self.home / 'trainshed.sqlite3'}"

    @property
    def resolved_logs_database_url(self) -> str:
        if self.logs_database_url:
            return self.logs_database_url
        return self.database_url or f"sqlite:///{self.home / 'logs.sqlite3'}"

    @property
    def resolved_public_url(self) -> str:
        return self.public_url or f"http://{self.host}:{self.port}"

    @property
    def resolved_gateway_url(self) -> str:
        return self.gateway_url or f"http://{self.host}:{self.gateway_port}"

    @property
    def resolved_ingest_url(self) -> str:
        return self.ingest_url or f"http://{self.host}:{self.ingest_port}"
