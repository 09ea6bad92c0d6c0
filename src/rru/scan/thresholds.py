"""Every threshold that chooses an algorithm, with where it was measured. C++ gets those it needs as numbers.

Measured on x86-64 with AVX-512 and AVX2; docs/lab/ has the tables. Results do not depend on any of them, up
to rounding. CONTRIBUTING.md shows which backward pass they choose.
"""

# Native or reference, in scan/__init__.py. Packing the weights of a large layer takes about as long as two steps.
MIN_NATIVE_STEPS = 3
"""With this many steps or more, the native scan is faster, for any batch size."""
MAX_UNPACKED_WEIGHTS = 100_000
"""Up to this many weights it is faster for any number of steps."""

# Native scans.
MIN_PACKED_TOKENS = 16
"""Steps times sequences from which a scan packs its weights: with fewer, packing costs more than it saves."""
MIN_PARALLEL_WORK = 16_000_000
"""Steps times sequences times weights; below it, starting a thread or calling torch costs more than it saves."""
MIN_TEAM_ROWS = 12
"""Sequences that a thread needs to make good use of the weights it reads. With fewer, threads share the weights ..."""
MAX_CACHED_WEIGHTS = 1 << 20
"""... if these take more bytes than this, about the L2 cache of a core."""

MIN_KEPT_TENSOR = 4 << 20
"""Bytes from which the memory of what a step saves and of its buffers is kept for later steps (scratch.py) ..."""
MAX_KEPT_BYTES = 512 << 20
"""... up to this many bytes that no tensor uses. A training step of the largest shape of benchmarks/ needs fewer."""

# Single steps with gradients: scan/native/shared_weights.py.
MAX_WAITING_ROWS = 512
"""Rows that wait to be multiplied to weight gradients. More would take memory, but be no faster."""

# RRU: skipping the zeros of d. docs/lab/2026-11-native-scans.md, "Products that skip zeros".
MAX_SPARSE_ROW = 0.4
"""The share of nonzeros below which a sparse row times a matrix is faster."""
MAX_SPARSE_RESULT = 0.4
"""The same for a product of which only the entries where d is nonzero are needed."""
MAX_SPARSE_GRADIENT = 0.45
"""The same for the gradients of the weights around d ..."""
MIN_SPARSE_GRADIENT_WIDTH = 256
"""... if n + p is at least this value."""

# RRU: the wide form (scan/native/rru_wide.py). docs/lab/2026-11-native-scans.md, "Wide layers".
MIN_WIDE_DROPOUT = 0.45
"""The dropout rate from which the form helps: at most the other entries of d are live."""
MIN_WIDE_WIDTH = 256
"""The n + p from which it helps, as for other products that skip zeros."""
SELECT_ABOVE = 0.7
"""The dropout rate above which Eq. 1 is computed only where dropout keeps it."""
MAX_WIDE_EXTRA, MAX_WIDE_EXTRA_SELECTED = 0.6, 0.8
"""The most additional work, as a share of Eq. 1's, up to SELECT_ABOVE and above it; see `is_wide`."""
MIN_WIDE_DROPOUT_BFLOAT16, MAX_WIDE_EXTRA_BFLOAT16 = 0.6, 0.3
"""The same under autocast, where other forms multiply in bfloat16 and this one in float32: it must skip more.
docs/lab/2026-11-speed.md, "Whole training steps in bf16"."""

# Fused scans. Not measured, for want of a GPU: computed from the sizes of registers and caches.
MAX_WHOLE_STATE, MAX_WHOLE_UNITS = 128, 1024
"""The largest n and g of an RRU whose whole loop is one kernel. A program must hold the states, and a few units'
weights, in registers. The weights then take at most 1 MB, which stays in the L2 cache of every GPU that Triton
supports."""
MASK_ENTRIES = 2**18
"""Entries of dropout masks that torch operations compute at once: Philox takes about 40 bytes of memory per entry."""
