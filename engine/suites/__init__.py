"""The suites that ship with the project: data, found by name with `stepfold eval run NAME`."""
