#!/usr/bin/env python3
"""What the report's schema says of its members is not in libmemlab.so, which lies in every program's memory.

    check_library_texts.py LIBRARY SCHEMA
"""

import json
import pathlib
import sys


def descriptions(part):
    """The descriptions in a part of the schema."""
    if isinstance(part, dict):
        if isinstance(part.get("description"), str):
            yield part["description"]
        for member in part.values():
            yield from descriptions(member)


def main():
    library = pathlib.Path(sys.argv[1]).read_bytes()
    schema = json.loads(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))
    # Shorter ones may be words of something else.
    texts = {text for text in descriptions(schema["properties"]) if len(text) >= 30}
    found = sorted(text for text in texts if text.encode() in library)
    for text in found:
        print(f"libmemlab.so has a description of the report's schema: {text}")
    return 1 if found or len(texts) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
