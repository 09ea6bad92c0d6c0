"""`rru compose`, `rru write`, `rru classify`, `rru export`: what trained models are for."""

from pathlib import Path
from typing import Annotated

import typer

from rru import generate
from rru.cli.console import err, line, out, plain_errors, shown
from rru.cli.data import Folder
from rru.cli.train import RunPlace
from rru.generate import score

Temperature = Annotated[float, typer.Option(help="Below 1 the likely becomes likelier, above 1 the unlikely.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of what is drawn.")]


def compose(
    folder: RunPlace,
    output: Annotated[Path, typer.Option("--output", "-o", help="The MIDI file.")] = Path("chorale.mid"),
    bars: Annotated[int, typer.Option(min=1, max=512, help="How many bars of four quarter notes to compose.")] = 16,
    prompt: Annotated[Path | None, typer.Option(help="A MIDI file to go on from.")] = None,
    from_test: Annotated[
        int | None, typer.Option(min=0, help="Go on from the first two bars of this piece of the test set.")
    ] = None,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
    count: Annotated[int, typer.Option(min=1, max=100, help="How many pieces, with one seed after another.")] = 1,
    force: Annotated[bool, typer.Option("--force", help="Also replace files that are there already.")] = False,
    data_dir: Folder = None,
) -> None:
    """Compose music with a run: a MIDI file, a picture and a sound file of each piece."""
    with plain_errors():
        trained = _load(folder)
        given = score.prompt(trained, prompt, from_test, seed, data_dir)
        for number, place in enumerate(score.places(output, count, force=force)):
            piece = generate.compose(
                trained, given, bars * score.bar(trained), temperature=temperature, seed=seed + number
            )
            files = score.write(piece, place)
            line(f"{bars} bars after {len(given)} given steps: {', '.join(str(file) for file in files)}")
            for complaint in piece.complaints():
                line(f"  {place}: {complaint}; another seed or a higher temperature may help", style="yellow")


def write(
    folder: RunPlace,
    prompt: Annotated[str, typer.Option(help="The text to go on from.")] = "",
    length: Annotated[int, typer.Option(min=1, help="How many words, characters or bytes to write.")] = 200,
    temperature: Temperature = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw from so many likeliest only.")] = None,
    seed: Seed = 0,
) -> None:
    """Write text with a run of words or characters, shown as it is made."""
    with plain_errors():
        trained = _load(folder)
        pieces = generate.write(trained, prompt, length, temperature=temperature, top_k=top_k, seed=seed)
        assert trained.vocabulary is not None
        if unknown := generate.unknown_tokens(trained.vocabulary, prompt):
            _warn(f"not in the vocabulary, read as <unk>: {', '.join(map(repr, unknown))}")
        out.print(prompt, end="", markup=False, soft_wrap=True)
        for piece in pieces:
            out.print(shown(piece), end="", markup=False, soft_wrap=True)
        line("")


def classify(
    folder: RunPlace,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Text files, or pictures of digits.")],
) -> None:
    """Say what a run makes of texts (IMDB) or pictures (MNIST), with probabilities."""
    with plain_errors():
        trained = _load(folder)
        for file in files:
            chances = generate.classify(trained, file)
            shown = ", ".join(f"{name} {chance:.1%}" for name, chance in list(chances.items())[:3])
            line(f"{file}: {shown}")


def export(
    folder: RunPlace,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")],
    form: Annotated[str, typer.Option("--format", help="safetensors, onnx or torch-export.")] = "safetensors",
) -> None:
    """Write a run's model to a folder, with a card, for rru or for other runtimes."""
    with plain_errors():
        files = generate.export(_load(folder), output, form)
        line(f"{output}: {', '.join(files)}")


def _load(folder: Path) -> generate.Trained:
    """The model; says so where a run has not ended."""
    trained = generate.load(folder)
    if trained.result is None and trained.epoch is not None:
        _warn(f"{folder}: the run has not ended; these are its best weights so far, after epoch {trained.epoch}")
    return trained


def _warn(message: str) -> None:
    err.print(message, style="yellow", markup=False, soft_wrap=True)
