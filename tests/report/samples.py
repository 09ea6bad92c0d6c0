"""Run folders as training leaves them, made up in no time, and the page of them."""

import html as html_module
import json
import re

from rru import report
from rru.experiments import plans
from rru.kinds import kind_of
from rru.settings import presets, toml
from rru.training import run_folder


def page(tmp_path, **files):
    """The page of the runs below a folder."""
    report.write([tmp_path / "runs"], tmp_path / "page.html", **files)
    return (tmp_path / "page.html").read_text()


def text_of(html):
    """A page's text, without its elements; buttons are words of sentences."""
    body = re.sub(r"</?button[^>]*>", "", html.partition("<body")[2].partition("<script")[0])
    return html_module.unescape(" ".join(re.sub(r"<[^>]*>", " ", f"<body{body}").split()))


def seen(html):
    """A page's text without what is folded."""
    return text_of(re.sub(r"<details.*?</details>", "", html, flags=re.DOTALL))


def result_of(config, test, **changes):
    """What result.json of a run of these settings would hold."""
    metric = kind_of(config.kind).metric
    scores = {metric.key: test + 0.25, "loss": 1.0}
    return {
        "status": "finished",
        "reason": "no better validation for 7 epochs",
        "metric": metric.key,
        "higher_is_better": metric.higher_is_better,
        "best": scores[metric.key],
        "best_epoch": 3,
        "validation": scores,
        "test": scores | {metric.key: test},
        "epochs": 5,
        "steps": 50,
        "tokens": 12345,
        "parameters": config.model.budget - 7,
        "untrained_loss": 61.0,
        "seconds": {"total": 125.0, "model": 100.0},
    } | changes


def write_run(root, config, test=8.0, folder=None, epochs=5, **changes):
    """A finished run's folder, without checkpoints or weights; with `test=None` one that was stopped."""
    folder = folder or run_folder(config, root)
    (folder / "best").mkdir(parents=True)
    (folder / "config.toml").write_text(toml.dumps(config.tables()))
    (folder / "env.json").write_text(json.dumps({"python": "3.11.7", "versions": {"torch": "2.13.0"}, "threads": 2}))
    key = kind_of(config.kind).metric.key
    with (folder / "metrics.jsonl").open("w") as file:
        for epoch in range(epochs + 1):
            scores = {key: (test or 8.0) + 0.25 + 2 * abs(epoch - 3)}
            file.write(json.dumps({"kind": "epoch", "epoch": epoch, "step": epoch * 10, "validation": scores}) + "\n")
    if test is not None:
        (folder / "result.json").write_text(json.dumps(result_of(config, test, **changes)))
    return folder


def preset(task="jsb", cell="rru", name="paper", seed=0, *changes):
    return presets.override(presets.load(task, cell, name), [*changes, f"schedule.seed={seed}"])


def change_result(folder, remove=(), **changes):
    path = folder / "result.json"
    content = json.loads(path.read_bytes()) | changes
    path.write_text(json.dumps({name: value for name, value in content.items() if name not in remove}))


def everything(root):
    """Runs of every kind that a page can show: tables, a grid with failed and missing runs, a curve, convergence."""
    for entry in plans.load("table1", "paper", tasks=["jsb"], seeds=range(5)).runs:
        write_run(root, entry.config, 8.0 + 0.1 * "RGLM".index(entry.line[0]) + 0.01 * (entry.seed % 3), epochs=30)
    write_run(root, preset("nottingham"), None)
    for entry in plans.load("table2", "smoke", tasks=["bach"]).runs:
        write_run(root, entry.config, 40.0)
    for number, entry in enumerate(plans.load("robustness-jsb", "cpu").runs):
        if number % 7:
            failed = number % 11 == 5
            changes = {"status": "diverged", "reason": "the training loss became nan at step 3"}
            write_run(root, entry.config, 8 + (number * 37 % 50) / 10, **(changes if failed else {}))
    for entry in plans.load("dropout-jsb", "cpu", seeds=(0, 1)).runs:
        at = entry.point["model.dropout"]
        write_run(root, entry.config, 9 + (at - 0.6) ** 2 + 0.1 * entry.seed + 0.2 * (entry.cell != "rru"))
    return root
