"""`python -m rru.cli`, where the script `rru` is not on the path."""

from rru.cli import main

main()
