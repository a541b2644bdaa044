"""What generated files run: each module here is copied verbatim into `.wavegen/runtime/`.

Standard library only, started as `python3 -I -S`, and importing nothing of the package.
"""
