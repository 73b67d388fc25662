"""The quick start's walk without a mouse: every step is reached with Tab, arrows and Enter, and what has the focus shows it."""

from __future__ import annotations

from typing import Any

from tests.ui.conftest import Ui
from tests.ui.test_workloads_page import expect

MOST_STEPS = 120  # of Tab, from any place of a page to any other
FOCUSED = """() => {
  const el = document.activeElement;
  if (!el || el === document.body) return null;
  const label = el.getAttribute('aria-label') ?? (el.labels?.[0] ?? el).innerText ?? '';
  const style = getComputedStyle(el);
  const isSeen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
  return { name: label.trim().replace(/\\s+/g, ' '), isSeen: isSeen || el.id === 'main' };
}"""


def tab_to(page: Any, name: str) -> None:
    """Press Tab until what is called so has the focus; each stop on the way shows that it has it."""
    stops: list[str] = []
    for _ in range(MOST_STEPS):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        if focused is None:
            continue  # the browser's own
        stops.append(focused["name"])
        assert focused["isSeen"], f"nothing shows that {focused['name']!r} has the focus"
        if focused["name"].startswith(name):
            return
    raise AssertionError(f"{name!r} is not reached with Tab; the stops were {stops}")


def test_the_quick_start_walk_with_the_keyboard_alone(ui: Ui) -> None:
    page, keys = ui.page, ui.page.keyboard
    tab_to(page, "+ NEW WORKLOAD")
    keys.press("Enter")
    tab_to(page, "Training")
    keys.press("Enter")
    expect(page.get_by_role("heading", name="New training")).to_be_visible()
    expect(page.get_by_label("Project", exact=True).locator("option")).to_have_count(2)
    tab_to(page, "Project")
    keys.type("team-a")
    expect(page.get_by_label("Project", exact=True).locator("option:checked")).to_have_text("team-a")
    tab_to(page, "Training name")
    keys.type("train1")
    expect(page.get_by_role("button", name="CONTINUE")).to_be_enabled()
    keys.press("Enter")
    expect(page.get_by_role("button", name="NEW ENVIRONMENT")).to_be_visible()
    tab_to(page, "+ NEW ENVIRONMENT")
    keys.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    expect(dialog.get_by_label("Environment name")).to_be_focused()
    keys.type("pytorch-dt")
    tab_to(page, "Image URL")
    keys.type("/kubeflow/pytorch-dist-mnist:latest")
    keys.press("Enter")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("radio", name="pytorch-dt")).to_be_checked()
    compute = page.get_by_role("group", name="Compute resource")
    names = compute.get_by_role("radio").evaluate_all("found => found.map(one => one.getAttribute('aria-label'))")
    tab_to(page, names[0])
    keys.press("Space")
    for _ in range(names.index("small-fraction")):
        keys.press("ArrowDown")
    expect(compute.get_by_role("radio", name="small-fraction")).to_be_checked()
    tab_to(page, "CONTINUE")
    keys.press("Enter")
    expect(page.get_by_role("button", name="CREATE TRAINING")).to_be_enabled()
    tab_to(page, "CREATE TRAINING")
    keys.press("Enter")
    panel = page.get_by_role("complementary")
    expect(panel.get_by_role("heading", name="train1", exact=True)).to_be_visible()
    tab_to(page, "Event History")
    for _ in range(2):
        keys.press("ArrowRight")
    expect(panel.get_by_role("tab", name="Logs")).to_have_attribute("aria-selected", "true")
    tab_to(page, "DELETE")
    keys.press("Enter")
    expect(dialog).to_contain_text("DELETE train1?")
    tab_to(page, "DELETE")
    keys.press("Enter")
    expect(page.get_by_text("This workload is not here any more.")).to_be_visible()
    tab_to(page, "CLOSE")
    keys.press("Enter")
    expect(panel).to_have_count(0)


TWO_KEYS_AT_ONCE = """tab => {
  for (const _ of [1, 2]) {
    const focused = document.activeElement?.role === 'tab' ? document.activeElement : tab;
    focused.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
  }
}"""
"""Before the browser tells the page of its new address: a held arrow key, or a person on a busy machine."""


def test_two_arrow_keys_in_a_row_go_two_tabs(ui: Ui) -> None:
    ui.page.goto(f"{ui.page.url.partition('#')[0]}#/access")
    first = ui.page.get_by_role("tab").first
    expect(first).to_have_attribute("aria-selected", "true")
    first.evaluate(TWO_KEYS_AT_ONCE)
    expect(ui.page.get_by_role("tab").nth(2)).to_have_attribute("aria-selected", "true")
