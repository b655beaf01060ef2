"""PUB/SUB: a broadcaster of soccer matches, and a subscriber to the Netherlands and Germany.

::

    python3 examples/pubsub.py

prints::

    broadcast: 12 events of 4 teams
    netherlands corner
    germany yellow card
    netherlands goal
    germany goal
    netherlands foul
    germany corner
    final whistle: 0 messages lost

A topic is the beginning of a message. The broadcaster sends every message to every subscriber, whose socket keeps those
that match its topics. The broadcaster never waits for a slow subscriber, which loses messages. With ``sequence=True``
on both ends the messages of a topic are numbered, and the subscriber counts the lost ones. Leave it out to communicate
with nanomsg or NNG.
"""

from concurrent.futures import ThreadPoolExecutor

from nngkit.protocols import Pub, Sub

TEAMS = ("netherlands", "brazil", "germany", "portugal")
EVENTS = ("corner", "goal", "yellow card", "foul", "goal")
BROADCAST = [(TEAMS[number % len(TEAMS)], EVENTS[number % len(EVENTS)]) for number in range(12)]
FINAL_WHISTLE = "final whistle"


def broadcast(broadcaster: Pub) -> None:
    broadcaster.wait_for_peers(1, timeout=5)  # a subscriber that joins later misses earlier messages
    for team, event in BROADCAST:
        broadcaster.send(f" {event}".encode(), topic=team)
    print(f"broadcast: {len(BROADCAST)} events of {len(TEAMS)} teams")
    broadcaster.send(b"", topic=FINAL_WHISTLE)


with (
    ThreadPoolExecutor() as threads,
    Pub(listen="tcp://127.0.0.1:0", sequence=True) as broadcaster,
    Sub(dial=broadcaster.address, topics=["netherlands", "germany"], sequence=True, recv_timeout=5) as listener,
):
    listener.subscribe(FINAL_WHISTLE)
    threads.submit(broadcast, broadcaster).result()
    for message in listener:
        if message == FINAL_WHISTLE.encode():
            break
        print(message.decode())
    print(f"{FINAL_WHISTLE}: {listener.stats.lost} messages lost")
