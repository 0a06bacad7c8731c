"""Prompts at the command line: the list of them, and the text of one, to begin a changed text with."""

from portico.domain.failures import Code, ConfigurationFailure
from portico.entrypoints.cli.execution import settings_of_command
from portico.entrypoints.cli.service_parts import OpenService
from portico.settings import Settings


async def prompt_list(open_service: OpenService, settings: Settings) -> str:
    """Return a line for every prompt: its id, and if its text is changed."""
    async with open_service(settings_of_command(settings)) as service:
        views = service.facade.introspection.prompts()
    return "\n".join(f"{view.id}  changed" if view.is_changed else view.id for view in views)


async def prompt_text(open_service: OpenService, settings: Settings, prompt_id: str) -> str:
    """Return the text of a prompt, with its places. Raises: ConfigurationFailure (CONFIG_INVALID) for an unknown id."""
    async with open_service(settings_of_command(settings)) as service:
        text = service.facade.introspection.prompt_text(prompt_id)
    if text is None:
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"there is no prompt {prompt_id!a:.80}; see portico prompts")
    return text
