"""`wavegen`, and `python -m wavegen`: what digests can answer is answered at once, and all else by the command line."""

import sys


def main() -> None:
    """The entry point."""
    match sys.argv[1:]:
        case ["run", *words] if not words or words[0] in ("--", "-s", "--shell") or not words[0].startswith("-"):
            from wavegen.project.last_render import run_if_unchanged

            run_if_unchanged(words)
        case ["start", script, *words]:
            from wavegen.project.script_start import start_script

            start_script(script, words)
        case ["render", "--check"]:
            from wavegen.project.last_render import unchanged_project_root

            if unchanged_project_root():
                return
        case ["render"]:
            from wavegen.project.last_render import is_up_to_date

            if is_up_to_date():
                return
        case _:
            pass
    from wavegen.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
