# make demo: what the fence lets through and what it stops.   make test: all tests.   make check: the quick ones.   make bench: how fast it is.
# make site: the documentation as a website in site/.
.PHONY: demo test check bench lint site

demo:
	@scripts/setup demo
	@PATH="$(CURDIR)/.venv/bin:$$PATH" examples/quickstart/demo

test: lint
	@scripts/test

check: lint
	@scripts/test check

lint:
	@scripts/setup test
	@.venv/bin/ruff check --quiet .
	@.venv/bin/ruff format --quiet --check .
	@.venv/bin/mypy

bench:
	@scripts/setup demo
	@.venv/bin/python bench/run.py

site:
	@scripts/setup site
	@NO_MKDOCS_2_WARNING=1 .venv/site/bin/mkdocs build --strict
