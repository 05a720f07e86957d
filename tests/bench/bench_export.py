"""Import of a ChatGPT export: how fast, and how much memory a ten times larger one needs.

One JSON line. Each size is read by a process of its own, so that its peak is its own; the larger one is read as a ZIP,
too. `python -P tests/bench/bench_export.py 200` takes another number of megabytes.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from emelex_core import MemoryStore
from emelex_core.imports.importer import import_transcripts

MEGABYTES = 40
WORDS = "the parcels were sorted by weight and never by colour; see line {} of {}. " * 8


def export(target: Path, megabytes: float) -> None:
    """Write conversations of 24 messages until the file has its size."""
    with target.open("w") as file:
        file.write("[")
        number = 0
        while file.tell() < megabytes * 1_000_000:
            nodes: dict[str, object] = {}
            for at in range(24):
                own = f"{number:08x}-{at:04x}-4000-8000-000000000000"
                message = {
                    "id": own,
                    "author": {"role": "assistant" if at % 2 else "user", "name": None, "metadata": {}},
                    "create_time": 1_700_000_000.5 + at,
                    "content": {"content_type": "text", "parts": [WORDS.format(*[at, number] * 8)]},
                    "weight": 1.0,
                    "metadata": {"model_slug": "m", "finish_details": {"type": "stop"}},
                    "recipient": "all",
                }
                parent = f"{number:08x}-{at - 1:04x}-4000-8000-000000000000" if at else None
                nodes[own] = {"id": own, "message": message, "parent": parent, "children": []}
            value = {"title": f"Talk {number}", "id": f"c{number}", "mapping": nodes, "current_node": list(nodes)[-1]}
            file.write(("," if number else "") + json.dumps(value))
            number += 1
        file.write("]")


def run(path: Path) -> None:
    """Import a file twice into a new store; print what each cost."""
    costs: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace"
        workspace.mkdir()
        with MemoryStore.open(Path(folder) / "home", create=True) as store:
            for _ in range(2):
                begun = time.process_time()
                totals = import_transcripts(
                    store,
                    [path],
                    format="chatgpt",
                    workspace=workspace,
                    dry_run=False,
                    distill=False,
                    listen=lambda session: None,
                    problem=lambda path, error: None,
                )
                costs.append((time.process_time() - begun, totals.events))
    (first, events), (again, new) = costs
    assert events
    assert not new
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"cpu_seconds": first, "again_cpu_seconds": again, "events": events, "peak_kib": peak}))


def measured(path: Path) -> dict[str, float]:
    """Run one import in a process of its own."""
    command = [sys.executable, "-P", __file__, str(path)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def main() -> None:
    """Measure a tenth, the whole, and the whole as a ZIP."""
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else MEGABYTES
    with tempfile.TemporaryDirectory() as folder:
        small, large, packed = (Path(folder) / name for name in ("small.json", "large.json", "large.zip"))
        export(small, megabytes / 10)
        export(large, megabytes)
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(large, "conversations.json")
        tenth, whole, zipped = measured(small), measured(large), measured(packed)
        result = {
            "bench": "import_chatgpt_export",
            "megabytes": megabytes,
            "megabytes_per_cpu_second": round(megabytes / whole["cpu_seconds"], 1),
            "again_megabytes_per_cpu_second": round(megabytes / whole["again_cpu_seconds"], 1),
            "zip_megabytes_per_cpu_second": round(megabytes / zipped["cpu_seconds"], 1),
            "peak_ratio_to_a_tenth": round(whole["peak_kib"] / tenth["peak_kib"], 2),
            "zip_peak_ratio_to_a_tenth": round(zipped["peak_kib"] / tenth["peak_kib"], 2),
            "peak_kib": whole["peak_kib"],
        }
        print(json.dumps(result))


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].replace(".", "").isdigit():
        run(Path(sys.argv[1]))
    else:
        main()
