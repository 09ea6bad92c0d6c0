"""Time a step of the models of `benchmarks.engine` in Chromium, in the pages that `rru export --format web` makes.

Run `python -m benchmarks.pages`. It needs Chromium. A time is the shortest of many rounds of calls.
"""

import tempfile
from pathlib import Path

from benchmarks.engine import SECONDS, TASKS, untrained
from rru.inference.engine import web_page
from tests.report.browser import CHROMIUM, Browser

STEP = """(async () => {
  const model = await loaded(), { tokens, inputs } = model.numbers;
  const x = Float32Array.from({ length: inputs }, (_, number) => Math.sin(number + 1));
  return microseconds(tokens ? () => model.stepToken(3) : () => model.step(x), MILLISECONDS);
})()"""


def main() -> None:
    """Print a table: the bytes of a page and the microseconds of a step, in float32 and in int8."""
    assert CHROMIUM, "there is no Chromium"
    print("| task | page, bytes | page with int8, bytes | step | step, int8 |\n|" + "---|" * 5)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser, path = Browser(Path(folder) / "profile"), Path(folder) / "page.html"
        for task, preset, tokens in TASKS:
            sizes, times = [], []
            for int8 in (False, True):
                path.write_bytes(web_page(untrained(task, preset, tokens), int8=int8))
                browser.open(path)
                browser.until("document.getElementById('facts').childElementCount > 0")
                sizes.append(path.stat().st_size)
                times.append(browser.run(STEP.replace("MILLISECONDS", str(1000 * SECONDS))))
            cells = [*(f"{size:,}" for size in sizes), *(f"{each:.1f}" for each in times)]
            print(f"| {task} | {' | '.join(cells)} |", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
