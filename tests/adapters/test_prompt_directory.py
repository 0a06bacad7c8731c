"""Directory of prompts: a file replaces one text, and every error names its file."""

from pathlib import Path

import pytest

from portico.adapters.prompt_directory import MAX_PROMPT_BYTES, read_prompts
from portico.capabilities.prompting.definition import EmptyInput, PromptId
from portico.capabilities.prompting.registry import default_registry
from portico.domain.failures import Code, ConfigurationFailure
from tests.support.prompt_inputs import prompt_inputs

JUDGE = PromptId.ANSWER_JUDGEMENT_USER


def test_a_file_replaces_the_text_of_its_prompt_and_no_other(tmp_path: Path) -> None:
    (tmp_path / f"{JUDGE}.txt").write_bytes("\ufeff{data_rule}\r\nÜber:\r\n{answer}\r\n".encode())
    (tmp_path / ".gitkeep").write_text("")
    prompts, shipped = read_prompts(tmp_path), default_registry()
    given = prompt_inputs("Tom")[JUDGE]
    text = prompts.get_prompt(JUDGE, given)
    assert "\nÜber:\n<answer-" in text
    assert "The request" not in text
    assert prompts.ids() == shipped.ids()
    others = [each for each in shipped.ids() if each is not JUDGE]
    assert all(prompts.definition(each) is shipped.definition(each) for each in others)
    assert prompts.definition(JUDGE).output_model is shipped.definition(JUDGE).output_model


def test_the_shipped_texts_may_be_written_back_as_they_are(tmp_path: Path) -> None:
    shipped = default_registry()
    for prompt_id in shipped.ids():
        (tmp_path / f"{prompt_id}.txt").write_text(f"{shipped.definition(prompt_id).template}\n")
    prompts = read_prompts(tmp_path)
    assert [prompts.definition(each) for each in prompts.ids()] == [shipped.definition(each) for each in shipped.ids()]


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("NO_PROMPT.txt", b"x", "'NO_PROMPT.txt' is not PROMPT_ID.txt of a prompt"),
        ("answer_judgement_user.txt", b"x", "'answer_judgement_user.txt' is not"),
        ("ANSWER_JUDGEMENT_USER.md", b"x", "'ANSWER_JUDGEMENT_USER.md' is not"),
        ("README", b"x", "'README' is not"),
        (f"{JUDGE}.txt", b"{data_rule} {answr}", "has no answr to fill in; it has answer, intent, request"),
        (f"{JUDGE}.txt", b"{data_rule} {answer} {model_extra}", "has no model_extra to fill in"),
        (f"{JUDGE}.txt", b"{answer}", "must say {data_rule} where it quotes"),
        (f"{JUDGE}.txt", b"{data_rule}", "must say {data_rule} where it quotes, and only there"),
        (f"{JUDGE}.txt", b" \n", f"{JUDGE}.txt: is empty"),
        (f"{JUDGE}.txt", b"\xe9", f"{JUDGE}.txt: is not UTF-8"),
        (f"{JUDGE}.txt", b"x" * (MAX_PROMPT_BYTES + 1), f"{JUDGE}.txt: is larger than"),
        ("SUPERVISOR_REPAIR_SYSTEM.txt", b"{request}", "has no request to fill in; it has none"),
    ],
)
def test_an_unusable_file_is_refused_with_its_name(tmp_path: Path, name: str, content: bytes, what: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationFailure) as refused:
        read_prompts(tmp_path)
    assert refused.value.code is Code.CONFIG_INVALID
    assert refused.value.message.startswith("prompts.directory: ")
    assert name in refused.value.message
    assert what in refused.value.message


def test_a_missing_directory_and_a_folder_in_it_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFailure, match=r"prompts\.directory: .* cannot be read: No such file"):
        read_prompts(tmp_path / "gone")
    (tmp_path / "SUPERVISOR_REPAIR_SYSTEM.txt").mkdir()
    with pytest.raises(ConfigurationFailure, match=r"SUPERVISOR_REPAIR_SYSTEM\.txt: cannot be read"):
        read_prompts(tmp_path)


def test_a_prompt_without_input_is_plain_text(tmp_path: Path) -> None:
    (tmp_path / "SUPERVISOR_REPAIR_SYSTEM.txt").write_text('Repair {"this": {}} {0} {A}.')
    prompts = read_prompts(tmp_path)
    assert prompts.get_prompt(PromptId.SUPERVISOR_REPAIR_SYSTEM, EmptyInput()) == 'Repair {"this": {}} {0} {A}.'
