"""A timer of NNG's keeps a CPU busy for the rest of the millisecond in which it is due.

pynng 0.9.0 (NNG 1.11.0). nni_aio_expire_loop waits until "now" is the expiry and then asks for "before now", so it
busy-waits until the next millisecond. It is the same for every timeout and every nng_sleep_aio.
Expected: microseconds of CPU a timer.
Observed: hundreds, in the busiest of several windows of 25 timers.
"""

import time

from _harness import done, new_aio
from pynng import lib

aio, costs = new_aio(), []
for _ in range(10):
    cpu = time.process_time()
    for _ in range(25):
        lib.nng_sleep_aio(2, aio)
        lib.nng_aio_wait(aio)
    costs.append((time.process_time() - cpu) / 25 * 1e6)

cpu = time.process_time()
for _ in range(25):
    time.sleep(0.002)
python = (time.process_time() - cpu) / 25 * 1e6
found = f"{max(costs):.0f} us at most, {min(costs):.0f} at least; time.sleep {python:.0f}"
done(f"CPU a timer of 2 ms: {found}", max(costs) > 150)
