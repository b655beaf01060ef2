"""One short use of each pattern; the pages of docs/ include the sections."""

from threading import Thread

from nngkit import Full, TimedOut
from nngkit.protocols import Bus, Pair1, Pub, Pull, Push, Rep, Req, Respondent, Sub, Surveyor

# --8<-- [start:pipeline]
with Pull(listen="tcp://127.0.0.1:0") as pull, Push(dial=pull.address) as push:
    push.send(b"work")
    print(pull.recv(timeout=5))  # b'work'
# --8<-- [end:pipeline]

# --8<-- [start:pubsub]
with Pub(listen="tcp://127.0.0.1:0") as pub, Sub(dial=pub.address, topics="weather.") as sub:
    pub.wait_for_peers(timeout=5)
    pub.send(b"12 degrees", topic="weather.oslo ")
    print(sub.recv(timeout=5))  # b'weather.oslo 12 degrees'
# --8<-- [end:pubsub]

# --8<-- [start:reqrep]
with Rep(listen="tcp://127.0.0.1:0") as rep, Req(dial=rep.address) as req:

    def serve() -> None:
        for request in rep:  # ends when rep is closed
            request.reply(request.body.upper())

    Thread(target=serve).start()
    print(req.request(b"hello", timeout=5))  # b'HELLO'
# --8<-- [end:reqrep]

# --8<-- [start:survey]
with Surveyor(listen="tcp://127.0.0.1:0") as surveyor, Respondent(dial=surveyor.address) as respondent:

    def respond() -> None:
        for query in respondent:
            query.reply(b"here")

    Thread(target=respond).start()
    surveyor.wait_for_peers(timeout=5)
    result = surveyor.survey(b"status", timeout=0.5)
    print(result.expected, result.answered, [reply.body for reply in result.replies])  # 1 1 [b'here']
# --8<-- [end:survey]

# --8<-- [start:bus]
with Bus(listen="tcp://127.0.0.1:0") as ada, Bus(dial=ada.address) as grace:
    grace.wait_for_peers(timeout=5)
    grace.send(b"hello, all")
    print(ada.recv(timeout=5))  # b'hello, all'
# --8<-- [end:bus]

# --8<-- [start:pair]
with Pair1(listen="inproc://example") as left, Pair1(dial="inproc://example") as right:
    right.send(b"ping")
    print(left.recv(timeout=5))  # b'ping'
# --8<-- [end:pair]

# --8<-- [start:errors]
with Push(send_buffer=1, when_full="raise") as push:
    push.send(b"queued: there is no peer yet")
    try:
        push.send(b"no room")
    except Full as error:
        print(type(error).__name__)  # Full

with Pull(listen="tcp://127.0.0.1:0", recv_timeout=0.01) as pull:
    try:
        pull.recv()
    except TimedOut as error:
        print(error.seconds)  # 0.01
# --8<-- [end:errors]
