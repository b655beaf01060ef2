"""A page of another site uses the gateway in a headless Chromium: fetch, EventSource and WebSocket."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import trio

from nngkit.testing import aeventually
from nngkit.web.server import serve
from tests.web.browsers import Page, chromium
from tests.web.gateways import PATIENCE, calculating
from tests.web.homes import NEEDED

pytestmark = [mark for mark in NEEDED if mark.kwargs.get("package") != "nodejs"]

PAGE = """<!doctype html><meta charset="utf-8"><title>gateway</title><script>
const gateway = new URLSearchParams(location.search).get("gateway");
const seen = [], frames = [], state = {opened: 0};
const events = new EventSource(`${gateway}sub?topic=chat.&last=1`);
events.onopen = () => { state.opened += 1; };
events.onmessage = (event) => seen.push(JSON.parse(event.data).body);
const socket = new WebSocket(`${gateway.replace("http", "ws")}sub?topic=chat.`);
socket.onmessage = (event) => frames.push(JSON.parse(event.data).body);
socket.onopen = () => { state.socket = true; };
async function call(path, value) {
  const headers = {"Content-Type": "application/json", "Grpc-Timeout": "5S"};
  const reply = await fetch(gateway + path, {method: "POST", headers, body: JSON.stringify(value)});
  state[path] = [reply.status, await reply.json()];
}
call("call/calc/double", {n: 21});
call("call/calc/decline", {});
</script>"""


@contextlib.contextmanager
def site(folder: Path) -> Generator[str]:
    """Serve the page from another origin."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


async def test_a_page_calls_and_follows_and_resumes_after_a_cut(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(PAGE)
    with site(tmp_path) as origin, chromium() as driver:
        options = {"publish": "tcp://127.0.0.1:0", "origins": (origin,)}
        async with calculating(**options) as (home, _), trio.open_nursery() as nursery:
            await home.ask("POST", "/pub?topic=chat.a", b"0")
            # else it may come to the page's WebSocket too, from the gateway's own publisher
            await aeventually(lambda: home.gateway.stats.hub.received == 1, PATIENCE)  # type: ignore[union-attr]
            again = partial(serve, home.gateway, origins=(origin,), limits=home.gateway.limits())
            first = trio.CancelScope()

            async def serve_first(task_status: trio.TaskStatus[object]) -> None:
                with first:
                    await again(task_status=task_status)

            http_server = await nursery.start(serve_first)
            page = await Page.open(driver, f"{origin}/?gateway={http_server.url}", name=None)
            await page.sees("return state['call/calc/double']", [200, 42])
            await page.sees("return state['call/calc/decline'][1].code", "declined")
            await page.sees("return seen", ["0"])
            await page.sees("return state.socket", True)
            await home.ask("POST", "/pub?topic=chat.b", b"1")
            await page.sees("return seen", ["0", "1"])
            await page.sees("return frames", ["1"])
            first.cancel()  # all connections are cut
            await page.sees("return events.readyState", 0)
            await home.ask("POST", "/pub?topic=chat.c", b"2")
            await nursery.start(partial(again, port=http_server.port))
            await page.sees("return seen", ["0", "1", "2"])
            assert await page.script("return state.opened") == 2
            complaints = await page.complaints()  # a refused call is one, and the missing icon
            assert [each for each in complaints if "Failed to load resource" not in each] == []
            nursery.cancel_scope.cancel()
