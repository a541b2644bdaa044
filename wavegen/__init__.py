"""wavegen: one manifest, every fence around a coding agent."""

VERSION = "0.1.0"
