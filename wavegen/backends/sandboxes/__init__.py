"""The sandboxes: rules files and the wrappers, Landlock, docker, compose, images, srt."""
