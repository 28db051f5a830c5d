"""python -m torch_suite: runs torch's own tests of its collectives with fulldeck in place of Gloo, and with Gloo, and
writes the table. Exit code 0: everything that passes with Gloo passes with fulldeck. Run it from the folder tests, or
through `make torch-suite`."""
import argparse
import os
import sys

from . import ranks, suite, table

GLOO_RECORD = os.path.join(ranks.HERE, "gloo.json")


def say(text):
    print("torch-suite: " + text, flush=True)


def main():
    parser = argparse.ArgumentParser(prog="python -m torch_suite", description=__doc__)
    parser.add_argument("--backend", default="fulldeck", help="the backend under test (default: fulldeck); gloo records Gloo's results alone")
    parser.add_argument("--sizes", default=",".join(map(str, suite.SIZES)), help="numbers of ranks (default: %(default)s)")
    parser.add_argument("--tests", default="*", help="patterns of names, with commas (default: all)")
    parser.add_argument("--gloo-again", action="store_true",
                        help="run Gloo too, even where {} holds results with this torch".format(os.path.basename(GLOO_RECORD)))
    parser.add_argument("--results", help="JSON of the backend's results (default: BUILD/torch-suite/BACKEND.json)")
    parser.add_argument("--document", help="write the table to this Markdown file")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    patterns = options.tests.split(",")
    whole = patterns == ["*"]

    torch = suite.torch_version()
    gloo = suite.Record("gloo", GLOO_RECORD, with_errors=False)
    for size in sizes:
        if options.gloo_again or options.backend == "gloo" or not gloo.holds(size, torch):
            if not whole:
                sys.exit("torch-suite: error: Gloo's results at {} ranks are not there; run all tests, without --tests".format(size))
            gloo.run(size, patterns, say)
    if options.backend == "gloo":
        return 0

    path = options.results or os.path.join(ranks.BUILD, "torch-suite", options.backend + ".json")
    ours = suite.Record(options.backend, path + ("" if whole else ".part"))
    ours.results, ours.about = {}, {}
    for size in sizes:
        ours.run(size, patterns, say)
    if options.document:
        with open(options.document, "w") as document:
            document.write(table.markdown(gloo, ours))
        say("wrote " + options.document)
    worse = suite.worse_than(gloo, ours)
    for size, name in worse:
        print("\n=== {} at {} ranks: passes with Gloo, {} with {}\n{}".format(
            name, size, ours.results[size][name]["result"], options.backend,
            ours.results[size][name].get("error") or ours.results[size][name]["reason"]))
    for size in sizes:
        say("{} ranks: {}".format(size, ", ".join("{} {}".format(count, kind) for kind, count in table.counts(ours.results[size]))))
    say("{} tests pass with Gloo and not with {}".format(len(worse), options.backend))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
