"""Known vulnerabilities of the libraries that ``constraints.txt`` pins, by PyPA's pip-audit: ``make audit``.

pip-audit itself passes where it could look up nothing. Here the exit status is 0 if all were looked up and none is
known to be vulnerable, 1 if one is, and 2 if some could not be looked up: that is no verdict. ``--told`` makes 2 a 0,
once it has been told, for machines that cannot reach the service.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PINS = Path(__file__).parents[1] / "constraints.txt"
CLEAN, VULNERABLE, UNKNOWN = 0, 1, 2
SECONDS = 600


def audit(command: Sequence[str]) -> tuple[int, str]:
    """The verdict of pip-audit, called by ``command``, and what to tell of it."""
    asked = [*command, "-r", str(PINS), "--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=SECONDS)
        found = json.loads(done.stdout)["dependencies"]
    except (OSError, subprocess.TimeoutExpired) as error:
        return UNKNOWN, f"COULD NOT AUDIT: {error}"
    except (ValueError, KeyError, TypeError):
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return UNKNOWN, f"COULD NOT AUDIT: pip-audit ended with status {done.returncode}: {last}"
    left = [library for library in found if "skip_reason" in library]
    bad = [f"{lib['name']} {lib['version']}: {vuln['id']}" for lib in found for vuln in lib.get("vulns", ())]
    lines = [f"VULNERABLE: {one}" for one in bad]
    if left or not found:
        why = f", e.g. {left[0]['skip_reason']}" if left else ""
        lines.append(
            f"COULD NOT AUDIT {len(left)} of {len(found)} libraries{why}. Try where the service can be reached"
        )
    else:
        lines.append(f"audited {len(found)} libraries: {len(bad)} known vulnerabilities")
    return VULNERABLE if bad else UNKNOWN if left or not found else CLEAN, "\n".join(lines)


def main(options: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--told", action="store_true", help="pass where it could not be audited")
    parser.add_argument("command", nargs="+", help="pip-audit")
    asked = parser.parse_args(options)
    status, said = audit(asked.command)
    print(said)
    return CLEAN if status == UNKNOWN and asked.told else status


if __name__ == "__main__":
    sys.exit(main())
