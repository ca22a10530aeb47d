"""A headless Chromium, driven through its driver's HTTP interface (W3C WebDriver) with the standard library alone."""
import base64
import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Callable

DRIVER = os.environ.get("LILY_CHROMEDRIVER") or shutil.which("chromedriver")
CHROMIUM = os.environ.get("LILY_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which(
    "google-chrome")
MISSING = "" if DRIVER and CHROMIUM else "Chromium and its driver are not installed (packages chromium, chromium-driver)"

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Shift": "\ue008", "Control": "\ue009", "Escape": "\ue00c", "Up": "\ue013", "Tab": "\ue004",
        "Space": " "}


class Driver:
    """The driver's process; one serves all the tests."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([str(DRIVER), "--port=0", "--log-level=WARNING"], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout
        for line in self.process.stdout:
            if found := re.search(r"started successfully on port (\d+)", line):
                self.url = f"http://127.0.0.1:{found.group(1)}"
                return
        raise RuntimeError("the browser's driver did not start")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        if self.process.stdout:
            self.process.stdout.close()

    def call(self, method: str, path: str, body: dict | None = None) -> Any:
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            value = json.load(error)["value"]
            raise RuntimeError(f"{value['error']}: {value['message'].splitlines()[0]}") from None


class Browser:
    """One session with a profile of its own."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,850", "--lang=en",
                     "--disable-background-networking", "--disable-component-update", "--no-first-run"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            arguments.append("--no-sandbox")  # Chromium refuses to run as root otherwise
        capabilities = {"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
                        "goog:chromeOptions": {"binary": CHROMIUM, "args": arguments}}
        self.session = ""
        value = driver.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.session = f"/session/{value['sessionId']}"

    def call(self, method: str, path: str, body: dict | None = None) -> Any:
        return self.driver.call(method, self.session + path, body)

    def close(self) -> None:
        self.call("DELETE", "")

    def open(self, url: str) -> None:
        self.call("POST", "/url", {"url": url})

    def reload(self) -> None:
        self.call("POST", "/refresh")

    def cdp(self, command: str, **parameters) -> Any:
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def js(self, script: str, *arguments) -> Any:
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def console(self) -> list[str]:
        """Lines since the last call."""
        return [f"{line['level']}: {line['message']}" for line in self.call("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("GET", "/screenshot")))

    # A selector may end in " | text": the element whose text, label or title it is.
    def find_all(self, selector: str) -> list[dict]:
        css, _, text = selector.partition(" | ")
        return self.js("""
            const shown = (node) => node.checkVisibility({ visibilityProperty: true });
            return [...document.querySelectorAll(arguments[0])].filter((node) => shown(node) && (!arguments[1] ||
              [node.textContent.trim(), node.ariaLabel, node.title].includes(arguments[1])));""", css, text)

    def find(self, selector: str, seconds: float = 10) -> str:
        found = wait(lambda: self.find_all(selector), f"no '{selector}' is shown", seconds)
        return found[-1][ELEMENT]

    def click(self, selector: str) -> None:
        end = time.monotonic() + 5
        while True:
            try:
                self.call("POST", f"/element/{self.find(selector)}/click")
                return
            except RuntimeError as error:  # it moved, or was rendered anew, between the two calls
                if time.monotonic() > end or not re.match("stale element|element click intercepted", str(error)):
                    raise
                time.sleep(0.1)

    def fill(self, selector: str, text: str) -> None:
        element = self.find(selector)
        self.call("POST", f"/element/{element}/clear")
        self.call("POST", f"/element/{element}/value", {"text": text})

    def press(self, *keys: str) -> None:
        """Keys to whatever has the focus; those before the last are held down, or all of a text are typed."""
        codes = [KEYS.get(key, key) for key in keys]
        actions = [{"type": "keyDown", "value": code} for code in codes]
        actions += [{"type": "keyUp", "value": code} for code in reversed(codes)]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def type(self, text: str) -> None:
        actions = [{"type": kind, "value": char} for char in text for kind in ("keyDown", "keyUp")]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def text(self, selector: str) -> str:
        return self.js("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def texts(self, selector: str) -> list[str]:
        return self.js("return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)", selector)

    def size(self, width: int, height: int, mobile: bool = False) -> None:
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if mobile else 1,
                 mobile=mobile)
        self.cdp("Emulation.setTouchEmulationEnabled", enabled=mobile)

    def scheme(self, name: str) -> None:
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])


def wait(condition: Callable[[], Any], message: str, seconds: float = 10) -> Any:
    """The first true value of the condition."""
    end = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{message} after {seconds} s")
        time.sleep(0.05)
