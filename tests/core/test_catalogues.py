"""Catalogues: the choice of the language, and files with errors of translators."""

from pathlib import Path

import pytest
from jinja2 import Environment

from appliance.core import texts
from appliance.core.catalogues import CatalogueInvalid, Languages, load_languages, read_catalogue, survey
from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence
from appliance.core.texts import ENGLISH, Language

HEADER = (
    'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=utf-8\\n"\n'
    '"Plural-Forms: nplurals=3; plural=(n==1 ? 0 : n<5 ? 1 : 2);\\n"\n\n'
)


def po(folder: Path, name: str, *messages: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(HEADER + "\n\n".join(messages), "utf8")
    return path


def message(text: str, translation: str, context: str = "") -> str:
    quoted = [each.replace('"', '\\"') for each in (text, translation)]
    return (f'msgctxt "{context}"\n' if context else "") + f'msgid "{quoted[0]}"\nmsgstr "{quoted[1]}"'


def test_texts_are_in_the_language_of_the_block(tmp_path: Path) -> None:
    czech = read_catalogue(po(tmp_path, "cs.po", message("Members of %(name)s", "Členové %(name)s"))).language
    assert (czech.tag, czech.name, czech.direction, czech.decimal) == ("cs", "Čeština", "ltr", ",")
    with texts.use_language(czech):
        assert texts.gettext("Members of %(name)s", name="acme") == "Členové acme"
        assert texts.gettext("not translated") == "not translated"
        assert (texts.format_grouped(1234.5), texts.format_fixed(1234.5, 2)) == ("1\u202f234,5", "1\u202f234,50")
    assert texts.gettext("Members of %(name)s", name="acme") == "Members of acme"


def test_a_number_takes_the_plural_form_of_the_language(tmp_path: Path) -> None:
    words = ["pravidlo", "pravidla", "pravidel"]
    forms = 'msgid "%(num)s rule"\nmsgid_plural "%(num)s rules"' + "".join(
        f'\nmsgstr[{index}] "%(num)s {word}"' for index, word in enumerate(words)
    )
    with texts.use_language(read_catalogue(po(tmp_path, "cs.po", forms)).language):
        texts_read = [texts.ngettext("%(num)s rule", "%(num)s rules", number) for number in (1, 3, 7, 12_000)]
    assert texts_read == ["1 pravidlo", "3 pravidla", "7 pravidel", "12\u202f000 pravidel"]


def test_templates_escape_values_and_use_the_language_of_their_rendering(tmp_path: Path) -> None:
    environment = Environment(autoescape=True)
    texts.install_translations(environment)
    page = environment.from_string("{% trans %}Hello <b>{{ name }}</b>{% endtrans %} {{ _('100%% of %(all)s', all=name) }}")
    german = read_catalogue(po(tmp_path, "de.po", message("Hello <b>%(name)s</b>", "Hallo <b>%(name)s</b>"))).language
    with texts.use_language(german):
        assert page.render(name="<i>") == "Hallo <b>&lt;i&gt;</b> 100% of &lt;i&gt;"
    assert page.render(name="x").startswith("Hello <b>x</b>")
    called_as_parameters_are = environment.from_string("{% trans message=name %}Says {{ message }}{% endtrans %}")
    assert called_as_parameters_are.render(name="<i>") == "Says &lt;i&gt;"


def test_a_sentence_is_translated_by_its_id_and_never_by_its_text(tmp_path: Path) -> None:
    german = read_catalogue(
        po(
            tmp_path, "de.po",
            message("there is no user %(login)s", "%(login)s gibt es nicht", "error"),
            message("no key", "kein Schlüssel", "error"),
        )
    ).language  # fmt: skip
    assert german.translate(Sentence("there is no user %(login)s", login="'ada (or so)'")) == "'ada (or so)' gibt es nicht"
    assert german.translate("there is no user ada") == "there is no user ada"
    assert german.translate("no key") == "kein Schlüssel"
    assert german.translate("") == ""
    assert ENGLISH.translate("there is no user ada") == "there is no user ada"


def test_parts_of_a_sentence_are_translated_with_the_decimal_sign(tmp_path: Path) -> None:
    german = read_catalogue(
        po(
            tmp_path, "de.po",
            message("%(step)s took %(time)s of %(version)s", "%(step)s dauerte %(time)s von %(version)s", "error"),
            message("these end: %(names)s", "zu Ende: %(names)s", "error"),
            message("the key %(name)s", "der Schlüssel %(name)s", "error"),
        )
    ).language  # fmt: skip
    time = Sentence("%(number)s s", number=1.5)
    took = Sentence("%(step)s took %(time)s of %(version)s", step="weigh", time=time, version="1.5")
    assert (took, german.translate(took)) == ("weigh took 1.5 s of 1.5", "weigh dauerte 1,5 s von 1.5")
    keys = Sentence.joined([Sentence("the key %(name)s", name="a"), Sentence("the key %(name)s", name="b"), "c"])
    these = Sentence("these end: %(names)s", names=keys)
    assert (these, german.translate(these)) == (
        "these end: the key a, the key b, c",
        "zu Ende: der Schlüssel a, der Schlüssel b, c",
    )


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("Members of %(name)s", "Mitglieder von %(nam)s", "%(nam)s"),
        ("Members of %(name)s", "Mitglieder", "does not contain %(name)s"),
        ("Half", "50 %", "single percent sign"),
        ("Half", "50 %s", "single percent sign"),
        ("a <b>bold</b> word", "ein <script>x</script> Wort", "different HTML"),
        ("plain", "<img src=x onerror=y>", "different HTML"),
        ("a title", 'ein "Titel"', "quotation marks"),
    ],
)
def test_a_translation_that_would_break_a_page_is_left_out(tmp_path: Path, text: str, translation: str, expected: str) -> None:
    result = read_catalogue(po(tmp_path, "de.po", message(text, translation), message("good", "gut")))
    (problem,) = result.problems
    assert expected in problem
    assert "de.po, line " in problem
    with texts.use_language(result.language):
        assert texts.gettext("good") == "gut"
        assert texts.gettext(text, name="acme") == text.replace("%(name)s", "acme")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("de.po", b'msgid "open\nmsgstr ""\n', "line"),
        ("de.po", HEADER.encode() + b'msgid "a"\nmsgstr "\xff\xfe"\n', "UTF-8"),
        ("de.po", b'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=klingon\\n"\n\nmsgid "a"\nmsgstr "b"\n', "klingon"),
        ("de.po", HEADER.replace("n<5", "n.x()").encode() + b'msgid "a"\nmsgstr "b"\n', "Plural-Forms"),
        ("de.po", HEADER.replace("n<5", "n/0").encode() + b'msgid "a"\nmsgstr "b"\n', "Plural-Forms"),
        ("de.po", HEADER.replace("n<5", "n%(n-150)").encode() + b'msgid "a"\nmsgstr "b"\n', "Plural-Forms"),
        ("de.po", HEADER.replace("1 : 2", "1 : 3").encode() + b'msgid "a"\nmsgstr "b"\n', "the plural form of 5 is 3"),
        ("deutsch.po", HEADER.encode(), "not a language"),
        ("de.po", b"\x00\x01\x02", "line 1"),
    ],
    ids=["syntax", "bytes", "charset", "plural", "division", "remainder", "form", "name", "binary"],
)
def test_a_file_that_cannot_be_used_is_named_and_stops_nothing(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    po(tmp_path, "cs.po", message("good", "dobrý"))
    with pytest.raises(CatalogueInvalid, match=expected) as caught:
        read_catalogue(tmp_path / name)
    assert str(tmp_path / name) in caught.value.message
    assert [type(each).__name__ for each in survey([tmp_path])].count("CatalogueInvalid") == 1
    assert [each.tag for each in load_languages([tmp_path], "en")] == ["en", "cs"]


def test_the_data_folder_overrides_single_texts(tmp_path: Path) -> None:
    po(tmp_path / "ours", "de.po", message("Sign in", "Anmelden"), message("no %(x)s", "kein %(x)s", "error"))
    po(tmp_path / "theirs", "de.po", message("Sign in", "Einloggen"), message("bad %(y)s", "falsch: %(y)s", "error"))
    german = load_languages([tmp_path / "ours", tmp_path / "theirs", tmp_path / "none"], "de").default
    with texts.use_language(german):
        assert texts.gettext("Sign in") == "Einloggen"
        assert texts.translate(Sentence("no %(x)s", x="key")) == "kein key"
        assert texts.translate(Sentence("bad %(y)s", y="key")) == "falsch: key"


def test_translations_of_a_connector_come_last_and_add_no_language(tmp_path: Path) -> None:
    ours, plugin = tmp_path / "ours", tmp_path / "connector"
    po(ours, "de.po", message("Port", "Hafen", "connector"))
    po(plugin, "de.po", message("Port", "Pforte", "connector"), message("Depth", "Tiefe", "connector"))
    po(plugin, "fr.po", message("Depth", "Profondeur", "connector"))
    languages = load_languages([ours], "de", lambda: [plugin])
    assert [each.tag for each in languages] == ["de", "en"]
    assert [languages.default.catalogue.pgettext("connector", each) for each in ("Port", "Depth")] == ["Hafen", "Tiefe"]


def test_a_text_with_missing_plural_forms_falls_back_to_the_earlier_catalogue(tmp_path: Path) -> None:
    def forms(*words: str) -> str:
        return 'msgid "%(num)s rule"\nmsgid_plural "%(num)s rules"' + "".join(
            f'\nmsgstr[{index}] "{word}"' for index, word in enumerate(words)
        )

    po(tmp_path / "ours", "cs.po", forms("%(num)s pravidlo", "%(num)s pravidla", "%(num)s pravidel"))
    po(tmp_path / "theirs", "cs.po", message("Sign in", "Vstoupit"), forms("jen %(num)s", "", ""))
    with texts.use_language(load_languages([tmp_path / "ours", tmp_path / "theirs"], "cs").default):
        assert texts.gettext("Sign in") == "Vstoupit"
        assert [texts.ngettext("%(num)s rule", "%(num)s rules", number) for number in (1, 7)] == ["1 pravidlo", "7 pravidel"]


def test_an_unreadable_file_is_named_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "it.po").mkdir()
    (tmp_path / "fr.po").symlink_to(tmp_path / "gone.po")
    po(tmp_path, "cs.po", message("good", "dobrý"))
    messages = [each.message for each in survey([tmp_path]) if isinstance(each, CatalogueInvalid)]
    assert messages == [
        f"{tmp_path / 'fr.po'} cannot be read (No such file or directory); check its permissions, or remove it",
        f"{tmp_path / 'it.po'} cannot be read (Is a directory); check its permissions, or remove it",
    ]
    assert [each.tag for each in load_languages([tmp_path], "en")] == ["en", "cs"]


