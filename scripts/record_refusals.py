"""Record again what a real API server says of each object in `tests/data/refusals.json`.

    python scripts/real_cluster up DIR --operator
    python scripts/record_refusals.py DIR/kubeconfig            # writes the file
    python scripts/record_refusals.py DIR/kubeconfig --check    # only says which rows differ

Each object is posted with `dryRun=All` and `fieldValidation=Strict`, so nothing is stored. A row is the object, the
message of the refusal ("" when it was taken) and, where there were any, the warnings.
"""

from __future__ import annotations

import argparse
import json
import re
import ssl
import sys
from pathlib import Path
from typing import Any

import httpx
import yaml

from rowlock import kinds
from rowlock.kinds import Kind

FILE = Path(__file__).resolve().parents[1] / "tests" / "data" / "refusals.json"
STRICT = {"dryRun": "All", "fieldValidation": "Strict"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a row differs")
    parser.add_argument("--first", type=int, default=None, metavar="N", help="with --check: the first N rows only")
    args = parser.parse_args()
    rows: list[list[Any]] = json.loads(FILE.read_text())[: args.first if args.check else None]
    with connect(args.kubeconfig) as client:
        answers = [row_of(client, row[0]) for row in rows]
    if not args.check:
        FILE.write_text("[\n" + ",\n".join(compact(row) for row in answers) + "\n]\n")
        return 0
    different = [(old, new) for old, new in zip(rows, answers, strict=True) if comparable(old) != comparable(new)]
    for old, new in different:
        print(f"recorded {compact(old)}\nnow      {compact(new)}")
    print(f"{len(rows) - len(different)} rows as recorded, {len(different)} differ")
    return 1 if different else 0


def connect(kubeconfig: Path) -> httpx.Client:
    """A client of the kubeconfig's first cluster and user, who must have a token."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
    headers = {"Authorization": f"Bearer {user['token']}"}
    return httpx.Client(base_url=cluster["server"], headers=headers, verify=tls, timeout=30)


def row_of(client: httpx.Client, obj: dict[str, Any]) -> list[Any]:
    """The object, the message of its refusal, and the warnings if there are any."""
    answer = client.post(collection_path(kinds.by_object(obj), obj), params=STRICT, json=obj)
    message = answer.json().get("message", "") if answer.status_code >= 400 else ""
    warnings = [text for header in answer.headers.get_list("warning") if (text := warning_text(header))]
    return [obj, message, warnings] if warnings else [obj, message]


def collection_path(kind: Kind, obj: dict[str, Any]) -> str:
    group = f"/apis/{kind.api_version}" if "/" in kind.api_version else f"/api/{kind.api_version}"
    namespace = obj.get("metadata", {}).get("namespace") or "default"
    return f"{group}/namespaces/{namespace}/{kind.plural}" if kind.namespaced else f"{group}/{kind.plural}"


def warning_text(header: str) -> str:
    """`299 - "text"` without its number and quotes."""
    found = re.fullmatch(r'\d+ \S+ "(.*)"', header, re.DOTALL)
    return re.sub(r"\\(.)", r"\1", found[1]) if found else header


def comparable(row: list[Any]) -> tuple[list[str], list[str]]:
    """Message and warnings without the order in which Go walked a map."""
    _, message, *warnings = row
    return sorted(re.split(r"[\[\], ]+", message)), sorted(warnings[0] if warnings else [])


def compact(row: list[Any]) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    sys.exit(main())
