"""Dates, numbers and order in the language, currency and time zone that code names."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.sandbox import SUSPEND, HostCall, Pool, Settled, Suspend
from tests.sandbox.conftest import Run, program


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('new Date(0).toLocaleDateString("de-DE", {timeZone: "Europe/Berlin"})', "1.1.1970"),
        ('new Date(1711846800000).toLocaleString("de-DE", {timeZone: "Europe/Berlin"})', "31.3.2024, 03:00:00"),
        ('new Date(1711846799000).toLocaleTimeString("de-DE", {timeZone: "Europe/Berlin"})', "01:59:59"),
        ('new Date(0).toLocaleString("en-GB", {timeZone: "Asia/Kolkata", dateStyle: "short"})', "01/01/1970"),
        ("new Date(NaN).toLocaleDateString('de')", "Invalid Date"),
        ('(12.5).toLocaleString("de-DE", {style: "currency", currency: "EUR"})', "12,50\xa0€"),
        ('(1234567.891).toLocaleString("de-CH")', "1'234'567.891"),
        ('(1234.5).toLocaleString("pt-PT")', "1234,5"),
        ("12345678901234567890n.toLocaleString('de')", "12.345.678.901.234.567.890"),
        ("[1234.5, new Date(0)].toLocaleString('de', {timeZone: 'UTC'})", "1.234,5,1.1.1970, 00:00:00"),
        ("(1234.5).toLocaleString()", "1,234.5"),
        ('["z", "ä", "a", "B", "ß"].sort((a, b) => a.localeCompare(b, "de")).join("")', "aäBßz"),
        ('["z", "ä", "å", "a", "ö"].sort(new Intl.Collator("sv").compare).join("")', "azåäö"),
        ('["chata", "cena", "hora"].sort(new Intl.Collator("cs").compare).join(" ")', "cena hora chata"),
        ('["10", "9", "2"].sort(new Intl.Collator("de", {numeric: true}).compare).join(" ")', "2 9 10"),
        ('"a".localeCompare("Ä", "de", {sensitivity: "base"})', 0),
        ('["Müller", "Mueller", "Muller"].sort(new Intl.Collator("de-u-co-phonebk").compare).join(" ")', "Mueller Müller Muller"),
        ('new Intl.PluralRules("pl").select(22)', "few"),
        ('new Intl.ListFormat("de").format(["a", "b", "c"])', "a, b und c"),
        ('new Intl.RelativeTimeFormat("de", {numeric: "auto"}).format(-1, "day")', "gestern"),
        ('new Intl.NumberFormat("de", {style: "unit", unit: "kilometer"}).format(5)', "5 km"),
        ("Intl.DateTimeFormat().resolvedOptions().timeZone", "UTC"),
        ('new Intl.DateTimeFormat("de", {timeZone: "GMT", month: "long"}).format(0)', "Januar"),
        ('"istanbul".toLocaleUpperCase("tr") + "i".toLocaleUpperCase()', "İSTANBULI"),
        ('Intl.DateTimeFormat.supportedLocalesOf(["de-AT", "xx", "en"]).join()', "de-AT,en"),
        ('Intl.getCanonicalLocales("DE-de").join()', "de-DE"),
        ('Object.prototype.toString.call(Intl) + typeof Intl.supportedValuesOf("timeZone").length', "[object Intl]number"),
    ],
)
def test_formatting_uses_the_named_language_and_zone(run: Run, expression: str, expected: Any) -> None:
    outcome = run(f"return {expression};")
    assert outcome.failure is None, outcome.failure
    assert outcome.output == expected


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ('new Date(0).toLocaleDateString("sw")', "a step has no data of the locale 'sw'; it has ar, bg,"),
        ('(1).toLocaleString("german")', "'german' is not a locale such as 'de-DE'"),
        ('new Date(0).toLocaleString("de", {timeZone: "Europe/Atlantis"})', "Invalid timeZoneName"),
        ('"a".localeCompare("b", "zh")', "a step cannot sort by the rules of 'zh'"),
        ('(1).toLocaleString("de", {style: "currency"})', "currency"),
    ],
)
def test_unsupported_languages_and_options_are_refused(run: Run, expression: str, words: str) -> None:
    failure = run(f"return {expression};").failure
    assert failure is not None
    assert words in failure.message
    assert failure.position is not None


def test_an_expression_may_name_a_language(pool: Pool) -> None:
    texts = {"a": 'n.toLocaleString("de-DE", {style: "currency", currency: "EUR"})', "b": '(n / 3).toLocaleString("fr")'}
    results = pool.evaluate(texts, {"n": 1234.5})
    assert [each.value for each in results.values()] == ["1.234,50\xa0€", "411,5"]


class Sleeping:
    """Answers every call alike."""

    def __init__(self, answer: Settled | Suspend) -> None:
        self._answer = answer

    def submit(self, call: HostCall, clock: list[int]) -> None:
        """Nothing is noted."""

    def wait(self, timeout: float) -> Settled | Suspend:
        return self._answer


def test_a_formatter_survives_sleep(pool: Pool) -> None:
    source = """export default async function (input: any, api: any) {
  const euro = new Intl.NumberFormat("de", {style: "currency", currency: "EUR"});
  const before = euro.format(1);
  await api.human.request({});
  return [before, euro.format(2), new Date(0).toLocaleDateString("fr", {month: "long"})];
}"""
    first = pool.run(program(source), {}, Sleeping(SUSPEND))
    assert first.snapshot is not None
    awake = Sleeping(Settled(first.snapshot.pending[0], True, {}))
    assert pool.run(program(source), None, awake, resume=first.snapshot).output == ["1,00\xa0€", "2,00\xa0€", "janvier"]


@pytest.mark.parametrize(("call", "most"), [("new Date(0).toLocaleString('de')", 250_000), ("String(Intl)", 1_500_000)])
def test_a_sleeping_step_holds_languages_only_where_it_took_intl(pool: Pool, call: str, most: int) -> None:
    source = f"""export default async function (input: any, api: any) {{
  const first = {call};
  await api.human.request({{}});
  return first === {call};
}}"""
    first = pool.run(program(source), {}, Sleeping(SUSPEND))
    assert first.snapshot is not None
    assert len(first.snapshot.data) < most
    awake = Sleeping(Settled(first.snapshot.pending[0], True, {}))
    assert pool.run(program(source), None, awake, resume=first.snapshot).output is True


def test_a_step_that_names_no_language_loads_nothing(run: Run) -> None:
    plain = run("return [1].map(String);")
    assert run("return new Intl.NumberFormat('de').format(1);").memory_bytes > plain.memory_bytes
    assert run("return 'a'.toLocaleUpperCase();").memory_bytes == plain.memory_bytes
