"""Files and folders are whole or not there, and read only as they were written."""

import os

import pytest

from rru.files import FileError, unfinished_folder, write_file, write_folder
from rru.inference.output import write_files


def test_file_is_flushed_before_its_rename(tmp_path, monkeypatch):
    happened = []
    replace = type(tmp_path).replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: happened.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    monkeypatch.setattr(type(tmp_path), "replace", lambda self, to: (happened.append("named"), replace(self, to))[1])
    write_file(tmp_path / "result.json", b"{}")
    assert [os.path.basename(entry).split("-")[0] for entry in happened] == [".unfinished", "named", tmp_path.name]


def test_unfinished_folder_is_removed(tmp_path):
    with unfinished_folder(tmp_path / "folder") as folder:
        (folder / "half").write_bytes(b"x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [write_file, lambda path, content: write_folder(path, {"name": content})])
def test_write_error_names_path_and_reason(write, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileError, match=r"file/new: could not be written \(Not a directory\); the previous content"):
        write(tmp_path / "file" / "new", b"content")
    with pytest.raises(FileError, match=r"file/more: could not be written"):
        write_files({tmp_path / "file" / "more" / "new": b"content"})
