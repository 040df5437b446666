"""End what a CI run left running: survivors.py MARK; exit code 1 if there was any.

MARK is the value of CI_RUN_MARK in the environment of every process that the run started.
"""

import sys

import psutil


def main(mark: str) -> int:
    itself = psutil.Process()
    ours = {itself.pid, *(parent.pid for parent in itself.parents())}
    survivors = [
        process for process in psutil.process_iter() if process.pid not in ours and has(process, mark)
    ]
    for process in survivors:
        try:
            print(f"left running: {process.pid} {' '.join(process.cmdline())[:160]}", file=sys.stderr)
            process.kill()
        except psutil.Error:
            continue  # it ended by itself meanwhile
    psutil.wait_procs(survivors, timeout=10)
    return 1 if survivors else 0


def has(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get("CI_RUN_MARK") == mark
    except (psutil.Error, OSError):
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
