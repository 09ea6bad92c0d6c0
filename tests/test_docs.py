"""The docs are correct: their code runs, the lines they quote exist, their links work."""

import inspect
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import typer
from typer.testing import CliRunner

import rru
from rru.cli.commands import app
from rru.experiments.search.study import Study
from rru.nn import registry
from rru.scan import operator
from rru.settings import presets
from rru.training import train_config
from tests import own_files

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCKS = [
    pytest.param(block, id=f"{document.name}-{index}")
    for document in DOCUMENTS
    if document.name != "CONTRIBUTING.md"  # its cell and kind are run by tests/nn/test_registry.py, tests/kinds/
    for index, block in enumerate(re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL))
]

HOSTS = ("sklearn", "sktime", "neuralforecast", "darts", "skorch")
"""Libraries that `rru.integrations` is for; blocks of those that are not installed are skipped."""

COMMANDS = [
    pytest.param(shlex.split(line, comments=True)[1:], id=f"{document.name}: {line}")
    for document in DOCUMENTS
    for block in re.findall(r"```\n(.*?)```", document.read_text(), re.DOTALL)
    for line in block.splitlines()
    if line.startswith("rru ") and "--code janet.py" not in line  # run by tests/settings/test_user_cells.py
]
QUICK = [
    command
    for command in COMMANDS
    if {"data", "runs", "report", "compose", "export"} & set(command.values[0][:1])
    and not {"--watch", "fetch", "runs/jsb/rru/58a7524d1a75"} & set(command.values[0])
]


@pytest.fixture(scope="module", autouse=True)
def folder_with_a_run(tmp_path_factory):
    """Provide small runs in place of those that `rru demo` and `rru train bach --preset cpu` make."""
    folder = tmp_path_factory.mktemp("documents")
    for preset, changes in {"cpu": [], "demo": [], "nade": ["output=nade"], "best": ["output=tied"]}.items():
        name = presets.load("bach", "rru", preset).id
        config = presets.override(presets.load("bach", "rru", "smoke"), changes)
        train_config(config, folder / "runs/bach/rru" / name)
    (folder / "more/runs").mkdir(parents=True)
    own_files.text(folder / "novel.txt")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("RRU_CACHE_DIR", str(folder / "cache"))
        for name in ("mlflow", "wandb"):
            patch.setitem(sys.modules, name, Mock(name=name))
        yield


@pytest.mark.parametrize("block", BLOCKS)
def test_code_runs_and_gives_the_documented_shapes_and_numbers(block):
    names = {}
    hosts = [host for host in HOSTS if re.search(rf"^(from|import) ({host}|rru\.integrations\.{host})\b", block, re.M)]
    for host in hosts:
        pytest.importorskip(host, reason=f"{host} is not installed")
    with warnings.catch_warnings():
        if hosts:  # their warnings are their own
            warnings.simplefilter("ignore")
        exec(block, names)
    assert "#" in block  # it claims something
    for targets, shapes in re.findall(r"^(\w+(?:, \w+)*) = .*# ((?:\([\d, ]+\)(?:, )?)+)$", block, re.MULTILINE):
        claimed = [tuple(map(int, re.findall(r"\d+", shape))) for shape in re.findall(r"\(([\d, ]+)\)", shapes)]
        assert [tuple(names[target].shape) for target in targets.split(", ")] == claimed
    for target, number in re.findall(r"^(\w+) = .*: ([\d_]+)$", block, re.MULTILINE):
        assert names[target] == int(number)


@pytest.mark.parametrize("logger", ["mlflow", "wandb"])
def test_other_loggers_get_every_epoch(logger, monkeypatch):
    module = Mock(name=logger)
    monkeypatch.setitem(sys.modules, logger, module)
    (block,) = (block.values[0] for block in BLOCKS if f"import {logger}\n" in block.values[0])
    shutil.rmtree(re.search(r'folder="(.*?)"', block).group(1), ignore_errors=True)
    exec(block, {})
    calls = (module.log_metrics if logger == "mlflow" else module.init.return_value.log).call_args_list
    assert [call.kwargs["step"] for call in calls] == list(range(1, len(calls) + 1))
    assert set(calls[-1].args[0]) == {"train_loss", "bpc", "loss"}


@pytest.mark.parametrize("module", ["nn", "data", "inference", "report"])
def test_documented_modules_are_found_after_importing_only_the_package(module):
    text = "".join(document.read_text() for document in DOCUMENTS)
    (name, *_) = re.findall(rf"\brru\.{module}\.(\w+)", text)
    subprocess.run([sys.executable, "-c", f"import rru; rru.{module}.{name}"], check=True)


