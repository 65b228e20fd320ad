"""The example data of the tenant: processes, texts, policies, a skill and agents."""

from typing import Any


def _code(source: str) -> dict[str, Any]:
    return {"code": {"language": "javascript", "source": f"export default async function (input, api) {{\n{source}\n}}"}}


_LINE = (
    "export default async function (input, api) {\n  const {number, price} = input.line\n"
    "  // Gifts have no price.\n  if (price === undefined) {\n    throw new Error(`line ${number} has no price`)\n  }\n"
    "  return {number, price}\n}\n"
)
ORDER = {"order": {"type": "integer", "title": "Order"}}
WEIGHT = {"weight": {"type": "number", "title": "Weight in kg"}}
PROCESSES: tuple[dict[str, Any], ...] = (
    {
        "id": "delivery-check",
        "name": "Delivery check",
        "description": "Looks at the weight of an order before a carrier is asked.",
        "input": {"type": "object", "required": ["order"], "properties": {**ORDER, **WEIGHT}},
        "steps": [
            {
                "id": "weigh",
                "name": "Check the weight",
                **_code(
                    "  api.log.info('weighing', {order: input.order})\n"
                    "  if (input.weight < 0) throw new Error(`order ${input.order} weighs less than nothing`)\n"
                    "  return {ok: true}"
                ),
            },
            {"id": "verdict", "rule": {"expression": "= steps.weigh.ok"}},
        ],
    },
    {
        "id": "carrier-quote",
        "name": "Carrier quote",
        "description": "Asks the cheapest carrier.",
        "steps": [{"id": "ask", **_code("  return input.carriers.map((each) => each.price)")}],
    },
    {
        "id": "line-check",
        "name": "Line check",
        "description": "Looks at every line of an order; what is wrong with one does not hold up the others.",
        "steps": [
            {
                "id": "each",
                "for_each": {
                    "items": "= input.lines", "as": "line", "on_error": "continue",
                    "steps": [{"id": "line", "input": {"line": "= line"}, "code": {"language": "javascript", "source": _LINE}}],
                },
            },
        ],
    },
    {
        "id": "slow-export",
        "name": "Slow export",
        "timeout": "300ms",
        "steps": [{"id": "export", **_code("  for (;;) {}")}],
    },
    {
        "id": "release-order",
        "name": "Release order",
        "description": "A person looks at orders over the limit.",
        "grants": {"human": True},
        "input": {"type": "object", "properties": ORDER},
        "steps": [
            {
                "id": "ask",
                "name": "Ask sales",
                **_code(
                    "  return await api.human.request({kind: 'approval', title: `Ship order ${input.order}?`, expires: '48h',\n"
                    "    reason: 'Over the limit.', details: {total: '1440.50', lines: [{product: 'Tea', quantity: 3}]}})"
                ),
            }
        ],
    },
    {
        "id": "nightly-close",
        "name": "Nightly close",
        "triggers": [{"id": "nightly", "schedule": {"cron": "0 2 * * *"}}],
        "steps": [{"id": "pause", "wait": {"for": "8h"}}, {"id": "close", "rule": {"expression": "= 1"}}],
    },
)  # fmt: skip
DRAFT: dict[str, Any] = {
    "id": "price-list", "name": "Price list", "description": "Not published yet.",
    "steps": [{"id": "sum", "rule": {"expression": "= 1 + 1"}}],
}  # fmt: skip
CONTRACT = "# Contract\n\nNorthgate Traders delivers to Alfreds Futterkiste.\n\n- Discount 5 %\n- Payment within 14 days\n"
TEXTS = {
    "price list 2026.csv": "sku,product,price\nT-100,Darjeeling,18.00\nC-310,Arabica beans,23.25\n",
    "carriers.json": '{"carriers": ["Speedy Express", "United Package"]}\n',
    "terms of delivery.md": "# Terms of delivery\n\nGoods travel at the buyer's risk.\n",
}
POLICY: dict[str, Any] = {
    "mode": "enforce",
    "rules": [
        {
            "id": "large", "effect": "require_approval", "operations": ["order_*"], "when": {"input": {"total": {"_gt": 1000}}},
            "obligations": {"approvers": ["role:owner"], "ttl_seconds": 3600}, "reason": "An owner looks at large orders.",
        },
        {"id": "notes", "effect": "require_approval", "tools": ["write_entities"], "reason": "Somebody looks first."},
    ],
}  # fmt: skip
SECOND_POLICY: dict[str, Any] = {
    "mode": "observe",
    "rules": [{"id": "night", "effect": "deny", "effects": ["write"], "reason": "Nights are quiet."}],
}
SKILL = {
    "SKILL.md": "---\nname: returns\ndescription: How goods that come back are handled.\nallowed-tools: query_entities\n---\n"
    "# Returns\n\n1. Look the order up.\n2. Say what is refunded.\n",
    "references/deadlines.md": "Fourteen days.\n",
}
AGENTS: tuple[dict[str, Any], ...] = (
    {
        "id": "clerk", "name": "Order clerk", "description": "Looks orders up and notes what comes in.",
        "instructions": "Look up what you are asked.", "tools": ["query_entities", "write_entities"],
    },
    {
        "id": "hasty", "name": "Hasty clerk", "description": "May ask the model once.", "instructions": "Look it up.",
        "tools": ["query_entities"], "budget": {"turns": 1},
    },
)  # fmt: skip
READ_PROMPT = (
    'How many orders are there? CALL query_entities {"collection": "orders", "limit": 2}\n'
    "SAY There are four orders, two of them from Germany."
)
WRITE_PROMPT = (
    'Note the tea. CALL write_entities {"operations": [{"op": "create", "collection": "notes", "values": {"text": "Tea, 3"}}]}\n'
    "SAY It is noted."
)
