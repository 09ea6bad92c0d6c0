"""`rru verify`: compare every path that a trained model can take."""

from pathlib import Path
from typing import Annotated

import typer

from rru.cli.console import line, plain_errors
from rru.cli.places import ROOT, named_run, with_run
from rru.inference.verifying import verify_folder


@with_run
def verify(
    folder: Path,
    made_from: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="For an export to other runtimes: the run that it was made from."),
    ] = None,
) -> None:
    """Check that every path a model can take gives the same results: native, compiled, exported, ONNX, int8 and more.

        rru verify latest
        rru verify model --made-from latest

    Print a table; a path that cannot run here says why. The exit code is 1 if any path gives different results, or none
    can run.
    """
    with plain_errors():
        report = verify_folder(folder, None if made_from is None else named_run(made_from, ROOT))
        for text in repr(report).splitlines():
            line(text)
        if not report.ok:
            raise typer.Exit(1)
