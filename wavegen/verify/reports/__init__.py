"""Verdicts as a table, JSON, JUnit, SARIF and HTML, and against a baseline."""
