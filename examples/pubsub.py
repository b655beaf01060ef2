"""PUB/SUB: a broadcaster of soccer matches, and a listener who cares for the Netherlands and Germany only.

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

A topic is what a message begins with. The broadcaster sends everything to everybody, and the subscriber's socket lets
in what was asked for. Nobody waits for a slow subscriber: it loses messages. With ``sequence=True`` on both ends the
messages of a topic are numbered, and the subscriber can tell how many it lost. Leave it out to talk
with nanomsg or plain NNG.
"""

from concurrent.futures import ThreadPoolExecutor

from nngkit.protocols import Pub, Sub

TEAMS = ("netherlands", "brazil", "germany", "portugal")
EVENTS = ("corner", "goal", "yellow card", "foul", "goal")
BROADCAST = [(TEAMS[number % len(TEAMS)], EVENTS[number % len(EVENTS)]) for number in range(12)]
FINAL_WHISTLE = "final whistle"


def broadcast(broadcaster: Pub) -> None:
    broadcaster.wait_for_peers(1, timeout=5)  # who tunes in later hears what is said later
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
