"""Runs of seconds: the chorales at their smallest, on one thread."""

from rru.experiments import plans
from rru.experiments.running.attempt import attempt
from rru.training import run_folder
from tests.training.toy import outcome


def planned(cells="rru,gru", seeds="0"):
    """Runs of Table 1 on the embedded chorales."""
    plan = plans.load("table1", "smoke", cells=cells.split(","), tasks=["bach"], seeds=plans.seeds_of(seeds))
    return list(plan.runs)


def folder(run, root):
    return run_folder(run.config, root)


def trained(those, root):
    """Train runs here, and give what must not depend on how they are trained."""
    for run in those:
        assert attempt(run, folder(run, root)).status == "finished"
    return outcomes(those, root)


def outcomes(those, root):
    return {run.name: outcome(folder(run, root)) for run in those}
