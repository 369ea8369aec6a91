"""``python -m trailmark.cli``."""

import sys

from trailmark.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
