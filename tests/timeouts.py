"""How long tests wait for something that must happen. No test depends on the speed of the machine."""

TIMEOUT = 600.0  # seconds; only what hangs takes as long, also on a slow and busy machine
