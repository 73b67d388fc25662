"""What the web UI promises, in a real browser: `make bench-ui`, or `python -m benchmarks.ui --only paint,memory,scroll`.

First paint in a fresh profile; what 50 open pages cost the server; ten thousand workloads that are scrolled while a hundred a second
change. The server, its rows and their changes are real; pods are not, for the changes would be theirs. CPU seconds stand beside the
figures: they tell the same on a busy machine, where frames and paints do not.
"""

from __future__ import annotations

import argparse
import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks.cluster import JOBS, Client, job, running
from benchmarks.jobs import Budget, Figure

WORKLOADS, CHANGES_PER_S, SCROLL_S = 10_000, 100, 20
BROWSERS, PAGES_EACH = 5, 10
FEW = 200
"""Workloads of the clusters whose pages are opened, not scrolled."""
PRIORITIES = ("high", "low")

PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
SCROLL = """
(seconds) => new Promise((done) => {
  const box = [...document.querySelectorAll("*")].find((one) => one.scrollHeight > 100000 && one.clientHeight < 2000 && getComputedStyle(one).overflowY !== "visible");
  const frames = [];
  const began = performance.now();
  let last = began, step = 37;
  const next = (now) => {
    frames.push(now - last);
    last = now;
    if (box.scrollTop + step > box.scrollHeight - box.clientHeight || box.scrollTop + step < 0) step = -step;
    box.scrollTop += step;
    if (now - began < seconds * 1000) requestAnimationFrame(next);
    else done({ frames: frames.slice(1), rows: document.querySelectorAll("tbody tr").length });
  };
  requestAnimationFrame(next);
})
"""
"""Scroll up and down by a little each frame, and note how long each took."""


class Browser:
    """Chromium, with new profiles as they are asked for."""

    def __init__(self, browser: Any, client: Client) -> None:
        self._browser, self._client = browser, client

    def profile(self) -> Any:
        made = self._browser.new_context(viewport={"width": 1280, "height": 800})
        made.set_default_timeout(120_000)
        return made

    def address(self) -> str:
        """One with a code: it begins one session."""
        return str(self._client.call("POST", "/api/v1/ui/codes")["url"])

    def live_page(self, profile: Any, address: str) -> Any:
        page = profile.new_page()
        page.goto(address)
        page.get_by_text("Live", exact=True).wait_for()
        return page


@contextmanager
def browser_of(client: Client) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("There is no Chromium here: `apt-get install chromium` (as root) is what this needs.")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        yield Browser(browser, client)
        browser.close()


def fill(client: Client, count: int) -> list[str]:
    """So many workloads that rest: they have no pods."""
    names = [f"run-{number:05d}" for number in range(count)]

    def submit(part: list[str]) -> None:
        own, asked = Client(client.data), job("x", 0, "true")
        asked["spec"]["runPolicy"] = {"suspend": True}
        for name in part:
            asked["metadata"]["name"] = name
            own.call("POST", JOBS, asked)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(submit, [names[start::4] for start in range(4)]))
    return names


def paints(browser: Browser, runs: int = 9) -> list[Figure]:
    """Each in a profile that has seen nothing: from the beginning of the navigation."""
    first, rows = [], []
    for _ in range(runs):
        profile = browser.profile()
        page = profile.new_page()
        page.goto(browser.address())
        page.locator("tbody tr").first.wait_for()
        rows.append(float(page.evaluate("performance.now()")))
        first.append(float(page.evaluate(PAINT)))
        profile.close()
    return [
        Figure("the page in a fresh profile → first paint", "ms", first, budget=Budget(300)),
        Figure(f"… → rows of {FEW} workloads in the table (seen from outside)", "ms", rows),
    ]


def memory(browser: Browser, client: Client) -> Figure:
    """From no page at all. What the server keeps of its rows for its first reader counts, too."""
    time.sleep(3)
    before = client.memory()
    profiles = []
    for _ in range(BROWSERS):
        profile = browser.profile()
        address = browser.address()
        browser.live_page(profile, address)
        for _ in range(PAGES_EACH - 1):
            browser.live_page(profile, address.partition("#")[0])
        profiles.append(profile)
    time.sleep(3)
    grown = client.memory() - before
    for profile in profiles:
        profile.close()
    name = f"{BROWSERS * PAGES_EACH} open pages in {BROWSERS} profiles: memory of the server grows by"
    return Figure(name, "MiB", [grown], budget=Budget(15))


