"""Names what commands left in a project that the host would run or follow. Starts nothing, git least of all."""
