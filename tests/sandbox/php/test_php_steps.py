"""PHP steps: their input, their output, their files and extensions, and their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from appliance.sandbox import Outcome, Pool, Position, Program

RunPhp = Callable[..., Outcome]
Make = Callable[..., Program]


def test_a_step_gets_its_input_and_returns_its_output(run_php: RunPhp) -> None:
    outcome = run_php("return ['sum' => array_sum($input['xs']), 'text' => mb_strtoupper('żółw')];", {"xs": [1, 2, 3.5]})
    assert outcome.output == {"sum": 6.5, "text": "ŻÓŁW"}
    assert 0 < outcome.memory_bytes < 4 << 20


def test_a_step_knows_its_execution(run_php: RunPhp) -> None:
    body = "return [$api->execution->execution_id, $api->execution->attempt];"
    assert run_php(body, api={"execution_id": "exe_1", "attempt": 2}).output == ["exe_1", 2]


def test_an_inline_source_may_leave_out_the_opening_tag(pool: Pool, make_php: Make) -> None:
    outcome = pool.run(make_php("return function (array $input) {\n  throw new Exception('x');\n};"), {})
    assert outcome.failure is not None
    assert outcome.failure.position == Position("steps/step.php", 2, 1)


def test_output_and_warnings_become_log_lines_in_order(run_php: RunPhp) -> None:
    body = """echo "one\\ntwo"; $api->log->warn('three', ['n' => 3]); print_r(['four' => 4]); $api->log->info(['five' => 5]);
    return $missing;"""
    outcome = run_php(body)
    assert outcome.output is None
    lines = [(line.level, line.message, line.fields) for line in outcome.logs]
    assert lines == [
        ("info", "one", None),
        ("info", "two", None),
        ("warn", "three", {"n": 3}),
        ("info", "Array", None),
        ("info", "(", None),
        ("info", "    [four] => 4", None),
        ("info", ")", None),
        ("info", '{"five":5}', None),
        ("warn", "Warning: Undefined variable $missing in steps/step.php on line 4", None),
    ]


def test_output_before_a_failure_is_kept(run_php: RunPhp) -> None:
    outcome = run_php("echo 'before'; throw new Exception('x');")
    assert [line.message for line in outcome.logs] == ["before"]


FILES = {
    "lib/money.php": "<?php\nnamespace Shop;\nfinal class Money { function __construct(public int $cents) {} }\n"
    "function rate() { return json_decode(file_get_contents(__DIR__ . '/rates.json'), true)['eur']; }\n",
    "lib/rates.json": '{"eur": 1.25}',
}


def test_a_step_includes_the_files_of_its_process(run_php: RunPhp) -> None:
    body = """require_once __DIR__ . '/../lib/money.php'; require_once __DIR__ . '/../lib/money.php';
    return [(new Shop\\Money(5))->cents, Shop\\rate(), is_dir(__DIR__ . '/../lib'), is_file('/process/lib/rates.json')];"""
    assert run_php(body, files=FILES).output == [5, 1.25, True, True]


def test_files_of_the_process_cannot_be_changed(run_php: RunPhp) -> None:
    body = """return [@file_put_contents(__DIR__ . '/../lib/rates.json', '{}'), @unlink(__DIR__ . '/../lib/rates.json'),
    @file_put_contents(__DIR__ . '/new.php', ''), file_get_contents(__DIR__ . '/../lib/rates.json')];"""
    assert run_php(body, files=FILES).output == [False, False, False, '{"eur": 1.25}']


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("iterator_to_array((function () { yield 1; yield from [2]; })(), false)", [1, 2]),
        ("(new DateTime('2024-03-10 12:00', new DateTimeZone('Europe/Warsaw')))->format('c T')", "2024-03-10T12:00:00+01:00 CET"),
        ("preg_replace('/(\\d+)/u', '<$1>', 'a12ż3')", "a<12>ż<3>"),
        ("hash('sha256', 'x')", "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"),
        ("bcadd('1.1', '2.2', 2)", "3.30"),
        ("(string) simplexml_load_string('<x><y>2</y></x>')->y", "2"),
        ("gzuncompress(gzcompress('z'))", "z"),
        ("iconv('UTF-8', 'ISO-8859-2', 'ż') === chr(0xBF)", True),
        ("PHP_INT_MAX", 9223372036854775807),
        ("'' . (19.99 * 3)", "59.97"),
        ("[0.1 + 0.2 . '', json_encode(0.1 + 0.2), var_export(1.1, true)]", ["0.3", "0.30000000000000004", "1.1"]),
        ("(new finfo(FILEINFO_MIME_TYPE))->buffer('%PDF-1.4')", "application/pdf"),
        ("bin2hex(openssl_encrypt('x', 'aes-256-gcm', str_repeat('k', 32), 1, str_repeat('i', 12), $tag))", "a2"),
        ("openssl_verify('x', base64_decode('eA=='), 'no key', 'sha256') === 1", False),
        ("function_exists('exif_read_data')", True),
        ("(function () { ob_start(); imagepng(imagecreatetruecolor(3, 2)); return ob_get_clean()[19]; })()", "\3"),
        ("strlen(password_hash('a', PASSWORD_BCRYPT, ['cost' => 4]))", 60),
        ("date_default_timezone_get()", "UTC"),
        ("mktime(12, 0, 0, 14, 1, 2023)", 1706788800),
        ("array_sum(array_map(fn ($n) => $n ** 2, range(1, 4)))", 30),
        ('"a\\0b"', "a\0b"),
    ],
)
def test_the_language_and_its_extensions_work(run_php: RunPhp, expression: str, expected: Any) -> None:
    assert run_php(f"return {expression};").output == expected


def test_an_archive_is_written_and_read(run_php: RunPhp) -> None:
    body = """$zip = new ZipArchive; $zip->open('/tmp/a.zip', ZipArchive::CREATE); $zip->addFromString('b/a.txt', 'hello');
    $closed = $zip->close(); $read = new ZipArchive; $read->open('/tmp/a.zip');
    return [$closed, $read->numFiles, $read->getFromName('b/a.txt'), file_get_contents('zip:///tmp/a.zip#b/a.txt')];"""
    assert run_php(body).output == [True, 1, "hello", "hello"]


def test_a_temporary_file_is_renamed_within_its_folder(run_php: RunPhp) -> None:
    body = """file_put_contents('/tmp/a', 'one'); file_put_contents('/tmp/b', 'two');
    return [rename('/tmp/a', '/tmp/b'), file_exists('/tmp/a'), file_get_contents('/tmp/b'), @rename('/tmp/b', __DIR__ . '/c'),
      @rename(__FILE__, '/tmp/d'), @rename('/tmp/none', '/tmp/e')];"""
    assert run_php(body).output == [True, False, "one", False, False, False]


def test_a_key_is_made_and_signs(run_php: RunPhp) -> None:
    body = """$key = openssl_pkey_new(['private_key_bits' => 1024]); openssl_sign('x', $signature, $key, OPENSSL_ALGO_SHA256);
    return openssl_verify('x', $signature, openssl_pkey_get_details($key)['key'], OPENSSL_ALGO_SHA256);"""
    assert run_php(body).output == 1


def test_a_temporary_file_works_as_one(run_php: RunPhp) -> None:
    body = """$path = tempnam(sys_get_temp_dir(), 'x');
    file_put_contents($path, 'one'); file_put_contents($path, ' two', FILE_APPEND);
    $file = fopen($path, 'r+'); fseek($file, 4); fwrite($file, 'TWO'); ftruncate($file, 6);
    $size = fstat($file)['size']; fclose($file);
    $own = tmpfile(); fwrite($own, 'own'); rewind($own); $text = file_get_contents($path); unlink($path);
    $reader = fopen('/tmp/only-read', 'w'); fclose($reader); $reader = fopen('/tmp/only-read', 'r');
    return [$text, $size, fread($own, 9), file_exists($path),
      @fopen($path, 'r'), @fopen('/tmp/only-read', 'x'), @fwrite($reader, 'x')];"""
    assert run_php(body).output == ["one TW", 6, "own", False, False, False, False]


# ---- what is wrong


def test_an_exception_is_reported_with_places_in_the_authors_files(run_php: RunPhp) -> None:
    files = {
        "lib/deep.php": "<?php\nfunction deep($x) {\n  throw new DomainException(\"bad $x\", 7, new LogicException('why'));\n}\n"
    }
    outcome = run_php("require __DIR__ . '/../lib/deep.php';\n\narray_map('deep', [5]);", files=files)
    failure = outcome.failure
    assert failure is not None
    assert (failure.failure_class, failure.name, failure.message) == ("user_code", "DomainException", "bad 5")
    assert failure.position == Position("lib/deep.php", 3, 1)
    lines = failure.stack.splitlines()
    assert lines[0] == "    at deep (lib/deep.php:3)"
    assert lines[-2].endswith("(steps/step.php:5)")
    assert lines[-1] == "caused by LogicException: why"
    assert "/process/" not in failure.stack


@pytest.mark.parametrize(
    ("body", "name", "words"),
    [
        ("return strlen([]);", "TypeError", "must be of type string, array given"),
        ("no_such();", "Error", "Call to undefined function no_such()"),
        ("return intdiv(1, 0);", "DivisionByZeroError", "Division by zero"),
        ("return match (1) { 2 => 3 };", "UnhandledMatchError", "Unhandled match case of type int"),
        ("return eval('return 1 +;');", "ParseError", "syntax error"),
        ("curl_init('https://example.com');", "Error", "call a foreign system by $api->integrations->execute"),
        ("new PDO('sqlite::memory:');", "Error", "use $api->datapool"),
        ("new SoapClient('https://example.com?wsdl');", "Error", "call a foreign system by $api->integrations->execute"),
        ("new NumberFormatter('de', 1);", "Error", "the extension intl is not in PHP steps"),
        ("numfmt_create('de', 1);", "Error", "the extension intl is not in PHP steps"),
        ("new PharData('/tmp/a.tar');", "Error", "phar is not in PHP steps"),
        ("$f = new Fiber(fn () => 1); $f->start();", "Error", "fibers are not offered in PHP steps; use a generator"),
        ("require __DIR__ . '/missing.php';", "Error", "Failed opening required 'steps/missing.php'"),
        ("return NAN;", "ValueError", "not plain JSON data: Inf and NaN cannot be JSON encoded"),
        ('return "\\xff";', "ValueError", "not plain JSON data: Malformed UTF-8"),
        ("return fn () => 1;", "TypeError", "the step returned a Closure; return plain data"),
        ("$api->datapool->create('orders', ['x' => NAN]);", "ValueError", "what datapool.create was given is not plain JSON data"),
        ("eval('class A extends B {} class B extends A {}');", "Error", 'Class "B" not found'),
        ("function f(int $x) {} f('five');", "TypeError", "must be of type int, string given"),
        ("$api->datapool->remove('x');", "Error", "Call to undefined method Gos\\Datapool::remove()"),
    ],
)
def test_every_kind_of_error_is_a_user_code_failure(run_php: RunPhp, body: str, name: str, words: str) -> None:
    failure = run_php(body).failure
    assert failure is not None
    assert (failure.failure_class, failure.name) == ("user_code", name)
    assert words in failure.message
    if "returned" not in failure.message and "JSON" not in words:
        assert failure.position is not None
        assert (failure.position.file, failure.position.line) == ("steps/step.php", 3)


def test_a_fatal_error_is_reported_once_with_its_place(run_php: RunPhp) -> None:
    outcome = run_php("eval('function twice() {} function twice() {}');")
    assert outcome.failure is not None
    assert (outcome.failure.failure_class, outcome.failure.name) == ("user_code", "FatalError")
    assert "Cannot redeclare function twice()" in outcome.failure.message
    assert outcome.failure.position == Position("steps/step.php", 3, 1)
    assert outcome.logs == []


@pytest.mark.parametrize(
    "body", ["exit;", "exit(3);", "die('bye');", "error_reporting(0); eval('function f() {} function f() {}');"]
)
def test_a_step_that_ends_without_returning_says_so(run_php: RunPhp, body: str) -> None:
    failure = run_php(body).failure
    assert failure is not None
    assert (failure.failure_class, failure.code) == ("user_code", "exited")
    assert "return the output from the function" in failure.message


def test_a_file_that_returns_no_function_says_what_to_write(pool: Pool, make_php: Make) -> None:
    for source in ("<?php\nreturn 5;", "<?php function f() { return 1; }"):
        failure = pool.run(make_php(source), {}).failure
        assert failure is not None
        assert failure.message == "the file must return a function: return function (array $input, $api) { … };"


def test_an_input_that_is_no_object_is_refused_by_the_functions_own_type(run_php: RunPhp) -> None:
    failure = run_php("return 1;", "text").failure
    assert failure is not None
    assert "must be of type array, string given" in failure.message
