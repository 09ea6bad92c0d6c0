"""The problems, by name."""

from benchmarks.robustness.problem import Problem
from benchmarks.robustness.problems import images, languages, memory, music, pairs, series, shapes, texts

PROBLEMS: dict[str, Problem] = {
    problem.name: problem
    for module in (memory, languages, pairs, images, shapes, series, music, texts)
    for problem in module.PROBLEMS
}
