"""Library of skills: the catalogue that is in force, which a reload replaces."""

from portico.capabilities.skills.catalogue import SkillCatalogue


class SkillLibrary:
    """The skills of the configuration as they are now, and the tokens that those of one context may take.

    A catalogue never changes, so what was begun with one ends with it.
    """

    def __init__(self, catalogue: SkillCatalogue, budget_tokens: int) -> None:
        self.catalogue = catalogue
        self.budget_tokens = budget_tokens

    def replace(self, catalogue: SkillCatalogue) -> None:
        """Put another catalogue in force."""
        self.catalogue = catalogue
