"""A headless Chromium, driven over the pipe of its DevTools protocol: no further package is needed.

Exceptions, console errors and requests that leave the page are kept in `problems`.
"""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find():
    wanted = os.environ.get("SHARDSIM_CHROMIUM")
    return wanted or next((p for p in map(shutil.which, NAMES) if p), None)


class Browser:
    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix="shardsim-chromium-")
        to_child, self.write_end = os.pipe()
        self.read_end, from_child = os.pipe()

        def pipes():  # fds 3 and 4 are where Chromium looks
            a, b = os.dup(to_child), os.dup(from_child)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"],
            preexec_fn=pipes, pass_fds=(3, 4), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        self.unread, self.number, self.problems = b"", 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        os.close(self.write_end)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read_end)
        shutil.rmtree(self.profile, ignore_errors=True)

    def message(self):
        while b"\0" not in self.unread:
            got = os.read(self.read_end, 1 << 20)
            if not got:
                raise RuntimeError("the browser has ended")
            self.unread += got
        text, self.unread = self.unread.split(b"\0", 1)
        return json.loads(text)

    def note(self, m):
        what = m.get("params", {})
        if m["method"] == "Runtime.exceptionThrown":
            d = what["exceptionDetails"]
            self.problems.append(d.get("exception", {}).get("description", d["text"]))
        elif m["method"] == "Runtime.consoleAPICalled" and what["type"] in ("error", "assert"):
            self.problems.append("console: " + str([a.get("value", a.get("description")) for a in what["args"]]))
        elif m["method"] == "Log.entryAdded" and what["entry"]["level"] == "error":
            self.problems.append("log: " + what["entry"]["text"])
        elif m["method"] == "Network.requestWillBeSent":
            url = what["request"]["url"]
            if not url.startswith(("file:", "data:", "about:", "blob:")):
                self.problems.append("request: " + url)

    def call(self, method, **params):
        self.number += 1
        m = {"id": self.number, "method": method, "params": params}
        if getattr(self, "session", None):
            m["sessionId"] = self.session
        os.write(self.write_end, json.dumps(m).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.note(answer)

    def size(self, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=2 if width < 600 else 1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, path, fragment=""):
        self.problems = []
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url="file://" + os.path.abspath(path) + fragment)
        end = time.monotonic() + 120
        while self.eval("document.documentElement?.dataset.ready || ''") == "":
            if time.monotonic() > end:
                raise RuntimeError(f"{path}: the page does not say that it is drawn")
            time.sleep(0.05)
        self.settle()

    def settle(self):
        """Waits for two frames, in which what was asked for is drawn."""
        self.eval("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(1))))")

    def eval(self, expression):
        r = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{expression}: {r['exceptionDetails']}")
        return r["result"].get("value")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.settle()

    def key(self, key):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def screenshot(self, path, whole=False):
        more = {"captureBeyondViewport": True} if whole else {}
        if whole:
            s = self.call("Page.getLayoutMetrics")["cssContentSize"]
            more["clip"] = {"x": 0, "y": 0, "width": s["width"], "height": s["height"], "scale": 1}
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", **more)["data"]))
