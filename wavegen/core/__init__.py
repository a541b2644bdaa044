"""What everything else stands on: errors and exit codes, quoting for every target language, the terminal, the files of the package."""
