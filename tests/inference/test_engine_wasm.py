"""The engine in WebAssembly, as a page loads it, run by Node."""

import importlib.util
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from rru.inference.engine import blob
from tests.inference.c_engine import ENGINE
from tests.inference.small_models import energy
from tests.inference.test_engine_models import STEPPED, expected_for, few_voices, steps_for
from tools import build_engine

RUN = """
const fs = require("fs"), { RruModel } = require(process.argv[2] + "/rru.js");
const jobs = JSON.parse(fs.readFileSync("jobs.json"));
const modules = ["rru-simd.wasm", "rru.wasm"].map((name) => fs.readFileSync(process.argv[2] + "/" + name));
if (process.argv[3] === "plain") modules[0] = new Uint8Array([0]);
(async () => {
  const results = {};
  for (const job of jobs) {
    let model;
    try {
      model = await RruModel.load(modules, fs.readFileSync(job.name + ".rru"));
    } catch (error) {
      results[job.name] = error.message;
      continue;
    }
    if (job.values) results[job.name] = model.forecast(job.values);
    else if (job.steps) {
      results[job.name] = job.steps.map((x) => Array.from(Array.isArray(x) ? model.step(x) : model.stepToken(x)));
      results[job.name + " chances"] = Array.from(model.chances());
    } else {
      model.seed(5);
      let chord = new Uint8Array(88);
      results[job.name] = [];
      for (let step = 0; step < job.draw; ++step) {
        model.step(chord);
        chord = model.chord(job.temperature, 0);
        results[job.name].push(Array.from(chord));
      }
    }
    results.simd = model.simd;
  }
  console.log(JSON.stringify(results));
})();
"""


@pytest.fixture(scope="module", params=["simd", "plain"])
def results(request, models, tmp_path_factory):
    """What the module computes for all models, by name."""
    if shutil.which("node") is None:
        pytest.skip("there is no node")
    folder, jobs = tmp_path_factory.mktemp("wasm"), []
    for name in STEPPED:
        steps = steps_for(models[name])
        steps = steps[:, 0].tolist()
        jobs.append({"name": name, "steps": steps})
        (folder / f"{name}.rru").write_bytes(blob(models[name]))
    for name in ("nade", "tied", "letters"):
        jobs.append({"name": f"{name} int8", "steps": steps_for(models[name])[:, 0].tolist()})
        (folder / f"{name} int8.rru").write_bytes(blob(models[name], int8=True))
    jobs.append({"name": "series", "values": history(folder)})
    (folder / "series.rru").write_bytes(blob(models["series"]))
    for name in ("nade", "tied"):
        jobs.append({"name": f"{name} drawn", "draw": 12, "temperature": 0.9})
        (folder / f"{name} drawn.rru").write_bytes(blob(few_voices(models[name])))
    jobs.append({"name": "damaged", "steps": []})
    (folder / "damaged.rru").write_bytes(blob(models["nade"])[:-1] + b"\7")
    (folder / "jobs.json").write_text(json.dumps(jobs))
    (folder / "run.js").write_text(RUN)
    ran = subprocess.run(["node", "run.js", ENGINE, request.param], cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["simd"] == (request.param == "simd")
    return found


def history(folder):
    lines = energy(folder / "energy.csv").read_text().splitlines()[1:]
    return [float(line.split(",")[1]) for line in lines]


@pytest.mark.parametrize("name", STEPPED)
def test_outputs_are_those_of_pytorch(results, models, name):
    expected = expected_for(models[name], steps_for(models[name]))
    np.testing.assert_allclose(results[name], expected, rtol=1e-5, atol=1e-5)
    if name not in ("music", "nade", "chain", "tied"):
        chances = torch.from_numpy(expected[-1]).softmax(0)
        np.testing.assert_allclose(results[f"{name} chances"], chances, atol=1e-5)


@pytest.mark.parametrize("name", ["nade", "tied", "letters"])
def test_int8_is_that_of_c(results, models, engine_of_gcc, name):
    model, steps = engine_of_gcc.model(blob(models[name], int8=True)), steps_for(models[name])[:, 0]
    expected = [model.step_token(int(x)) if steps.dim() == 1 else model.step(x.numpy()) for x in steps]
    np.testing.assert_allclose(results[f"{name} int8"], expected, atol=2e-3)


def test_forecasts_are_those_of_rru(results, models, tmp_path):
    (expected,) = models["series"].forecast(energy(tmp_path / "energy.csv"))
    np.testing.assert_allclose(results["series"], expected.quantiles, rtol=2e-5)


@pytest.mark.parametrize("name", ["nade", "tied"])
def test_music_is_drawn_as_by_c(results, models, engine_of_gcc, name):
    model, chord = engine_of_gcc.model(blob(few_voices(models[name]))), np.zeros(88)
    model.seed(5)
    for expected in results[f"{name} drawn"]:
        model.step(chord)
        chord = model.chord(0.9)
        assert chord.tolist() == expected
    assert np.sum(results[f"{name} drawn"]) > 0


def test_a_damaged_model_is_refused(results):
    assert results["damaged"] == "the model is damaged: its checksum is wrong"


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed")
@pytest.mark.parametrize("name", build_engine.MODULES)
def test_building_the_module_again_gives_the_same_bytes(name, tmp_path):
    assert build_engine.build(name, tmp_path).read_bytes() == (ENGINE / name).read_bytes(), "run `make engine`"


def test_modules_import_nothing_and_are_small():
    for name in build_engine.MODULES:
        content = (ENGINE / name).read_bytes()
        assert content[:4] == b"\0asm"
        assert len(content) < 64_000
        assert b"\x02\x00" not in content[8:10]  # no section of imports


assert sys.version_info >= (3, 11)
