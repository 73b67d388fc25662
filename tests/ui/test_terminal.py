"""A shell in a pod, in the page: typed, resized, ended with a code, refused in a sentence."""

from __future__ import annotations

import os
import re

import psutil
from tests.ui.conftest import Ui
from tests.ui.test_workloads_page import LONG, expect, run

PROMPT = re.compile(r"[$#%]")


def columns(ui: Ui, mark: str) -> int:
    """How wide the shell thinks its terminal is."""
    screen = ui.page.locator(".xterm-rows")
    ui.page.keyboard.type(f"clear; echo {mark}$(stty size | cut -d' ' -f2)-\n")
    expect(screen).to_contain_text(re.compile(mark + r"\d+-"))
    return int(re.search(mark + r"(\d+)-", screen.inner_text()).group(1))  # type: ignore[union-attr]


def open_terminal(page: object, name: str) -> None:
    page.get_by_role("link", name=name, exact=True).click()  # type: ignore[attr-defined]
    page.get_by_role("tab", name="Terminal").click()  # type: ignore[attr-defined]
    page.get_by_role("button", name="CONNECT").click()  # type: ignore[attr-defined]


def test_a_terminal_is_typed_into_resized_and_ends_with_its_code(ui: Ui) -> None:
    asked: list[str] = []
    ui.page.on("request", lambda request: asked.append(request.url))
    run(ui, "talks", LONG, "--nnodes", "2")
    expect(ui.row("talks")).to_contain_text("Running")
    assert not [url for url in asked if "xterm.js" in url], "it is loaded when somebody opens one"
    open_terminal(ui.page, "talks")
    screen = ui.page.get_by_role("group", name="Terminal").locator(".xterm-rows")
    expect(screen).to_contain_text(PROMPT)
    ui.page.keyboard.type("echo rank-$RANK-of-$WORLD_SIZE; printf '\\033[38;2;9;99;200mblue\\033[0m\\n'\n")
    expect(screen).to_contain_text("rank-0-of-2")
    expect(screen.get_by_text("blue", exact=True).last).to_have_css("color", "rgb(9, 99, 200)")
    expect(ui.page.get_by_text("rowlock exec -it -p default --pod talks-master-0 talks -- bash")).to_be_visible()
    ui.page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    expect(ui.page.locator(".xterm-viewport")).to_have_css(
        "background-color", "rgb(11, 14, 18)"
    )  # it turns dark with the page
    ui.pictures("terminal")
    narrow = columns(ui, "a")
    ui.page.set_viewport_size({"width": 890, "height": 700})  # the details take the whole width
    ui.page.wait_for_function("before => document.querySelector('.xterm-screen').clientWidth > before", arg=600)
    assert columns(ui, "b") > narrow
    ui.page.keyboard.type("exit 7\n")
    expect(ui.page.get_by_text("The shell ended with exit code 7.")).to_be_visible()
    ui.page.get_by_role("button", name="CONNECT").click()
    expect(screen).to_contain_text(PROMPT)
    ui.page.get_by_role("button", name="DISCONNECT").click()
    expect(ui.page.get_by_text("You left the shell.")).to_be_visible()


def test_who_may_only_look_gets_no_shell(ui: Ui) -> None:
    run(ui, "talks", LONG)
    expect(ui.row("talks")).to_contain_text("Running")
    stranger = ui.page.context.browser.new_context()
    page = stranger.new_page()
    page.goto(ui.site.address("vera"))
    open_terminal(page, "talks")
    expect(page.get_by_text("cannot get resource")).to_be_visible()
    stranger.close()


def test_a_terminal_ends_when_its_session_signs_out(ui: Ui) -> None:
    """In another tab; what runs in it ends, too."""
    run(ui, "talks", LONG)
    expect(ui.row("talks")).to_contain_text("Running")
    open_terminal(ui.page, "talks")
    expect(ui.page.locator(".xterm-rows")).to_contain_text(PROMPT)
    seconds = str(100_000_000 + os.getpid())
    ui.page.keyboard.type(f"sleep {seconds}\n")
    ui.cluster.until(lambda: sleeps(seconds), "the terminal runs a program")
    other = ui.open_page()
    other.goto(ui.page.url)
    other.get_by_role("button", name="Sign out").click()
    expect(ui.page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(ui.page.get_by_text("Your session is over.")).to_be_visible()
    ui.cluster.until(lambda: not sleeps(seconds), "the program of the terminal ends with the session")


def sleeps(seconds: str) -> bool:
    """Whether such a program runs on this machine: pods of these tests run on it."""
    return any(process.info["cmdline"] == ["sleep", seconds] for process in psutil.process_iter(["cmdline"]))
