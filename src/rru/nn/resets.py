"""Check where a call of a layer resets states, and bring it into the layout of the scans."""

from torch import Tensor

from rru.scan.resets import check_resets, within_lengths

BIDIRECTIONAL = (
    "bidirectional must be False to reset states inside sequences: the reverse direction would carry what comes after "
    "a reset to the steps before it. Give each part as a sequence of its own, with lengths"
)
NO_MASK = "reset_state needs resets, which say where it is used; for the state before the first step give state"


def reset_mask(resets: Tensor, x: Tensor, lengths: Tensor | None, *, batched: bool, batch_first: bool) -> Tensor:
    """Return the mask of resets (T, B), without those after the end of a sequence.

    **Arguments:**

    - `resets`: as the user gave it: (T, B), or (B, T) with `batch_first`, or (T,) unless `batched`.
    - `x`: (T, B, m).
    - `lengths`: (B,), or None.
    """
    steps, batch = x.shape[:2]
    if not batched:
        check_resets(resets, (steps,), "(steps,)")
        resets = resets.unsqueeze(1)
    elif batch_first:
        check_resets(resets, (batch, steps), "(batch, steps)")
        resets = resets.transpose(0, 1)
    else:
        check_resets(resets, (steps, batch), "(steps, batch)")
    return within_lengths(resets.to(x.device), lengths)
