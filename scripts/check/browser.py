"""A session of headless Chromium, by chromedriver, with the standard library alone; and checks that
count what fails."""

import base64
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
           "--disable-background-networking", "--disable-component-update", "--disable-sync",
           "--hide-scrollbars", "--disable-dev-shm-usage"]
# What WebDriver calls an element in JSON.
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
# A machine whose cores are all busy takes long to start a browser.
START = 180


class Browser:
    """A session of chromedriver."""

    def __init__(self, folder, size=(1280, 900)):
        binary = shutil.which("chromium") or shutil.which("chromium-browser")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.driver = subprocess.Popen(["chromedriver", f"--port={self.port}"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        begun = time.monotonic()
        while time.monotonic() < begun + START:
            try:
                self.call("GET", "/status")
                break
            except OSError:
                time.sleep(0.1)
        arguments = OPTIONS + [f"--user-data-dir={folder}/browser",
                               f"--window-size={size[0]},{size[1]}"]
        # Chromium gives scripts half a minute; axe-core on busy cores takes longer.
        made = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "timeouts": {"script": 1000 * START},
            "goog:chromeOptions": {
                "binary": binary, "args": arguments,
                "prefs": {"download.default_directory": str(folder)}},
            "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.session = f"/session/{made['sessionId']}"

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=START) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            sys.exit(f"{path}: {error.read().decode()}")

    def open(self, place):
        url = place if isinstance(place, str) else place.as_uri()
        self.call("POST", f"{self.session}/url", {"url": url})

    def run(self, script, *arguments):
        return self.call("POST", f"{self.session}/execute/sync",
                         {"script": script, "args": list(arguments)})

    def run_async(self, script, *arguments):
        """What a script gives to the function that is its last argument."""
        return self.call("POST", f"{self.session}/execute/async",
                         {"script": script, "args": list(arguments)})

    def resize(self, width, height):
        self.call("POST", f"{self.session}/window/rect", {"width": width, "height": height})

    def complaints(self):
        return self.call("POST", f"{self.session}/se/log", {"type": "browser"})

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("GET", f"{self.session}/screenshot")))

    def find(self, selector):
        found = self.call("POST", f"{self.session}/element",
                          {"using": "css selector", "value": selector})
        return found[ELEMENT]

    def type(self, selector, text):
        self.call("POST", f"{self.session}/element/{self.find(selector)}/value", {"text": text})

    def click(self, selector):
        self.call("POST", f"{self.session}/element/{self.find(selector)}/click", {})

    def hover(self, selector):
        origin = {ELEMENT: self.find(selector)}
        move = {"type": "pointerMove", "duration": 50, "x": 0, "y": 0, "origin": origin}
        self.call("POST", f"{self.session}/actions", {"actions": [
            {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"},
             "actions": [move]}]})

    def give_picture(self, selector):
        """Gives a field for files a picture that Chromium draws: a bright row."""
        self.run("""
            const canvas = document.createElement('canvas'); canvas.width = canvas.height = 64;
            const pen = canvas.getContext('2d'), input = document.querySelector(arguments[0]);
            pen.fillStyle = '#141414'; pen.fillRect(0, 0, 64, 64);
            pen.fillStyle = '#c8c8c8'; pen.fillRect(0, 16, 64, 8);
            canvas.toBlob(blob => {
              const box = new DataTransfer();
              box.items.add(new File([blob], 'row.png', {type: 'image/png'}));
              input.files = box.files;
              input.dispatchEvent(new Event('change'));
            }, 'image/png');""", selector)

    def keys(self, *keys):
        """Presses keys one after the other, wherever the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.call("POST", f"{self.session}/actions",
                  {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def develop(self, command, **parameters):
        """A command of the DevTools protocol."""
        return self.call("POST", f"{self.session}/goog/cdp/execute",
                         {"cmd": command, "params": parameters})

    def telephone(self, width=375, height=740):
        self.develop("Emulation.setDeviceMetricsOverride", width=width, height=height,
                     deviceScaleFactor=2, mobile=True)

    def desktop(self):
        self.develop("Emulation.clearDeviceMetricsOverride")

    def wait(self, script, *arguments, seconds=60):
        """What a script comes to once it is true, or what it was last."""
        end = time.monotonic() + seconds
        while True:
            found = self.run(script, *arguments)
            if found or time.monotonic() > end:
                return found
            time.sleep(0.05)

    def close(self):
        try:
            self.call("DELETE", self.session)
        finally:
            self.driver.terminate()
            self.driver.wait()


def check(holds, what):
    print("ok  " if holds else "FAIL", what)
    if not holds:
        check.failed = True


check.failed = False