def change_rows(client: Client, names: list[str], end: threading.Event) -> tuple[int, float]:
    """Give one workload after another the other priority, so many a second; how many were changed, in how many seconds."""
    own, began, done = Client(client.data), time.monotonic(), 0
    while not end.is_set():
        name = names[(done * 37) % len(names)]
        priority = PRIORITIES[(done // len(names)) % 2]
        own.patch(f"{JOBS}/{name}", {"metadata": {"labels": {"priorityClassName": priority}}})
        done += 1
        end.wait(max(0.0, began + done / CHANGES_PER_S - time.monotonic()))
    return done, time.monotonic() - began


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _browser_cpu() -> float:
    """CPU seconds of all processes of our Chromium."""
    return sum(_cpu(one) for one in psutil.Process().children(recursive=True) if "chrom" in one.name())


@dataclass(frozen=True)
class Scroll:
    """What one scroll was like. The server's CPU in percent of one core."""

    rate: float
    p95: float
    histogram: str
    main_thread: float
    """Milliseconds of work of the page's main thread for each frame."""
    browser_cpu: float
    """Milliseconds of CPU of all of the browser's processes for each frame."""
    server_cpu: float


def _measure_scroll(page: Any, client: Client) -> Scroll:
    server, tools = psutil.Process(client.pid), page.context.new_cdp_session(page)
    tools.send("Performance.enable")
    worked = _task_seconds(tools)
    began, browser_before, server_before = time.monotonic(), _browser_cpu(), _cpu(server)
    frames = sorted(page.evaluate(SCROLL, SCROLL_S)["frames"])
    seconds, worked = time.monotonic() - began, _task_seconds(tools) - worked
    tools.detach()
    return Scroll(
        rate=1e3 * len(frames) / sum(frames),
        p95=frames[int(len(frames) * 0.95)],
        histogram=histogram_of(frames),
        main_thread=1e3 * worked / len(frames),
        browser_cpu=1e3 * (_browser_cpu() - browser_before) / len(frames),
        server_cpu=100 * (_cpu(server) - server_before) / seconds,
    )


def _task_seconds(tools: Any) -> float:
    return next(
        float(one["value"]) for one in tools.send("Performance.getMetrics")["metrics"] if one["name"] == "TaskDuration"
    )


def histogram_of(frames: list[float]) -> str:
    """How many frames took how long."""
    bounds = (17.5, 25, 34, 50, 100)
    counts = [sum(frame <= bound for frame in frames) for bound in bounds]
    parts = [
        f"≤ {bound:g} ms: {count - before}" for bound, count, before in zip(bounds, counts, [0, *counts], strict=False)
    ]
    return ", ".join([*parts, f"more: {len(frames) - counts[-1]}"])


def scrolling(browser: Browser, client: Client, names: list[str]) -> list[Figure]:
    profile = browser.profile()
    page = browser.live_page(profile, browser.address())
    page.get_by_text(f"{len(names)}", exact=True).wait_for()
    quiet = _measure_scroll(page, client)
    end, pool = threading.Event(), ThreadPoolExecutor(1)
    changing = pool.submit(change_rows, client, names, end)
    time.sleep(2)
    busy = _measure_scroll(page, client)
    end.set()
    changed, seconds = changing.result()
    profile.close()
    print(
        f"  frames while nothing changes: {quiet.histogram}\n  frames while rows change: {busy.histogram}", flush=True
    )
    what = f"{len(names):,} workloads"
    return [
        Figure(
            f"{what}, {changed / seconds:.0f} changes a second, scrolled",
            "frames/s",
            [busy.rate],
            [quiet.rate],
            "no changes",
            Budget(50, True),
        ),
        Figure("… one frame, p95", "ms", [busy.p95], [quiet.p95], "no changes"),
        Figure(
            "… work of the page's main thread per frame",
            "ms",
            [busy.main_thread],
            [quiet.main_thread],
            "no changes",
            Budget(20),
        ),
        Figure("… CPU of all of the browser per frame", "ms", [busy.browser_cpu], [quiet.browser_cpu], "no changes"),
        Figure("… CPU of the server", "% of one", [busy.server_cpu], [quiet.server_cpu], "no changes"),
    ]


def small(wanted: set[str]) -> Iterator[Figure]:
    with running("--without", "kubelet") as client, browser_of(client) as browser:
        fill(client, FEW)
        if "memory" in wanted:
            yield memory(browser, client)  # before any other page
        if "paint" in wanted:
            yield from paints(browser)


def large() -> Iterator[Figure]:
    with running("--without", "kubelet") as client, browser_of(client) as browser:
        yield from scrolling(browser, client, fill(client, WORKLOADS))


def figures(wanted: set[str]) -> Iterator[Figure]:
    if wanted & {"memory", "paint"}:
        yield from small(wanted)
    if "scroll" in wanted:
        yield from large()


def main() -> None:
    parts = ("paint", "memory", "scroll")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(parts), help=f"which of {', '.join(parts)}")
    wanted = set(parser.parse_args().only.split(","))
    if unknown := wanted - set(parts):
        raise SystemExit(f"--only knows {', '.join(parts)}, not {', '.join(sorted(unknown))}")
    print(f"load before the start {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs", flush=True)
    missed = False
    for figure in figures(wanted):
        row = figure.row()
        missed = missed or "MISSED" in row
        print(row, flush=True)
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
