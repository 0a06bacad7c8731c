"""A thousand more tools, which a service loads."""

from bench.few_tools import echo_tool

globals().update({name: echo_tool(name, __name__) for name in (f"many_{number}" for number in range(1_000))})
