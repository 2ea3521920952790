"""`python -m lno` is the command `lno`, where it is not installed."""

from lno.cli import main

if __name__ == "__main__":
    main()
