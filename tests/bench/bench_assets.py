"""Storing and reading media against `cp` and `sha256sum` of the same bytes, in the same run.

    python -P tests/bench/bench_assets.py [MEBIBYTES]

Prints one JSON line a benchmark. Both sides take turns, so that other load on the machine meets both; `ratio` above 1
means that ours is faster. `cp` does not sync and storing does: `synced` is the ratio to `cp`, `sha256sum` and `sync` of
the copy, `openssl` to `cp` and `openssl dgst`, whose SHA-256 is our own. `peak_kib` is how much the peak
of resident memory grew over all rounds, after a first small one.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from emelex_core import AssetRef, MemoryStore

ROUNDS = 7
SMALL = 200
SMALL_BYTES = 100_000
PNG = b"\x89PNG\r\n\x1a\n"
MIB = 1 << 20


def seconds(act: Callable[[], object]) -> float:
    """How long an act takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def stamp(path: Path, number: int) -> None:
    """Make the file's bytes new, so that they are not stored yet."""
    with path.open("r+b") as file:
        file.write(PNG + number.to_bytes(8, "big"))


def make(path: Path, size: int) -> None:
    """Write random bytes to a file without holding them."""
    with path.open("wb") as file:
        for _ in range(size // MIB):
            file.write(os.urandom(MIB))


def copy_and_hash(source: Path, target: Path, *, sync: bool = False) -> None:
    """What a shell would do."""
    target.unlink(missing_ok=True)
    subprocess.run(["cp", source, target], check=True)
    subprocess.run(["sha256sum", target], check=True, stdout=subprocess.DEVNULL)
    if sync:
        subprocess.run(["sync", target], check=True)


def copy_and_digest(source: Path, target: Path) -> None:
    """The same with OpenSSL's SHA-256."""
    target.unlink(missing_ok=True)
    subprocess.run(["cp", source, target], check=True)
    subprocess.run(["openssl", "dgst", "-sha256", target], check=True, stdout=subprocess.DEVNULL)


def keep_by_hand(data: bytes, folder: Path) -> None:
    """Keep bytes durably under their digest, and nothing more."""
    temporary = folder / "temporary"
    with temporary.open("wb", buffering=0) as file:
        file.write(data)
        os.fsync(file.fileno())
    temporary.rename(folder / hashlib.sha256(data).hexdigest())
    directory = os.open(folder, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def store_file(store: MemoryStore, path: Path) -> AssetRef:
    """Store a file's bytes from a stream."""
    with path.open("rb", buffering=0) as file:
        return store.store_asset(file)


def read_to_file(store: MemoryStore, ref: AssetRef, target: Path) -> None:
    """Copy an asset out, proven."""
    target.unlink(missing_ok=True)
    with target.open("wb", buffering=0) as file:
        store.copy_asset(ref, file)


def middle_ratio(ours: list[float], baseline: list[float]) -> float:
    """The median of the rounds' ratios; above 1, ours is faster."""
    return round(statistics.median(base / own for base, own in zip(baseline, ours, strict=True)), 3)


def report(name: str, ours: list[float], baseline: list[float], **more: object) -> None:
    """Print one line: the median of the rounds' ratios, and both medians."""
    line = {
        "bench": name,
        "ratio": middle_ratio(ours, baseline),
        "seconds": round(statistics.median(ours), 4),
        "baseline_seconds": round(statistics.median(baseline), 4),
        **more,
    }
    sys.stdout.write(json.dumps(line) + "\n")


def large(store: MemoryStore, folder: Path, size: int) -> None:
    """One file of the given size."""
    source, target = folder / "source", folder / "target"
    make(source, 2 * MIB)
    stamp(source, 0)
    read_to_file(store, store_file(store, source), target)
    make(source, size)
    copy_and_hash(source, target)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times: dict[str, list[float]] = {name: [] for name in ("store", "read", "plain", "synced", "openssl")}
    for number in range(1, ROUNDS + 1):
        stamp(source, number)
        times["plain"].append(seconds(lambda: copy_and_hash(source, target)))
        refs: list[AssetRef] = []
        times["store"].append(seconds(lambda: refs.append(store_file(store, source))))  # noqa: B023 - called at once
        times["read"].append(seconds(lambda: read_to_file(store, refs[0], target)))  # noqa: B023 - called at once
        times["synced"].append(seconds(lambda: copy_and_hash(source, target, sync=True)))
        times["openssl"].append(seconds(lambda: copy_and_digest(source, target)))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    for name, ours in (("asset_store", times["store"]), ("asset_read", times["read"])):
        others = {other: middle_ratio(ours, times[other]) for other in ("synced", "openssl")}
        report(name, ours, times["plain"], mebibytes=size // MIB, **others, peak_kib=grown)


def small(store: MemoryStore, folder: Path) -> None:
    """Many screenshots, against the same bytes hashed, written, renamed and synced by hand, without a catalog."""
    ours: list[float] = []
    baseline: list[float] = []
    for number in range(SMALL):
        data = PNG + number.to_bytes(8, "big") + os.urandom(SMALL_BYTES)
        baseline.append(seconds(lambda: keep_by_hand(data, folder)))  # noqa: B023 - called at once
        ours.append(seconds(lambda: store.store_asset(data)))  # noqa: B023 - called at once
    report("asset_store_small", ours, baseline, bytes=SMALL_BYTES, stored=SMALL)


def main() -> int:
    """Run all."""
    size = int(sys.argv[1]) * MIB if len(sys.argv) > 1 else 64 * MIB
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        with MemoryStore.open(folder / "home", create=True) as store:
            large(store, folder, size)
            small(store, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
