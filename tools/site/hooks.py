"""Hooks of `make docs`: what pages link to outside docs/ becomes a page too, so that no link leaves the site.

README.md, CONTRIBUTING.md and CHANGELOG.md are pages of their own. A source file is shown as code, a notebook as text
and code. A link to a folder becomes plain text. Links to other sites stay. `Play a model` has the page of a model of
chorales: that of `rru demo` if it ran in this checkout, else one that is trained now, in build/site, once.
"""

import json
import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "docs/results/report.md": "results/text.md",  # report.html is there already
}
"""The pages that have other names in the site."""
LANGUAGES = {".h": "cpp", ".cpp": "cpp", ".py": "python", ".toml": "toml", ".cff": "yaml"}
NOTEBOOK = ".ipynb.md"  # ends the name of a notebook's page
PLAYED, PLAYER = "play.md", "chorale.html"
PLAY = """# Play a model

Play a few notes on the keys, or click them into the roll: a model that learnt Bach chorales goes on. It runs in this
page, in WebAssembly.
`rru export RUN -o page.html --format web` makes [such a page](exporting.md#a-web-page) of any trained model;
[open this one alone](chorale.html).

<iframe src="chorale.html" title="A model of chorales" class="model"></iframe>
"""
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are outside docs/, and one for each source file that a page links to."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    files.append(File.generated(config, PLAYED, content=PLAY))
    files.append(File.generated(config, PLAYER, content=player()))
    texts = {origin_of(file.src_uri): file.content_string for file in files.documentation_pages()}
    targets = {resolved(origin, match["target"]) for origin, text in texts.items() for match in LINK.finditer(text)}
    for target in sorted(targets):
        if (ROOT / target).is_file() and page_of(target) == source_page(target):
            files.append(File.generated(config, source_page(target), content=source_text(target)))
    return files


def player() -> bytes:
    """Return the page of the demo's RRU. `RRU_SITE_EPOCHS` are the epochs that it is trained for, if it has to be."""
    from rru import inference
    from rru.inference.engine import web_page
    from rru.settings import presets
    from rru.training import run_folder, train_config
    from rru.training.run_files import RESULT

    config = presets.load("bach", "rru", "demo")
    folder = run_folder(config, ROOT / "runs")
    if not (folder / RESULT).exists():
        epochs = os.environ.get("RRU_SITE_EPOCHS", config.schedule.epochs)
        config = presets.override(config, [f"schedule.epochs={epochs}"])
        folder = run_folder(config, ROOT / "build" / "site")
        train_config(config, folder)
    return web_page(inference.load(folder), int8=True)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point every link to the page that its target has in the site; let the search show lab notes after other pages."""
    origin = origin_of(page.file.src_uri)
    if origin.endswith(NOTEBOOK):
        origin = origin.removeprefix("docs/source/").removesuffix(".md")
    if origin.startswith("docs/lab/"):
        page.meta["search"] = {"boost": 0.3}

    def pointed(match: re.Match[str]) -> str:
        target = resolved(origin, match["target"])
        if (ROOT / target).is_dir():
            return match["text"]
        to = os.path.relpath(page_of(target), Path(page.file.src_uri).parent)
        return f"{match['image']}[{match['text']}]({to}{match['anchor'] or ''})"

    return markdown if origin.startswith("docs/source/") else LINK.sub(pointed, markdown)


def origin_of(page: str) -> str:
    """Return the path in the repository of a page of the site."""
    return {site: name for name, site in PAGES.items()}.get(page, f"docs/{page}")


def page_of(path: str) -> str:
    """Return the name in the site of a file of the repository."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else source_page(path)


def source_page(path: str) -> str:
    """Return the name of the page that shows a source file."""
    return f"source/{path}.md"


def source_text(path: str) -> str:
    """Return the page that shows a source file, which the search leaves out."""
    text = (ROOT / path).read_text(encoding="utf-8")
    cells = json.loads(text)["cells"] if path.endswith(".ipynb") else []
    shown = [fenced("".join(cell["source"]), "python", cell["cell_type"] == "code") for cell in cells]
    language = LANGUAGES.get(Path(path).suffix, "text")
    content = "\n\n".join(shown) if shown else f"# {path}\n\n{fenced(text, language)}"
    return f"---\nsearch:\n  exclude: true\n---\n{content}\n"


def fenced(text: str, language: str, code: bool = True) -> str:
    """Return a text as a block of code; as it is if it is none."""
    return f"~~~~~~ {language}\n{text}\n~~~~~~" if code else text


def resolved(origin: str, target: str) -> str:
    """Return the path in the repository that a link on a page leads to."""
    return os.path.normpath(os.path.join(os.path.dirname(origin), target))
