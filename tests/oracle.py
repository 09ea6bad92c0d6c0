"""The four cells in plain NumPy float64, one sequence and one step at a time, written from paper.tex and reference.md.

It shares no code with the package it checks; a batch is computed by calling a cell once per sequence.
"""

import math

import numpy as np


def rru(w, x, h0, *, relu_layers=1, normalize=True, residual="learned", activate_outputs=False, **sequence):
    """Residual Recurrent Unit: x (T, m), h0 (n,), masks (T, g) -> outputs (T, p), final h (n,)."""

    def step(w, x, h, dropout):
        # Eq. 1
        j = w["weight_x"] @ x + w["weight_h"] @ h + w["bias_j"]
        if normalize:
            j = j / np.sqrt(np.mean(j**2) + 1e-6)
        j = _relu(j)

        # Eq. 2, zero or more times: Eq. 1 is the first of the ReLU layers
        for k in range(1, relu_layers):
            j = _relu(w[f"weight_k{k}"] @ j + w[f"bias_k{k}"])

        # Eq. 3
        d = dropout(j)

        # Eq. 4 and Eq. 6, with the ablation's "ReLU over c and o"
        c = w["weight_c"] @ d + w["bias_c"]
        o = w["weight_o"] @ d + w["bias_o"]
        if activate_outputs:
            c = _relu(c)
            o = _relu(o)

        # Eq. 5; Z has one value per feature, or a single one for all (ablation "single scalar ReZero").
        # Ablation "S = 1": the shortcut itself is unscaled, not scaled by sigmoid(1). S is stored divided by 10.
        scale = 1.0 if residual == "unscaled" else _sigmoid(10 * w["S"])
        return o, (scale * h + w["Z"] * c,)

    outputs, (h,) = _over_time(step, w, x, (h0,), **sequence)
    return outputs, h


def gru(w, x, h0, *, reset_after=False, **sequence):
    """Gated Recurrent Unit: x (T, m), h0 (n,), masks (T, n) -> outputs (T, n), final h (n,)."""

    def step(w, x, h, dropout):
        x_reset, x_update, x_candidate = np.split(w["weight_x"], 3)
        h_reset, h_update, h_candidate = np.split(w["weight_h"], 3)
        b_reset, b_update, b_candidate = np.split(w["bias"], 3)

        # reference.md, "The rivals": GRU
        r = _sigmoid(x_reset @ x + h_reset @ h + b_reset)
        u = _sigmoid(x_update @ x + h_update @ h + b_update)
        if reset_after:  # the form of torch.nn.GRU
            candidate = x_candidate @ x + b_candidate + r * (h_candidate @ h + w["bias_h"])
        else:
            candidate = x_candidate @ x + b_candidate + h_candidate @ (r * h)
        h = u * h + (1 - u) * dropout(np.tanh(candidate))
        return h, (h,)

    outputs, (h,) = _over_time(step, w, x, (h0,), **sequence)
    return outputs, h


def lstm(w, x, h0, c0, *, forget_bias=1.0, **sequence):
    """LSTM with a constant forget bias: x (T, m), h0 and c0 (n,), masks (T, n) -> outputs (T, n), final (h, c)."""

    def step(w, x, h, c, dropout):
        # reference.md, "The rivals": LSTM
        i, f, j, o = np.split(w["weight_x"] @ x + w["weight_h"] @ h + w["bias"], 4)
        c = _sigmoid(f + forget_bias) * c + _sigmoid(i) * dropout(np.tanh(j))
        h = np.tanh(c) * _sigmoid(o)
        return h, (h, c)

    return _over_time(step, w, x, (h0, c0), **sequence)


def mogrifier(w, x, h0, c0, *, rounds, rank, **sequence):
    """Mogrifier LSTM, rounds counted from 0: x (T, m), h0 and c0 (n,), masks (T, n) -> outputs (T, n), final (h, c)."""

    def step(w, x, h, c, dropout):
        # reference.md, "The rivals": Mogrifier LSTM, the alternating gatings
        for number in range(rounds):
            source = h if number % 2 == 0 else x
            if rank == 0:
                product = w[f"weight_m{number}"] @ source
            else:
                product = w[f"weight_b{number}"] @ (w[f"weight_a{number}"] @ source)
            gate = 2 * _sigmoid(product + w[f"bias_m{number}"])
            if number % 2 == 0:
                x = x * gate
            else:
                h = h * gate

        # the LSTM step on the gated x and h, with the input gate capped and no forget bias
        i, f, j, o = np.split(w["weight_x"] @ x + w["weight_h"] @ h + w["bias"], 4)
        i = _sigmoid(i)
        f = _sigmoid(f)
        c = f * c + np.minimum(1 - f, i) * dropout(np.tanh(j))
        h = np.tanh(c) * _sigmoid(o)
        return h, (h, c)

    return _over_time(step, w, x, (h0, c0), **sequence)


def default_state_rru(n):
    """Initial state of the RRU (paper, Section 3): zeros but for feature 0 = sqrt(n) / 4."""
    h = np.zeros(n)
    h[0] = 0.25 * math.sqrt(n)
    return h


def philox4x32_10(counter, key):
    """Random123's Philox4x32-10: counter of 4 and key of 2 32-bit integers -> 4 32-bit integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 2**32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 = (k0 + 0x9E3779B9) % 2**32
        k1 = (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def _over_time(step, w, x, state, *, length=None, reverse=False, masks=None):
    """Run a step over one sequence, in float64. Outputs from `length` on are zero; masks are already scaled."""
    w = {name: np.asarray(value, dtype=np.float64) for name, value in w.items()}
    state = [np.array(part, dtype=np.float64) for part in state]
    order = list(range(len(x) if length is None else length))
    outputs = {}
    for t in order[::-1] if reverse else order:
        mask = 1.0 if masks is None else np.asarray(masks[t], dtype=np.float64)
        outputs[t], state = step(w, np.array(x[t], dtype=np.float64), *state, dropout=lambda a, mask=mask: a * mask)
    return np.array([outputs.get(t, np.zeros_like(outputs[0])) for t in range(len(x))]), tuple(state)


def _relu(a):
    """max(a, 0), elementwise."""
    return np.maximum(a, 0.0)


def _sigmoid(a):
    """1 / (1 + exp(-a)), written so that exp never overflows."""
    return np.exp(-np.logaddexp(0.0, -a))
