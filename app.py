"""Entry point of the web app, also on a Hugging Face Space; ``multidraft.service.settings`` reads how it is set up."""

import sys

from multidraft.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["demo", *sys.argv[1:]]))
