"""Example flows: linear, split and merge, approval, nested, bounded debate, and agents with and without tools."""

from pydantic import BaseModel, Field

from portico.capabilities.tools.definition import tool
from portico.domain.tools import SideEffects
from portico.orchestration.flow import AgentConfig, Context, FlowGraph, ToolError, flow


class Text(BaseModel):
    """A text to work on."""

    text: str


class Words(BaseModel):
    words: list[str]


class Count(BaseModel):
    count: int


async def split_words(text: Text, context: Context) -> Words:
    return Words(words=text.text.split())


async def count_words(words: Words, context: Context) -> Count:
    return Count(count=len(words.words))


@flow("linear")
def linear() -> FlowGraph[Text, Count]:
    """Return a flow of two steps."""
    return FlowGraph.builder(Text, Count).work(split_words).work(count_words).build()


class Longest(BaseModel):
    word: str


class Letters(BaseModel):
    letters: int


class Left(BaseModel):
    words: list[str]


class Right(BaseModel):
    words: list[str]


class Summary(BaseModel):
    longest: str
    letters: int


def divide(text: Text, context: Context) -> tuple[Left, Right]:
    words = text.text.split()
    return Left(words=words), Right(words=words)


async def find_longest(left: Left, context: Context) -> Longest:
    return Longest(word=max(left.words, key=len))


async def count_letters(right: Right, context: Context) -> Letters:
    return Letters(letters=sum(map(len, right.words)))


def merge(longest: Longest, letters: Letters, context: Context) -> Summary:
    return Summary(longest=longest.word, letters=letters.letters)


@flow("split-and-merge")
def split_and_merge() -> FlowGraph[Text, Summary]:
    """Return a flow with two branches that meet."""
    return FlowGraph.builder(Text, Summary).fork(divide).work(find_longest).work(count_letters).join(merge).build()


class Invoice(BaseModel):
    number: str
    amount: int


class Approved(BaseModel):
    by: str


class Payment(BaseModel):
    receipt: str


async def approve(invoice: Invoice, context: Context) -> Approved:
    if invoice.amount < 100:
        return Approved(by="rule")
    raise ToolError.suspend({"question": "Pay this invoice?", "amount": invoice.amount})


async def pay(approved: Approved, context: Context) -> Payment:
    return Payment(receipt=f"paid, approved by {approved.by}")


@flow("approval")
def approval() -> FlowGraph[Invoice, Payment]:
    """Return a flow that waits for a person when the amount is large."""
    return FlowGraph.builder(Invoice, Payment).work(approve).work(pay, idempotent=False).build()


class Order(BaseModel):
    text: str
    amount: int


class Shipment(BaseModel):
    receipt: str


async def make_invoice(order: Order, context: Context) -> Invoice:
    return Invoice(number=order.text, amount=order.amount)


async def ship(payment: Payment, context: Context) -> Shipment:
    return Shipment(receipt=payment.receipt)


@flow("nested")
def nested() -> FlowGraph[Order, Shipment]:
    """Return a flow that contains the approval."""
    return FlowGraph.builder(Order, Shipment).work(make_invoice).flow(approval()).work(ship).build()


class Claim(BaseModel):
    claim: str


class Argument(BaseModel):
    claim: str
    argument: str
    round: int = Field(ge=1)


class Objection(BaseModel):
    claim: str
    round: int


class Verdict(BaseModel):
    claim: str
    rounds: int


MAX_ROUNDS = 3


async def open_debate(claim: Claim, context: Context) -> Argument:
    return Argument(claim=claim.claim, argument="because", round=1)


def judge(argument: Argument, context: Context) -> Objection | Verdict:
    if argument.round >= MAX_ROUNDS:
        return Verdict(claim=argument.claim, rounds=argument.round)
    return Objection(claim=argument.claim, round=argument.round)


async def argue_again(objection: Objection, context: Context) -> Argument:
    return Argument(claim=objection.claim, argument="even so", round=objection.round + 1)


@flow("debate")
def debate() -> FlowGraph[Claim, Verdict]:
    """Return a bounded loop: a judge sends an argument back until there have been enough rounds."""
    return FlowGraph.builder(Claim, Verdict).work(open_debate).either(judge).work(argue_again).build()


class Topic(BaseModel):
    """A topic to research."""

    topic: str


class Draft(BaseModel):
    """A draft of the answer."""

    text: str


class Answer(BaseModel):
    answer: str


@tool(side_effects=SideEffects.READ, idempotent=True)
async def search(query: str) -> str:
    """Search the library."""
    return f"three books about {query}"


@tool(side_effects=SideEffects.NONE, idempotent=True)
async def ask_editor(question: str) -> str:
    """Ask the editor."""
    raise ToolError.suspend({"question": question})


async def publish(draft: Draft, context: Context) -> Answer:
    return Answer(answer=draft.text)


@flow("research")
def research() -> FlowGraph[Topic, Answer]:
    """Return a flow with an agent that has tools, one of which asks a person."""
    researcher = AgentConfig("Research the topic.", "default").with_tools([search, ask_editor])
    return FlowGraph.builder(Topic, Answer).agent(Topic, Draft, researcher).work(publish).build()


@flow("summarise")
def summarise() -> FlowGraph[Topic, Answer]:
    """Return a flow with an agent that answers in its output's form."""
    config = AgentConfig("Summarise the topic.", "default")
    return FlowGraph.builder(Topic, Answer).agent(Topic, Draft, config).work(publish).build()
