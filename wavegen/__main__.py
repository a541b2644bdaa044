"""`python -m wavegen`."""

from wavegen.cli import main

if __name__ == "__main__":
    main()