def test_rejected_translations_stay_in_the_catalogue(tmp_path: Path) -> None:
    result = read_catalogue(po(tmp_path, "fr.po", message("Sign out", "Se déconnecter 100 %"), message("good", "bon")))
    assert result.catalogue["Sign out"].string == "Se déconnecter 100 %"
    assert [each.id for each in result.sound if each.id] == ["good"]


def test_a_fuzzy_or_empty_translation_is_ignored(tmp_path: Path) -> None:
    path = po(tmp_path, "de.po", "#, fuzzy\n" + message("Sign in", "Abmelden"), message("Open", ""))
    with texts.use_language(read_catalogue(path).language):
        assert (texts.gettext("Sign in"), texts.gettext("Open"), texts.gettext("")) == ("Sign in", "Open", "")


@pytest.mark.parametrize(
    ("own", "accept", "read"),
    [
        ("", "de-AT,de;q=0.9,en;q=0.8", "de"),
        ("", "fr, de;q=0.5, en;q=0.7", "en"),
        ("", "pt-br", "pt-BR"),
        ("", "fr;q=1, *;q=0.1", "de"),
        ("", "en-GB", "en"),
        ("", "de;q=0", "de"),
        ("", "", "de"),
        ("en", "de", "en"),
        ("pt-BR", "de", "pt-BR"),
        ("xx", "en", "en"),
        ("", ";;q=,,%00", "de"),
    ],
)
def test_the_language_is_the_users_choice_or_the_browsers(own: str, accept: str, read: str) -> None:
    languages = Languages(lambda: [Language("de", "Deutsch"), Language("pt-BR", "Português")], "de")
    assert languages.choose(own, accept).tag == read


def test_a_default_without_a_catalogue_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match=r"console\.language: there is no catalogue for the language 'xx'; use one of de, en"):
        Languages(lambda: [Language("de", "Deutsch")], "xx")
