"""torch's own tests of its collectives, run with a given backend; and the set of ranks that is reused from test to
test, which fulldeck's own tests of the backend use too. `python -m torch_suite --help`, from the folder tests."""
