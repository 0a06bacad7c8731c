"""Flows at the command line: the request of a run, the diagram of a graph, and a check before a deploy."""

from rich.console import Console
from rich.text import Text

from portico.domain.access.principal import LOCAL
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.ids import TenantId
from portico.entrypoints.cli.display.terminal import printable
from portico.entrypoints.cli.execution import settings_of_command
from portico.entrypoints.cli.service_parts import OpenHistoryReader, OpenService
from portico.settings import Settings


async def flow_diagram(open_service: OpenService, settings: Settings, name: str) -> str:
    """Return the graph of a flow as Mermaid. Raises: ConfigurationFailure (CONFIG_FLOW_INVALID) for an unknown flow."""
    async with open_service(settings_of_command(settings)) as service:
        view = service.facade.introspection.flow(name, LOCAL.permissions)
        known = [each.name for each in service.facade.introspection.flows(LOCAL.permissions)]
    if view is None:
        message = f"there is no flow {name}; there are: {', '.join(known) or 'none'}"
        raise ConfigurationFailure(Code.CONFIG_FLOW_INVALID, message)
    return view.mermaid


async def check_suspended_flows(open_reader: OpenHistoryReader, settings: Settings, tenant: TenantId) -> int:
    """Print for every suspended flow if it would resume, and return the number of those that would not."""
    obstacles = 0
    console = Console(highlight=False)
    async with open_reader(settings) as reader:
        for each in await reader.suspended_flows(tenant):
            status, style = ("resumes", "green") if each.obstacle is None else ("does not resume", "bold red")
            line = Text.assemble(f"{printable(each.request_id)}  {printable(each.flow)}  ", (status, style))
            if each.obstacle is not None:
                obstacles += 1
                line.append(f"  {printable(each.obstacle)}")
            console.print(line, soft_wrap=True)
    return obstacles
