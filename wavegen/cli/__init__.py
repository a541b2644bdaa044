"""The command line, one verb a file: the only place with click, printing or exit."""
