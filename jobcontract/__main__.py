"""``python -m jobcontract`` is ``jobctl``."""

from jobcontract.cli import main

if __name__ == "__main__":
    main()
