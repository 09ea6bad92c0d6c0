"""The fused back end: the native scans' algorithm on any device, with few kernels a step and one node in a graph."""
