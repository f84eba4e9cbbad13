"""`python -m bqrl`: the command line."""

from ._command import main

main()
