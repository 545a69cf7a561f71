"""`python -m tests.fuzz`: three minutes of changed files, every format in turn; what breaks is kept.

python -m tests.fuzz --seconds 180               as `make fuzz`; begins at another place every day
python -m tests.fuzz --inputs 50000 --first 0    so many, from a number on
python -m tests.fuzz --form npz --first 1234 --inputs 1     one of them again, with its traceback
"""

import argparse
import resource
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.fuzz.forms import FORMS
from tests.fuzz.judge import Fuzzer, Violation


def main() -> int:
    """Exit code: 0 if nothing broke."""
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    options.add_argument("--seconds", type=float, default=180.0)
    options.add_argument("--inputs", type=int, help="so many instead of so long")
    options.add_argument("--first", type=int, default=int(time.time() // 86400) * 10_000_000)
    options.add_argument("--form", choices=FORMS, help="one format only")
    options.add_argument("--keep", type=Path, default=Path("results/fuzz"), help="where files that broke something go")
    chosen = options.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    names = [chosen.form] if chosen.form else [name for name, form in FORMS.items() for _ in range(form.weight)]
    tried, refused, broken = Counter(), Counter(), []
    with Fuzzer(chosen.keep) as fuzzer:
        for name in dict.fromkeys(names):
            fuzzer.try_whole(name)
        began, number = time.monotonic(), chosen.first
        print(f"from input {number} on, {len({*names})} formats", flush=True)
        while number - chosen.first < chosen.inputs if chosen.inputs else time.monotonic() - began < chosen.seconds:
            name = names[number % len(names)]
            tried[name] += 1
            try:
                refused[name] += not fuzzer.try_one(name, number)
            except Violation as violation:
                broken.append(violation)
                print(f"VIOLATION {violation}", flush=True)
                if chosen.inputs == 1:
                    traceback.print_exception(violation.__cause__)
            number += 1
    for name, count in tried.items():
        print(f"{name:30s} {count:7d} inputs, {refused[name] / count:4.0%} refused by name, the rest read right")
    print(f"{sum(tried.values())} inputs in {time.monotonic() - began:.0f} s, {len(broken)} violations")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
