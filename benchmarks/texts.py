"""Compare what models of a text learn in how much processor time: validation loss in nats per character.

    python -m benchmarks.texts TRAIN VALID rru --budget 260000 --epochs 9 --curves curves.jsonl
    python -m benchmarks.texts TRAIN VALID nanogpt --nanogpt FOLDER --steps 2000 --curves curves.jsonl

Adds one line of JSON with the curve of one model to a file. `rru`, `lstm` (`nn.LSTM`) and `mingru` are trained by rru's
own loop, with the settings of `auto`; `nanogpt` by its recipe for CPUs, from a checkout in FOLDER, `nanogpt-gpu` by the
one for GPUs. Time is that of training steps on one thread, without validation. All are validated on the same
characters: windows that start every half of their length, of which the second half counts. `python -m
benchmarks.texts_chart` draws the curves.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rru import data
from rru.nn import count_parameters, hidden_size_for
from rru.settings import presets
from rru.training import Run, train
from rru.training.events import Evaluated, Stepped
from rru.training.from_config import assemble, optimiser_of

GPT_CPU = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64, "dropout": 0.0}
GPT_GPU = {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256, "dropout": 0.2}


def main() -> None:
    """Train one model and add its curve to the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("training", type=Path)
    parser.add_argument("validation", type=Path)
    parser.add_argument("model", choices=["rru", "lstm", "mingru", "nanogpt", "nanogpt-gpu"])
    parser.add_argument("--curves", type=Path, required=True, help="the file to add the curve to")
    parser.add_argument("--budget", type=int, default=260_000, help="parameters")
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--nanogpt", type=Path, help="the folder with its model.py")
    parser.add_argument("--steps", type=int, default=2000, help="steps of nanoGPT, over which its rate decays")
    parser.add_argument("--batch", type=int, default=12, help="windows in a batch of nanoGPT")
    parser.add_argument("--points", type=int, default=16, help="how often to validate nanoGPT")
    options = parser.parse_args()
    if options.model.startswith("nanogpt") and not (options.nanogpt and (options.nanogpt / "model.py").exists()):
        parser.error(f"--nanogpt must be a folder with nanoGPT's model.py, got {options.nanogpt}")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    curve = of_nanogpt(options) if options.model.startswith("nanogpt") else of_rru_loop(options)
    paths = {"--curves", str(options.curves), "--nanogpt", str(options.nanogpt)}
    record = {"model": options.model, "options": " ".join(each for each in sys.argv[4:] if each not in paths), **curve}
    with options.curves.open("a") as file:
        file.write(json.dumps(record) + "\n")


class Watch:
    """Collects the processor seconds of training, and the validation loss after each epoch."""

    def __init__(self) -> None:
        self.seconds, self.last = 0.0, time.process_time()
        self.points: list[tuple[float, float]] = []

    def __call__(self, event: object) -> None:
        """Count the time of a step, but not that of an evaluation."""
        now = time.process_time()
        if isinstance(event, Stepped):
            self.seconds += now - self.last
        if isinstance(event, Evaluated):
            self.add(event.validation["loss"])
        self.last = now

    def add(self, loss: float) -> None:
        """Add a point to the curve."""
        self.points.append((round(self.seconds, 1), round(loss, 4)))
        print(*self.points[-1], flush=True)


def of_rru_loop(options: argparse.Namespace) -> dict[str, object]:
    """Train with the preset `auto`; for `lstm` and `mingru`, put these layers into the same model."""
    own = data.from_text(options.training, valid=options.validation, test=options.validation)
    config = presets.load(own, "rru" if options.model == "rru" else "lstm")
    changes = [f"budget={options.budget}", f"epochs={options.epochs}", *options.changes]
    config = presets.override(config, changes)
    parts = assemble(config)
    model = parts.model if options.model == "rru" else with_layer(LAYERS[options.model], parts.task, config)
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create_or_open(Path(folder) / "run", config)
        train(parts.task, model, optimiser_of(model, config.optimiser), run, watch)
    return {"parameters": count_parameters(model), "points": watch.points}


def with_layer(layer: type[nn.Module], task: object, config: object) -> nn.Module:
    """Return the task's model of a size with another recurrent layer."""
    architecture, dropout = task.architecture, config.model.dropout
    torch.manual_seed(config.schedule.seed)

    def build(hidden_size: int) -> nn.Module:
        return architecture.model_class.of(
            partial(layer, dropout=dropout), architecture.embedding_size, hidden_size, architecture
        )

    return build(hidden_size_for(config.model.budget, build))


