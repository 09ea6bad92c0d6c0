"""`rru compose`, `rru write`, `rru classify`, `rru export`: use a trained model."""

from pathlib import Path
from typing import Annotated

import typer

from rru import inference
from rru.cli.console import fail, line, out, plain_errors, shown, warn
from rru.cli.data import Folder
from rru.cli.places import with_run
from rru.data import KEYS, DataError
from rru.inference import score

Temperature = Annotated[
    float, typer.Option(help="How adventurous sampling is: below 1 safer and more repetitive, above 1 more surprising.")
]
Seed = Annotated[
    int, typer.Option(min=0, max=2**63 - 1, help="Random seed of the sampling. The same seed gives the same output.")
]


@with_run
def compose(
    folder: Path,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The MIDI file to write.")] = Path(
        "chorale.mid"
    ),
    bars: Annotated[int, typer.Option(min=1, max=512, help="Number of bars (of four quarter notes) to compose.")] = 16,
    prompt: Annotated[Path | None, typer.Option(metavar="FILE", help="A MIDI file to continue.")] = None,
    from_test: Annotated[
        int | None,
        typer.Option(min=0, metavar="NUMBER", help="Continue the first two bars of this piece of the test set."),
    ] = None,
    temperature: Temperature = 1.0,
    voices: Annotated[
        int | None,
        typer.Option(min=1, max=KEYS, metavar="NUMBER", help="Number of voices. Default: as the model has learnt."),
    ] = None,
    octave: Annotated[
        int,
        typer.Option(min=-7, max=7, help="Octaves to move the piece by. Models of jsb play an octave high: give -1."),
    ] = 0,
    seed: Seed = 0,
    count: Annotated[
        int, typer.Option(min=1, max=100, help="Number of pieces. Each has the next seed and its own file.")
    ] = 1,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
    data_dir: Folder = None,
) -> None:
    """Compose music with a model trained on music.

    Each piece is written as MIDI, as a picture (.png) and as sound (.wav). Without --prompt or --from-test, a piece
    starts from an opening chord.
    """
    with plain_errors():
        trained = loaded(folder)
        given = score.prompt(trained, prompt, from_test, seed, data_dir, octave=octave)
        for number, place in enumerate(score.places(output, count, force=force)):
            piece = score.continued(
                trained, given, bars, temperature=temperature, voices=voices, seed=seed + number, octave=octave
            )
            files = ", ".join(map(str, score.write(piece, place)))
            line(f"{bars} bars after {len(given.roll)} given steps, {piece.composed.sum(1).mean():.1f} voices: {files}")
            for complaint in piece.complaints(voices):
                warn(f"  {place}: {complaint}; try another seed or a higher temperature")


@with_run
def write(
    folder: Path,
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="The text to continue.")] = "",
    length: Annotated[int, typer.Option(min=1, help="Number of words, characters or bytes to write.")] = 200,
    temperature: Temperature = 1.0,
    top_k: Annotated[
        int | None,
        typer.Option(min=1, metavar="K", help="Sample only from the K most likely next tokens. Default: from all."),
    ] = None,
    seed: Seed = 0,
) -> None:
    """Write text with a model trained on words or characters."""
    with plain_errors():
        trained = loaded(folder)
        pieces = inference.write(trained, prompt, length, temperature=temperature, top_k=top_k, seed=seed)
        assert trained.vocabulary is not None
        if unknown := inference.unknown_tokens(trained.vocabulary, prompt):
            warn(f"not in the vocabulary, read as <unk>: {', '.join(map(repr, unknown))}")
        out.print(shown(prompt), end="", markup=False, soft_wrap=True)
        for piece in pieces:
            out.print(shown(piece), end="", markup=False, soft_wrap=True)
        line("")


@with_run
def classify(
    folder: Path,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Text files, tables, or pictures of digits (MNIST).")
    ],
) -> None:
    """Classify texts, sequences in tables, or pictures of digits (MNIST), with probabilities.

    If a file cannot be read, an error names it, the others are still classified, and the exit code is 1.
    """
    with plain_errors():
        trained = loaded(folder)
        trained.check_command("classify")
        failed = False
        for file in files:
            try:
                classified = inference.classify_all(trained, file)
            except (DataError, OSError) as error:
                failed = True
                fail(str(error))
                continue
            for item, chances in classified.items():
                likely = ", ".join(f"{name} {chance:.1%}" for name, chance in list(chances.items())[:3])
                line(f"{file}{', ' * bool(item)}{item}: {likely}")
        if failed:
            raise typer.Exit(1)


@with_run
def export(
    folder: Path,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to create.")],
    file_format: Annotated[
        str, typer.Option("--format", help="safetensors (for rru), onnx or torch-export (for other runtimes).")
    ] = "safetensors",
) -> None:
    """Export a trained model to a folder, with a README, for rru or for other runtimes."""
    with plain_errors():
        files = inference.export(loaded(folder), output, file_format)
        line(f"{output}: {', '.join(files)}")


def loaded(folder: Path) -> inference.Trained:
    """Load the model; warn if its run has not ended."""
    trained = inference.load(folder)
    if trained.result is None and trained.epoch is not None:
        warn(f"{folder}: the run has not ended; using its best weights so far, after epoch {trained.epoch}")
    return trained
