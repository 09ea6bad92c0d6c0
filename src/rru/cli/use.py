"""`rru use`: use a trained model in the way that its kind of data calls for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rru import inference
from rru.cli.console import next_command, plain_errors
from rru.cli.forecast import forecast_series
from rru.cli.inference import check_text_file, classify_files, compose_piece, loaded, midi_places, write_text
from rru.cli.places import with_run
from rru.inference import score
from rru.kinds import kind_of


@with_run
def use(
    folder: Path,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="A text or a MIDI file to continue, a table to forecast (default: the one trained on), or files to "
            "classify.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file to write: .mid for music, .csv for forecasts, or a text."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="NUMBER", help="Random seed of texts and music.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Use a trained model: write text, compose music, forecast or classify, whichever it has learnt.

        rru use latest
        rru use latest "Once upon a time"
        rru use latest new.csv

    `rru write`, `compose`, `forecast` and `classify` do the same with more options.
    """
    with plain_errors():
        trained = loaded(folder)
        command = kind_of(trained.kind).commands[0]
        given = inputs or []
        if command == "classify":
            _check_given(given, output, folder)
            classify_files(trained, [Path(name) for name in given])
        elif command == "forecast":
            data = _only(given, "a table")
            forecast_series(trained, Path(data) if data else None, output, force=force)
        elif command == "compose":
            _compose(trained, _only(given, "a MIDI file"), output, seed, force=force)
        elif command == "write":
            check_text_file(output, force=force)
            write_text(trained, _only(given, "a text") or "", seed=seed, output=output)
        else:
            raise ValueError(f"{folder}: a model of {trained.kind} is for `rru {command}`")
        next_command(command, str(folder), "--help")


def _compose(trained: inference.Trained, prompt: str | None, output: Path | None, seed: int, *, force: bool) -> None:
    given = score.prompt(trained, Path(prompt) if prompt else None, None, seed)
    (place,) = midi_places(trained, output, force=force)
    compose_piece(trained, given, place, seed=seed)


def _only(given: Sequence[str], what: str) -> str | None:
    """Return the only input, None if there is none; raise ValueError if there are more."""
    if len(given) > 1:
        raise ValueError(f"INPUT must be {what} for this run, got {len(given)}: {', '.join(given)}")
    return given[0] if given else None


def _check_given(given: Sequence[str], output: Path | None, folder: Path) -> None:
    if output is not None:
        raise ValueError(f"--output is not for {folder}, a run that classifies: it prints its answers")
    if not given:
        raise ValueError(f"INPUT must be files to classify, since {folder} is a run that classifies; got none")
