"""What a profile says: which model answers, how it is asked, what it costs, and what of a prompt may not leave."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from appliance.core import clock, ids
from appliance.core.errors import ValidationFailed

from .redaction import BUILT_IN, PatternInvalid, compile_pattern

Kind = Literal["openai", "anthropic"]
Structured = Literal["native", "json", "prompt"]
HOME: dict[str, str] = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com/v1"}
DEFAULT_MAX_TOKENS = 4096
LONGEST_MS = 15 * 60_000
# Set by the appliance itself: what is asked and how it is answered is not for the settings to say.
OWN_MEMBERS = frozenset({
    "model", "messages", "system", "stream", "stream_options", "response_format", "tools", "tool_choice", "n",
    "max_tokens", "max_completion_tokens",
})  # fmt: skip
Tokens = Annotated[int, Field(ge=1, le=10**12)]
Amount = Annotated[float, Field(gt=0, le=10**9, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0, le=10**6, allow_inf_nan=False)]


class Settings(BaseModel):
    """Base: unknown members are refused, types are exact."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Parameters(Settings):
    """How the model is asked where a call does not say; `extra` members go to the provider as they are."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    extra: dict[str, JsonValue] = Field(default_factory=dict)

    @field_validator("extra")
    @classmethod
    def _leave_ours(cls, given: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if own := sorted(OWN_MEMBERS & given.keys()):
            raise ValueError(f"{own[0]} is set by the appliance itself; leave it out")
        return given


class Prices(Settings):
    """What a million tokens cost, in the tenant's own currency."""

    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] = "USD"
    input: Price
    output: Price


class Budget(Settings):
    """The most that may be used; what is absent is not limited."""

    tokens: Tokens | None = None
    cost: Amount | None = None


class Budgets(Settings):
    """Limits per day and month (UTC) of the profile, and per execution."""

    day: Budget = Budget()
    month: Budget = Budget()
    execution: Budget = Budget()


class Pattern(Settings):
    """What is replaced: a built-in kind of value, or a regular expression (RE2 syntax) under a name of one's own."""

    name: Annotated[str, Field(pattern="^[A-Z][A-Z0-9_]{0,30}$")] | None = None
    use: str | None = None
    pattern: Annotated[str, Field(min_length=1, max_length=1000)] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "Pattern":
        if (self.use is None) == (self.pattern is None):
            raise ValueError("a pattern has either `use` or `pattern`")
        if self.use is not None and self.use not in BUILT_IN:
            raise ValueError(f"use is one of {', '.join(BUILT_IN)}")
        if self.pattern is not None:
            if self.name is None:
                raise ValueError("a pattern of your own has a name, in capitals: it is what the model sees instead")
            try:
                compile_pattern(self.pattern)
            except PatternInvalid as error:
                raise ValueError(str(error)) from error
        return self


class Redaction(Settings):
    """What is replaced in prompts before they leave; `restore` puts it back into the answer where a call does not say."""

    patterns: Annotated[list[Pattern], Field(max_length=50)] = Field(default_factory=list)
    restore: bool = False


class Profile(Settings):
    """A tenant's way to a model, without the key.  `structured` is how JSON is asked for."""

    kind: Kind
    model: Annotated[str, Field(min_length=1, max_length=200)]
    name: Annotated[str, Field(max_length=200)] = ""
    base_url: Annotated[str, Field(max_length=500)] = ""
    parameters: Parameters = Parameters()
    timeout: str = "60s"
    structured: Structured = "native"
    price: Prices | None = None
    budgets: Budgets = Budgets()
    redaction: Redaction = Redaction()
    fallbacks: Annotated[list[str], Field(max_length=5)] = Field(default_factory=list)

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, given: str) -> str:
        parts = urlsplit(given)
        extra = parts.username or parts.query or parts.fragment
        if given and (parts.scheme not in ("http", "https") or not parts.hostname or extra):
            raise ValueError("this is an http or https address such as http://127.0.0.1:11434/v1")
        return given.rstrip("/")

    @field_validator("timeout")
    @classmethod
    def _is_duration(cls, given: str) -> str:
        try:
            span = clock.parse_duration(given)
        except ValidationFailed as error:
            raise ValueError(error.message) from error
        if not 1 <= span <= LONGEST_MS:
            raise ValueError("a call takes between 1ms and 15m")
        return given

    @field_validator("fallbacks")
    @classmethod
    def _are_slugs(cls, given: list[str]) -> list[str]:
        try:
            for slug in given:
                ids.check_slug(slug)
        except ValidationFailed as error:
            raise ValueError(error.message) from error
        return given

    @model_validator(mode="after")
    def _fits(self) -> "Profile":
        limits = (self.budgets.day, self.budgets.month, self.budgets.execution)
        if self.price is None and any(each.cost is not None for each in limits):
            raise ValueError("a budget of money needs `price`, what a million tokens cost")
        if self.kind == "anthropic" and self.structured == "json":
            raise ValueError("anthropic knows no mode `json`; leave `structured` out, or set it to prompt")
        return self

    @property
    def timeout_ms(self) -> int:
        """What one request may take."""
        return clock.parse_duration(self.timeout)

    @property
    def address(self) -> str:
        """The base URL, the provider's own where none is given."""
        return self.base_url or HOME[self.kind]

    def cost_nano(self, input_tokens: int, output_tokens: int) -> int:
        """What tokens cost, in billionths of the currency's unit."""
        if self.price is None:
            return 0
        return round((input_tokens * self.price.input + output_tokens * self.price.output) * 1000)
