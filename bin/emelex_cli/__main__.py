"""`python -P -m emelex_cli`."""

import sys

from emelex_cli.app import main

sys.exit(main())
