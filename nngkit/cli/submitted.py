"""What `spark-submit` is given to run in the driver: `nngkit spark` with the arguments behind it."""

import sys

from nngkit.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["spark", *sys.argv[1:]]))
