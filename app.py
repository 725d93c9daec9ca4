"""Entry point of the web app, also on a Hugging Face Space: build the interface, launch it.

``MULTIDRAFT_POOL`` names the pool's card (``pocket`` by default), ``MULTIDRAFT_POOLS`` a folder of further ones,
``MULTIDRAFT_DB`` the file of the history.
"""

import sys

from multidraft.errors import UserError
from multidraft.ui import launch

if __name__ == "__main__":
    try:
        launch()
    except UserError as error:
        sys.exit(f"multidraft: {error}")
