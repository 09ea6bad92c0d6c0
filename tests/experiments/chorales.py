"""Runs of seconds: the chorales at their smallest, on one thread."""

import torch

from rru.experiments import execute, plans, running
from tests.training.toy import outcome


def entries(cells="rru,gru", seeds="0"):
    """Entries of Table 1 on the embedded chorales."""
    plan = plans.load("table1", "smoke", cells=cells.split(","), tasks=["bach"], seeds=plans.seeds_of(seeds))
    return list(plan.entries)


def folder(entry, root):
    return execute.run_folder(entry.config, root)


def trained(those, root):
    """Trains entries here, and gives what must not depend on how they are trained."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for entry in those:
            assert running.attempt(entry, folder(entry, root)).status == "finished"
    finally:
        torch.set_num_threads(threads)
    return outcomes(those, root)


def outcomes(those, root):
    return {entry.name: outcome(folder(entry, root)) for entry in those}
