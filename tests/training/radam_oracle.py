"""The paper's RAdam a second time, one number after another, in NumPy and double precision.

Written from the description of the optimiser alone, for the tests to compare with.
"""

import math

import numpy as np


class Oracle:
    """Every tensor is an array of its own, with its own count of steps."""

    def __init__(self, values, lr, betas=(0.9, 0.999), eps=1e-7, clip=None):
        self.values = [np.array(value, dtype=np.float64) for value in values]
        self.lr, (self.b1, self.b2), self.eps, self.clip = lr, betas, eps, clip
        self.m = [np.zeros_like(value) for value in self.values]
        self.v = [np.zeros_like(value) for value in self.values]
        self.t = [0] * len(self.values)
        self.clipped = self.untractable = 0

    def step(self, gradients):
        for index, gradient in enumerate(gradients):
            if gradient is not None:
                self.t[index] += 1
                self._one(index, np.array(gradient, dtype=np.float64), self.t[index])

    def _one(self, index, gradient, t):
        m, v, value = self.m[index], self.v[index], self.values[index]
        if self.clip is not None:
            most = self.clip * math.sqrt(v.sum() / (1 - self.b2**t)) + 0.01
            norm = math.sqrt((gradient**2).sum())
            if norm > most:
                self.clipped += 1
                gradient = gradient * (most / norm)
        for place in np.ndindex(value.shape):
            v[place] = self.b2 * v[place] + (1 - self.b2) * gradient[place] ** 2
            normalised = gradient[place] / (math.sqrt(v[place] / (1 - self.b2**t)) + self.eps)
            m[place] = self.b1 * m[place] + (1 - self.b1) * normalised
            value[place] -= self.lr * self._rectification(t) * m[place] / (1 - self.b1**t)

    def _rectification(self, t):
        sma_inf = 2 / (1 - self.b2) - 1
        sma = sma_inf - 2 * t * self.b2**t / (1 - self.b2**t)
        if sma < 5:
            self.untractable += 1
            return 1.0
        return math.sqrt(((sma - 4) / (sma_inf - 4)) * ((sma - 2) / (sma_inf - 2)) * (sma_inf / sma))
