"""Random histories of work: hosts and workers die, links are cut, nodes move; each job ends once, and none is lost."""

from __future__ import annotations

import os

import pytest

from tests.cluster.work_network import history
from tests.seeds import seeds

COUNT = int(os.environ.get("NNGKIT_HISTORIES", "150"))


@pytest.mark.parametrize("seed", seeds(4, 16))
def test_each_job_ends_once_whatever_dies(seed: int) -> None:
    history(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_histories() -> None:
    for seed in range(COUNT):
        history(seed)


BROKEN = {
    35: "an old parent, attached anew, reported jobs that the node itself had: a hung one was never stopped",
    324: "a deposed host that did not know it said of a job of the next term that it was lost",
    1006665: "a node without a path dropped a result, and listed the job as at its child from then on",
    414: "the same, for a job accepted before the submitter moved below the old host",
    9006530: "the Stop of a grant was not passed on once a later grant of the job was, so a wrong list stayed for ever",
    61338: "a job that went back was granted to a busy node again, beside an idle one",
    61734: "the same",
    61907: "the same",
}


@pytest.mark.parametrize("seed", BROKEN)
def test_histories_that_were_broken_once(seed: int) -> None:
    history(seed)
