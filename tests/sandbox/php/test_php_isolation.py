"""A PHP step sees nothing of another step, of the machine or of the network, and repeats from its record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from appliance.sandbox import Entropy, Outcome, Pool, Program

RunPhp = Callable[..., Outcome]

LEAVE = """global $kept; $kept = ($kept ?? 0) + 1; $GLOBALS['also'] = 1;
class Counter { static int $n = 0; } Counter::$n++;
function counted() { static $n = 0; return ++$n; }
file_put_contents('/tmp/kept', 'x'); ini_set('precision', '3'); date_default_timezone_set('Asia/Tokyo');
mb_internal_encoding('ASCII');
setlocale(LC_ALL, 'C'); define('KEPT', 1); set_error_handler(fn () => true); mt_srand(7); $_ENV['KEPT'] = $_SERVER['KEPT'] = 1;
spl_autoload_register(fn () => null); ob_start(); echo 'left'; stream_wrapper_register('kept', 'Counter');
return [$kept, Counter::$n, counted()];"""
LOOK = """global $kept; return [$kept, $GLOBALS['also'] ?? null, class_exists('Counter', false), function_exists('counted'),
file_exists('/tmp/kept'), ini_get('precision'), date_default_timezone_get(), mb_internal_encoding(), defined('KEPT'),
getenv('KEPT'), $_ENV['KEPT'] ?? null, $_SERVER['KEPT'] ?? null, count(spl_autoload_functions()), ob_get_level(),
in_array('kept', stream_get_wrappers())];"""
CLEAN = [None, None, False, False, False, "14", "UTC", "UTF-8", False, False, None, None, 0, 1, False]


def test_a_step_leaves_nothing_to_the_next(run_php: RunPhp) -> None:
    assert run_php(LOOK).output == CLEAN
    for _ in range(3):
        assert run_php(LEAVE).output == [1, 1, 1]
    assert run_php(LOOK).output == CLEAN


@pytest.mark.parametrize(
    "expression",
    [
        "@file_get_contents('/etc/passwd')",
        "@file_get_contents('/proc/self/environ')",
        "@file_get_contents('/tmp/../etc/passwd')",
        "@file_get_contents('/process/../php.ini')",
        "@file_get_contents('file:///etc/hostname')",
        "@file_get_contents('http://127.0.0.1/')",
        "@file_get_contents('ftp://127.0.0.1/')",
        "@file_get_contents('compress.zlib:///etc/passwd')",
        "@file_get_contents('glob:///etc/*')",
        "@file_get_contents('php://filter/read=string.toupper/resource=/etc/passwd')",
        "@fopen('/dev/mem', 'r')",
        "@fopen('/etc/new', 'w')",
        "@opendir('/etc')",
        "@scandir('/')",
        "@mkdir('/tmp/x')",
        "@rename('/tmp/a', '/etc/a')",
        "@symlink('/etc/passwd', '/tmp/x')",
        "@readlink('/proc/self/exe')",
        "@stream_socket_accept(null)",
        "getenv()",
        "get_current_user()",
        "@simplexml_load_file('/etc/passwd')",
        "(function () { $d = new DOMDocument; return @$d->load('/etc/passwd'); })()",
    ],
)
def test_a_step_reaches_nothing_of_the_machine(run_php: RunPhp, expression: str) -> None:
    outcome = run_php(f"try {{ return {expression}; }} catch (Throwable $e) {{ return false; }}")
    assert not outcome.output
    assert outcome.failure is None


def test_an_entity_of_a_document_reaches_no_file(run_php: RunPhp) -> None:
    body = """$d = new DOMDocument; @$d->loadXML('<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', LIBXML_NOENT);
    return $d->textContent;"""
    assert run_php(body).output == ""


@pytest.mark.parametrize(
    "function",
    [
        *("exec", "system", "shell_exec", "passthru", "popen", "proc_open", "fsockopen", "pfsockopen", "stream_socket_client"),
        *("stream_socket_server", "dl", "mail", "putenv", "gethostbyname", "dns_get_record", "symlink", "link", "chown", "phpinfo"),
        *("curl_init", "mysqli_connect", "opcache_get_status", "pcntl_fork", "posix_getpid", "socket_create", "session_start"),
    ],
)
def test_functions_that_would_leave_the_sandbox_do_not_exist(run_php: RunPhp, function: str) -> None:
    assert run_php(f"return function_exists('{function}');").output is False


REPEATED = """$out = [random_int(1, 1000000), mt_rand(), rand(), uniqid('', true)];
$out[] = [bin2hex(random_bytes(8)), password_hash('x', null, ['cost' => 4])];
$out[] = [time(), microtime(true), hrtime(true), date('c'), $api->now()];
$out[] = [$_SERVER['REQUEST_TIME_FLOAT'], (new DateTime)->format('U.u')];
$a = range(1, 20); shuffle($a); $out[] = [$a, array_rand(range(0, 99), 5), str_shuffle('abcdefgh')];
$out[] = $api->datapool->create('orders', ['n' => mt_rand(), 'at' => microtime(true)])['id'];
$out[] = (new Random\\Randomizer)->getInt(1, 1 << 30); $out[] = tempnam('/tmp', 'x');
$out[] = bin2hex(openssl_random_pseudo_bytes(8)); $out[] = spl_object_id(new stdClass); return $out;"""


def test_a_run_repeats_from_its_record(run_php: RunPhp, recording_host: Any) -> None:
    first_host, second_host, other_host = recording_host(), recording_host(), recording_host()
    first = run_php(REPEATED, host=first_host, entropy=Entropy(seed=7))
    second = run_php(REPEATED, host=second_host, entropy=Entropy(seed=7, clock=first.clock))
    other = run_php(REPEATED, host=other_host, entropy=Entropy(seed=8, clock=first.clock))
    assert first.failure is None
    assert first.random
    assert second.output_json == first.output_json
    assert second.clock == first.clock
    assert [call.raw for call in second_host.calls] == [call.raw for call in first_host.calls]
    assert not set(map(str, other.output[:4])) & set(map(str, first.output[:4]))


def test_each_call_carries_the_clock_values_read_before_it(run_php: RunPhp, recording_host: Any) -> None:
    host = recording_host()
    body = """time(); $api->datapool->find('o', 'a'); $api->datapool->find('o', 'b'); time(); time();
    try { $api->wait->for('1s'); } catch (ApiError) {}
    $api->datapool->find('o', 'c'); time();"""
    outcome = run_php(body, host=host)
    assert [len(clock) for clock in host.clocks] == [1, 0, 2]
    assert len(outcome.clock) == 4


def test_recorded_clock_values_are_answered_first_then_the_clock_goes_on(run_php: RunPhp) -> None:
    output = run_php("return [time(), time(), time()];", entropy=Entropy(clock=[5000, 7000])).output
    assert output[:2] == [5, 7]
    assert output[2] > 1_700_000_000


def test_a_step_that_reads_no_clock_and_draws_nothing_records_nothing(run_php: RunPhp) -> None:
    outcome = run_php("return json_encode($input) . strtoupper('x');", {"a": 1})
    assert (outcome.clock, outcome.random) == ([], False)


def test_programs_of_two_namespaces_do_not_share_what_was_compiled(pool: Pool) -> None:
    for namespace in ("ten_a", "ten_b"):
        files = {"a.php": "<?php return fn () => require __DIR__ . '/b.php';", "b.php": f"<?php return '{namespace}';"}
        assert pool.run(Program("php", "a.php", files, namespace), {}).output == namespace
