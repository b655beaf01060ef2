"""Arrays, images and tables in shared memory, none of them copied. Linux only."""

import tempfile

import numpy as np
import pyarrow as pa
from PIL import Image

from nngkit.protocols import Pull, Push

HEIGHT, WIDTH = 1080, 1920
folder = tempfile.TemporaryDirectory()
push = Push(listen=f"shm://{folder.name}/arrays")
pull = Pull(dial=push.address, recv_max_size=16 * 1024 * 1024)
push.wait_for_peers(1, timeout=5)
push.send(b"the first message")  # what arrives before the first view is asked for is copied
pull.recv_view(timeout=5)

# --8<-- [start:numpy]
with push.loan(HEIGHT * WIDTH * 3) as buffer:  # written where it stays
    frame = np.frombuffer(buffer, np.uint8).reshape(HEIGHT, WIDTH, 3)
    frame[:] = (255, 128, 0)

frame = np.frombuffer(pull.recv_view(timeout=5), np.uint8).reshape(HEIGHT, WIDTH, 3)  # read-only
print(frame[0, 0], frame.flags.writeable)  # [255 128   0] False
# --8<-- [end:numpy]

# --8<-- [start:pillow]
push.send(frame)  # any contiguous buffer: copied once, into shared memory
image = Image.frombuffer("RGB", (WIDTH, HEIGHT), pull.recv_view(timeout=5), "raw", "RGB", 0, 1)
print(image.size, image.getpixel((9, 9)))  # (1920, 1080) (255, 128, 0)
# --8<-- [end:pillow]

# --8<-- [start:arrow]
table = pa.table({"time": np.arange(100_000), "value": np.linspace(0, 1, 100_000)})
sizes = pa.MockOutputStream()  # counts, and writes nothing
with pa.ipc.new_stream(sizes, table.schema) as writer:
    writer.write_table(table)
with (
    push.loan(sizes.size()) as buffer,
    pa.ipc.new_stream(pa.FixedSizeBufferWriter(pa.py_buffer(buffer)), table.schema) as writer,
):
    writer.write_table(table)

came = pa.ipc.open_stream(pa.py_buffer(pull.recv_view(timeout=5))).read_all()  # its columns are in the sender's memory
print(came.num_rows, came == table)  # 100000 True
# --8<-- [end:arrow]

print(push.stats.shared, push.stats.copied, pull.stats.copied)  # 3 0 0
pull.close()
push.close()
folder.cleanup()
