"""PUB/SUB: handlers of topics, prefixes and patterns beside each other.

::

    python3 examples/handlers.py

prints::

    order from us: 17
    order from eu, with tax: 18
    weather in oslo: 3 degrees
    order from eu, with tax: 19
    3 orders, of topics seen: 4

``@sub.on`` subscribes to a topic and hands its messages to a function, plain or ``async``. Each message goes to one
handler, the most specific: the one with the most bytes given. A ``Pattern`` has ``*`` for one token of a topic and
``>`` for the rest; with ``end``, the bytes that end a topic in a message, it is compared with the whole topic.
"""

import trio

from nngkit.protocols import Pattern, Pub, Sub

ORDERS = (b"orders.17.us 17", b"orders.18.eu 18", b"weather.oslo 3", b"rivers.rhine 2", b"orders.19.eu 19", b"end")


async def main() -> None:
    orders, topics = 0, set()
    async with Pub(listen="tcp://127.0.0.1:0") as pub, Sub(dial=pub.address) as sub:

        def seen(message: bytes) -> str:
            topic, _, body = message.partition(b" ")
            topics.add(topic)
            return body.decode()

        @sub.on("orders.")
        def order(message: bytes) -> None:
            nonlocal orders
            orders += 1
            print(f"order from us: {seen(message)}")

        @sub.on(Pattern("orders.*.eu", end=" "))
        async def european(message: bytes) -> None:
            nonlocal orders
            orders += 1
            await trio.sleep(0.01)  # asks for the tax; the next message waits
            print(f"order from eu, with tax: {seen(message)}")

        @sub.on("weather.")
        def weather(message: bytes) -> None:
            print(f"weather in {message[8:12].decode()}: {seen(message)} degrees")

        @sub.on("end")
        def end(message: bytes) -> None:
            sub.close()

        await pub.await_for_peers(1, timeout=5)
        pub.send_many(ORDERS)
        await sub.aserve()  # until it is closed
    print(f"{orders} orders, of topics seen: {len(topics)}")


trio.run(main)
