"""`python -m bqrl`: the command line."""

from ._command import main

if __name__ == "__main__":
    main()
