"""torch's own tests of its collectives, run against a backend of choice; and the set of ranks that stays alive from test to
test, which our own tests of the backend use too. `python -m torch_suite --help`, from the folder tests."""
