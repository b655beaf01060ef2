"""iceoryx2, whose publisher waits for its subscriber. A subscriber looks for samples again and again."""

from __future__ import annotations

import ctypes
import itertools
import os
import time
from typing import Any

import iceoryx2 as iox
from _filled import Sums, fill

from _child import report


def _service(task: dict[str, Any]) -> Any:
    iox.set_log_level(iox.LogLevel.Error)
    if task["listens"]:
        task["url"] = f"nngkit-bench-{os.getpid()}"
    node = iox.NodeBuilder.new().create(iox.ServiceType.Ipc)
    builder = node.service_builder(iox.ServiceName.new(task["url"])).publish_subscribe(iox.Slice[ctypes.c_uint8])
    return node, builder.enable_safe_overflow(False).subscriber_max_buffer_size(16).open_or_create()


def push(task: dict[str, Any]) -> None:
    _node, service = _service(task)
    publishers = service.publisher_builder().initial_max_slice_len(task["size"])
    publisher = publishers.backpressure_strategy(iox.BackpressureStrategy.RetryUntilDelivered).create()
    while not service.dynamic_config.number_of_subscribers:
        time.sleep(0.001)
    publisher.update_connections()
    for number in itertools.count():
        sample = publisher.loan_slice_uninit(task["size"])
        fill(sample.payload().as_memory_view(), number)
        sample.assume_init().send()


def pull(task: dict[str, Any]) -> None:
    _node, service = _service(task)
    subscriber = service.subscriber_builder().create()
    report(url=task["url"])
    sums, more = Sums(task), True
    while more:
        sample = subscriber.receive()
        if sample is not None:
            more = sums.add(sample.payload().as_memory_view())
            sample.delete()
