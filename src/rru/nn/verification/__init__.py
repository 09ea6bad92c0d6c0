"""`rru.verify`: run a model on every path that can run here, and compare the results."""

from rru.nn.verification.table import Checked, Verification
from rru.nn.verification.verifying import verify

__all__ = ["Checked", "Verification", "verify"]
