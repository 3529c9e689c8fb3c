"""tests/data: each report must be what its log amounts to today, and valid by the schema."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema


def main() -> int:
    log_to_report, memlab_report, root = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    schema = json.loads(Path(sys.argv[4]).read_text("utf-8"))
    problems = []
    logs = sorted((root / "tests/data").rglob("*.memlog"))
    for log in logs:
        derived = subprocess.run([log_to_report, log], capture_output=True, check=False)
        if derived.returncode != 0:
            problems.append(f"{log.name}: {derived.stderr.decode(errors='replace').strip()}")
            continue
        report = log.with_suffix(".json")
        if report.exists() and report.read_bytes() != derived.stdout:
            problems.append(f"{report.name}: not what its log amounts to")
        named = log.with_name(log.stem + "_named.json")
        if named.exists():
            said = subprocess.run([memlab_report, "validate", named, log], capture_output=True, check=False).stdout
            if f"the same as {named}" not in said.decode():
                problems.append(f"{named.name}: {said.decode().strip()}")
        for error in jsonschema.Draft7Validator(schema).iter_errors(json.loads(derived.stdout)):
            problems.append(f"{log.name}: {error.json_path}: {error.message}"[:300])
        for file in (log, report):
            if file.exists():
                shown = subprocess.run([memlab_report, "--no-symbols", file], capture_output=True,
                                       check=False)
                if shown.returncode != 0 or not re.search(rb"allocated|No GPU memory", shown.stdout):
                    problems.append(f"memlab-report {file.name}: {shown.stderr.decode().strip()}")
    run = root / "tests/data/h200/run_of_four_ranks"
    for arguments in ([str(run)], ["merge", str(run)], ["validate", str(run)]):
        shown = subprocess.run([memlab_report, *arguments], capture_output=True, check=False)
        if shown.returncode != 0 or shown.stderr:
            problems.append(f"memlab-report {' '.join(arguments)}: {shown.stderr.decode().strip()}")
    for problem in problems:
        print(problem)
    print(f"{len(logs)} recordings checked")
    return 1 if problems or len(logs) < 25 else 0


sys.exit(main())
