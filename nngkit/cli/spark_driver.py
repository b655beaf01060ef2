"""Script for spark-submit: run `nngkit spark` in the driver, with the arguments that follow."""

import sys

from nngkit.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["spark", *sys.argv[1:]]))
