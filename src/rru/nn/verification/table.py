"""What a verification found, and its table."""

from dataclasses import dataclass

SAME, DIFFERENT, NOT_RUN = "same", "DIFFERENT", "not run"
_HEADINGS = ("path", "largest difference", "tolerance", "time", "verdict")


@dataclass(frozen=True)
class Checked:
    """What was found on one path.

    **Arguments:**

    - `path`: its name, such as `native avx2`.
    - `difference`: the largest difference of a result, as a share of its norm; None if the path did not run.
    - `where`: the result that differs most, such as `gradient of cells.0.weight_x`.
    - `tolerance`: the largest difference allowed.
    - `seconds`: how long a call took, with the backward pass if `has_gradients`.
    - `reason`: why the path did not run; empty if it did.
    """

    path: str
    tolerance: float
    difference: float | None = None
    where: str = ""
    seconds: float | None = None
    has_gradients: bool = False
    reason: str = ""

    @property
    def verdict(self) -> str:
        """`same`, `DIFFERENT` or `not run`."""
        if self.difference is None:
            return NOT_RUN
        return SAME if self.difference <= self.tolerance else DIFFERENT  # NaN is different

    def cells(self) -> tuple[str, ...]:
        """Return its line of the table."""
        if self.difference is None:
            return self.path, "", "", "", f"{NOT_RUN}: {self.reason}"
        end = f": {self.where}" if self.verdict == DIFFERENT else "" if self.has_gradients else ", forward only"
        time = f"{1e3 * (self.seconds or 0):.1f} ms"
        return self.path, f"{self.difference:.1e}", f"{self.tolerance:.0e}", time, self.verdict + end


@dataclass(frozen=True)
class Verification:
    """What was found on all paths. Printing it shows a table.

    **Arguments:** `paths`: a `Checked` each; `about`: lines that say what was compared, and with which versions.
    """

    paths: tuple[Checked, ...]
    about: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether at least one path ran, and none gave different results."""
        verdicts = {checked.verdict for checked in self.paths}
        return SAME in verdicts and DIFFERENT not in verdicts

    def __getitem__(self, path: str) -> Checked:
        return next(checked for checked in self.paths if checked.path == path)

    def __repr__(self) -> str:
        rows = [_HEADINGS, *(checked.cells() for checked in self.paths)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
        lines = ["  ".join([*map(str.ljust, row, widths), row[-1]]).rstrip() for row in rows]
        wrong = [checked.path for checked in self.paths if checked.verdict == DIFFERENT]
        ran = [checked for checked in self.paths if checked.difference is not None]
        agreed = f"no path of {len(ran)} differs" if ran else "no path ran: nothing was compared"
        end = f"{', '.join(wrong)}: different results" if wrong else agreed
        return "\n".join([*self.about, *lines, end])
