"""Texts with the numbers of their tokens in o200k_base, as the package bpe-openai 0.1.4 counts them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class TokenSample(NamedTuple):
    """A text and its tokens."""

    tokens: int
    text: str


_CHINESE: Final = (
    "人工智能正在改变我们的生活方式。早上醒来时，手机会根据昨天的日程提醒我们今天要做的事情；出"
    "门之前，它会告诉我们路上是否堵车，需要不需要带伞。很多公司也开始用语言模型来回答顾客的问题"
    "，整理会议记录，甚至帮助工程师编写程序。不过，模型给出的答案并不总是正确的，因此在重要的决"
    "定上仍然需要人来检查。一个好的系统应该说明它的依据，并且在不确定的时候承认自己不知道。这样"
    "，使用者才能放心地依靠它，而不是盲目地相信它。订单在付款以后的三个工作日内发出。如果收到的"
    "商品有损坏，请在七天之内联系客服，并附上照片和订单号码。我们会免费更换，或者把款项退回原来"
    "的账户。"
)
_JAPANESE: Final = (
    "人工知能は私たちの生活を少しずつ変えています。朝起きると、スマートフォンが今日の予定を教え"
    "てくれますし、出かける前には電車の遅れや天気も知らせてくれます。多くの会社では、お客様から"
    "の質問に答えたり、会議の記録をまとめたりするために言語モデルを使い始めました。しかし、答え"
    "がいつも正しいとは限りません。ですから、大切な判断をするときには、人が必ず確認する必要があ"
    "ります。ご注文の商品は、お支払いの確認後、三営業日以内に発送いたします。商品に傷や汚れがあ"
    "った場合は、七日以内に写真と注文番号を添えてご連絡ください。無料で交換するか、代金を返金い"
    "たします。"
)
_KOREAN: Final = (
    "인공지능은 우리의 생활 방식을 조금씩 바꾸고 있습니다. 아침에 일어나면 휴대전화가"
    " 오늘의 일정을 알려 주고, 집을 나서기 전에는 길이 막히는지, 우산이 필요한지도"
    " 말해 줍니다. 많은 회사가 고객의 질문에 답하거나 회의 내용을 정리하기 위해 언"
    "어 모델을 쓰기 시작했습니다. 그러나 모델의 대답이 언제나 옳은 것은 아니므로 중"
    "요한 결정을 내릴 때에는 사람이 반드시 확인해야 합니다.주문하신 상품은 결제 후 "
    "영업일 기준 사흘 안에 발송됩니다. 상품에 문제가 있으면 일주일 안에 사진과 주문"
    " 번호를 보내 주십시오. 무료로 교환하거나 대금을 돌려 드립니다."
)
_PYTHON: Final = '''\
class _Costs:
    """Tokens of sets of skills."""

    def __init__(self, costs: Mapping[int, int]) -> None:
        self.each = costs
        self._totals: dict[int, int] = {}

    def total(self, bits: int) -> int:
        """Return the tokens of a set."""
        known = self._totals.get(bits)
        if known is None:
            known = self._totals[bits] = sum(self.each[number] for number in numbers_in(bits))
        return known


def _by_density(candidates: Sequence[SkillCandidate], costs: _Costs, budget: int) -> int:
    """Return what is taken by density: the value of the candidates in a closure over its tokens."""

    def density(candidate: SkillCandidate) -> float:
        value = sum(each.value for each in candidates if candidate.closure >> each.number & 1)
        return value / max(1, costs.total(candidate.closure))

    taken, left = 0, budget
    for candidate in sorted(candidates, key=density, reverse=True):
        new = candidate.closure & ~taken
        if costs.total(new) <= left:
            taken, left = taken | new, left - costs.total(new)
    return taken


'''
_TYPESCRIPT: Final = """\
export async function loadOrders(client: ApiClient, customerId: string): Promise<Order[]> {
    const orders: Order[] = [];
    let cursor: string | null = null;
    do {
        const page = await client.get<OrderPage>(`/customers/${customerId}/orders`, { cursor, limit: 50 });
        for (const item of page.items) {
            if (item.status !== "cancelled" && item.total > 0) {
                orders.push({ id: item.id, total: item.total, placedAt: new Date(item.placed_at) });
            }
        }
        cursor = page.next_cursor;
    } while (cursor !== null);
    return orders.sort((left, right) => right.placedAt.getTime() - left.placedAt.getTime());
}
"""
SAMPLES: Final[Mapping[str, TokenSample]] = MappingProxyType(
    {
        "Chinese": TokenSample(184, _CHINESE),
        "Japanese": TokenSample(192, _JAPANESE),
        "Korean": TokenSample(163, _KOREAN),
        "Python": TokenSample(266, _PYTHON),
        "TypeScript": TokenSample(165, _TYPESCRIPT),
    }
)
"""By language."""
