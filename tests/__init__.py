"""The test suite; the tests of a package are in the folder of its name."""
