"""`python -m rru`: the command `rru`, where its script is not on the path, or torchrun starts it."""

from rru.cli import main

main()
