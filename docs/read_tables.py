"""Reads every table of a run with Polars and compares the row counts with the manifest."""

import json
import sys
from pathlib import Path

import polars as pl

run = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/2048_quick")
manifest = json.loads((run / "manifest.json").read_text())
expected = {}
for step in manifest["steps"]:
    for file in step["files"]:
        table = file["path"].split("/")[0]
        expected[table] = expected.get(table, 0) + file["rows"]
for table, rows in sorted(expected.items()):
    frame = pl.scan_parquet(run / table / "**/*.parquet", hive_partitioning=True)
    height, steps = frame.select(pl.len(), pl.col("step").n_unique()).collect().row(0)
    if height != rows:
        sys.exit(f"{table}: {height} rows read, {rows} in the manifest")
    print(f"{table:12} {height:8} rows, {steps} steps, {len(frame.collect_schema())} columns")