@pytest.mark.parametrize("arguments", COMMANDS)
def test_every_command_has_the_options_shown(arguments):
    group = typer.main.get_command(app)
    name, command, rest = group.resolve_command(group.make_context("rru", list(arguments)), list(arguments))
    command = command.make_context(name, list(rest), resilient_parsing=True).command  # its module is imported now
    if hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(command.make_context(name, list(rest)), list(rest))
    command.make_context(name, list(rest))  # raises for an unknown option or a value of another type


@pytest.mark.parametrize("arguments", QUICK)
def test_quick_commands_run(arguments):
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output


def test_a_study_is_where_the_document_says(tmp_path):
    (shown,) = re.findall(r"`runs/(bach/\S+)/study\.journal`", (ROOT / "docs" / "tuning.md").read_text())
    assert Study("bach", "rru", "smoke", root=tmp_path).folder == tmp_path / shown


def test_no_document_installs_rru_from_pypi_where_it_is_not():
    for document in [each for each in DOCUMENTS if each.name != "CHANGELOG.md"]:
        lines = re.findall(r"^pip install .*$", document.read_text(), re.MULTILINE)
        assert all(re.search(r" \.($| )| '\.\[|--find-links", line) for line in lines)


def test_the_readme_shows_the_drop_in():
    assert [block for block in BLOCKS if block.id == "README.md-0"]


def test_quoted_code_lines_exist():
    document = (ROOT / "docs" / "layers.md").read_text()
    section = document.split("## Equations and code")[1].split("\n## ")[0]
    lines = [re.sub(r" *#.*", "", line).strip() for line in (ROOT / "src/rru/nn/rru.py").read_text().splitlines()]
    quoted = [row.split("|")[4].strip().strip("`") for row in section.splitlines() if re.match(r"\| [1-6]? ?\|", row)][
        1:
    ]  # without the head
    quoted.append(re.search(r"in `initial_state`: `(.*)`", section).group(1))
    assert len(quoted) == 11
    for line in quoted:
        assert line in lines


def test_documented_signature_matches():
    document = (ROOT / "docs" / "layers.md").read_text()
    shown = re.search(r"rru\.RRU\((.*?)\)\n```", document, re.DOTALL).group(1)
    actual = inspect.signature(rru.RRU)
    parameters = [parameter.replace(annotation=parameter.empty) for parameter in actual.parameters.values()]
    plain = str(actual.replace(parameters=parameters, return_annotation=actual.empty))[1:-1]
    assert re.sub(r"\s+", " ", shown).replace('"', "'") == plain


def anchors(document):
    """Return the anchors of a page's headings, as on GitHub."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)]+)\)", document.read_text()):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        assert (document.parent / path).exists(), target
        if anchor:
            assert anchor in anchors(document.parent / path if path else document), target


def test_every_page_is_in_the_menu_of_the_site():
    menu = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")}
    renamed = {"results/report.md": "results/text.md"}  # tools/site/hooks.py says why
    named = re.findall(r": (\S+\.md)$", menu, re.MULTILINE)
    assert sorted(named) == sorted(
        [*(renamed.get(page, page) for page in pages), "index.md", "contributing.md", "changelog.md", "play.md"]
    )


def test_the_reference_has_every_public_name():
    text = "".join(page.read_text() for page in ROOT.glob("docs/api/*.md"))
    assert {f"rru.{name}" for name in rru.__all__} <= set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))


def test_every_make_target_in_the_documents_exists():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        named = re.findall(r"(?:^|`)make ([\w-]+)", document.read_text(), re.MULTILINE)
        assert set(named) <= targets


@pytest.mark.parametrize("name", [name for name in rru.__all__ if "```python" in (getattr(rru, name).__doc__ or "")])
def test_examples_in_docstrings_run(name):
    names = {"rru": rru, "torch": torch, "MyCell": type("MyCell", (rru.GRUCell,), {})}
    before = rru.cell_names()
    for block in re.findall(r"```python\n(.*?)```", inspect.cleandoc(getattr(rru, name).__doc__), re.DOTALL):
        exec(block, names)
    for new in set(rru.cell_names()) - set(before):
        del registry._layers[new], operator.registered[new]


def test_the_example_runs():
    command = [sys.executable, ROOT / "examples" / "adding.py", "--steps", "2", "--length", "4", "--parameters", "300"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "RRU  has not learned it yet" in done.stdout
    assert "LSTM has not learned it yet" in done.stdout


def test_the_version_is_the_installed_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert rru.__version__ == project["version"]


def test_lines_of_prose_are_not_too_long():
    for document in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        prose = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
        long = [line for line in prose.splitlines() if len(line) > 145 and not line.startswith("|")]
        assert not long, document.name
