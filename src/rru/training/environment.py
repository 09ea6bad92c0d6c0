"""Record the software and hardware of a run."""

import functools
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
import torch.distributed as dist

_PACKAGES = ("rru", "torch", "numpy", "safetensors")


def environment() -> dict[str, object]:
    """Return versions, processor, threads, processes, and the git commit if the code runs from a checkout."""
    return {
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "system": platform.platform(),
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1,
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        **_commit(Path(__file__).resolve()),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@functools.cache
def _commit(file: Path) -> dict[str, object]:
    """Return the commit and whether tracked files were changed; None for both if git does not track this file."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(file.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", file.name)
        return {"commit": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain", "-uno"))}
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "changed": None}
