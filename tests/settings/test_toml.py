"""How configs are compared."""

from rru.settings import toml


def test_differences_are_named_with_both_values():
    first = {"model": {"budget": 1, "output_size": 16}}
    second = {"model": {"budget": 2}, "task": {"limit": 3}}
    assert toml.differences(first, first) == ""
    assert toml.differences(first, second) == (
        "model.budget is 1, not 2; model.output_size is 16, not left out; task.limit is left out, not 3"
    )
