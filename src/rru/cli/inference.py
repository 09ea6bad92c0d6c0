"""`rru compose`, `rru write`, `rru classify`, `rru export`: use a trained model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rru import inference
from rru.cli.console import fail, line, next_command, next_step, out, plain_errors, shown, warn
from rru.cli.data import Folder
from rru.cli.places import with_run
from rru.data import KEYS, DataError
from rru.inference import score
from rru.inference.export import CARD
from rru.inference.output import check_free, write_files
from rru.report.formatting import counted

BARS = 16

Temperature = Annotated[
    float, typer.Option(help="How adventurous sampling is: below 1 safer and more repetitive, above 1 more surprising.")
]
Seed = Annotated[
    int,
    typer.Option(
        min=0, max=2**63 - 1, metavar="NUMBER", help="Random seed of the sampling. The same seed gives the same output."
    ),
]
TextFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="The text file to write. Default: print the text."),
]


@with_run
def compose(
    folder: Path,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The MIDI file to write. Default: piece-TASK.mid, -2, -3, ..."
        ),
    ] = None,
    bars: Annotated[
        int, typer.Option(min=1, max=512, help="Number of bars (of four quarter notes) to compose.")
    ] = BARS,
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

        rru compose latest
        rru compose latest --bars 32 --temperature 0.9
        rru compose latest --prompt mine.mid -o continued.mid

    Each piece is written as MIDI, as a picture (.png) and as sound (.wav). Without --prompt or --from-test, a piece
    starts from the first chord of a random piece of the test set, chosen by the seed.
    """
    with plain_errors():
        trained = loaded(folder)
        given = score.prompt(trained, prompt, from_test, seed, data_dir, octave=octave)
        for number, place in enumerate(midi_places(trained, output, count, force=force)):
            options = {"temperature": temperature, "voices": voices, "seed": seed + number, "octave": octave}
            compose_piece(trained, given, place, bars, **options)
        next_command("compose", str(folder), "--seed", str(seed + count))


def midi_places(trained: inference.Trained, output: Path | None, count: int = 1, *, force: bool) -> list[Path]:
    """Return the MIDI files to write: as the user named them, else after the task, with names that are free."""
    if output is None:
        return score.unused_places(trained, count, force=force)
    return score.places(output, count, force=force)


def compose_piece(
    trained: inference.Trained, given: score.Prompt, place: Path, bars: int = BARS, **options: Any
) -> None:
    """Compose a piece and write its files; `options` as for `score.continued`."""
    piece = score.continued(trained, given, bars, **options)
    files = ", ".join(map(str, score.write(piece, place)))
    begun = "an opening chord" if len(given.roll) == 1 else counted(len(given.roll), "given step")
    voices = f"{piece.composed.sum(1).mean():.1f} voices on average"
    line(f"{counted(bars, 'bar')} after {begun}, {voices}: {files}")
    for complaint in piece.complaints(options.get("voices")):
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
    output: TextFile = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")] = False,
) -> None:
    """Write text with a model trained on words or characters.

    rru write latest
    rru write latest --prompt "It was" --length 500 --temperature 0.8
    """
    with plain_errors():
        check_text_file(output, force=force)
        sampling = {"temperature": temperature, "top_k": top_k, "seed": seed}
        write_text(loaded(folder), prompt, length, output=output, **sampling)
        next_command("write", str(folder), "--temperature", "0.7", "--seed", str(seed + 1))


def check_text_file(output: Path | None, *, force: bool) -> None:
    """Raise ValueError if the file to write exists, unless `force`."""
    if output is not None and not force:
        check_free([output], "choose another name, or overwrite it with --force")


def write_text(
    trained: inference.Trained, prompt: str, length: int = 200, *, output: Path | None = None, **sampling: Any
) -> None:
    """Print a prompt and its continuation, or write them to a file; `sampling` as for `inference.write`."""
    pieces = inference.write(trained, prompt, length, **sampling)
    assert trained.vocabulary is not None
    if unknown := inference.unknown_tokens(trained.vocabulary, prompt):
        warn(f"not in the vocabulary, read as <unk>: {', '.join(map(repr, unknown))}")
    if output is not None:
        text = prompt + "".join(pieces)
        write_files({output: text.encode()})
        line(f"{counted(len(text), 'character')}: {output}")
        return
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

        rru classify latest review.txt
        rru classify latest new.csv

    If a file cannot be read, an error names it, the others are still classified, and the exit code is 1.
    """
    with plain_errors():
        classify_files(loaded(folder), files)
        next_command("export", str(folder), "-o", "model")


def classify_files(trained: inference.Trained, files: Sequence[Path]) -> None:
    """Print the likeliest classes of what is in files; exit with 1 after the last if one cannot be read."""
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
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="PATH", help="The folder, or for web the page, to create.")
    ],
    file_format: Annotated[
        str,
        typer.Option(
            "--format",
            help="safetensors (for rru), onnx or torch-export (for other runtimes), c (sources), web (a page).",
        ),
    ] = "safetensors",
    int8: Annotated[
        bool, typer.Option("--int8", help="Round the weights to int8: a quarter of the size. For c and web.")
    ] = False,
) -> None:
    """Export a trained model to a folder, with a README, for rru or for other runtimes, or to a web page.

    rru export latest -o model
    rru export latest -o model --format onnx
    rru export latest -o model --format c --int8
    rru export latest -o page.html --format web
    """
    with plain_errors():
        files = inference.export(loaded(folder), output, file_format, int8=int8)
        if file_format == "web":
            line(f"{output}: {output.stat().st_size:,} bytes, with all that it needs")
            next_step(f"open {output} in a browser")
            return
        line(f"{output}: {', '.join(files)}")
        if file_format == "safetensors":
            next_command("use", str(output))
        else:
            next_step(f"read {output / CARD}, whose code runs the model")


def loaded(folder: Path) -> inference.Trained:
    """Load the model; warn if its run has not ended."""
    trained = inference.load(folder)
    if trained.result is None and trained.epoch is not None:
        warn(f"{folder}: the run has not ended; using its best weights so far, after epoch {trained.epoch}")
    return trained
