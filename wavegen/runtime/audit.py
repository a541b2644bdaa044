"""Names what a session in the fence left in the project that the host would execute or follow, compared with what was there at entry.

    python3 -I -S audit.py --project DIR --state DIR [--cache DIR] [--summary [--done MARKER] | --json [--all] | --accept]

--state is the project's directory of what wavegen keeps, outside of the project: in it are `entered-PID-TIME`, an empty file for each session that
was not audited, whose mtime is its entry, and `audit.json`, the baseline. The earliest entry counts; where there is none nothing is new, unless
--all lists whatever the baseline does not know. --done names the marker of the session that has ended: it goes where nothing is found.

Starts nothing, git least of all. Exit status: 0 nothing found, 1 something, 2 wrong usage, 3 not everything could be looked at; with --summary
always 0, with --accept 0 unless the baseline cannot be written (3).

This file is read anew at each start, so it is short: the rest is in modules whose compiled form is kept in the DIR of --cache.
"""

import os
import sys

if __name__ == "__main__":
    # -I leaves the script's own directory out. Nothing is written there, as it may be read-only.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    if "--cache" in sys.argv[:-1]:
        sys.pycache_prefix = sys.argv[sys.argv.index("--cache") + 1]
    else:
        sys.dont_write_bytecode = True

    import audit_command

    sys.exit(audit_command.main(sys.argv[1:]))
