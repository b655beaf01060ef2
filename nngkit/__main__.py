"""``python -m nngkit`` is the ``nngkit`` command."""

import sys

from nngkit.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
