"""The native back end: loops in C++ (native/), on CPUs."""