class TorchLSTM(nn.Module):
    """`nn.LSTM`, with dropout on inputs and outputs."""

    def __init__(self, input_size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.output_size = input_size, hidden_size, hidden_size
        self.lstm, self.dropout = nn.LSTM(input_size, hidden_size), nn.Dropout(dropout)

    def initial_state(self, batch: int) -> tuple[Tensor, Tensor]:
        """Return zeros, (1, B, n) each."""
        zeros = self.lstm.weight_hh_l0.new_zeros(1, batch, self.hidden_size)
        return zeros, zeros

    def forward(self, x: Tensor, state: object = None, lengths: None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run it over (T, B, m)."""
        output, last = self.lstm(self.dropout(x), state)
        return self.dropout(output), tuple(part.detach() for part in last)


class MinGRU(nn.Module):
    """Blocks of minGRU (Feng et al. 2024, "Were RNNs All We Needed?"), each with a convolution and an MLP."""

    BLOCKS, WIDTH = 3, 4

    def __init__(self, input_size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        n = hidden_size
        self.input_size, self.hidden_size, self.output_size = input_size, n, n
        self.read = nn.Linear(input_size, n)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.RMSNorm(n),
                    "convolution": nn.Conv1d(n, n, self.WIDTH, groups=n),
                    "gates": nn.Linear(n, 2 * n),
                    "mlp_norm": nn.RMSNorm(n),
                    "mlp": nn.Sequential(nn.Linear(n, 2 * n), nn.GELU(), nn.Linear(2 * n, n)),
                }
            )
            for _ in range(self.BLOCKS)
        )
        self.norm, self.dropout = nn.RMSNorm(n), nn.Dropout(dropout)

    def initial_state(self, batch: int) -> tuple[Tensor, Tensor]:
        """Return the states (blocks, B, n), and the last inputs of the convolutions (blocks, B, 3n)."""
        zeros = self.read.weight.new_zeros(self.BLOCKS, batch, self.hidden_size)
        return zeros, zeros.repeat(1, 1, self.WIDTH - 1)

    def forward(self, x: Tensor, state: object = None, lengths: None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run it over (T, B, m)."""
        states, tails = state if state is not None else self.initial_state(x.shape[1])
        x = self.read(x)
        last: list[tuple[Tensor, Tensor]] = []
        for block, h, tail in zip(self.blocks, states, tails, strict=True):
            inputs = torch.cat(
                [tail.unflatten(1, (self.WIDTH - 1, -1)).transpose(0, 1), block["norm"](x)]
            )  # (T + 3, B, n)
            mixed = block["convolution"](inputs.permute(1, 2, 0)).permute(2, 0, 1)
            gate, candidate = block["gates"](mixed).chunk(2, -1)
            h = scan(gate, positive(candidate), h)
            x = x + self.dropout(h)
            x = x + self.dropout(block["mlp"](block["mlp_norm"](x)))
            last.append((h[-1], inputs[1 - self.WIDTH :].transpose(0, 1).flatten(1)))
        return self.norm(x), tuple(torch.stack(parts).detach() for parts in zip(*last, strict=True))


def positive(x: Tensor) -> Tensor:
    """Return the paper's g: x + 0.5 where x is not negative, else sigmoid(x)."""
    return torch.where(x >= 0, x + 0.5, torch.sigmoid(x))


def scan(gate: Tensor, candidate: Tensor, h: Tensor) -> Tensor:
    """Return all h_t = (1 - z) h_(t-1) + z candidate, with z = sigmoid(gate).

    Over 64 steps of 16 sequences, step by step takes a fifth of the time of the paper's parallel scan on a CPU.
    """
    z = torch.sigmoid(gate)
    keep, new = (1 - z).unbind(), (z * candidate).unbind()
    states = []
    for k, v in zip(keep, new, strict=True):
        h = torch.addcmul(v, k, h)
        states.append(h)
    return torch.stack(states)


LAYERS = {"lstm": TorchLSTM, "mingru": MinGRU}


def of_nanogpt(options: argparse.Namespace) -> dict[str, object]:
    """Train nanoGPT's model as its train.py does, with the recipe for characters."""
    sys.path.insert(0, str(options.nanogpt))
    from model import GPT, GPTConfig

    recipe = GPT_GPU if options.model == "nanogpt-gpu" else GPT_CPU
    text, valid = (path.read_bytes().decode() for path in (options.training, options.validation))
    index = {character: number for number, character in enumerate(sorted(set(text + valid)))}
    tokens, held_out = (torch.tensor([index[character] for character in each]) for each in (text, valid))
    model = GPT(GPTConfig(vocab_size=len(index), bias=False, **recipe))
    optimiser = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")
    context, watch = recipe["block_size"], Watch()
    watch.last = time.process_time()
    for step in range(options.steps):
        for group in optimiser.param_groups:
            group["lr"] = rate(step, options.steps)
        starts = torch.randint(len(tokens) - context, (options.batch,))
        inputs = torch.stack([tokens[start : start + context] for start in starts])
        targets = torch.stack([tokens[start + 1 : start + 1 + context] for start in starts])
        _, loss = model(inputs, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        now = time.process_time()
        watch.seconds += now - watch.last
        if (step + 1) % max(options.steps // options.points, 1) == 0 or step + 1 == options.steps:
            watch.add(windows_loss(model, held_out, context))
        watch.last = time.process_time()
    return {"parameters": count_parameters(model), "points": watch.points}


def rate(step: int, steps: int, peak: float = 1e-3, warm_up: int = 100) -> float:
    """Return nanoGPT's learning rate: a linear warm-up, then a cosine to a tenth."""
    if step < warm_up:
        return peak * (step + 1) / (warm_up + 1)
    share = (step - warm_up) / max(steps - warm_up, 1)
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * share)))


@torch.no_grad()
def windows_loss(model: nn.Module, tokens: Tensor, context: int) -> float:
    """Return the mean loss over windows that start every half of their length: all of the first, half of the others."""
    model.eval()
    half, total, count = context // 2, 0.0, 0
    windows = tokens[: (len(tokens) - 1 - context) // half * half + context + 1]
    inputs, targets = windows[:-1].unfold(0, context, half), windows[1:].unfold(0, context, half)
    for number in range(0, len(inputs), 64):
        some = targets[number : number + 64].contiguous()
        logits, _ = model(inputs[number : number + 64], some)
        losses = F.cross_entropy(logits.flatten(0, 1), some.flatten(), reduction="none")
        losses = losses.unflatten(0, (-1, context))
        first = losses[0, :half].tolist() if number == 0 else []
        total += losses[:, half:].sum().item() + sum(first)
        count += losses[:, half:].numel() + len(first)
    model.train()
    return total / count


if __name__ == "__main__":
    main()
