"""The rounds of the soak: disturb, then compare."""

import json
import random
import shlex
import shutil
import time
from collections import Counter
from pathlib import Path

import faults
from commands import FAULTS, SEARCH, Clock, Command, members, random_command

import rru
from rru.experiments.search.study import Study
from rru.training import Run

AT_ONCE = 3
ROUND = 180.0  # seconds
GRACE = 90.0  # seconds until workers whose coordinator was killed must have ended
BAD = ("COMPLAINTS", "RUNS LOST", "RUNS THAT DIFFER", "SEARCHES THAT DIFFER", "PROCESSES LEFT BEHIND")


class Soak:
    """Counts of what was done and found, over all rounds."""

    def __init__(self, draw: random.Random, undisturbed: Path) -> None:
        self.draw, self.undisturbed, self.clock = draw, undisturbed, Clock()
        self.counts: Counter[str] = Counter()

    def complain(self, count: str, message: str) -> None:
        """Count and print something that is wrong."""
        self.counts[count] += 1
        print(f"--- {count}: {message}", flush=True)

    def disturb(self, root: Path, disk: bool, seconds: float) -> set[Path]:
        """Run and disturb commands. Return the names of all runs that were ever there."""
        running: list[Command] = []
        started: list[int] = []
        ever: set[Path] = set()
        end, full_until = self.clock.now + seconds, 0.0
        while running or self.clock.now < end:
            while len(running) < AT_ONCE and self.clock.now < end:
                fault = self.draw.choice(FAULTS)
                running.append(Command(random_command(root, self.draw), root, self.clock, fault, self.draw))
                started.append(running[-1].pid)
                if self.draw.random() < 0.3 and not full_until and (did := faults.damage(root, self.draw)):
                    self.counts[did] += 1
                ever |= names(root)
            if disk and not full_until and self.draw.random() < 0.002:
                faults.fill(root, self.draw.choice((0, 0, 5_000, 100_000)))
                full_until = self.clock.now + self.draw.uniform(0.1, 2.0)
                self.counts["faults, disk is full"] += 1
            if full_until:
                for command in running:
                    command.befell.append("disk is full")
            if full_until and self.clock.now > full_until:
                faults.empty(root)
                full_until = 0.0
            time.sleep(0.02)
            self.clock.tick()
            running = [command for command in running if not self._ended(command)]
        faults.empty(root)
        self._await(started)
        return ever

    def _ended(self, command: Command) -> bool:
        code = command.poll()
        if code is None:
            return False
        self.counts[f"commands, {command.arguments[0]}"] += 1
        for fault in set(command.befell) - {"disk is full"}:
            self.counts[f"faults, {fault}"] += 1
        if "disk is full" in command.befell:
            self.counts["commands that ran while the disk was full"] += 1
        if complaint := command.complaint(code):
            befell = ", ".join(sorted(set(command.befell))) or "undisturbed"
            self.complain("COMPLAINTS", f"{shlex.join(command.arguments)} ({befell}): {complaint}")
        return True

    def _await(self, sessions: list[int]) -> None:
        """Wait for workers that a killed coordinator left behind."""
        end = self.clock.now + GRACE
        while pids := [pid for session in sessions for pid in members(session)]:
            self.clock.tick()
            if self.clock.now > end:
                self.complain("PROCESSES LEFT BEHIND", str(pids))
                return
            time.sleep(0.5)

    def finish(self, arguments: list[str], root: Path) -> None:
        """Run a command undisturbed, to its end."""
        command = Command(arguments, root, self.clock)
        while (code := command.poll()) is None:
            time.sleep(0.02)
            self.clock.tick()
        if complaint := command.complaint(code) or (code and f"exit code {code}: {command.printed[-500:]}"):
            raise RuntimeError(f"{shlex.join(arguments)}: {complaint}")

    def compare(self, root: Path, ever: set[Path]) -> None:
        """Finish all runs and the search, train the same ones undisturbed, and compare them."""
        for run in faults.runs_in(root):
            try:
                run.result()
            except rru.training.RunError:
                (run.path / "result.json").unlink()  # as the error says
        unfinished = {name for name in names(root) if not self._finishes(["resume", str(name), "--threads", "1"], root)}
        if all(self._finishes(SEARCH, place) for place in (root, self.undisturbed)):
            self._compare_searches(root)
        for name in sorted(ever - names(root)):
            self.complain("RUNS LOST", f"{name} is gone")
        for name in sorted(names(root) - unfinished):
            self._train_undisturbed(root, name)
            if outcome(root / name) == outcome(self.undisturbed / name):
                self.counts["runs that are the same"] += 1
            else:
                self.complain("RUNS THAT DIFFER", str(name))

    def _finishes(self, arguments: list[str], root: Path) -> bool:
        try:
            self.finish(arguments, root)
        except RuntimeError as error:
            self.complain("RUNS LOST", str(error))
            return False
        return True

    def _compare_searches(self, root: Path) -> None:
        places = (root, self.undisturbed)
        disturbed, undisturbed = (
            Study("bach", "rru", "smoke", seed=3, root=place / "runs").trials() for place in places
        )
        if disturbed == undisturbed:
            self.counts["searches that are the same"] += 1
        else:
            self.complain("SEARCHES THAT DIFFER", f"{disturbed} and {undisturbed}")

    def _train_undisturbed(self, root: Path, name: Path) -> None:
        folder = self.undisturbed / name
        if not (folder / "result.json").exists():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name / "config.toml", folder)
            self.finish(["resume", str(name), "--threads", "1"], self.undisturbed)

    def show(self) -> None:
        """Print the counts."""
        faults = sum(count for name, count in self.counts.items() if name.startswith(("faults,", "damage,")))
        print(f"{'kills and faults in all':<44}{faults:>8,}")
        for name, count in sorted({**dict.fromkeys(BAD, 0), **self.counts}.items()):
            print(f"{name:<44}{count:>8,}", flush=True)


def names(root: Path) -> set[Path]:
    """Return the folders of the runs of a round, relative to its root."""
    return {run.path.relative_to(root) for run in faults.runs_in(root)}


def outcome(folder: Path) -> tuple[object, ...]:
    """Return everything that must not depend on disturbances: the result, metrics and weights, without times."""
    result = json.loads((folder / "result.json").read_bytes())
    result.pop("seconds")
    lines = [line for line in Run(folder).metrics() if line["kind"] == "epoch"]
    for line in lines:
        line.pop("seconds")
    weights = folder / "best" / f"epoch-{result['best_epoch']:04}" / "model.safetensors"
    return result, lines, weights.read_bytes()


def soak(minutes: float, seed: int, place: Path) -> int:
    """Disturb and compare, round after round. Return 1 if a result differs or a command failed."""
    undisturbed = place / "undisturbed"
    undisturbed.mkdir()
    all_rounds = Soak(random.Random(seed), undisturbed)
    number = 0
    while (seconds := 60 * minutes - all_rounds.clock.now) > 0:
        number += 1
        root = place / f"disturbed{number}"
        root.mkdir()
        with faults.small_disk(root) as disk:
            ever = all_rounds.disturb(root, disk, min(seconds, ROUND))
            all_rounds.compare(root, ever)
        print(f"\nround {number}, {all_rounds.clock.now / 60:.0f} minutes, {'a small disk' if disk else 'no own disk'}")
        all_rounds.show()
    return any(all_rounds.counts[name] for name in BAD)
