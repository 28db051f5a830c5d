"""docs/torch-suite.md from two records (suite.py). Pure: everything in it comes from the records."""
import collections

SIGNS = {"passed": "passed", "failed": "**failed**", "skipped": "–", None: ""}
RESULTS = ("passed", "skipped", "failed")


def counts(tests):
    found = collections.Counter(test["result"] for test in tests.values())
    return [("not applicable" if kind == "skipped" else kind, found[kind]) for kind in RESULTS]


def _cell(record, size, name):
    return SIGNS[record.results.get(size, {}).get(name, {}).get("result")]


def _seen(record):
    """When and on what the record was made; sizes with the same text are grouped."""
    sizes_by_text = collections.OrderedDict()
    for size in sorted(record.results):
        about = record.about[size]
        text = "{date}, torch {torch}, Python {python}, {cores} cores ({machine})".format(**about)
        sizes_by_text.setdefault(text, []).append(str(size))
    return "; ".join("{} ranks: {}".format(", ".join(sizes), text) for text, sizes in sizes_by_text.items())


def _rows(gloo, ours, names):
    sizes = sorted(ours.results)
    lines = ["| test | {} | {} |".format(" | ".join("Gloo {}".format(size) for size in sizes),
                                          " | ".join("{} {}".format(ours.backend, size) for size in sizes)),
             "|---|" + "---|" * (2 * len(sizes))]
    for name in names:
        lines.append("| `{}` | {} | {} |".format(name, " | ".join(_cell(gloo, size, name) for size in sizes),
                                                  " | ".join(_cell(ours, size, name) for size in sizes)))
    return lines


def markdown(gloo, ours):
    sizes = sorted(ours.results)
    names = sorted({name for size in sizes for name in ours.results[size]})

    def mpi(name):
        return any(ours.results[size].get(name, {}).get("mpi") for size in sizes)

    def runs(name):
        return any(record.results.get(size, {}).get(name, {}).get("result") in ("passed", "failed")
                   for record in (gloo, ours) for size in sizes)

    worse = [(size, name) for size in sizes for name in names
             if gloo.results.get(size, {}).get(name, {}).get("result") == "passed"
             and ours.results[size].get(name, {}).get("result") != "passed"]
    lines = [
        "# torch's own tests of its collectives", "",
        "The class `DistributedTest._DistTestBase` of `torch.testing._internal.distributed.distributed_test` in the torch wheel, with "
        "the backend", "`{}` in Gloo's place, beside Gloo itself. Written by `make torch-suite`, not by hand; how one backend is put "
        "in another's place".format(ours.backend), "stands in `tests/torch_suite/tests_of_torch.py`.", "",
        "- Gloo was run on {}.".format(_seen(gloo)),
        "- {} was run on {}.".format(ours.backend, _seen(ours)), "",
        "| ranks | Gloo: passed | not applicable | failed | {}: passed | not applicable | failed |".format(ours.backend),
        "|---|---|---|---|---|---|---|",
    ]
    for size in sizes:
        for kept, label in ((False, str(size)), (True, "{}, kept for MPI".format(size))):
            row = [label]
            for record in (gloo, ours):
                part = {name: test for name, test in record.results.get(size, {}).items() if bool(test.get("mpi")) == kept}
                row += [str(count) for _, count in counts(part)]
            lines.append("| " + " | ".join(row) + " |")
    lines += ["", "\"Kept for MPI\": torch runs these tests of `all_to_all` with MPI alone; here they run with both backends.", "",
              "**Pass with Gloo and not with {}:** {}.".format(
                  ours.backend, ", ".join("`{}` at {} ranks".format(name, size) for size, name in worse) or "none"), ""]

    failures = [(size, name) for size in sizes for name in names if ours.results[size].get(name, {}).get("result") == "failed"]
    if failures:
        lines += ["## Failed", ""]
        for size, name in failures:
            lines += ["`{}` at {} ranks:".format(name, size), "", "```", ours.results[size][name]["error"][:3000], "```", ""]

    lines += ["## Tests that ran", "", "– stands for \"not applicable\" at that number of ranks.", ""]
    lines += _rows(gloo, ours, [name for name in names if runs(name) and not mpi(name)])
    lines += ["", "### Kept for MPI by torch", ""]
    lines += _rows(gloo, ours, [name for name in names if runs(name) and mpi(name)])

    reasons = collections.OrderedDict()
    for name in names:
        for size in sizes:
            test = ours.results[size].get(name, {})
            if test.get("result") == "skipped":
                reasons.setdefault(test["reason"], collections.OrderedDict()).setdefault(name, []).append(size)
    lines += ["", "## Not applicable, by the reason that the test gives", ""]
    for reason in sorted(reasons, key=lambda text: (-len(reasons[text]), text)):
        found = reasons[reason]
        listed = ", ".join("`{}`{}".format(name, "" if at == sizes else " ({} ranks)".format(", ".join(map(str, at))))
                           for name, at in found.items())
        if reason.startswith("https://"):
            reason = "torch leaves it out: " + reason
        lines += ["**{}** ({}): {}".format(reason.rstrip("."), len(found), listed), ""]
    return "\n".join(lines).rstrip() + "\n"
