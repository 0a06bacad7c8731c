"""Tables of directories whose files are grammars, or texts of prompts."""

from typing import Annotated

from pydantic import Field

from portico.settings.values import Table


class GrammarSettings(Table):
    """Named grammars."""

    directory: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Directory of named grammars: the file `NAME.gbnf` is the grammar `NAME`"
    )


class PromptSettings(Table):
    """Texts of the service's own prompts."""

    directory: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Directory of changed texts: the file `PROMPT_ID.txt` replaces the text of that prompt"
    )
