"""The comparison of the API description with that of a release."""

import copy
import json
from typing import Any

from tests.support.released_api import CURRENT, breaks


def document() -> Any:
    return json.loads(CURRENT.read_bytes())


def test_the_same_description_breaks_nothing_and_an_addition_neither() -> None:
    released, current = document(), document()
    current["components"]["schemas"]["SystemRequest"]["properties"]["added"] = {"type": "string"}
    assert [*breaks(released, current)] == []


def test_everything_that_a_client_relies_on_is_missed() -> None:
    released = document()
    current = copy.deepcopy(released)
    schemas = current["components"]["schemas"]
    del current["paths"]["/v1/quote"]
    del current["paths"]["/v1/execute"]["post"]["responses"]["202"]
    del schemas["SystemResponse"]["properties"]["content"]
    schemas["LifecycleState"]["enum"].remove("SUSPENDED")
    schemas["SystemRequest"]["required"] = ["metadata"]
    schemas["ExecutionView"]["required"] = [*schemas["ExecutionView"]["required"], "another"]
    assert sorted(breaks(released, current)) == [
        "LifecycleState: value SUSPENDED is gone",
        "POST /v1/execute: status 202 is gone",
        "POST /v1/quote is gone",
        "SystemRequest.metadata is newly required",
        "SystemResponse.content is gone",
    ]
