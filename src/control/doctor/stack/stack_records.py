"""Compares installed packages with the contents of their wheels (RECORD of the dist-info folder), for `fulldeck doctor`: one line of
JSON on descriptor 3 per package.

The argument: {"packages": [dist names, lower case with dashes], "everything": false}"""
import base64
import csv
import hashlib
import json
import os
import sys

SMALL_LIBRARY = 1 << 20
MOST_NAMED = 12


def tell(**fields):
    os.write(3, (json.dumps(fields) + "\n").encode())


def sum_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def is_looked_at(name, size, everything):
    if name.endswith(".py"):
        return True
    library = ".so" in os.path.basename(name)
    return everything or (library and size is not None and size < SMALL_LIBRARY)


def compare(name, folder, everything):
    base = os.path.dirname(folder)
    answer = {"package": name, "folder": folder, "compared": 0, "changed": [], "missing": [], "patched": [], "added": []}
    record = os.path.join(folder, "RECORD")
    try:
        if os.path.exists(os.path.join(folder, "direct_url.json")):
            with open(os.path.join(folder, "direct_url.json")) as file:
                answer["editable"] = bool(json.load(file).get("dir_info", {}).get("editable"))
    except (OSError, ValueError):
        pass
    try:
        with open(record, newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if len(row) >= 3]
    except OSError:
        answer["no_record"] = True
        return answer
    named = set()
    total = 0
    for path, sum_text, size_text in (row[:3] for row in rows):
        named.add(path)
        # Installers rewrite files outside the package folder (scripts in bin/).
        if not sum_text.startswith("sha256=") or path.startswith("../") or path.startswith("/"):
            continue
        size = int(size_text) if size_text.isdigit() else None
        if not is_looked_at(path, size, everything):
            continue
        full = os.path.join(base, path)
        try:
            found = os.stat(full).st_size
            answer["compared"] += 1
            total += found
            if (size is None or found == size) and sum_of(full) == sum_text[7:]:
                continue
        except OSError:
            answer["missing"].append(path)
            continue
        original = full + ".fulldeck-original"
        if os.path.exists(original) and sum_of(original) == sum_text[7:]:
            answer["patched"].append(path)
        else:
            answer["changed"].append(path)
    tops = {path.split("/")[0] for path in named if "/" in path and not path.startswith(".") and ".dist-info" not in path}
    for top in sorted(tops):
        # A module in the package's folder that is not part of the wheel.
        try:
            for entry in os.listdir(os.path.join(base, top)):
                path = top + "/" + entry
                if entry.endswith((".py", ".so")) and path not in named:
                    answer["added"].append(path)
        except OSError:
            pass
    answer["bytes"] = total
    for key in ("changed", "missing", "patched", "added"):
        answer[key + "_count"] = len(answer[key])
        answer[key] = answer[key][:MOST_NAMED]
    return answer


def main():
    request = json.loads(sys.argv[1])
    wanted = set(request["packages"])
    seen = set()
    for entry in [entry for entry in sys.path if entry not in ("", os.getcwd())]:
        try:
            names = sorted(os.listdir(entry))
        except OSError:
            continue
        for folder in names:
            name = folder.split("-")[0].lower().replace("_", "-")
            if folder.endswith(".dist-info") and name in wanted and (entry, folder) not in seen:
                seen.add((entry, folder))
                tell(**compare(name, os.path.join(entry, folder), request["everything"]))
    tell(done=True)


main()
