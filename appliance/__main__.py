"""`python -m appliance` is `gos`."""

import sys

from appliance.cli import main

sys.exit(main())
