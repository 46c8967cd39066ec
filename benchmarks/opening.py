"""Time, memory and cache size to open CIFAR-10 from Parquet files, the first and the second time.

`python benchmarks/opening.py --data-dir FOLDER` prints a CSV table. Each opening is a new process with an empty cache
folder at the start. Memory is relative to the process with archray and torch imported.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COLUMNS = ("opening", "seconds", "cpu_seconds", "peak_mib", "open_mib", "cache_mib")


def memory() -> dict[str, float]:
    """Resident memory in MiB: `VmRSS` now, `VmHWM` at most."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {name.rstrip(":"): int(rest[0]) / 1024 for name, *rest in lines if name in ("VmRSS:", "VmHWM:")}


def open_once(data_dir: str) -> None:
    """Prints seconds, CPU seconds, peak and resident memory."""
    import archray.trainables.data.dataset  # noqa: F401  # with torch
    from archray.trainables.data import DataSettings
    from archray.trainables.data.load import read_data

    before, start, cpu = memory(), time.perf_counter(), time.process_time()
    dataset = read_data(DataSettings(name="cifar10", data_dir=data_dir))
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    after = memory()
    assert len(dataset.train) == 25_000
    values = seconds, cpu, after["VmHWM"] - before["VmRSS"], after["VmRSS"] - before["VmRSS"]
    print(*(f"{value:.1f}" for value in values), sep=",")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--once", action="store_true", help="open in this process, with the present cache")
    options = parser.parse_args()
    if options.once:
        open_once(options.data_dir)
        return
    print(*COLUMNS, sep=",")
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "XDG_CACHE_HOME": cache}
        for opening in ("first", "second"):
            command = [sys.executable, __file__, "--data-dir", options.data_dir, "--once"]
            line = subprocess.check_output(command, env=environment, text=True).strip()
            size = sum(file.stat().st_size for file in Path(cache).rglob("*.npy")) / 2**20
            print(opening, line, f"{size:.0f}", sep=",", flush=True)


if __name__ == "__main__":
    main()
