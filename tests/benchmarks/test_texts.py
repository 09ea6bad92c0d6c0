"""Tests for what `benchmarks.texts` compares the RRU with."""

import json

import torch
from torch import nn

from benchmarks import texts, texts_chart


def test_scan_is_the_recurrence_of_mingru():
    gate, candidate, h = torch.randn(5, 2, 3), torch.rand(5, 2, 3), torch.rand(2, 3)
    states = texts.scan(gate, candidate, h)
    for step in range(5):
        z = torch.sigmoid(gate[step])
        h = (1 - z) * h + z * candidate[step]
        torch.testing.assert_close(states[step], h)


def test_layers_carry_their_state():
    x = torch.randn(12, 2, 8)
    for layer_class in texts.LAYERS.values():
        layer = layer_class(8, 16, dropout=0.0)
        whole, last = layer(x, layer.initial_state(2))
        first, state = layer(x[:5], layer.initial_state(2))
        second, carried = layer(x[5:], state)
        torch.testing.assert_close(torch.cat([first, second]), whole)
        for part, expected in zip(carried, last, strict=True):
            torch.testing.assert_close(part, expected)


def test_every_token_counts_once():
    class Marked(nn.Module):
        """Says the logits of each token's own number, so that its loss is known."""

        def forward(self, inputs, targets):
            chances = torch.stack([torch.full(targets.shape, 0.0), targets.float()], -1)
            return torch.where(targets.bool()[..., None], chances, -chances), None

    tokens = (torch.rand(41) < 0.5).long()
    logits = torch.stack([torch.zeros(40), tokens[1:].float()], -1)
    logits = torch.where(tokens[1:].bool()[:, None], logits, -logits)
    expected = nn.functional.cross_entropy(logits, tokens[1:]).item()
    assert abs(texts.windows_loss(Marked(), tokens, 8) - expected) < 1e-6


def test_rate_rises_and_then_falls_to_a_tenth():
    rates = [texts.rate(step, 2000) for step in range(2000)]
    assert max(rates) == rates[100] == 1e-3
    assert rates[0] < 2e-5
    assert abs(rates[-1] - 1e-4) < 1e-6


def test_chart_names_every_model(tmp_path, monkeypatch):
    curves, picture = tmp_path / "curves.jsonl", tmp_path / "chart.svg"
    lines = [
        {"model": "rru", "parameters": 259_900, "points": [[30.0, 1.7], [60.0, 1.6]]},
        {"model": "rru", "parameters": 259_000, "points": [[30.0, 1.8], [60.0, 1.65]]},
        {"model": "nanogpt", "parameters": 800_000, "points": [[30.0, 2.3], [90.0, 1.9]]},
    ]
    curves.write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.setattr("sys.argv", ["texts_chart", str(curves), str(picture)])
    texts_chart.main()
    assert "RRU 0.26M: 1.60" in picture.read_text()
    assert "nanoGPT 0.8M: 1.90" in picture.read_text()
    assert picture.read_text().count("RRU") == 1  # the better one of two runs
