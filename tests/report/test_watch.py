"""The page is kept fresh while runs go on."""

import pytest

from rru import report
from rru.training import RunError
from tests.report.samples import preset, write_run


@pytest.fixture
def watch(tmp_path):
    """Watch a folder while some steps happen, one after each look; return what was told."""

    def watch(*steps):
        told, left = [], [*steps]

        def stop():
            if left:
                left.pop(0)()
                return False
            return True

        report.keep_writing(
            [tmp_path / "runs"], report.ReportFiles(tmp_path / "page.html"), every=0, stop=stop, tell=told.append
        )
        return told

    return watch


def test_page_is_written_only_after_a_change(tmp_path, watch):
    page, seen = tmp_path / "page.html", []

    def look():
        seen.append((page.stat().st_ino, "7.8000" in page.read_text()))

    write_run(tmp_path / "runs", preset(cell="gru"), 8.5)
    told = watch(look, look, lambda: write_run(tmp_path / "runs", preset(), 7.8), look)
    assert [summary.statuses for summary in told] == [{"finished": 1}, {"finished": 2}]
    assert seen[0] == seen[1]
    assert seen[1] != seen[2]  # another file took its place, whole
    assert seen[2][1]


def test_progress_of_a_run_is_a_change(tmp_path, watch):
    folder = write_run(tmp_path / "runs", preset(), None)

    def another_epoch():
        with (folder / "metrics.jsonl").open("a") as file:
            file.write('{"kind": "epoch", "epoch": 6, "validation": {"nll": 7.5}}\n')

    assert len(watch(another_epoch)) == 2


def test_it_waits_for_the_first_run(tmp_path, watch):
    told = watch(lambda: None, lambda: write_run(tmp_path / "runs", preset(), 7.8))
    assert isinstance(told[0], RunError)
    assert [type(event) for event in told[1:]] == [report.Summary]


def test_last_page_does_not_reload(tmp_path, watch):
    kept = []
    write_run(tmp_path / "runs", preset(), 7.8)
    watch(lambda: kept.append((tmp_path / "page.html").read_text()))
    assert "data-every" in kept[0]
    assert "data-every" not in (tmp_path / "page.html").read_text()


def test_static_page_does_not_reload(tmp_path):
    write_run(tmp_path / "runs", preset(), 7.8)
    report.write([tmp_path / "runs"], tmp_path / "page.html")
    assert "data-every" not in (tmp_path / "page.html").read_text()
