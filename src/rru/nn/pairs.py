"""Finds code that unpacks a pair (h, c) from a layer with one state, which two layers or directions would allow."""

import dis
import functools
import itertools
import sys
from types import CodeType, FrameType

_PAIR = ("UNPACK_SEQUENCE", 2)


def refuse_pair(name: str) -> None:
    """Raises if the code that called the layer reads `output, (h, c) = layer(x)`. Call this in `forward`."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith("torch."):  # torch calls `forward` for the caller
            use = _use_of_result(frame.f_code, frame.f_lasti)
            if use == "pair":
                raise TypeError(
                    f"{name} has one state, not a pair (h, c): write `output, state = layer(x)`; for the state of each "
                    "layer and direction write `state.unbind()`"
                )
            if use != "return":
                return
        frame = frame.f_back


@functools.lru_cache(maxsize=1024)
def _use_of_result(code: CodeType, call: int) -> str:
    """Returns what a function does with the result of a call, given the call's place in its bytecode.

    "pair" for `output, (h, c) = call` and `h, c = call[1]`, "return" for `return call`, else "".
    """
    after = [one for one in dis.get_instructions(code) if one.offset > call][:8]
    names = [one.opname for one in after]
    if names[:1] == ["RETURN_VALUE"]:
        return "return"
    kinds = [(one.opname, one.arg) for one in after]
    if kinds[:1] == [_PAIR]:  # `output` may be an attribute or an item, which is loaded first
        stored = 1 + len(list(itertools.takewhile(lambda name: name.startswith("LOAD"), names[1:])))
        return "pair" if names[stored].startswith("STORE") and kinds[stored + 1 : stored + 2] == [_PAIR] else ""
    one = len(after) > 2 and after[0].argval == 1 and names[1] in ("BINARY_SUBSCR", "BINARY_OP")
    return "pair" if one and kinds[2] == _PAIR else ""
