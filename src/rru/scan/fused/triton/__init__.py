"""Triton kernels of the fused scans. Import only where Triton runs: `devices.runs_triton`."""
