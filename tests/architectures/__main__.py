"""`python -m tests.architectures [NAME ...] [--all]`: judge models; without names those of the table, and write it."""

import argparse
import sys
import warnings

from transformers import CONFIG_MAPPING

from tests.architectures.models import MODELS
from tests.architectures.table import DOCUMENT, markdown, verdicts


def main() -> int:
    """Print a line for each model; 1 where a number is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.architectures", description=__doc__)
    parser.add_argument("names", nargs="*", help="rows of the table, or model types of Transformers")
    parser.add_argument("--all", action="store_true", help="every model type that Transformers has; writes nothing")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows = []
    for row in verdicts(asked.names or (CONFIG_MAPPING if asked.all else MODELS)):
        print(f"{row.architecture} | {row.status} | {row.towers} | {row.circuits} | {row.last}", flush=True)
        rows.append(row)
    if not asked.names and not asked.all:
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(markdown(rows), encoding="utf-8")
    return int(any(row.status in ("WRONG", "unproved") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
