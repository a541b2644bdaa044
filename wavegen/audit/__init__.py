"""What a session left in the project that the host would run or follow."""
