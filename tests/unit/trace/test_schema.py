"""Real reports are valid by the schema, and broken variants of them are not.

usage: test_schema.py SAMPLE_REPORTS_PROGRAM SCHEMA
Exit code 77 (a skipped test) when the jsonschema package is not installed.
"""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("skipped: this Python has no jsonschema (Debian, Ubuntu: python3-jsonschema)")
    sys.exit(77)


# Members that are omitted when empty.
OPTIONAL = {"python_frames", "scopes", "unbalanced_scopes", "steps", "labels", "nn_modules", "largest_live",
            "collected"}
OPTIONAL_OF_DEVICE = {"work", "curves_at_peak", "kernels_at_peak", "kind_curves", "ledger"}


def shortened(value):
    """With the first few of what lists have many of: one is as another, and validating is slow."""
    if isinstance(value, dict):
        return {name: shortened(member) for name, member in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        return [shortened(element) for element in value[:5]]
    return value


def broken_variants(report):
    """Yields (description, report) with one defect each."""
    for name in report.keys() - OPTIONAL:
        variant = copy.deepcopy(report)
        del variant[name]
        yield f"without {name}", variant

    def change(what, edit):
        variant = copy.deepcopy(report)
        edit(variant)
        return what, variant

    device = report["devices"][0]
    yield change("version 2", lambda r: r.update(version=2))
    yield change("unknown end", lambda r: r["process"].update(ended="crash"))
    yield change("text for bytes", lambda r: r["devices"][0].update(total_bytes="1 GiB"))
    yield change("negative bytes", lambda r: r["sites"][0].update(bytes=-1))
    yield change("bytes beyond 64 bits", lambda r: r["sites"][0].update(bytes=2**64))
    yield change("unknown kind", lambda r: r["sites"][0].update(kind="texture"))
    yield change("ratio above 1",
                 lambda r: r["devices"][0]["fragmentation"].update(at_peak=1.5))
    yield change("a short row", lambda r: r["devices"][0]["timeline"]["rows"][0].pop())
    for name in sorted(device.keys() - OPTIONAL_OF_DEVICE):
        yield change(f"device without {name}", lambda r, n=name: r["devices"][0].pop(n))
    for name in device["memory_stats"]:
        yield change(f"memory_stats without {name}",
                     lambda r, n=name: r["devices"][0]["memory_stats"].pop(n))
    for name in report["python_frames"][1]:
        yield change(f"a Python frame without {name}",
                     lambda r, n=name: r["python_frames"][1].pop(n))
    for table in ("scopes", "steps", "labels", "nn_modules", "largest_live"):
        for name in report[table][0]:
            yield change(f"{table} without {name}", lambda r, t=table, n=name: r[t][0].pop(n))
    yield change("unknown verdict", lambda r: r["steps"][0].update(verdict="fine"))
    for name in report["sites"][0]:
        if name not in OPTIONAL:
            yield change(f"site without {name}", lambda r, n=name: r["sites"][0].pop(n))


def main():
    program, schema_path = sys.argv[1:]
    schema = json.loads(pathlib.Path(schema_path).read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, folder], check=True)
        reports = {path.name: json.loads(path.read_bytes())
                   for path in sorted(pathlib.Path(folder).glob("*.json"))}
    for report in reports.values():
        for device in report["devices"]:
            del device["timeline"]["rows"][100:-100]  # a row is as another, and validating is slow
    failures = 0
    for name, report in reports.items():
        for error in validator.iter_errors(report):
            failures += 1
            print(f"{name}: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}")
    plausible = shortened(reports["plausible1.json"])
    if not validator.is_valid(plausible):
        failures += 1
        print("the schema refuses the report that is to be broken")
    variants = 0
    for what, variant in broken_variants(plausible):
        variants += 1
        if validator.is_valid(variant):
            failures += 1
            print(f"the schema accepts a report {what}")
    print(f"{len(reports)} reports, {variants} broken variants, {failures} failures")
    return 1 if failures or len(reports) < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
