"""The three files below /opt/ml/input/config that every container may rely on, byte by byte.

hyperparameters.json keeps the request's own map and order; the other two have sorted keys. All are compact UTF-8 JSON,
written whole or not at all.
"""

import json
import os
from pathlib import Path
from typing import Any

from trainshed_worker.contract.channels import channels
from trainshed_worker.contract.hyperparameters import raw_hyperparameters
from trainshed_worker.contract.layout import InstanceLayout
from trainshed_worker.protocol import Assignment

FILE_MODE = 0o644


def compact(value: Any, *, sort_keys: bool = True) -> str:
    """Compact JSON as the toolkit writes it into files and SM_* variables."""
    return json.dumps(value, sort_keys=sort_keys, separators=(",", ":"), ensure_ascii=False)


def input_data_config(assignment: Assignment) -> dict[str, dict[str, str]]:
    """inputdataconfig.json: channel → modes; ContentType only where the request has one."""
    config: dict[str, dict[str, str]] = {}
    for channel in channels(assignment):
        entry = {
            "TrainingInputMode": channel.input_mode,
            "S3DistributionType": channel.distribution,
            "RecordWrapperType": channel.record_wrapper,
        }
        if channel.content_type:
            entry["ContentType"] = channel.content_type
        config[channel.name] = entry
    return config


def instance_groups(assignment: Assignment) -> list[dict[str, Any]]:
    """Groups in the order in which their first host stands, hosts of each in lexicographic order."""
    groups: dict[str, dict[str, Any]] = {}
    for host in sorted(assignment.hosts, key=lambda h: h.rank):
        group = groups.setdefault(
            host.instance_group,
            {"instance_group_name": host.instance_group, "instance_type": host.instance_type, "hosts": []},
        )
        group["hosts"].append(host.name)
    for group in groups.values():
        group["hosts"].sort()
    return list(groups.values())


def resource_config(assignment: Assignment, network_interface: str) -> dict[str, Any]:
    """resourceconfig.json; `hosts` is in lexicographic order (algo-1, algo-10, algo-2), as on SageMaker."""
    return {
        "current_host": assignment.host.name,
        "current_instance_type": assignment.host.instance_type,
        "current_group_name": assignment.host.instance_group,
        "hosts": sorted(host.name for host in assignment.hosts),
        "instance_groups": instance_groups(assignment),
        "network_interface_name": network_interface,
    }


def config_files(assignment: Assignment, network_interface: str) -> dict[str, bytes]:
    """Names and exact contents of all files below /opt/ml/input/config."""
    return {
        "hyperparameters.json": compact(raw_hyperparameters(assignment.request), sort_keys=False).encode(),
        "inputdataconfig.json": compact(input_data_config(assignment)).encode(),
        "resourceconfig.json": compact(resource_config(assignment, network_interface)).encode(),
    }


def write_config_files(assignment: Assignment, layout: InstanceLayout, network_interface: str) -> None:
    """Write all of them below `layout.config`. Must run before any process of the instance starts."""
    layout.config.mkdir(parents=True, exist_ok=True)
    for name, content in config_files(assignment, network_interface).items():
        _write_whole(layout.config / name, content)


def _write_whole(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(content)
    temporary.chmod(FILE_MODE)
    os.replace(temporary, path)
