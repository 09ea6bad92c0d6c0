"""TensorBoard's events say what metrics.jsonl says."""

import struct

import pytest
from tensorboard.compat.proto.event_pb2 import Event

from rru.training import Run, Stepped, tensorboard
from tests.training.toy import train_in


def records(path):
    """The events of a file: length, its checksum, content, its checksum."""
    content = path.read_bytes()
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        yield Event.FromString(content[12 : 12 + length])
        content = content[16 + length :]


def scalars(folder):
    """The last value of every scalar and step; what a later event takes back is gone."""
    found = {}
    for path in sorted((folder / "tensorboard").iterdir(), key=lambda path: path.stat().st_mtime_ns):
        for event in records(path):
            if event.session_log.status == event.session_log.START:
                found = {key: value for key, value in found.items() if key[1] < event.step}
            for value in event.summary.value:
                found[value.tag, event.step] = (
                    value.tensor.float_val[0] if value.tensor.float_val else value.simple_value
                )
    return found


def test_losses_and_scores(tmp_path):
    result = train_in(tmp_path / "run", watch=tensorboard(tmp_path / "run", lambda event: None))
    found = scalars(tmp_path / "run")
    assert sorted(step for tag, step in found if tag == "loss/train") == list(range(1, 29))
    epochs = [line for line in Run(tmp_path / "run").metrics() if line["kind"] == "epoch"]
    for epoch in epochs[1:]:
        assert found["error/validation", epoch["step"]] == pytest.approx(epoch["validation"]["error"])
    assert found["error/test", 28] == pytest.approx(result.test["error"])


def test_resumed_run_drops_events_after_its_checkpoint(tmp_path):
    def fail(event):
        if isinstance(event, Stepped) and event.step == 11:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train_in(tmp_path / "run", watch=tensorboard(tmp_path / "run", fail))
    train_in(tmp_path / "run", watch=tensorboard(tmp_path / "run", lambda event: None))
    found = scalars(tmp_path / "run")
    train_in(tmp_path / "whole", watch=tensorboard(tmp_path / "whole", lambda event: None))
    assert found == scalars(tmp_path / "whole")
