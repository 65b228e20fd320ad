"""The settings of an LLM profile: model, parameters, prices, budgets and redaction."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from appliance.core import clock, ids
from appliance.core.errors import ValidationFailed

from .redaction import BUILT_IN, PatternInvalid, compile_pattern

Kind = Literal["openai", "anthropic"]
Structured = Literal["native", "json", "prompt"]
DEFAULT_URLS: dict[str, str] = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com/v1"}
LONGEST_MS = 15 * 60_000
# Members of requests that the appliance sets itself, and that settings must not override.
OWN_MEMBERS = frozenset({
    "model", "messages", "system", "stream", "stream_options", "response_format", "tools", "tool_choice", "n",
    "max_tokens", "max_completion_tokens",
})  # fmt: skip
Tokens = Annotated[int, Field(ge=1, le=10**12)]
Amount = Annotated[float, Field(gt=0, le=10**9, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0, le=10**6, allow_inf_nan=False)]


class Settings(BaseModel):
    """Base of settings: unknown members are refused, and types are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Parameters(Settings):
    """Defaults for calls that do not set them; `extra` members are passed to the provider unchanged."""

    temperature: Annotated[
        float | None, Field(ge=0, le=2, description="How much answers vary, 0 to 2; default: the provider's.")
    ] = None
    top_p: Annotated[float | None, Field(gt=0, le=1, description=(
        "The share of likely words to choose from, above 0 up to 1; default: the provider's."
    ))] = None
    max_tokens: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="The most tokens of one answer, 1 to 1,000,000; default 4,096.")
    ] = None
    extra: Annotated[dict[str, JsonValue], Field(description=(
        "Further members of the provider's request, by name; none that the appliance sets itself."
    ))] = Field(default_factory=dict)

    @field_validator("extra")
    @classmethod
    def _refuse_own_members(cls, extra: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if own := sorted(OWN_MEMBERS & extra.keys()):
            raise ValueError(f"{own[0]} is set by the appliance itself; remove it")
        return extra


class Prices(Settings):
    """The price of a million tokens, in the tenant's own currency."""

    currency: Annotated[
        str, Field(pattern="^[A-Z]{3}$", description="The currency of the prices and of all costs, an ISO 4217 code.")
    ] = "USD"
    input: Annotated[Price, Field(description="The price of a million tokens sent, 0 to 1,000,000.")]
    output: Annotated[Price, Field(description="The price of a million tokens received, 0 to 1,000,000.")]


class Budget(Settings):
    """The most that may be used; an absent member is not limited."""

    tokens: Annotated[
        Tokens | None, Field(description="The most tokens, sent and received together; null or left out for no limit.")
    ] = None
    cost: Annotated[Amount | None, Field(description=(
        "The most cost in the currency of the prices, above 0 up to 1,000,000,000; null or left out for no limit. Needs a price."
    ))] = None


class Budgets(Settings):
    """Limits of the profile per day and month (UTC), and per execution."""

    day: Annotated[Budget, Field(description="The most that may be used on one day, UTC.")] = Budget()
    month: Annotated[Budget, Field(description="The most that may be used in one month, UTC.")] = Budget()
    execution: Annotated[Budget, Field(description="The most that one execution, or one run of an agent, may use.")] = Budget()


class Pattern(Settings):
    """A pattern to redact: a built-in kind of value (`use`), or a regular expression in RE2 syntax with a `name`."""

    name: Annotated[str | None, Field(pattern="^[A-Z][A-Z0-9_]{0,30}$", description=(
        "The name that placeholders show, such as `CUSTOMER` in `[CUSTOMER_1]`; required with `pattern`."
    ))] = None
    use: Annotated[
        str | None, Field(description="A built-in kind of value: `email`, `iban`, `card`, `phone` or `ip`; instead of `pattern`.")
    ] = None
    pattern: Annotated[str | None, Field(min_length=1, max_length=1000, description=(
        "A regular expression in RE2 syntax, at most 1,000 characters; instead of `use`."
    ))] = None

    @model_validator(mode="after")
    def _is_one(self) -> "Pattern":
        if (self.use is None) == (self.pattern is None):
            raise ValueError("a pattern needs either `use` or `pattern`")
        if self.use is not None and self.use not in BUILT_IN:
            raise ValueError(f"`use` must be one of {', '.join(BUILT_IN)}")
        if self.pattern is not None:
            if self.name is None:
                raise ValueError("a custom pattern needs a `name` in capitals, which the model sees in place of the value")
            try:
                compile_pattern(self.pattern)
            except PatternInvalid as error:
                raise ValueError(str(error)) from error
        return self


class Redaction(Settings):
    """The values to replace in prompts before they are sent; `restore` is the default for putting them back into answers."""

    patterns: Annotated[
        list[Pattern], Field(max_length=50, description="The values to replace, at most 50 patterns.")
    ] = Field(default_factory=list)
    restore: Annotated[
        bool, Field(description="Put the values back into the model's answers, unless a call says otherwise.")
    ] = False


class Profile(Settings):
    """A tenant's access to a model, without the key.  `structured` is how JSON answers are requested."""

    kind: Annotated[Kind, Field(description="The protocol: `openai` for every server compatible with OpenAI, or `anthropic`.")]
    model: Annotated[str, Field(min_length=1, max_length=200, description="The model to ask, by the provider's name.")]
    name: Annotated[str, Field(max_length=200, description="The name for people, at most 200 characters; default: the slug.")] = ""
    base_url: Annotated[str, Field(max_length=500, description=(
        "The address of the provider's API, http or https, at most 500 characters; default: the provider's own."
    ))] = ""
    parameters: Annotated[Parameters, Field(description="Defaults for calls that do not set them.")] = Parameters()
    timeout: Annotated[
        str, Field(description="The longest one request may take; a duration such as `90s`, 1 ms to 15 minutes.")
    ] = "60s"
    structured: Annotated[Structured, Field(description=(
        "How JSON answers are requested: `native` by schema, `json` by the JSON mode, `prompt` by words in the prompt."
    ))] = "native"
    price: Annotated[Prices | None, Field(description="What tokens cost; without it the cost is not counted.")] = None
    budgets: Annotated[Budgets, Field(description="The most that may be used before calls are refused.")] = Budgets()
    redaction: Annotated[Redaction, Field(description="What is replaced in prompts before they are sent.")] = Redaction()
    fallbacks: Annotated[
        list[str], Field(max_length=5, description="The profiles to ask in turn when this one fails, at most 5 slugs.")
    ] = Field(default_factory=list)

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, value: str) -> str:
        parts = urlsplit(value)
        extra = parts.username or parts.query or parts.fragment
        if value and (parts.scheme not in ("http", "https") or not parts.hostname or extra):
            raise ValueError("it must be an http or https address such as http://127.0.0.1:11434/v1")
        return value.rstrip("/")

    @field_validator("timeout")
    @classmethod
    def _is_duration(cls, value: str) -> str:
        try:
            span = clock.parse_duration(value)
        except ValidationFailed as error:
            raise ValueError(error.message) from error
        if not 1 <= span <= LONGEST_MS:
            raise ValueError("the timeout must be between 1ms and 15m")
        return value

    @field_validator("fallbacks")
    @classmethod
    def _are_slugs(cls, slugs: list[str]) -> list[str]:
        try:
            for slug in slugs:
                ids.check_slug(slug)
        except ValidationFailed as error:
            raise ValueError(error.message) from error
        return slugs

    @model_validator(mode="after")
    def _fits(self) -> "Profile":
        limits = (self.budgets.day, self.budgets.month, self.budgets.execution)
        if self.price is None and any(each.cost is not None for each in limits):
            raise ValueError("a budget with `cost` needs a `price` per million tokens")
        if self.kind == "anthropic" and self.structured == "json":
            raise ValueError("anthropic does not support the mode `json`; remove `structured`, or set it to prompt")
        return self

    @property
    def timeout_ms(self) -> int:
        """The timeout of one request, in milliseconds."""
        return clock.parse_duration(self.timeout)

    @property
    def address(self) -> str:
        """The base URL, by default the provider's own."""
        return self.base_url or DEFAULT_URLS[self.kind]

    def cost_nano(self, input_tokens: int, output_tokens: int) -> int:
        """The cost of these tokens, in billionths of the currency's unit."""
        if self.price is None:
            return 0
        return round((input_tokens * self.price.input + output_tokens * self.price.output) * 1000)
